"""Discovery: finding public swarms through the servers that run or list them."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from mail.errors import BadRequest, PeerError
from mail.net.http import PROBE_SECONDS, PeerHTTP, Target
from mail.net.registration import check_name, check_url, read_info
from mail.net.types import Discovery, Listed, SwarmInfo

CONCURRENCY = 8
"""Requests in flight."""

MAX_URLS = 20
"""Servers per discovery, without the swarms that they list."""

MAX_LISTED = 50
"""Listed swarms that one discovery checks."""


@dataclass
class Discoverer:
    """One discovery.

    Attributes:
        own: the name of the local swarm.
        known: the names of swarms that are already registered.
        found: the new public swarms by name: base URL and description.
    """

    http: PeerHTTP
    own: str
    known: frozenset[str]
    found: dict[str, tuple[str, SwarmInfo]] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)
    _problems: dict[str, str] = field(default_factory=dict)
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CONCURRENCY))

    async def run(self, urls: Sequence[str]) -> Discovery:
        """Query these servers, then each swarm that they list, as a listing may be wrong."""
        servers = list(dict.fromkeys(urls))
        for url in servers[MAX_URLS:]:
            self._problems[url] = f"was not asked: more than {MAX_URLS} URLs at a time"
        listings = await asyncio.gather(*map(self._query, servers[:MAX_URLS]))
        listed = {entry.name: entry for listing in listings for entry in listing}
        for entry in list(listed.values())[MAX_LISTED:]:
            self._problems[entry.base_url] = f"was not asked: more than {MAX_LISTED} swarms are listed"
        checked = list(listed.values())[:MAX_LISTED]
        await asyncio.gather(*(self._check(entry.base_url, entry.name) for entry in checked))
        return Discovery(
            registered=tuple(sorted(self.found)),
            known=tuple(sorted(self._seen)),
            problems=dict(sorted(self._problems.items())),
        )

    async def _query(self, url: str) -> list[Listed]:
        """Check the swarm at a URL, and return the swarms that it lists."""
        if not await self._check(url, None):
            return []
        try:
            async with self._slots:
                answer = await self.http.get(Target(check_url(url)), "/swarms", seconds=PROBE_SECONDS)
            answer.raise_for_status()
        except PeerError as error:
            self._problems[url] = f"lists no swarms: {error.detail}"
            return []
        return Listed.read(answer.json())

    async def _check(self, url: str, name: str | None) -> bool:
        """Check the swarm at a URL, and its name if one is expected; return whether it answers."""
        if self._is_settled(name):
            return False
        try:
            base_url = check_url(url)
            async with self._slots:
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
        """Return whether the swarm of this name needs no check."""
        if name is not None and name in self.known:
            self._seen.add(name)
        return name is not None and (name == self.own or name in self.known or name in self.found)
