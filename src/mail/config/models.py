"""`mail.toml` as a whole, and where each value comes from.

For each key the first of these that has it: a command-line flag (`ServerConfig.with_overrides`), an
environment variable where there is one (`mail.config.environment`), the file, the documented default.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, Field, ValidationError, ValidationInfo, model_validator

from mail.config.database import read_database
from mail.config.environment import read_environment
from mail.config.files import find_file, read_file
from mail.config.tables import (
    InterswarmConfig,
    LimitsConfig,
    SettingsConfig,
    StorageConfig,
    SwarmConfig,
    Table,
    TelemetryConfig,
    WebhooksConfig,
)
from mail.core.protocol.problems import describe
from mail.core.task.limits import Budget
from mail.errors import ConfigurationError

DATABASE_VARIABLE = "DATABASE_URL"

BUDGET_KEY = r"^(admin|user)(:[^\s@]+)?$"
"""Whose budget it is: that of a role, or of one caller, as `user:alice`."""

AS_GIVEN = "as given"
"""Validation context: what is given is everything; don't look for a file."""


class _TopTable(Table):
    """A table whose missing keys, when it is built by hand, have the values of the configuration file."""

    table: ClassVar[str]

    @model_validator(mode="before")
    @classmethod
    def _fill_from_file(cls, given: Any, info: ValidationInfo) -> Any:
        if info.context == AS_GIVEN or not isinstance(given, dict):
            return given
        return _merge(getattr(load_config(), cls.table).model_dump(), given)


class ServerConfig(_TopTable):
    """`[server]` with its sub-tables. `ServerConfig()` has the values of the configuration file."""

    table = "server"

    port: int = Field(default=8000, ge=0, le=65535)
    host: str = Field(default="0.0.0.0", min_length=1)  # noqa: S104 - the documented default
    reload: bool = False
    debug: bool = False
    swarm: SwarmConfig = SwarmConfig()
    settings: SettingsConfig = SettingsConfig()
    limits: LimitsConfig = LimitsConfig()
    telemetry: TelemetryConfig = TelemetryConfig()
    storage: StorageConfig = StorageConfig()
    interswarm: InterswarmConfig = InterswarmConfig()
    webhooks: WebhooksConfig = WebhooksConfig()
    budgets: dict[Annotated[str, Field(pattern=BUDGET_KEY)], Budget] = Field(
        default_factory=dict,
        description="What tasks of a caller may use up at most, by `user`, `admin` or, for one caller, `role:id`.",
    )

    def with_overrides(
        self,
        *,
        host: str | None = None,
        port: int | None = None,
        reload: bool | None = None,
        debug: bool | None = None,
        swarm_name: str | None = None,
        swarm_source: str | None = None,
        swarm_registry: str | None = None,
        print_llm_streams: bool | None = None,
        database: str | None = None,
    ) -> Self:
        """A copy with these values instead; None keeps what is there. Raises ConfigurationError for a wrong one."""
        given = {
            "host": host,
            "port": port,
            "reload": reload,
            "debug": debug,
            "swarm": _given(name=swarm_name, source=swarm_source, registry=swarm_registry),
            "settings": _given(print_llm_streams=print_llm_streams),
            "storage": _given(database=database),
        }
        try:
            return self.model_validate(_merge(self.model_dump(), _given(**given)), context=AS_GIVEN)
        except ValidationError as error:
            raise ConfigurationError(describe(error, type(self))) from error


class ClientConfig(_TopTable):
    """`[client]`. `ClientConfig()` has the values of the configuration file.

    Attributes:
        timeout: seconds that a client waits for an answer.
        verbose: whether clients log what they send and get.
    """

    table = "client"

    timeout: float = Field(default=3600.0, gt=0)
    verbose: bool = False


class MailConfig(Table):
    """The whole file."""

    server: ServerConfig
    client: ClientConfig


def load_config(path: str | Path | None = None) -> MailConfig:
    """Read the configuration file, if there is one (see `find_file`), and the environment.

    Raises ConfigurationError that names the file, the key, and what to change.
    """
    file = find_file(path)
    tables = {"server": {}, "client": {}, **(read_file(file) if file else {})}
    try:
        config = MailConfig.model_validate(tables, context=AS_GIVEN)
    except ValidationError as error:
        raise ConfigurationError(f"{file}: {describe(error, MailConfig)}") from error
    given = read_environment(os.environ)
    if given:
        server = ServerConfig.model_validate(_merge(config.server.model_dump(), given), context=AS_GIVEN)
        config = config.model_copy(update={"server": server})
    url = os.environ.get(DATABASE_VARIABLE)
    if not url:
        return config
    try:
        database = read_database(url)
    except ValueError as error:
        raise ConfigurationError(f"{DATABASE_VARIABLE}: {error}") from error
    return config.model_copy(update={"server": config.server.with_overrides(database=database)})


def _given(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the values of `over`, table by table."""
    merged = dict(base)
    for key, value in over.items():
        if isinstance(value, BaseModel):
            merged[key] = value.model_dump()
        elif isinstance(value, Mapping) and isinstance(merged.get(key), Mapping):
            merged[key] = _merge(merged[key], value)
        else:
            merged[key] = value
    return merged
