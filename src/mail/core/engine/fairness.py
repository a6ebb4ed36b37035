"""Fairness among callers: who is next, and how much of what is scarce one caller may take."""

from collections import OrderedDict, deque
from collections.abc import Collection


class RoundRobin[T]:
    """Items that wait, by caller: each caller's next one comes before anybody's second one."""

    def __init__(self) -> None:
        self._items: OrderedDict[str, deque[T]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._items)

    def put(self, caller: str, item: T) -> None:
        """Add an item."""
        items = self._items.get(caller)
        if items is None:
            items = self._items[caller] = deque()
        items.append(item)

    def take(self, excluded: Collection[str] = ()) -> T | None:
        """Remove and return the next item, but none of the excluded callers; None if there is none."""
        for caller in self._items:
            if caller not in excluded:
                break
        else:
            return None
        items = self._items[caller]
        item = items.popleft()
        if items:
            self._items.move_to_end(caller)
        else:
            del self._items[caller]
        return item


NONE_FULL: frozenset[str] = frozenset()


class Shares:
    """Counts what callers use of something that `limit` may use at once, and keeps room for others.

    A caller may take three quarters of it, the next one three quarters of the rest, and so on. The last free place is
    for callers that have none.
    """

    def __init__(self, limit: int) -> None:
        self.free = limit
        self._used = 0
        self._by_caller: dict[str, int] = {}

    def begin(self, caller: str) -> None:
        """Count one more use."""
        self.free -= 1
        self._used += 1
        self._by_caller[caller] = self._by_caller.get(caller, 0) + 1

    def end(self, caller: str) -> None:
        """Count one use less."""
        self.free += 1
        self._used -= 1
        left = self._by_caller[caller] - 1
        if left:
            self._by_caller[caller] = left
        else:
            del self._by_caller[caller]

    def lets_begin(self, caller: str, reserved: int = 0) -> bool:
        """Return whether a caller may begin a use besides `reserved` others, and a place for others stays free."""
        left = self.free - reserved - 1
        return left > 0 and self._by_caller.get(caller, 0) + reserved < 3 * left

    def full(self) -> frozenset[str]:
        """Return the callers that may begin no further use now."""
        most = max(1, 3 * (self.free - 1))
        if self._used < most:
            return NONE_FULL
        return frozenset(caller for caller, used in self._by_caller.items() if used >= most)
