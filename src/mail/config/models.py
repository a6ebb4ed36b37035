"""The configuration as a whole, and the sources of its values.

A value comes from the first of these that sets it: a command-line flag (`ServerConfig.with_overrides`), an environment
variable (`read_environment`), the file, the documented default.
"""

import logging
import os
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    ValidationError,
)

from mail.auth.claims import JWTSettings
from mail.config.database import read_database
from mail.config.tables import (
    AuthConfig,
    ConnectionsConfig,
    InterswarmConfig,
    LimitsConfig,
    SettingsConfig,
    StorageConfig,
    SwarmConfig,
    Table,
    TelemetryConfig,
    WebhooksConfig,
    read_mail_host,
    read_origin,
    read_schedules,
)
from mail.core.protocol.error_text import describe, did_you_mean, problems
from mail.core.task.limits import Budget
from mail.core.task.permits import ModelLimits
from mail.core.task.schedules import Schedule
from mail.errors import ConfigurationError

DEFAULT_PORT = 8000
DEFAULT_MAIL_HOST = "localhost"

OFF = "none"
"""The same as 0."""

_CONNECTIONS = ("head_seconds", "body_seconds", "idle_seconds", "stall_seconds")

_VARIABLES: Mapping[str, tuple[str, ...]] = {
    "MAIL_MAX_BODY_BYTES": ("settings", "max_body_bytes"),
    "MAIL_FAILING_CALL_LIMIT": ("settings", "failing_call_limit"),
    "MAIL_REQUESTS_PER_SECOND": ("limits", "requests_per_second"),
    "MAIL_REQUEST_BURST": ("limits", "request_burst"),
    "MAIL_RUNNING_TASKS": ("limits", "running_tasks"),
    "MAIL_WAITING_TASKS": ("limits", "waiting_tasks"),
    "MAIL_MAILBOX_DEPTH": ("limits", "mailbox_depth"),
    "MAIL_TASK_BYTES": ("limits", "task_bytes"),
    "MAIL_CALLER_BYTES": ("limits", "caller_bytes"),
    "MAIL_FILE_BYTES": ("limits", "file_bytes"),
    "MAIL_STREAMS": ("limits", "streams"),
    "MAIL_SUBMISSIONS": ("limits", "mail_submissions"),
    "MAIL_MEMORY": ("limits", "memory"),
    "MAIL_CONNECTIONS": ("connections", "total"),
    "MAIL_CONNECTIONS_PER_ADDRESS": ("connections", "per_address"),
    **{f"MAIL_{key.upper()}": ("connections", key) for key in _CONNECTIONS},
    "MAIL_RETENTION_DAYS": ("storage", "retention_days"),
    "MAIL_KEEP": ("storage", "keep"),
    "MAIL_METRICS": ("telemetry", "metrics"),
    "MAIL_TRACES": ("telemetry", "traces"),
    "MAIL_LOG_FORMAT": ("telemetry", "log_format"),
    "MAIL_AUDIT_DAYS": ("storage", "audit_days"),
    "MAIL_UNREACHABLE_SECONDS": ("interswarm", "unreachable_seconds"),
    "MAIL_WEBHOOKS_ALLOW_PRIVATE": ("webhooks", "allow_private_addresses"),
    "MAIL_BREAK_GLASS": ("auth", "break_glass"),
    "MAIL_JWT_ISSUER": ("auth", "jwt", "issuer"),
    "MAIL_JWT_AUDIENCE": ("auth", "jwt", "audience"),
    "MAIL_JWT_CLIENT_ID": ("auth", "jwt", "client_id"),
}
"""The keys of `[server]` that environment variables set: their tables and names."""

DATABASE_VARIABLE = "DATABASE_URL"
"""The variable of the database, whose errors don't quote it, as it may hold a password."""


def read_environment(environ: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return the tables of `[server]` that the environment sets. Raises ConfigurationError, with the variable."""
    found: dict[str, dict[str, Any]] = {}
    for name, (*tables, key) in _VARIABLES.items():
        text = environ.get(name, "").strip()
        if not text:
            continue
        model: type[BaseModel] = ServerConfig
        place = found
        for table in tables:
            model, place = type(model.model_fields[table].default), place.setdefault(table, {})
        if model is not JWTSettings:  # whose texts are the provider's
            text = text.lower()
        try:
            read = model.model_validate_strings({key: "0" if text == OFF else text})
        except ValidationError as error:
            raise ConfigurationError(f"{name}: {text!r}: {problems(error, model)[0][1]}") from None
        place[key] = getattr(read, key)
    if url := environ.get(DATABASE_VARIABLE):
        try:
            found.setdefault("storage", {})["database"] = read_database(url)
        except ValueError as error:
            raise ConfigurationError(f"{DATABASE_VARIABLE}: {error}") from error
    return found


logger = logging.getLogger(__name__)

DEFAULT_FILE = "mail.toml"
"""The file name in the current directory."""

CONFIG_PATH_VARIABLE = "MAIL_CONFIG_PATH"
"""The environment variable that names another file."""


BUDGET_KEY = r"^(admin|user)(:[^\s@]+)?$"
"""The callers of a budget: a role, or one caller, such as `user:alice`."""


if TYPE_CHECKING:

    class _TopTable(Table):
        """A table, whose fields are its arguments."""
else:

    class _ReadsFile(type(BaseModel)):
        """Reads the file outside of pydantic, which would turn a ConfigurationError into a ValidationError."""

        def __call__(cls, **given):
            return cls.model_validate(_merge(getattr(load_config(), cls.table).model_dump(), given))

    class _TopTable(Table, metaclass=_ReadsFile):
        """A table whose missing keys have the values of the configuration file, unless it is validated."""


class ServerConfig(_TopTable):
    """`[server]` with its sub-tables. `ServerConfig()` has the values of the configuration file.

    With `ServerConfig.model_validate`, missing keys have their defaults, and no file is read.
    """

    table: ClassVar[str] = "server"

    port: int = Field(default=DEFAULT_PORT, ge=0, le=65535)
    host: str = Field(default="0.0.0.0", min_length=1)  # noqa: S104 - the documented default
    mail_host: Annotated[str, AfterValidator(read_mail_host)] = Field(
        default=DEFAULT_MAIL_HOST, description="The host in the MAIL 2.0 addresses of this server."
    )
    reload: bool = False
    debug: bool = False
    cors_origins: list[Annotated[str, AfterValidator(read_origin)]] = Field(
        default=[], description="The origins of web pages that may call the server; `*` for all."
    )
    swarm: SwarmConfig = SwarmConfig.model_construct()
    settings: SettingsConfig = SettingsConfig.model_construct()
    limits: LimitsConfig = LimitsConfig.model_construct()
    connections: ConnectionsConfig = ConnectionsConfig.model_construct()
    telemetry: TelemetryConfig = TelemetryConfig.model_construct()
    storage: StorageConfig = StorageConfig.model_construct()
    interswarm: InterswarmConfig = InterswarmConfig.model_construct()
    webhooks: WebhooksConfig = WebhooksConfig.model_construct()
    auth: AuthConfig = AuthConfig.model_construct()
    models: dict[Annotated[str, Field(min_length=1)], ModelLimits] = Field(
        default_factory=dict,
        description="The limits of providers, by a model's name or a pattern such as `anthropic/*`.",
    )
    schedules: Annotated[list[Schedule], AfterValidator(read_schedules)] = Field(
        default=[], description="Messages that the server posts by itself, at the times of a cron expression."
    )
    budgets: dict[Annotated[str, Field(pattern=BUDGET_KEY)], Budget] = Field(
        default_factory=dict,
        description="The budget of a caller's tasks, by `user`, `admin` or, for one caller, `role:id`.",
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
        """Return a copy with these values; None keeps the present one. Raises ConfigurationError for an invalid one."""
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
            return self.model_validate(_merge(self.model_dump(), _given(**given)))
        except ValidationError as error:
            raise ConfigurationError(describe(error, type(self))) from error


class ClientConfig(_TopTable):
    """`[client]`. `ClientConfig()` has the values of the configuration file.

    Attributes:
        timeout: seconds that a client waits for a response; or an `aiohttp.ClientTimeout`, of which only `total`
            counts.
        verbose: whether clients log requests and responses.
    """

    table: ClassVar[str] = "client"

    timeout: Annotated[float, BeforeValidator(lambda given: getattr(given, "total", given))] = Field(
        default=3600.0, gt=0
    )
    verbose: bool = False


class MailConfig(Table):
    """The tables of the file."""

    server: ServerConfig
    client: ClientConfig


def find_file(path: str | Path | None = None) -> Path | None:
    """Return the file to read: `path`, else that of MAIL_CONFIG_PATH, else `mail.toml` in the current directory.

    None if there is no file, and the defaults apply. Raises ConfigurationError if `path` is given and doesn't exist.
    """
    if path is not None:
        if not Path(path).is_file():
            raise ConfigurationError(f"{path}: this configuration file does not exist")
        return Path(path)
    named = os.environ.get(CONFIG_PATH_VARIABLE)
    found = Path(named or DEFAULT_FILE)
    if found.is_file():
        return found
    if named:
        logger.warning("%s names %s, which does not exist; the defaults apply", CONFIG_PATH_VARIABLE, named)
    return None


def read_file(path: Path) -> dict[str, Any]:
    """Return the tables of a file. Raises ConfigurationError if it can't be read or is not valid TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{path}: can't be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: is not valid TOML: {error}") from error


def is_host_configured() -> bool:
    """Return whether the configuration file or the environment names the host on which the server listens."""
    file = find_file()
    tables = read_file(file) if file else {}
    return any("host" in server for server in (tables.get("server", {}), read_environment(os.environ)))


def load_config(path: str | Path | None = None) -> MailConfig:
    """Read the configuration file, if there is one (see `find_file`), and the environment.

    Raises ConfigurationError; the message has the file, the key, and what to change.
    """
    file = find_file(path)
    given = read_file(file) if file else {}
    foreign = tuple(name for name, table in given.items() if isinstance(table, dict) and _is_foreign(name))
    if foreign:
        _warn_of_tables(str(file), foreign)
    tables = {"server": {}, "client": {}} | {name: given[name] for name in given if name not in foreign}
    try:
        config = MailConfig.model_validate(tables)
    except ValidationError as error:
        raise ConfigurationError(f"{file}: {describe(error, MailConfig)}") from error
    if environment := read_environment(os.environ):
        server = ServerConfig.model_validate(_merge(config.server.model_dump(), environment))
        config = MailConfig(server=server, client=config.client)
    return config


def _is_foreign(table: str) -> bool:
    """Return whether a table is another program's: neither known nor a misspelt name of a known one."""
    return table not in MailConfig.model_fields and not did_you_mean(table, MailConfig.model_fields)


@cache
def _warn_of_tables(file: str, names: tuple[str, ...]) -> None:
    """Warn that tables are ignored, once for each file."""
    logger.warning(
        "%s: ignored tables that are not MAIL's: %s", file, ", ".join(f"[{name}]" for name in names)
    )


def _given(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` with the values of `over`, table by table."""
    merged = dict(base)
    for key, value in over.items():
        if isinstance(value, BaseModel):
            merged[key] = value.model_dump()
        elif isinstance(value, Mapping) and isinstance(merged.get(key), Mapping):
            merged[key] = _merge(merged[key], value)
        else:
            merged[key] = value
    return merged
