"""Values that a server stores besides tasks, and the documents they are stored as."""

from collections.abc import Mapping
from dataclasses import field
from enum import Enum, StrEnum, auto
from typing import Literal

from mail.core.protocol.values import value

IN_MEMORY = ":memory:"
"""The name of a database that ends with the process; it is SQLite's own."""

CallerRole = Literal["admin", "user", "agent"]
"""The role of a token's bearer; an `agent` is another swarm."""


class Kind(StrEnum):
    """The kinds of documents, with the parts of their keys. An adapter maps each kind to a table or partition."""

    TOKEN = "token"  # noqa: S105
    """`(digest)`"""
    SIGN_IN_LINK = "sign-in link"
    """`(digest)`"""
    HAD_TOKENS = "token marker"
    """`()`"""
    HEALTH = "health status"
    """`()`"""
    LOADED_SWARM = "swarm"
    """`()`"""
    PEER = "peer"
    """`(name)`"""
    FOUND_PEER = "discovered peer"
    """`(name)`"""
    WEBHOOK = "webhook"
    """`(caller, id)`"""
    IDEMPOTENCY_KEY = "idempotency key"
    """`(caller, key)`"""
    PERMITS = "permits"
    """`(pattern)`"""
    SWARM_VERSION = "version of the swarm"
    """`(digest)`"""
    SWARM_DRAFT = "draft of the swarm"
    """`(name)`"""
    CALLER_TOKEN = "caller's token"  # noqa: S105
    """`(caller)`"""
    HOLD = "hold"
    """`(role:id@swarm)` or `(role:id@swarm#task_id)`"""
    CALLER_DELETION = "deletion of a caller"
    """`(role:id@swarm)`"""
    DELETED_TASK = "deleted task"
    """`(role:id@swarm#task_id)`"""
    AUDIT = "audit entry"
    """`(id)`; ids are in the order of time."""
    ISSUER_KEYS = "keys of the identity provider"
    """`()`"""


class PutIf(Enum):
    """When a document is written."""

    ALWAYS = auto()
    ABSENT = auto()
    PRESENT = auto()
    """The expiry of the document stays as it is."""


@value
class Document:
    """A small document.

    Attributes:
        expires: when the document expires, in seconds since the epoch. The database may delete it some time after.
    """

    key: tuple[str, ...]
    fields: Mapping[str, str] = field(default_factory=dict)
    expires: float | None = None


@value
class StoredToken:
    """A built-in token, stored as the SHA-256 digest of its text, in hex.

    Attributes:
        expires: when it expires, in seconds since the epoch; None for never.
        session_of: for a token that a sign-in link was exchanged for, the digest of the token that made the link; empty
            if an operator made it. None for any other token.
    """

    digest: str
    role: CallerRole
    id: str
    created: str
    expires: float | None = None
    session_of: str | None = None


@value
class SignInLink:
    """A link that signs a browser in once, stored as the SHA-256 digest of its code, in hex.

    Attributes:
        expires: when it expires, in seconds since the epoch.
        made_with: the digest of the token that made it; empty if an operator made it where the server runs.
    """

    digest: str
    role: CallerRole
    id: str
    expires: float
    made_with: str = ""


@value
class LoadedSwarm:
    """What an admin has put in place of the configured swarm.

    Attributes:
        text: the swarm, as an entry of swarms.json; empty for the configured one.
        loaded: the time of loading, in ISO 8601, UTC.
        replaces: the SHA-256 digest, in hex, of the configured swarm at that time. The loaded swarm applies only while
            the configuration stays the same.
        draft: the published draft, which changes it (`mail.core.task.swarm_drafts.Published` as JSON); empty for none.
    """

    text: str
    loaded: str
    replaces: str
    draft: str = ""


@value
class ClaimedKey:
    """A caller's idempotency key.

    Attributes:
        digest: the digest of the first request with this key.
        task_id: the task of that request.
        until: when the key expires, in seconds since the epoch.
    """

    digest: str
    task_id: str
    until: float
