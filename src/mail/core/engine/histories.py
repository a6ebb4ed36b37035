"""The cache of agents' histories, so that a turn reads only what it doesn't know yet."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from sys import getsizeof

from mail.core.engine.pacing import LARGE
from mail.core.task.context import UNKNOWN, WHOLE, AgentContext, Cut, Portion, bare, is_carried
from mail.core.task.swarm import History
from mail.core.task.task import TaskKey

MAX_CACHED_BYTES = 32 * 1024 * 1024
"""How much memory cached histories take; the mailboxes used least recently are dropped first."""


@dataclass(slots=True)
class CachedHistory:
    """A history up to its `n`-th portion, as its agent reads it under a cut.

    Attributes:
        carried: what stands at the beginning, with the keys that models don't see.
        entries: all that is read.
        size: its bytes.
        held: its bytes in memory.
        measured: what the model has counted in this process.
    """

    n: int = 0
    cut: Cut = WHOLE
    portions: list[Portion] = field(default_factory=list)
    carried: History = field(default_factory=list)
    entries: History = field(default_factory=list)
    size: int = 0
    held: int = 0
    measured: AgentContext = UNKNOWN

    def extend(self, n: int, portions: Sequence[Portion], cut: Cut) -> int:
        """Add the portions up to the `n`-th, and read all under a cut; return how many more bytes it then holds."""
        before, seen = self.held, portions
        if cut is not WHOLE:
            seen = [portion.seen(cut) for portion in portions]
            for portion in portions:
                if portion.n == cut.carries:
                    self.carried = [entry for entry in portion.entries if is_carried(entry)]
        if cut is not self.cut and cut != self.cut:
            seen = [*self._move(cut), *seen]
        for portion in seen:
            self.portions.append(portion)
            self.entries += portion.entries
            self.size += portion.size
            self.held += _held(portion)
        self.n = n
        return self.held - before

    def _move(self, cut: Cut) -> list[Portion]:
        """Begin again with what is carried under another cut; return the portions so far, under this cut."""
        before = self.portions
        self.cut, self.measured, self.portions, self.size, self.held = cut, UNKNOWN, [], 0, 0
        if not cut.carries:
            self.carried = []
        self.entries = bare(self.carried)
        return [each.seen(cut) for each in before if each.n >= cut.begin]


def _held(portion: Portion) -> int:
    """Return the bytes of a portion in memory, where a character that is wide makes all of a text wide."""
    if portion.size <= LARGE:
        return portion.size
    return max(portion.size, sum(getsizeof(each) for entry in portion.entries for each in entry.values()))


class HistoryCache:
    """Caches agents' histories, per mailbox. A portion never changes."""

    def __init__(self, max_bytes: int = MAX_CACHED_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._known: OrderedDict[tuple[TaskKey, str], CachedHistory] = OrderedDict()

    def count(self, key: TaskKey, agent: str) -> int:
        """Return the number of the last cached portion."""
        cached = self._known.get((key, agent))
        return 0 if cached is None else cached.n

    def append(self, key: TaskKey, agent: str, portion: Portion, cut: Cut) -> None:
        """Add what a turn has added, if the portion before it is cached."""
        cached = self._known.get((key, agent))
        if cached is not None and cached.n == portion.n - 1:
            self._add(cached, portion.n, (portion,), cut)

    def extend(
        self, key: TaskKey, agent: str, after: int, n: int, portions: Sequence[Portion], cut: Cut = WHOLE
    ) -> CachedHistory | None:
        """Add the portions after the `after`-th, up to the n-th; return the whole history under a cut.

        None if the portions up to `after` are not cached; then the history must be read from the store.
        """
        known, place = self._known, (key, agent)
        cached = known.get(place)
        if cached is None:
            cached = known[place] = CachedHistory()
        else:
            known.move_to_end(place)
        if cached.n == n:
            if cached.cut is cut:
                return cached
            portions = ()
        elif cached.n != after:
            self._bytes -= known.pop(place).held
            return None
        self._add(cached, n, portions, cut)
        return cached

    def _add(self, cached: CachedHistory, n: int, portions: Sequence[Portion], cut: Cut) -> None:
        self._bytes += cached.extend(n, portions, cut)
        while self._bytes > self._max_bytes:
            self._bytes -= self._known.popitem(last=False)[1].held
