"""The agents of the swarm that a host serves, as MAIL 2.0 names them: `NAME@SWARM`.

Names of MAIL 1.3 that aren't slugs have one that stays the same: their letters and digits, and a digest.
"""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from hashlib import sha256

from mail.auth.keys import Caller
from mail.core.task.swarm import SwarmCore
from mail.mail2.addresses import PEOPLE, SLUG_LENGTH, Address, is_slug

_DIGEST = 6
"""Hexadecimal digits of the digest in the slug of a name."""


def slug_of(name: str) -> str:
    """Return the slug of a name of MAIL 1.3: the name itself if it is one."""
    if is_slug(name):
        return name
    readable = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[: SLUG_LENGTH - _DIGEST - 1].strip("-")
    return "-".join(filter(None, (readable, sha256(name.encode()).hexdigest()[:_DIGEST])))


def addresses_of(swarm: SwarmCore) -> dict[str, str]:
    """Return the local addresses of all agents of a swarm, with their names."""
    here = slug_of(swarm.name)
    return {Address("agent", slug_of(name), here).key: name for name in swarm.agents}


def caller_of(address: Address, host: str) -> Caller:
    """Return the caller that an address is on a host: a person with this id, or the address itself.

    Nobody else's id has the form of an address with `/` (`mail.auth.keys`).
    """
    if address.kind in PEOPLE and address.host == host:
        return Caller(address.kind, address.name)  # type: ignore[arg-type]
    return Caller("user", str(address).replace("@", "/").replace(":", "/"), is_address=True)


def keys_of(caller: str, host: str) -> list[str]:
    """Return the local addresses of accounts on a host that are a caller, which is `role:id`."""
    kind, _, name = caller.partition(":")
    first, *rest = name.split("/", 1)
    keys = (f"{first}@{rest[0].partition('/')[0]}", f"{first}:{rest[0].partition('/')[0]}") if rest else ()
    found = []
    for key in (caller, *keys):
        with suppress(ValueError):
            address = Address.parse_local(key, host)
            known = caller_of(address, host)
            if (known.role, known.id) == (kind, name):
                found.append(address.key)
    return found


class Agents:
    """The agents of the swarm that runs now, by their local addresses; of none without a swarm."""

    def __init__(self, swarm: Callable[[], SwarmCore | None]) -> None:
        self._swarm = swarm
        self._known: tuple[SwarmCore | None, Mapping[str, str]] = (None, {})

    @property
    def swarm(self) -> SwarmCore | None:
        """The swarm that runs now."""
        return self._swarm()

    def names(self) -> Mapping[str, str]:
        """Return the agents' names by their local addresses."""
        if (swarm := self._swarm()) is not self._known[0]:
            self._known = (swarm, {} if swarm is None else addresses_of(swarm))
        return self._known[1]

    def address(self, name: str) -> str:
        """Return the local address of an agent."""
        swarm = self._swarm()
        assert swarm is not None
        return Address("agent", slug_of(name), slug_of(swarm.name)).key

    def serves(self, key: str) -> bool:
        """Return whether a local address is one of the swarm that runs now, and not of one that another server runs."""
        swarm = self._swarm()
        return swarm is not None and key.partition("@")[2] == slug_of(swarm.name)

    def entrypoints(self) -> dict[str, str]:
        """Return the names of the agents that take mail of everybody, by their local addresses."""
        swarm = self._swarm()
        open_to_all = () if swarm is None else swarm.entrypoints
        return {key: name for key, name in self.names().items() if name in open_to_all}
