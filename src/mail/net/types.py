"""Descriptions of swarms, as the registry shows them and as other servers send them, and of the answers of servers."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, TypedDict

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from mail.core.protocol.values import Value
from mail.core.task.interswarm import PeerHealth, PeerRecord
from mail.errors import PeerRefused

TEXT_LENGTH = 2000
"""Characters of a text in a peer's description that are stored."""

KEYWORDS = 50
"""Keywords of a peer that are stored."""

LISTED = 100
"""Swarms listed by one server that a discovery reads."""


class SwarmEndpointCleaned(Value):
    """An entry with the fields that anyone may see."""

    swarm_name: str
    base_url: str
    version: str
    last_seen: str | None
    is_active: bool
    latency: float | None
    swarm_description: str
    keywords: tuple[str, ...]
    metadata: dict[str, Any]


class SwarmEndpoint(SwarmEndpointCleaned):
    """An entry with all its fields. `auth_token_ref` is a reference, never a token."""

    health_check_url: str
    auth_token_ref: str | None
    public: bool
    entrypoint: str
    volatile: bool
    expires: float | None
    auth: str
    caller_id: str
    kind: str

    @classmethod
    def of(cls, peer: PeerRecord, health: PeerHealth) -> Self:
        """Build an endpoint from an entry and its health."""
        shared = {name: each for name, each in peer.items() if name in cls.model_fields}
        return cls(
            **shared,
            swarm_name=peer.name,
            last_seen=health.last_seen or None,
            is_active=health.is_active,
            latency=health.latency,
            swarm_description=peer.description,
            health_check_url=f"{peer.base_url}/health" if peer.kind == "mail" else peer.base_url,
            auth_token_ref=peer.auth_token if peer.auth_token.startswith("${") else None,
        )

    def cleaned(self) -> SwarmEndpointCleaned:
        """Return the fields that anyone may see."""
        return SwarmEndpointCleaned(**{name: self[name] for name in SwarmEndpointCleaned.model_fields})


_Text = Annotated[str, AfterValidator(lambda text: text[:TEXT_LENGTH])]


class SwarmInfo(BaseModel):
    """The description of a swarm, from its `/`. Missing fields are empty, and long ones cut."""

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)

    name: str
    version: _Text = ""
    description: _Text = ""
    entrypoint: _Text = ""
    keywords: Annotated[tuple[_Text, ...], AfterValidator(lambda words: words[:KEYWORDS])] = ()
    public: bool = False

    @classmethod
    def read(cls, answer: object) -> Self:
        """Read the answer of a `GET /`. Raises PeerRefused if it isn't that of a MAIL server."""
        given = answer.get("swarm") if isinstance(answer, Mapping) else None
        if isinstance(given, str):  # a server that sends only its name
            given = {"name": given}
        if not isinstance(given, Mapping):
            raise PeerRefused("its / is not that of a MAIL server: there is no 'swarm'")
        fields = {name: value for name, value in given.items() if value is not None}
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            raise PeerRefused("its / is not that of a MAIL server: 'swarm' can't be read") from error


class Listed(BaseModel):
    """A swarm listed by another server at `GET /swarms`."""

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)

    name: str = Field(alias="swarm_name")
    base_url: str

    @classmethod
    def read(cls, answer: object) -> list[Self]:
        """Read the answer of a `GET /swarms`; invalid entries are skipped."""
        given = answer.get("swarms") if isinstance(answer, Mapping) else None
        found = []
        for entry in given[:LISTED] if isinstance(given, list) else ():
            try:
                found.append(cls.model_validate(entry))
            except ValidationError:
                continue
        return found


class Registered(Value):
    """The result of a registration.

    Attributes:
        notes: hints for the operator, such as a variable to set; they contain no secrets.
    """

    name: str
    notes: tuple[str, ...] = ()


class Discovery(Value):
    """The result of a discovery.

    Attributes:
        registered: the swarms that are new.
        known: the swarms that were known already.
        problems: errors by URL.
    """

    registered: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    problems: dict[str, str] = Field(default_factory=dict)

    def __str__(self) -> str:
        """Return the result as text for an agent."""
        lines = []
        if self.registered:
            lines.append(f"registered: {', '.join(self.registered)}")
        if self.known:
            lines.append(f"known already: {', '.join(self.known)}")
        lines += [f"{url}: {problem}" for url, problem in self.problems.items()]
        return "\n".join(lines) or "no swarms were found"


# ------------------------------------------------------------------------ answers, as `MAILClient` returns them


class GetRootResponse(TypedDict):
    """The answer to `GET /`; `swarm` has the fields of `SwarmInfo`."""

    name: str
    status: str
    protocol_version: str
    swarm: dict[str, Any]
    uptime: float


class GetStatusResponse(TypedDict):
    """The answer to `GET /status`."""

    swarm: dict[str, Any]
    active_users: int
    user_mail_ready: bool
    user_task_running: bool


class GetWhoamiResponse(TypedDict):
    """The answer to `GET /whoami`."""

    id: str
    role: Literal["admin", "user", "agent"]


class GetHealthResponse(TypedDict):
    """The answer to `GET /health` and `POST /health`."""

    status: str
    swarm_name: str
    timestamp: str


class PostMessageResponse(TypedDict):
    """The answer to `POST /message`."""

    response: str
    events: list[dict[str, Any]] | None


class GetSwarmsResponse(TypedDict):
    """The answer to `GET /swarms`; each swarm has the fields of `SwarmEndpointCleaned`."""

    swarms: list[dict[str, Any]]


class _OfSwarm(TypedDict):
    status: str
    swarm_name: str


class PostSwarmsResponse(_OfSwarm):
    """The answer to `POST /swarms`."""


class GetSwarmsDumpResponse(_OfSwarm):
    """The answer to `GET /swarms/dump`."""


class PostSwarmsLoadResponse(_OfSwarm):
    """The answer to `POST /swarms/load`."""


class _Delivered(TypedDict):
    swarm: str
    task_id: str
    status: str
    local_runner: str


class PostInterswarmForwardResponse(_Delivered):
    """The answer to `POST /interswarm/forward`."""


class PostInterswarmBackResponse(_Delivered):
    """The answer to `POST /interswarm/back`."""


class PostInterswarmMessageResponse(TypedDict):
    """The answer to `POST /interswarm/message`; `response` is a message in its wire format."""

    response: dict[str, Any]
    events: list[dict[str, Any]] | None
