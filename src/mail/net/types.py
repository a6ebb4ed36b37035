"""What is known of other swarms, in the words in which it is told: by the registry, its file and over HTTP."""

from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mail.core.protocol.values import Value
from mail.core.task.interswarm import PeerHealth, PeerRecord
from mail.errors import PeerRefused

TEXT_LENGTH = 2000
"""How much of a text that a peer says of itself is kept."""

KEYWORDS = 50
"""How many of its keywords are kept."""

LISTED = 100
"""How many swarms of one server are looked at in a discovery."""


class SwarmEndpointCleaned(Value):
    """A swarm as everybody may see it."""

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
    """A swarm as its registry sees it. `auth_token_ref` is a reference, never a token."""

    health_check_url: str
    auth_token_ref: str | None
    public: bool
    entrypoint: str
    volatile: bool
    expires: float | None
    auth: str
    caller_id: str

    @classmethod
    def of(cls, record: PeerRecord, health: PeerHealth) -> Self:
        """What the registry has on a swarm."""
        return cls(
            swarm_name=record.name,
            base_url=record.base_url,
            version=record.version,
            last_seen=health.last_seen or None,
            is_active=health.is_active,
            latency=health.latency,
            swarm_description=record.description,
            keywords=record.keywords,
            metadata=record.metadata,
            health_check_url=f"{record.base_url}/health",
            auth_token_ref=record.auth_token if record.auth_token.startswith("${") else None,
            public=record.public,
            entrypoint=record.entrypoint,
            volatile=record.volatile,
            expires=record.expires,
            auth=record.auth,
            caller_id=record.caller_id,
        )

    def cleaned(self) -> SwarmEndpointCleaned:
        """Only what everybody may see."""
        return SwarmEndpointCleaned(**{name: self[name] for name in SwarmEndpointCleaned.model_fields})


class SwarmInfo(BaseModel):
    """What a swarm says of itself at `/`. What peers leave out counts as empty."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    name: str
    version: str = ""
    description: str = ""
    entrypoint: str = ""
    keywords: tuple[str, ...] = ()
    public: bool = False

    @classmethod
    def read(cls, answer: object) -> Self:
        """Read the answer of a `GET /`. Raises PeerRefused where a MAIL server would give another one."""
        given = answer.get("swarm") if isinstance(answer, Mapping) else None
        if isinstance(given, str):  # a server that says no more than its name
            given = {"name": given}
        if not isinstance(given, Mapping):
            raise PeerRefused("its / is not that of a MAIL server: there is no 'swarm'")
        told = {name: value for name, value in given.items() if value is not None}
        try:
            info = cls.model_validate(told)
        except ValidationError as error:
            raise PeerRefused("its / is not that of a MAIL server: 'swarm' can't be read") from error
        return info.model_copy(
            update={
                "version": info.version[:TEXT_LENGTH],
                "description": info.description[:TEXT_LENGTH],
                "entrypoint": info.entrypoint[:TEXT_LENGTH],
                "keywords": tuple(word[:TEXT_LENGTH] for word in info.keywords[:KEYWORDS]),
            }
        )

    def fields(self) -> dict[str, Any]:
        """The fields that a PeerRecord keeps of it."""
        return self.model_dump(exclude={"name"})


class Listed(BaseModel):
    """A swarm that another server knows, from its `GET /swarms`."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    name: str = Field(alias="swarm_name")
    base_url: str

    @classmethod
    def read(cls, answer: object) -> list[Self]:
        """Read the answer of a `GET /swarms`; entries that make no sense are left out."""
        given = answer.get("swarms") if isinstance(answer, Mapping) else None
        found = []
        for entry in given[:LISTED] if isinstance(given, list) else ():
            try:
                found.append(cls.model_validate(entry))
            except ValidationError:
                continue
        return found


class Registered(Value):
    """What came of a registration.

    Attributes:
        notes: what its operator should know or do, such as which variable to set; nothing in it is secret.
    """

    name: str
    notes: tuple[str, ...] = ()


class Discovery(Value):
    """What came of a discovery.

    Attributes:
        registered: the swarms that were not known before.
        known: those that were.
        problems: what was wrong, by URL.
    """

    registered: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    problems: dict[str, str] = Field(default_factory=dict)

    def __str__(self) -> str:
        """In words, for an agent."""
        parts = []
        if self.registered:
            parts.append(f"registered: {', '.join(self.registered)}")
        if self.known:
            parts.append(f"known already: {', '.join(self.known)}")
        parts += [f"{url}: {problem}" for url, problem in self.problems.items()]
        return "\n".join(parts) or "no swarms were found"
