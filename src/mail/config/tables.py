"""The tables of `mail.toml` that hold plain values. Their defaults are the documented ones."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from mail.config.database import engine_of, hide_password, read_database
from mail.core.task.webhooks import RETRY_SECONDS


class Table(BaseModel):
    """A table of the file: frozen, of exact types, and closed to keys that nobody reads."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class SwarmConfig(Table):
    """`[server.swarm]`: which swarm the server runs.

    Attributes:
        source: path of the swarms.json file that holds it.
        registry: path of the file in which known swarms are kept; the key `registry_file` means the same.
    """

    name: str = Field(default="example-no-proxy", min_length=1)
    source: str = Field(default="swarms.json", min_length=1)
    registry: str = Field(default="registries/example-no-proxy.json", min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _read_other_name(cls, given: Any) -> Any:
        if not isinstance(given, dict) or "registry_file" not in given:
            return given
        rest = {key: value for key, value in given.items() if key != "registry_file"}
        return {**rest, "registry": given["registry_file"]}


class SettingsConfig(Table):
    """`[server.settings]`: how tasks are run.

    Attributes:
        task_message_limit: steps a task may take before its supervisor must finish it.
        print_llm_streams: whether agents print what their model streams to the server's console.
        turn_seconds: the longest turn of an agent, its actions included.
        turn_concurrency: turns that run at once.
        max_body_bytes: the largest HTTP request body that is accepted.
        allowed_imports: the modules, with those inside them, that a swarm loaded over HTTP may refer to.
    """

    task_message_limit: int = Field(default=15, ge=1)
    print_llm_streams: bool = True
    turn_seconds: float = Field(default=840.0, gt=0)
    turn_concurrency: int = Field(default=64, ge=1)
    max_body_bytes: int = Field(default=4 * 1024 * 1024, ge=1)
    allowed_imports: list[str] = Field(default=["mail.examples", "mail.factories", "mail.stdlib"])


class LimitsConfig(Table):
    """`[server.limits]`: what one caller may ask of the server; 0 for no limit.

    Attributes:
        requests_per_second: how often a caller may ask, on average.
        request_burst: how often at once.
        running_tasks: how many tasks of a caller may run at once.
        mailbox_depth: how many messages may wait for an agent in a task when somebody outside adds one.
    """

    requests_per_second: float = Field(default=50.0, ge=0)
    request_burst: int = Field(default=200, ge=1)
    running_tasks: int = Field(default=100, ge=0)
    mailbox_depth: int = Field(default=1000, ge=0)


class TelemetryConfig(Table):
    """`[server.telemetry]`: what is told of the server while it runs.

    Attributes:
        metrics: who may read `/metrics`: nobody, as nothing is counted; admins; or everybody.
        traces: whether spans are sent by OpenTelemetry's protocol, as its own `OTEL_*` variables say.
        log_format: lines for people, or JSON with a line for each turn and request, for programs.
    """

    metrics: Literal["off", "admin", "public"] = "off"
    traces: bool = False
    log_format: Literal["text", "json"] = "text"


class StorageConfig(Table):
    """`[server.storage]`: where tasks are kept.

    Attributes:
        database: path of the SQLite file, `:memory:`, or the URL of a PostgreSQL database or a DynamoDB table. Given
            as a path, `sqlite:///path`, `none`, `postgresql://user:password@host/database` or `dynamodb://table`.
        synchronous: for SQLite; `normal` survives the death of the process, `full` the loss of power as well.
    """

    database: Annotated[str, AfterValidator(read_database)] = "mail.db"
    synchronous: Literal["normal", "full"] = "normal"

    @property
    def engine(self) -> str:
        """The engine of the database, a key of `mail.bootstrap.backends.BACKENDS`."""
        return engine_of(self.database)

    @property
    def shown(self) -> str:
        """The database without a password."""
        return hide_password(self.database)


class WebhooksConfig(Table):
    """`[server.webhooks]`: what callers may have events sent to.

    Attributes:
        allow_private_addresses: whether webhooks may have addresses that are not public, and then be called by http.
            Where the server listens doesn't tell who may write to it, as there may be a proxy in front of it.
        retry_seconds: how long a webhook rests after each failure in a row before it is given up.
    """

    allow_private_addresses: bool = False
    retry_seconds: list[Annotated[float, Field(ge=0, allow_inf_nan=False)]] = list(RETRY_SECONDS)


class InterswarmConfig(Table):
    """`[server.interswarm]`: how the server and other swarms reach each other.

    Attributes:
        base_url: the URL by which others reach this server; empty for the one it listens on.
        allow_private_addresses: whether other swarms may have addresses that are not public; `auto` for whether
            this server listens on this machine only.
        request_timeout: seconds that another swarm may take for an answer.
        health_check_seconds: the time between two looks at how the others are.
        volatile_seconds: after how long a volatile registration is forgotten.
        hop_limit: through how many swarms a task may go.
    """

    base_url: str = ""
    allow_private_addresses: bool | Literal["auto"] = "auto"
    request_timeout: float = Field(default=30.0, gt=0)
    health_check_seconds: float = Field(default=30.0, gt=0)
    volatile_seconds: float = Field(default=86_400.0, gt=0)
    hop_limit: int = Field(default=8, ge=1)
