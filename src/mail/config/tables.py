"""The tables of `mail.toml` with plain values and their documented defaults."""

import re
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from mail.auth.claims import JWTSettings
from mail.config.database import AUTO, engine_of, hide_password, read_database
from mail.core.task.failing_calls import FAILING_CALL_LIMIT
from mail.core.task.files import MAX_FILE_BYTES
from mail.core.task.limits import UNREACHABLE_SECONDS
from mail.core.task.schedules import Schedule
from mail.core.task.webhooks import RETRY_SECONDS
from mail.errors import BadRequest


class Table(BaseModel):
    """A table of the file: frozen, with exact types and without unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True)


class SwarmConfig(Table):
    """`[server.swarm]`: the swarm that the server runs.

    Attributes:
        source: the path of its swarms.json file.
        registry: the path of the file of known swarms; the key `registry_file` means the same.
        description, keywords, public: replace those of the swarm itself.
    """

    name: str = Field(default="example-no-proxy", min_length=1)
    source: str = Field(default="swarms.json", min_length=1)
    registry: str = Field(default="registries/example-no-proxy.json", min_length=1)
    description: str | None = None
    keywords: list[str] | None = None
    public: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _read_other_name(cls, given: Any) -> Any:
        if not isinstance(given, dict) or "registry_file" not in given:
            return given
        rest = {key: value for key, value in given.items() if key != "registry_file"}
        return {**rest, "registry": given["registry_file"]}


class SettingsConfig(Table):
    """`[server.settings]`: limits of tasks, turns and requests.

    Attributes:
        task_message_limit: steps of a task before its supervisor must finish it.
        failing_call_limit: how often the same call of an action may fail with the same error before its agent's turn
            fails; 0 for no limit.
        print_llm_streams: whether agents print the streams of their models to the server's console.
        turn_seconds: the time limit of an agent's turn, including its actions.
        turn_concurrency: the number of turns that run concurrently; `auto` for as many as fit into memory.
        action_threads: the number of actions that run concurrently and are plain functions.
        lease_seconds: seconds after which the turns of a server or function that is gone, or hangs, are taken over.
        max_body_bytes: the size limit of an HTTP request body.
        allowed_imports: the modules, with their submodules, that a swarm loaded over HTTP may refer to.
    """

    task_message_limit: int = Field(default=15, ge=1)
    failing_call_limit: int = Field(default=FAILING_CALL_LIMIT, ge=0)
    print_llm_streams: bool = True
    turn_seconds: float = Field(default=840.0, gt=0)
    turn_concurrency: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    action_threads: int = Field(default=64, ge=1)
    lease_seconds: float = Field(default=40.0, ge=1, le=600)
    max_body_bytes: int = Field(default=4 * 1024 * 1024, ge=1)
    allowed_imports: list[str] = Field(default=["mail.examples", "mail.factories", "mail.stdlib"])


class LimitsConfig(Table):
    """`[server.limits]`: limits per caller, and one of the process; 0 for none.

    Attributes:
        requests_per_second: the average rate of requests.
        request_burst: the number of requests in a burst; without a limit, the rate is not limited either.
        running_tasks: the number of running tasks.
        waiting_tasks: the number of tasks in which everything waits for results that come later.
        mailbox_depth: the number of messages that may wait for an agent in a task when a caller adds one.
        task_bytes: the number of bytes that a task may store.
        caller_bytes: the number of bytes that all tasks of a caller may store, and those of each box of its mail.
        file_bytes: the number of bytes of a file; at least 1.
        streams: the number of streams that a caller may read at the same time from a server process; on AWS, those that
            can't be resumed, and long waits, from all functions. None for 100, and 10 on AWS.
        mail_submissions: the number of messages that a task takes by MAIL 2.0 in an hour from a sender that isn't a
            person.
        memory: the bytes that all requests to a process may hold; a quarter of them for one caller.
    """

    requests_per_second: float = Field(default=50.0, ge=0)
    request_burst: int = Field(default=200, ge=0)
    running_tasks: int = Field(default=100, ge=0)
    waiting_tasks: int = Field(default=100_000, ge=0)
    mailbox_depth: int = Field(default=1000, ge=0)
    task_bytes: int = Field(default=64 * 1024 * 1024, ge=0)
    caller_bytes: int = Field(default=10 * 1024**3, ge=0)
    file_bytes: int = Field(default=MAX_FILE_BYTES, ge=1)
    streams: int | None = Field(default=None, ge=0)
    mail_submissions: int = Field(default=20, ge=0)
    memory: int = Field(default=128 * 1024 * 1024, ge=0)


class ConnectionsConfig(Table):
    """`[server.connections]`: limits of the connections to a server process; 0 for none.

    Attributes:
        total: the number of open connections; fewer if the process may not open as many files.
        per_address: the number of open connections from one address.
        head_seconds: the time for the head of a request.
        body_seconds: the time by which its body may be late, at a rate of 8 KiB per second.
        idle_seconds: the time between two requests.
        stall_seconds: the time that a client may stop reading a response.
    """

    total: int = Field(default=8192, ge=0)
    per_address: int = Field(default=4096, ge=0)
    head_seconds: float = Field(default=10.0, ge=0)
    body_seconds: float = Field(default=30.0, ge=0)
    idle_seconds: int = Field(default=5, ge=0)
    stall_seconds: float = Field(default=120.0, ge=0)


class TelemetryConfig(Table):
    """`[server.telemetry]`: metrics, traces and logs.

    Attributes:
        metrics: `off`, or the callers that may read `/metrics`: `admin` or `public`.
        traces: whether spans are sent by OTLP, configured by the `OTEL_*` variables.
        content: the texts in spans: none (`off`), what models read and write (`messages`), or also the tools that they
            have, and the arguments and results of actions (`all`).
        redact: a Python function that gets each of these texts and returns what is sent of it, as
            `python::package.module:name`; without it, they are sent unchanged.
        log_format: `text`, or `json` with a line for each turn and request.
    """

    metrics: Literal["off", "admin", "public"] = "off"
    traces: bool = False
    content: Literal["off", "messages", "all"] = "off"
    redact: str = ""
    log_format: Literal["text", "json"] = "text"


class StorageConfig(Table):
    """`[server.storage]`: the database of tasks.

    Attributes:
        database: the path of an SQLite file, `auto`, `:memory:`, or the URL of a PostgreSQL database or a DynamoDB
            table. Set as `auto`, a path, `sqlite:///path`, `none`, `postgresql://user:password@host/database` or `dynamodb://table`.
        synchronous: for SQLite; `normal` survives a crash of the process, `full` also a power loss.
        retention_days: days after which a task is deleted in which nothing happens; 0 for never.
        keep: what is left of a task then: `nothing`, or its `latest`, which is its last answer and what its agents need
            to continue it.
        audit_days: days after which entries of the audit are deleted; 0 for never.
    """

    database: Annotated[str, AfterValidator(read_database)] = AUTO
    synchronous: Literal["normal", "full"] = "normal"
    retention_days: int = Field(default=0, ge=0, le=36_500)
    keep: Literal["nothing", "latest"] = "nothing"
    audit_days: int = Field(default=400, ge=0)

    @property
    def engine(self) -> str:
        """The engine of the database, a key of `mail.bootstrap.backends.BACKENDS`."""
        return engine_of(self.database)

    @property
    def shown(self) -> str:
        """The database without a password."""
        return hide_password(self.database)


class AuthConfig(Table):
    """`[server.auth]`: who callers are, besides those with keys of this server.

    Attributes:
        jwt: the identity provider whose tokens are accepted.
        break_glass: whether admins may read the tasks of others, who see it in their tasks.
    """

    jwt: JWTSettings = JWTSettings.model_construct()
    break_glass: bool = False


class WebhooksConfig(Table):
    """`[server.webhooks]`: delivery of events to webhooks.

    Attributes:
        allow_private_addresses: whether webhooks may have addresses that are not public, and http URLs. The address on
            which the server listens is no safe default, as there may be a proxy in front of it.
        retry_seconds: seconds before the retry after each consecutive failure; after the last one, the event is a
            dead letter.
    """

    allow_private_addresses: bool = False
    retry_seconds: list[Annotated[float, Field(ge=0, allow_inf_nan=False)]] = list(RETRY_SECONDS)


def read_origin(text: str) -> str:
    """Return the origin of a web page, as browsers send it, or `*`. Raises ValueError."""
    url = urlsplit(text)
    origin = f"{url.scheme}://{url.netloc}".lower()
    if text != "*" and (url.scheme not in ("http", "https") or not url.netloc or text.lower() != origin):
        raise ValueError(f"{text!r} is not an origin such as http://localhost:3000, without a path")
    return text.lower()


def read_mail_host(text: str) -> str:
    """Return the host of MAIL 2.0 addresses. Raises ValueError."""
    if not re.fullmatch(r"(?!-)[a-z0-9-]+(\.(?!-)[a-z0-9-]+)*", text):
        raise ValueError(f"{text!r} is not a domain name in lower case, such as mail.example.com")
    return text


def read_schedules(schedules: list[Schedule]) -> list[Schedule]:
    """Return schedules that can run, with different names. Raises ValueError."""
    for n, schedule in enumerate(schedules):
        try:
            schedule.check()
        except BadRequest as error:
            raise ValueError(f"{schedule.name}: {error.detail}") from None
        if any(schedule.name == other.name for other in schedules[:n]):
            raise ValueError(f"two schedules have the name {schedule.name!r}; give each another one")
    return schedules


class InterswarmConfig(Table):
    """`[server.interswarm]`: connections with other swarms.

    Attributes:
        base_url: the URL by which other swarms reach this server; empty for the one it listens on.
        allow_private_addresses: whether other swarms may have addresses that are not public; `auto` if this server
            listens on this machine only.
        request_timeout: seconds that another swarm may take to respond.
        health_check_seconds: seconds between two health checks of other swarms.
        volatile_seconds: seconds after which a volatile registration expires.
        hop_limit: the number of swarms that a task may pass through.
        card_key: the path of a private key, in PEM, that signs the agent card of A2A; empty for none.
        entrypoints_only: whether other swarms may write only to agents with `enable_entrypoint`, and to those that wait
            for their answer.
        unreachable_seconds: seconds after which an agent reads that its mail can't be delivered, if no connection to
            the other swarm can be made, and it has not answered for an hour.
    """

    base_url: str = ""
    allow_private_addresses: bool | Literal["auto"] = "auto"
    request_timeout: float = Field(default=30.0, gt=0)
    health_check_seconds: float = Field(default=30.0, gt=0)
    volatile_seconds: float = Field(default=86_400.0, gt=0)
    hop_limit: int = Field(default=8, ge=1)
    card_key: str = ""
    entrypoints_only: bool = False
    unreachable_seconds: float = Field(default=UNREACHABLE_SECONDS, ge=0)
