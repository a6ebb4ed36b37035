"""Agents' histories at hand: history records are never rewritten, so what was read once need not be read again."""

from collections import OrderedDict

from mail.core.task.swarm import History
from mail.core.task.task import TaskKey

MAX_ENTRIES = 50_000
"""How many history entries are kept in memory; the mailboxes used least recently go first."""


class HistoryCache:
    """Per mailbox, the first n history records, joined. It may forget, but is never wrong."""

    def __init__(self, max_entries: int = MAX_ENTRIES) -> None:
        self._max_entries = max_entries
        self._entries = 0
        self._known: OrderedDict[tuple[TaskKey, str], tuple[int, History]] = OrderedDict()

    def count(self, key: TaskKey, agent: str) -> int:
        """How many records are known."""
        return self._known.get((key, agent), (0, []))[0]

    def extend(self, key: TaskKey, agent: str, after: int, n: int, entries: History) -> History | None:
        """Take in the entries of all records after the `after`-th, up to the n-th; return the whole history.

        None where the records up to `after` are not known (any more): then it must be read from the store.
        """
        place = (key, agent)
        known, history = self._known.pop(place, (0, []))
        if known == n:
            entries = []
        elif known != after:
            self._entries -= len(history)
            return None
        history += entries
        self._known[place] = (n, history)
        self._entries += len(entries)
        while self._entries > self._max_entries and len(self._known) > 1:
            self._entries -= len(self._known.popitem(last=False)[1][1])
        return history
