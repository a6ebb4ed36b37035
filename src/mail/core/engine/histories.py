"""The cache of agents' histories, so that a turn reads only what it doesn't know yet."""

from collections import OrderedDict
from dataclasses import dataclass, field

from mail.core.task.size import json_size
from mail.core.task.swarm import History
from mail.core.task.task import TaskKey

MAX_CACHED_BYTES = 32 * 1024 * 1024
"""How much of histories is cached (`mail.core.task.size`); the mailboxes used least recently are dropped first."""


@dataclass(slots=True)
class CachedHistory:
    """The first `n` chunks of a history, joined; `size` is theirs."""

    n: int = 0
    entries: History = field(default_factory=list)
    size: int = 0


class HistoryCache:
    """Caches agents' histories: per mailbox, its first n chunks, joined. A chunk never changes."""

    def __init__(self, max_bytes: int = MAX_CACHED_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._known: OrderedDict[tuple[TaskKey, str], CachedHistory] = OrderedDict()

    def count(self, key: TaskKey, agent: str) -> int:
        """Return the number of cached chunks."""
        cached = self._known.get((key, agent))
        return 0 if cached is None else cached.n

    def extend(
        self, key: TaskKey, agent: str, after: int, n: int, entries: History, size: int | None = None
    ) -> CachedHistory | None:
        """Add the entries of the chunks after the `after`-th, up to the n-th; return the whole history.

        `size` is the size of the entries, if it is known. None if the chunks up to `after` are not cached; then the
        history must be read from the store.
        """
        known, place = self._known, (key, agent)
        cached = known.get(place)
        if cached is None:
            cached = known[place] = CachedHistory()
        else:
            known.move_to_end(place)
        if cached.n == n:
            return cached
        if cached.n != after:
            self._bytes -= known.pop(place).size
            return None
        if size is None:
            size = json_size(entries)
        cached.entries += entries
        cached.n = n
        cached.size += size
        self._bytes += size
        while self._bytes > self._max_bytes:
            self._bytes -= known.popitem(last=False)[1].size
        return cached
