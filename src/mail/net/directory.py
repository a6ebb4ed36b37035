"""The entries of a registry: at hand in this process, and kept in a server's records, a file, or nowhere."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mail.core.engine.documents import ServerDocuments
from mail.core.task.interswarm import PeerHealth, PeerRecord
from mail.errors import ConfigurationError
from mail.net.files import read_file, write_file
from mail.net.secrets import reference_for, variable_in
from mail.net.urls import is_name

REFRESH_SECONDS = 5.0
"""How old what this process knows of the server's records may be."""

UNSEEN = PeerHealth()

logger = logging.getLogger(__name__)


class PeerDirectory:
    """Entries by name. Those that have expired are not shown.

    Args:
        header: what the file says besides its entries.
        now: the time, in seconds since the epoch.
        monotonic: counts seconds.

    Attributes:
        given: the tokens that only this process knows, by the names of swarms whose entries refer to a variable.
    """

    def __init__(
        self,
        records: ServerDocuments | None,
        file: Path | None,
        header: Callable[[], Mapping[str, Any]],
        *,
        now: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        self.given: dict[str, str] = {}
        self.records = records
        self.file = file
        self._header = header
        self._now = now
        self._clock = monotonic
        self._peers: dict[str, PeerRecord] = {}
        self._health: dict[str, PeerHealth] = {}
        self._read: float | None = None
        self._changes = 0

    def all(self) -> list[PeerRecord]:
        """All entries, by name."""
        return [record for _, record in sorted(self._peers.items()) if self._is_live(record)]

    def get(self, name: str) -> PeerRecord | None:
        """The entry of a swarm, as far as this process has read it."""
        record = self._peers.get(name)
        return record if record is not None and self._is_live(record) else None

    def health(self, name: str) -> PeerHealth:
        """How a swarm was when somebody looked last."""
        return self._health.get(name, UNSEEN)

    async def find(self, name: str) -> PeerRecord | None:
        """The entry of a swarm, also if another process has made it just now."""
        await self.refresh()
        return self.get(name) or await self.current(name)

    async def current(self, name: str) -> PeerRecord | None:
        """The entry of a swarm as it is kept at this moment."""
        if self.records is not None and is_name(name):
            record = await self.records.peer(name)
            if record is not None:
                self._peers[name] = record
        return self.get(name)

    async def refresh(self, *, max_age: float = REFRESH_SECONDS) -> None:
        """Read the server's records, where there are any and what was read is older than `max_age` seconds."""
        if self.records is None or (self._read is not None and self._clock() < self._read + max_age):
            return
        before, now = self._changes, self._clock()
        peers, healths = await asyncio.gather(self.records.peers(), self.records.peers_health())
        if self._changes == before:  # else it may be older than what was done here meanwhile
            self._peers = {record.name: record for record in peers}
            self._health = healths
            self._read = now

    async def keep(self, record: PeerRecord, *, token: str | None = None) -> None:
        """Keep an entry in the place of the one of its name; this process remembers the token besides."""
        self._changes += 1
        if self.records is not None:
            await self.records.set_peer(record)
            self._changes += 1
        self._peers[record.name] = record
        self.given.pop(record.name, None)
        if token is not None:
            self.given[record.name] = token
        self.save_copy()

    async def forget(self, name: str) -> bool:
        """Delete an entry; returns whether it was there."""
        self._changes += 1
        known = name in self._peers
        if self.records is not None:
            known = await self.records.delete_peer(name)
            self._changes += 1
        for kept in (self._peers, self._health, self.given):
            kept.pop(name, None)
        if known:
            self.save_copy()
        return known

    async def forget_expired(self) -> None:
        """Delete the entries that have expired."""
        for name in [name for name, record in self._peers.items() if not self._is_live(record)]:
            await self.forget(name)

    async def note_health(self, name: str, seen: PeerHealth) -> None:
        """Remember how a swarm is."""
        if name in self._peers:
            self._health[name] = seen
            if self.records is not None:
                await self.records.set_peer_health(name, seen)

    # ------------------------------------------------------------------------------------------------- the file

    def load(self) -> list[str]:
        """Read the file, in the place of what is there; returns the swarms whose tokens are written out in it."""
        return [record.name for record in self._read_file() if self._take(record)]

    async def take_over(self) -> list[str]:
        """Keep the file's entries that the server's records lack; returns their names. Raises ConfigurationError."""
        added = []
        for record in self._read_file():
            known = self._peers.get(record.name)
            if known is None:
                self._take(record)
                token = self.given.get(record.name)
                await self.keep(self._peers[record.name], token=token)
                added.append(record.name)
            elif known.base_url != record.base_url:
                logger.warning(
                    "swarm %s: %s says %s; the database says %s, which holds",
                    *(record.name, self.file, record.base_url, known.base_url),
                )
        return added

    def save(self) -> None:
        """Write the file, if there is one to write, without volatile entries. Raises ConfigurationError."""
        if self.file is not None:
            write_file(self.file, self._header(), [record for record in self.all() if not record.volatile])

    def save_copy(self) -> None:
        """Write the file. A server does without it where that can't be done: it has its records."""
        try:
            self.save()
        except ConfigurationError as error:
            if self.records is None:
                raise
            logger.warning("the registry's file is out of date: %s", error.detail)

    def _read_file(self) -> list[PeerRecord]:
        own = self._header()["local_swarm_name"]
        return [] if self.file is None else [record for record in read_file(self.file) if record.name != own]

    def _take(self, record: PeerRecord) -> bool:
        """Take up an entry of the file; returns whether its token is written out in it."""
        token = record.auth_token
        is_written_out = variable_in(token) is None
        if is_written_out:
            self.given[record.name] = token
            record = record.model_copy(update={"auth_token": reference_for(record.name, token)})
        self._peers[record.name] = record
        return is_written_out

    def _is_live(self, record: PeerRecord) -> bool:
        return record.expires is None or self._now() < record.expires
