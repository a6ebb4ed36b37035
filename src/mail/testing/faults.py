"""Faults: points at which a process may wait, fail or die, and the plans that decide what happens there.

    points = Points(at_name("after store.commit", StoreUnavailable("no answer")))
    store = FaultyPort(store, "store", points)

A point is an await of the engine at one of its ports, and any place of yours that calls `Points.hit`. It is named
after what is done there, such as `after store.commit`. A `Plan` decides what happens at each point. A `Strike` ends
the process, with a signal or by cancelling its coroutines; without one, everything that the process still tries
raises `Dead`.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Any, Final, Literal

DIE: Final = "die"

Verdict = Literal["die"] | Exception | float
"""What happens at a point: the process dies, an error is raised, or so many seconds pass."""

Plan = Callable[[int, str], Verdict]
"""Decides what happens at the n-th point (from 1) that a process passes, which has this name."""

Strike = Callable[[str], None]
"""Ends the process, at the point of this name."""


class Dead(asyncio.CancelledError):
    """Raised at each further point of a process that has died. The engine handles it no more than a SIGKILL."""


def never(number: int, name: str) -> Verdict:
    """Let nothing happen."""
    return 0.0


def at_number(last: int, verdict: Verdict = DIE) -> Plan:
    """Return the plan with this verdict at the `last`-th point."""
    return lambda number, _: verdict if number == last else 0.0


def at_name(beginning: str, verdict: Verdict = DIE) -> Plan:
    """Return the plan with this verdict at the points whose names begin so; a process dies at the first one."""
    return lambda _, name: verdict if name.startswith(beginning) else 0.0


def among(names: Collection[str], verdict: Verdict = DIE) -> Plan:
    """Return the plan with this verdict at the points that have one of these names."""
    return lambda _, name: verdict if name in names else 0.0


class Points:
    """Counts the points that a process passes, and does what its plan decides; it dies once.

    Attributes:
        names: the points that were passed.
        is_dead: whether all further points raise Dead; a strike that leaves the process alive sets it.
    """

    def __init__(self, plan: Plan = never, strike: Strike | None = None) -> None:
        self.names: list[str] = []
        self.plan = plan
        self.is_dead = False
        self._strike = strike or self._die

    def _die(self, name: str) -> None:
        self.is_dead = True

    def hit(self, name: str) -> float:
        """Pass a point; return the seconds to wait there. Raises the error of the plan, and Dead in a dead process."""
        verdict: Verdict = 0.0
        if not self.is_dead:
            self.names.append(name)
            verdict = self.plan(len(self.names), name)
        if verdict == DIE:
            self.plan = never
            self._strike(name)
        if self.is_dead:
            raise Dead(name)
        if isinstance(verdict, Exception):
            raise verdict
        return verdict if isinstance(verdict, float) else 0.0

    async def reach(self, name: str) -> None:
        """Pass a point where the process may be delayed, and after a delay another one: `late` and its name."""
        if seconds := self.hit(name):
            await asyncio.sleep(seconds)
            await self.reach(f"late {name}")

    async def around[T](self, name: str, call: Callable[[], Awaitable[T]]) -> T:
        """Call, between a point before it and one after its result or error; the plan can lose either."""
        await self.reach(f"before {name}")
        try:
            result = await call()
        except Exception:
            await self.reach(f"after {name}")
            raise
        await self.reach(f"after {name}")
        return result


class FaultyPort:
    """A port of the engine, such as a store or a queue, with a point before and after each call of a coroutine method.

    `overrides` replaces some of its methods.
    """

    def __init__(self, inner: Any, name: str, points: Points, **overrides: Any) -> None:
        self._inner = inner
        self._name = name
        self._points = points
        self._overrides = overrides

    def __getattr__(self, name: str) -> Any:
        method = self._overrides.get(name) or getattr(self._inner, name)
        if not inspect.iscoroutinefunction(method):
            return method

        async def call(*args: Any, **options: Any) -> Any:
            return await self._points.around(f"{self._name}.{name}", partial(method, *args, **options))

        setattr(self, name, call)
        return call
