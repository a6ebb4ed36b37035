"""The store, the queue and the clock of a process, with faults.

Faults of a kind are drawn one by one from the chance of the process that meets them, by its seed. Each is one that the real
thing has: a call that is late, refused, or carried out without an answer; a wake-up that is lost, late, or comes twice; a
clock that is ahead. Whoever meets them is the engine itself: nothing of it is replaced.
"""

import asyncio
import json
import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Literal, get_args
from uuid import UUID

from support.faults import dynamodb as dynamodb_faults
from support.faults.points import Surrounded

from chaos.invariants import Attempt
from chaos.process import PROCESS, Process
from mail.core.engine.runtime import SKEW
from mail.core.task.change import TaskChange
from mail.core.task.ports import Store, WakeUp
from mail.core.task.task import TaskKey
from mail.errors import StoreUnavailable

Kind = Literal["kill", "duplicate", "delay", "throttle", "skew"]
KINDS: tuple[Kind, ...] = get_args(Kind)

EPOCH = datetime(2026, 1, 31, 8, 0, tzinfo=UTC)

LIFE = 700
"""How many awaits a server survives that will die, at most; the mean is half of it."""

DOWN_SECONDS = 8.0
"""How long it takes at most until another one is there in its place."""

HELD_UP_SECONDS = 120.0
"""How long a call may be held up: longer than a lease lives."""

OUTSIDE_OF_TURNS = frozenset({"open_turn", "commit", "load", "release", "read_events"})
"""Calls that may be held up. Others would use up the time that an agent has for its turn."""


class Faults:
    """What may go wrong in a round, until it is `calm`.

    Attributes:
        met: how often each kind of fault has been met.
        deaths: how many processes may still die.
    """

    def __init__(self, kinds: Iterable[str], deaths: int) -> None:
        self.kinds = frozenset(kinds)
        self.deaths = deaths if "kill" in self.kinds else 0
        self.is_calm = False
        self.met: Counter[str] = Counter()

    def strikes(self, kind: Kind, chance: Random, odds: float) -> bool:
        """Whether a fault of this kind happens here."""
        if kind not in self.kinds or self.is_calm or chance.random() >= odds:
            return False
        self.met[kind] += 1
        return True

    def life(self, chance: Random) -> int | None:
        """At which of its awaits a new process dies; None for none."""
        if not self.deaths or self.is_calm:
            return None
        return chance.randint(1, LIFE)

    def skew(self, chance: Random) -> float:
        """By how many seconds a clock is ahead; two of them differ by SKEW at most."""
        if "skew" not in self.kinds:
            return 0.0
        self.met["skew"] += 1
        return chance.uniform(-SKEW / 2, SKEW / 2)


class RoundClock:
    """The clock and the ids of a process: the loop's time, from a day that is the same each time."""

    def __init__(self, chance: Random, skew: float = 0.0) -> None:
        self._loop = asyncio.get_running_loop()
        self._chance = chance
        self._epoch = EPOCH + timedelta(seconds=skew)

    def now(self) -> datetime:
        return self._epoch + timedelta(seconds=self._loop.time())

    def new_id(self) -> str:
        return str(UUID(int=self._chance.getrandbits(128), version=4))


class Journal:
    """What is written down of a round outside of the engine.

    Attributes:
        attempts: by task, every change that was sent to a store.
    """

    def __init__(self) -> None:
        self.attempts: dict[TaskKey, list[Attempt]] = {}

    def note(self, change: TaskChange) -> Attempt:
        """Somebody is about to commit this."""
        attempt = Attempt(change)
        self.attempts.setdefault(change.key, []).append(attempt)
        return attempt


class FaultyStore(Surrounded):
    """The store of a process: each of its calls is one in which the process may die, before it or after it."""

    def __init__(
        self, inner: Store, process: Process, faults: Faults, chance: Random, journal: Journal
    ) -> None:
        super().__init__(inner, self._call)
        self._process = process
        self._faults = faults
        self._chance = chance
        self._journal = journal

    async def _call(self, name: str, method: Callable[..., Awaitable[Any]], args: Any, options: Any) -> Any:
        attempt = self._journal.note(args[0]) if name == "commit" else None
        await self._before(name)
        result = await method(*args, **options)
        if attempt is not None:
            attempt.is_acknowledged = True
        await self._after(name)
        return result

    async def _before(self, name: str) -> None:
        strikes, chance = self._faults.strikes, self._chance
        self._process.point(f"before {name}")
        if strikes("delay", chance, 0.08):
            long = name in OUTSIDE_OF_TURNS and chance.random() < 0.1
            await asyncio.sleep(chance.uniform(0, HELD_UP_SECONDS if long else 1))
            self._process.point(f"late before {name}")
        if strikes("throttle", chance, 0.015):
            raise StoreUnavailable

    async def _after(self, name: str) -> None:
        strikes, chance = self._faults.strikes, self._chance
        self._process.point(f"after {name}")
        if strikes("delay", chance, 0.04):
            await asyncio.sleep(chance.uniform(0, 1))
            self._process.point(f"late after {name}")
        if strikes("throttle", chance, 0.01):
            raise StoreUnavailable


class FaultyQueue:
    """Where a process publishes tokens, and what its workers take from. What it takes is lost with it."""

    def __init__(self, inner: Any, process: Process, faults: Faults, chance: Random) -> None:
        self._inner = inner
        self._process = process
        self._faults = faults
        self._chance = chance
        self.taken: list[WakeUp] = []

    async def publish(self, tokens: Sequence[WakeUp]) -> None:
        strikes, chance = self._faults.strikes, self._chance
        self._process.point("before publish")
        if strikes("throttle", chance, 0.01):
            raise StoreUnavailable
        now: list[WakeUp] = []
        for token in tokens:
            if strikes("delay", chance, 0.02):  # for ever: the next sweep finds what it was for
                continue
            if strikes("delay", chance, 0.08):
                self._later(token, chance.uniform(0, 10))
            else:
                now.append(token)
            if strikes("duplicate", chance, 0.25):
                self._later(token, chance.choice((0.0, chance.uniform(0, 90))))
        await self._inner.publish(now)
        self._process.point("after publish")

    def put(self, token: WakeUp) -> None:
        """As `publish`, for workers that try again."""
        if not self._process.is_dead:
            self._inner.put(token)

    async def take(self) -> tuple[TaskKey, str]:
        token: tuple[TaskKey, str] = await self._inner.take()
        self._process.point("after take")
        return token

    async def take_delivery(self) -> tuple[TaskKey, str]:
        token: tuple[TaskKey, str] = await self._inner.take_delivery()
        self._process.point("after take_delivery")
        return token

    def __len__(self) -> int:
        return len(self._inner)

    def _later(self, token: WakeUp, seconds: float) -> None:
        """Whatever becomes of this process meanwhile."""
        again = replace(token, cause=f"{token.cause}+")
        asyncio.get_running_loop().call_later(seconds, _put_from_outside, self._inner, again)


def _put_from_outside(queue: Any, token: WakeUp) -> None:
    mark = PROCESS.set(None)
    try:
        queue.put(token)
    finally:
        PROCESS.reset(mark)


class FaultyConnection:
    """A connection to SQLite, whose statements fail as they do where a file is locked or a disk is full.

    The process may die at each of them. A statement that ends a transaction by taking it back never fails.
    """

    def __init__(self, inner: sqlite3.Connection, process: Process, faults: Faults, chance: Random) -> None:
        self._inner = inner
        self._process = process
        self._faults = faults
        self._chance = chance

    def execute(self, statement: str, values: Sequence[object] = ()) -> sqlite3.Cursor:
        """Run a statement, or not."""
        if self._process.is_dead:
            self._process.stay_dead()
        if not statement.startswith("ROLLBACK"):
            self._process.point(f"sql {statement.split(maxsplit=1)[0]}")
            if self._faults.strikes("throttle", self._chance, 0.005):
                raise sqlite3.OperationalError(self._chance.choice(("database is locked", "disk I/O error")))
        return self._inner.execute(statement, values)

    @property
    def in_transaction(self) -> bool:
        """Whether there is something to take back; the file takes back by itself what the dead have begun."""
        return not self._process.is_dead and self._inner.in_transaction

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def throttling(faults: Faults, chance: Random) -> dynamodb_faults.Fault:
    """Return what a request to DynamoDB meets."""

    def meet(request: Any, send: Any) -> Any:
        if not faults.strikes("throttle", chance, 0.04):
            return None
        kinds = [
            dynamodb_faults.throttled,
            dynamodb_faults.broken,
            dynamodb_faults.lost_request,
            dynamodb_faults.lost_answer,
            dynamodb_faults.broken_after,
        ]
        if "TransactItems" in json.loads(request.body):
            kinds.append(dynamodb_faults.conflict)
        return chance.choice(kinds)(request, send)

    return meet
