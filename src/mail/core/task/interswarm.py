"""Other swarms, as the engine sees them: who they are, and how mail reaches them.

A peer is a mailbox of each task that writes to it. Its mail is not read by an agent of ours: it is handed over to the
peer, by `Peers.deliver`.
"""

from collections.abc import Sequence
from typing import Any, Literal, Protocol

from pydantic import Field

from mail.core.protocol.interswarm import MAILInterswarmMessage
from mail.core.protocol.values import Value

_MARK = "@"

ALL_PEERS = _MARK
"""The mailbox of mail to every known swarm: whoever works on it puts the mail into the mailbox of each."""


def peer_mailbox(swarm: str) -> str:
    """The mailbox of mail to a swarm. No agent's name holds an `@`, so none has the same."""
    return _MARK + swarm


def peer_of(mailbox: str) -> str | None:
    """The swarm whose mailbox this is, empty for `ALL_PEERS`; None for an agent's."""
    return mailbox[len(_MARK) :] if mailbox.startswith(_MARK) else None


_HOOK_MARK = "!"


def hook_mailbox(hook_id: str) -> str:
    """The mailbox of a webhook. No agent's name begins with an `!`, so none has the same."""
    return _HOOK_MARK + hook_id


def hook_of(mailbox: str) -> str | None:
    """The id of the webhook whose mailbox this is; None for an agent's or a peer's."""
    return mailbox[len(_HOOK_MARK) :] if mailbox.startswith(_HOOK_MARK) else None


def goes_out(mailbox: str) -> bool:
    """Whether what is in a mailbox is delivered to somebody outside, whether its task runs or not; not to an agent."""
    return mailbox.startswith((_MARK, _HOOK_MARK))


class PeerRecord(Value):
    """A swarm that this server knows.

    Attributes:
        auth_token: a reference such as `${SWARM_AUTH_TOKEN_B}`; the token itself only where the entry is volatile.
        auth: how calls are signed: a bearer token alone, or AWS Signature 4 besides.
        caller_id: the id of the token with which the peer calls this server; empty where that is its name.
        expires: when a volatile entry is forgotten, in seconds since the epoch; None for never.
        registered: when, in ISO 8601, UTC.
    """

    name: str
    base_url: str
    version: str = ""
    description: str = ""
    entrypoint: str = ""
    keywords: tuple[str, ...] = ()
    public: bool = False
    metadata: dict[str, Any] = Field(default_factory=dict)
    auth_token: str = ""
    auth: Literal["bearer", "aws_iam"] = "bearer"
    caller_id: str = ""
    volatile: bool = False
    expires: float | None = None
    registered: str = ""


class PeerHealth(Value):
    """How a peer was when somebody looked last.

    Attributes:
        last_seen: when it answered last, in ISO 8601, UTC; empty for never.
        latency: how long its answer took, in seconds; None where there was none.
    """

    is_active: bool = False
    last_seen: str = ""
    latency: float | None = None


class Peers(Protocol):
    """How mail reaches other swarms."""

    async def deliver(self, message: MAILInterswarmMessage, *, back: bool) -> str | None:
        """Hand a message over, to `/interswarm/back` or else `/interswarm/forward`.

        Returns the principal under which the peer keeps the task (its `local_runner`), where it says so. Raises
        PeerRefused where trying again would not help: an unknown peer, no token, an answer of 4xx; and
        PeerUnavailable for what may pass: no connection, no answer in time, 429, 5xx.
        """
        ...

    async def known(self) -> Sequence[str]:
        """The names of the swarms that mail can be sent to."""
        ...

    async def caller_id(self, swarm: str) -> str | None:
        """The id of the token with which a swarm calls this server: its name, unless the registry says otherwise.

        None for a swarm that is not known.
        """
        ...

    async def discover(self, urls: Sequence[str]) -> str:
        """Register the swarms that servers at these URLs are or know; returns what came of it, for an agent."""
        ...
