"""Other hosts: mail to them goes to those peers of this server that have them, by `POST /v2/daemon/deliver/remote`.

A peer has the host that its registration names as `mail_host` in `metadata`. It brings mail of senders of that host,
and of no others.
"""

from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from mail.auth.keys import Caller
from mail.core.protocol.values import value
from mail.errors import PeerRefused, PeerUnavailable, StoreUnavailable
from mail.mail2.addresses import Address
from mail.mail2.records import Message, Undelivered
from mail.net.registration import target_of

if TYPE_CHECKING:
    from mail.core.task.interswarm import PeerRecord
    from mail.net.peers import Registry

PATH = "/v2/daemon/deliver/remote"

MAIL_HOST = "mail_host"
"""The key of a host in the metadata of a registration."""

REASON_LENGTH = 500


@value
class _Refused:
    """A recipient that a message does not reach at its host."""

    recipient: str
    reason: str


@value
class _Filed:
    """The answer of a host, as far as it matters here."""

    undelivered: tuple[_Refused, ...] = ()


class Remotes:
    """Hands mail to other hosts, and tells which hosts a caller may speak for."""

    def __init__(self, registry: "Registry") -> None:
        self._registry = registry

    async def hand_over(self, message: Message, host: str) -> tuple[Undelivered, ...]:
        """Hand a message to another host, which files it once; return the recipients there that it does not reach.

        Raises PeerUnavailable for what has to be tried again.
        """
        try:
            refused = await self._post(message, host)
        except PeerRefused as error:
            return self.all_at(message, host, error.detail)
        return tuple(Undelivered(each.recipient, each.reason[:REASON_LENGTH]) for each in refused)

    def all_at(self, message: Message, host: str, reason: str) -> tuple[Undelivered, ...]:
        """Return the recipients of a message at a host, whom it does not reach for a reason."""
        recipients = (each for each in message.recipients if Address.parse(each).host == host)
        return tuple(Undelivered(each, reason) for each in recipients)

    async def knows(self, host: str) -> bool:
        """Return whether a peer has a host. Raises StoreUnavailable."""
        return await self._find(host) is not None

    async def hosts_of(self, caller: Caller) -> set[str]:
        """Return the hosts of those peers that a caller is. Raises StoreUnavailable."""
        names = await self._registry.names()
        found = set[str]()
        for name in names if caller.role == "agent" else ():
            if caller.id in await self._registry.caller_ids(name):
                peer = await self._registry.find(name)
                found |= {_host_of(peer)} if peer is not None else set()
        return found - {""}

    async def _post(self, message: Message, host: str) -> tuple[_Refused, ...]:
        try:
            peer = await self._find(host)
            bearer = None if peer is None else await self._registry.token_for(peer)
        except StoreUnavailable as error:
            raise PeerUnavailable("the registry of peers can't be read now") from error
        if peer is None:
            raise PeerRefused(f"no peer of this server has the host {host}")
        if not bearer:
            raise PeerRefused(f"this server has no token for {peer.name}, which has the host {host}")
        answer = await self._registry.http.request(
            "POST", target_of(peer), PATH, bearer=bearer, body={"messages": [message]}
        )
        answer.raise_for_status(f"host {host}", bearer)
        try:
            return _FILED.validate_python(answer.json()).undelivered
        except ValidationError as error:
            raise PeerUnavailable(f"{host} has not answered as a host of MAIL 2.0 does") from error

    async def _find(self, host: str) -> "PeerRecord | None":
        for name in await self._registry.names():
            peer = await self._registry.find(name)
            if peer is not None and _host_of(peer) == host:
                return peer
        return None


_FILED: TypeAdapter[_Filed] = TypeAdapter(_Filed)


def _host_of(peer: "PeerRecord") -> str:
    """Return the host of a peer; an empty text if it has none."""
    named: Any = peer.metadata.get(MAIL_HOST)
    return named if isinstance(named, str) and peer.kind == "mail" else ""
