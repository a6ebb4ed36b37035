"""A small file beside the database, mapped into memory, that says which turns have begun and not ended.

To write it costs a turn no call of the system, and the next process reads it: the turns that are still in it had
begun when their process ended, or have failed. It is a list of places of one size; an empty one begins with zeros. It
need not survive a power failure: what is outdated names messages that have been read.
"""

import logging
import os
from collections import defaultdict
from collections.abc import Iterable
from mmap import mmap
from struct import Struct
from zlib import crc32

from mail.adapters.sqlite.task_cache import CachedTask
from mail.core.task.documents import IN_MEMORY
from mail.core.task.leases import Lease

logger = logging.getLogger(__name__)

_PLACE = Struct("<iIqId4x")
"""The number of failed attempts if the turn doesn't end, a checksum of its mailbox, the row of its task, the seq of its
message, and when it began."""

_ATTEMPT = Struct("<i")

_MOST_ATTEMPTS = 1_000
"""A place with more is damaged."""

_BYTES = 16 * 1024
"""The size of the file; it doubles when it is full."""


class OpenTurns:
    """The leases of this process, of which the file has a copy; without a file for a database in memory."""

    def __init__(self, database: str) -> None:
        self._path = f"{os.path.realpath(database)}-turns"
        self._map: mmap | None = None
        self._free: list[int] = []
        self._found: defaultdict[int, list[tuple[int, int, Lease]]] = defaultdict(list)
        if database != IN_MEMORY:
            self._grow()

    def begin(self, cached: CachedTask, mailbox: str, seq: int, lease: Lease, since: float) -> None:
        """Lease a mailbox, and note the turn of a message, and since when it runs, if its end counts."""
        cached.leases[mailbox] = lease
        if not lease.attempt or self._map is None:
            self._empty(cached.open_turns.pop(mailbox, None))
            return
        place = cached.open_turns.get(mailbox)
        if place is None:
            if not self._free:
                self._grow()
                if not self._free:
                    return
            place = cached.open_turns[mailbox] = self._free.pop()
        _PLACE.pack_into(self._map, place, lease.attempt, crc32(mailbox.encode()), cached.row, seq, since)

    def end(self, cached: CachedTask, mailbox: str) -> None:
        """Remove the lease of a mailbox, whose turn has ended."""
        cached.leases.pop(mailbox, None)
        self._empty(cached.open_turns.pop(mailbox, None))

    def _empty(self, place: int | None) -> None:
        if place is not None and self._map is not None:
            _ATTEMPT.pack_into(self._map, place, 0)
            self._free.append(place)

    def restore(self, cached: CachedTask) -> None:
        """Give a task that was read the leases that the file has of it, as ended."""
        if not self._found:
            return
        by_checksum = {crc32(mailbox.encode()): mailbox for mailbox in cached.mailboxes()}
        for place, checksum, lease in self._found.pop(cached.row, ()):
            mailbox = by_checksum.get(checksum)
            if mailbox is None:
                self._empty(place)
            else:
                cached.leases[mailbox] = lease
                cached.open_turns[mailbox] = place

    def close(self, tasks: Iterable[CachedTask]) -> None:
        """Take back the attempts that run: their process has not ended because of them. Then close the file."""
        if self._map is None:
            return
        for cached in tasks:
            for mailbox, place in cached.open_turns.items():
                if cached.leases[mailbox].expires:
                    _ATTEMPT.pack_into(self._map, place, cached.leases[mailbox].attempt - 1)
        self._map.close()
        self._map = None

    def _grow(self) -> None:
        """Open the file, or make room in it. If the disk has none, further turns are not noted."""
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                size = os.fstat(file).st_size // _PLACE.size * _PLACE.size
                grows = self._map is not None or not size
                if grows:
                    os.pwrite(file, bytes(size or _BYTES), size)  # a hole might not get its space later
                mapped = mmap(file, 0)
            finally:
                os.close(file)
        except OSError as error:
            logger.warning(
                "%s can't be written; turns that end this process are not counted: %s", self._path, error
            )
            return
        if grows:
            self._free += range(0 if self._map is None else len(self._map), len(mapped), _PLACE.size)
        else:
            self._read(mapped[:size])
        if self._map is not None:
            self._map.close()
        self._map = mapped

    def _read(self, stored: bytes) -> None:
        """Read what an earlier process has left."""
        for n, (attempt, checksum, row, seq, since) in enumerate(_PLACE.iter_unpack(stored)):
            place = n * _PLACE.size
            if 0 < attempt <= _MOST_ATTEMPTS:
                lease = Lease(f"gone/{n}/{since:.3f}", 0.0, attempt, seq)
                self._found[row].append((place, checksum, lease))
            else:
                self._free.append(place)
