"""Other hosts: mail to them goes to those peers of this server that have them, by `POST /v2/daemon/deliver/remote`.

A peer has the host that its registration names as `mail_host` in `metadata`. It brings mail of senders of that host,
and of no others.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from pydantic import TypeAdapter, ValidationError

from mail.auth.keys import Caller
from mail.core.protocol.values import value
from mail.errors import PeerRefused, PeerUnavailable, StoreUnavailable
from mail.mail2.addresses import Address, AddressText
from mail.mail2.lists import MAX_NAMED
from mail.mail2.records import Message, Undelivered

PATH = "/v2/daemon/deliver/remote"

MAIL_HOST = "mail_host"
"""The key of a host in the metadata of a registration."""

REASON_LENGTH, REASONS_LENGTH = 500, 60_000
"""The longest reason that is kept of another host's answer, and all reasons of a message together."""


@value
class _Refused:
    """A recipient that a message does not reach at its host."""

    recipient: AddressText
    reason: str


@value
class _Filed:
    """The answer of a host, as far as it matters here."""

    undelivered: tuple[_Refused, ...] = ()


class Peers(Protocol):
    """What calls other servers (`mail.net.router`)."""

    async def known(self) -> Sequence[str]:
        """Return the names of all known swarms."""

    async def caller_ids(self, swarm: str) -> Sequence[str]:
        """Return the ids of the keys with which a swarm may call this server."""

    async def metadata_of(self, swarm: str) -> Mapping[str, Any]:
        """Return the metadata with which a MAIL server is registered; none for others."""

    async def call(self, swarm: str, path: str, body: object) -> Any:
        """Post JSON to a swarm, and return its answer. Raises PeerRefused and PeerUnavailable."""


class Remotes:
    """Hands mail to other hosts, and tells which hosts a caller may speak for."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    async def hand_over(self, message: Message, host: str) -> tuple[Undelivered, ...]:
        """Hand a message to another host, which files it once; return the recipients there that it does not reach.

        Of what the host answers, recipients of the message there are kept, and some members of lists among them.
        Raises PeerUnavailable for what has to be tried again.
        """
        try:
            refused = await self._post(message, host)
        except PeerRefused as error:
            return self.all_at(message, host, error.detail)
        there = set(_at(message, host))
        members = MAX_NAMED if any(Address.parse(each).kind == "list" for each in there) else 0
        named = {each.recipient: each.reason for each in refused}
        dropped = set([each for each in named if each not in there][members:])
        return _undelivered(message, ((each, named[each]) for each in named if each not in dropped))

    def all_at(self, message: Message, host: str, reason: str) -> tuple[Undelivered, ...]:
        """Return the recipients of a message at a host, whom it does not reach for a reason."""
        return _undelivered(message, ((each, reason) for each in _at(message, host)))

    async def unknown(self, hosts: Iterable[str]) -> dict[str, str]:
        """Return those of some hosts that no peer has, each with the reason for mail to it. Raises StoreUnavailable."""
        known = {await self._host_of(swarm) for swarm in await self._peers.known()}
        return {host: _no_peer(host) for host in hosts if host not in known}

    async def hosts_of(self, caller: Caller) -> set[str]:
        """Return the hosts of those peers that a caller is. Raises StoreUnavailable.

        A key that several peers may have in common (`agent`) is none of them.
        """
        if caller.role != "agent":
            return set()
        known = await self._peers.known()
        return {
            host
            for swarm in known
            if caller.id in (await self._peers.caller_ids(swarm))[:1] and (host := await self._host_of(swarm))
        }

    async def _post(self, message: Message, host: str) -> tuple[_Refused, ...]:
        try:
            swarm = await self._find(host)
        except StoreUnavailable as error:
            raise PeerUnavailable("the registry of peers can't be read now") from error
        if not swarm:
            raise PeerRefused(_no_peer(host))
        try:
            return _FILED.validate_python(
                await self._peers.call(swarm, PATH, {"messages": [message]})
            ).undelivered
        except ValidationError as error:
            raise PeerUnavailable(f"{host} has not answered as a host of MAIL 2.0 does") from error

    async def _find(self, host: str) -> str:
        """Return the name of the peer that has a host; an empty text if none has."""
        for swarm in await self._peers.known():
            if await self._host_of(swarm) == host:
                return swarm
        return ""

    async def _host_of(self, swarm: str) -> str:
        """Return the host of a peer; an empty text if it has none."""
        named = (await self._peers.metadata_of(swarm)).get(MAIL_HOST)
        return named if isinstance(named, str) else ""


def _no_peer(host: str) -> str:
    return f"no peer of this server has the host {host}"


def _at(message: Message, host: str) -> list[str]:
    """Return the recipients of a message at a host."""
    return [each for each in message.recipients if Address.parse(each).host == host]


def _undelivered(message: Message, reasons: Iterable[tuple[str, str]]) -> tuple[Undelivered, ...]:
    """Return whom a message does not reach, with reasons that together fit into a row."""
    length = min(REASON_LENGTH, REASONS_LENGTH // len(message.recipients))
    return tuple(Undelivered(each, reason[:length]) for each, reason in reasons)


_FILED: TypeAdapter[_Filed] = TypeAdapter(_Filed)
