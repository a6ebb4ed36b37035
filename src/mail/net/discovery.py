"""Finding swarms by the URLs of servers that are one, or know some."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from mail.errors import BadRequest, PeerError
from mail.net.http import PeerHTTP, Target
from mail.net.registration import LOOK_SECONDS, check_name, check_url, read_info
from mail.net.types import Discovery, Listed, SwarmInfo

AT_ONCE = 8
"""How many servers are asked at a time."""

MAX_URLS = 20
"""How many servers are asked in one discovery, those aside that they know."""

MAX_LISTED = 50
"""How many of the swarms that servers list are looked at in one discovery."""


@dataclass
class Discoverer:
    """One discovery.

    Attributes:
        own: the name of the swarm that looks for others.
        known: the names that it needs no more.
        found: the base URLs of new public swarms, with what they say of themselves.
    """

    http: PeerHTTP
    own: str
    known: frozenset[str]
    found: dict[str, tuple[str, SwarmInfo]] = field(default_factory=dict)
    _met: set[str] = field(default_factory=set)
    _problems: dict[str, str] = field(default_factory=dict)
    _places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))

    async def run(self, urls: Sequence[str]) -> Discovery:
        """Ask the servers at these URLs, and each swarm that they name, as what others say of it may be wrong."""
        asked = list(dict.fromkeys(urls))
        for url in asked[MAX_URLS:]:
            self._problems[url] = f"was not asked: more than {MAX_URLS} URLs at a time"
        listings = await asyncio.gather(*map(self._ask_server, asked[:MAX_URLS]))
        listed = {entry.name: entry for listing in listings for entry in listing}
        for entry in list(listed.values())[MAX_LISTED:]:
            self._problems[entry.base_url] = f"was not asked: more than {MAX_LISTED} swarms are listed"
        seen = list(listed.values())[:MAX_LISTED]
        await asyncio.gather(*(self._meet(entry.base_url, entry.name) for entry in seen))
        return Discovery(
            registered=tuple(sorted(self.found)),
            known=tuple(sorted(self._met)),
            problems=dict(sorted(self._problems.items())),
        )

    async def _ask_server(self, url: str) -> list[Listed]:
        """Look at the swarm at a URL, and return those that it lists."""
        if not await self._meet(url, None):
            return []
        try:
            async with self._places:
                answer = await self.http.get(Target(check_url(url)), "/swarms", seconds=LOOK_SECONDS)
            answer.raise_for_status()
        except PeerError as error:
            self._problems[url] = f"lists no swarms: {error.detail}"
            return []
        return Listed.read(answer.json())

    async def _meet(self, url: str, name: str | None) -> bool:
        """Look at the swarm at a URL, which may be expected to have a name; returns whether it answers."""
        if self._is_settled(name):
            return False
        try:
            base_url = check_url(url)
            async with self._places:
                info, _ = await read_info(self.http, Target(base_url))
            check_name(info.name)
        except (BadRequest, PeerError) as error:
            self._problems[url] = error.detail
            return False
        if name is not None and info.name != name:
            self._problems[url] = f"is swarm {info.name[:128]!r}, not {name!r}"
        elif not self._is_settled(info.name):
            if info.public:
                self.found[info.name] = (base_url, info)
            elif name is None:
                self._problems[url] = f"swarm {info.name!r} is not public"
        return True

    def _is_settled(self, name: str | None) -> bool:
        """Whether nothing has to be found out about the swarm of this name."""
        if name is not None and name in self.known:
            self._met.add(name)
        return name is not None and (name == self.own or name in self.known or name in self.found)
