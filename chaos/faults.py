"""The faults of a round: the plan of each process, by its seed; its clock; and a queue that loses wake-ups.

`support.faults` has the wrappers that ask the plan. Each fault is one that the real thing has: a call that is late,
refused, or executed without an answer; a wake-up that is lost, late, or comes twice; a clock that is ahead. No part of
the engine itself is replaced.
"""

import asyncio
import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random
from typing import Any, Literal, get_args
from uuid import UUID

from support.faults import dynamodb as dynamodb_faults

from chaos.invariants import Attempt
from chaos.process import PROCESS
from mail.core.engine.attempts import MAX_ATTEMPTS
from mail.core.engine.heartbeat import SKEW
from mail.core.task.change import TaskChange
from mail.core.task.leases import Lease
from mail.core.task.ports import Store, WakeUp
from mail.core.task.task import TaskKey
from mail.errors import PeerUnavailable, StoreUnavailable
from mail.testing.faults import DIE, Plan, Points, Verdict, never

Kind = Literal["kill", "duplicate", "delay", "throttle", "skew"]
KINDS: tuple[Kind, ...] = get_args(Kind)

EPOCH = datetime(2026, 1, 31, 8, 0, tzinfo=UTC)

LIFE = 1000
"""The most points that a server passes which will die; the mean is half of it."""

DOWN_SECONDS = 8.0
"""The longest time until a dead server is replaced."""

HELD_UP_SECONDS = 120.0
"""The longest time that a call is held up: longer than a lease lives."""

OUTSIDE_OF_TURNS = {
    f"before store.{name}" for name in ("open_turn", "commit", "load", "release", "read_events")
}
"""Calls that may be held up. Others would use up the time that an agent has for its turn."""


@dataclass(frozen=True)
class Odds:
    """How likely a point of one kind delays a process, by how many seconds at most, or fails, and with which error."""

    delay: float = 0.0
    seconds: float = 1.0
    throttle: float = 0.0
    error: Callable[[], Exception] = StoreUnavailable


ODDS = {
    "sql ROLLBACK": Odds(),
    "sql BEGIN": Odds(throttle=0.005, error=partial(sqlite3.OperationalError, "database is locked")),
    "sql ": Odds(throttle=0.005, error=partial(sqlite3.OperationalError, "disk I/O error")),
    "before store.": Odds(delay=0.08, throttle=0.015),
    "after store.": Odds(delay=0.04, throttle=0.01),
    "before postgres.": Odds(throttle=0.003),
    "after postgres.": Odds(throttle=0.003),
    "before queue.publish": Odds(throttle=0.01),
    "before wire.deliver": Odds(
        0.2, seconds=5.0, throttle=0.05, error=partial(PeerUnavailable, "no connection")
    ),
    "after wire.deliver": Odds(throttle=0.05, error=partial(PeerUnavailable, "no answer")),
}
"""By how the names of points begin; the first that fits counts. At others a process can only die.

DynamoDB throttles on the network (see `throttling`), so that botocore meets it, too.
"""


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
        """Draw whether a fault of this kind happens."""
        if kind not in self.kinds or self.is_calm or chance.random() >= odds:
            return False
        self.met[kind] += 1
        return True

    def plan(self, chance: Random) -> Plan:
        """Draw the plan of a new process."""
        last = chance.randint(1, LIFE) if self.deaths and not self.is_calm else None

        def decide(number: int, name: str) -> Verdict:
            if last is not None and number >= last and not self.is_calm:
                return DIE
            kind = name.removeprefix("late ")
            odds = next((odds for beginning, odds in ODDS.items() if kind.startswith(beginning)), Odds())
            if odds.delay and kind == name and self.strikes("delay", chance, odds.delay):
                is_long = name in OUTSIDE_OF_TURNS and chance.random() < 0.1
                return chance.uniform(0, HELD_UP_SECONDS if is_long else odds.seconds)
            if odds.throttle and self.strikes("throttle", chance, odds.throttle):
                return odds.error()
            return 0.0

        return decide

    def skew(self, chance: Random) -> float:
        """Draw the seconds by which a clock is ahead; two of them differ by SKEW at most."""
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
    """A record of a round outside of the engine.

    Attributes:
        attempts: by task, every change that was sent to a store.
    """

    def __init__(self) -> None:
        self.attempts: dict[TaskKey, list[Attempt]] = {}

    def commit_to(self, store: Store) -> Any:
        """Return the `commit` of a store that writes each attempt down."""
        commit = store.commit

        async def noted(change: TaskChange) -> None:
            attempt = Attempt(change)
            self.attempts.setdefault(change.key, []).append(attempt)
            await commit(change)
            attempt.is_acknowledged = True

        return noted


def open_last_attempts_calmly(store: Store, points: Points) -> Any:
    """Return the `open_turn` of a store after which a process meets no more faults if it is the turn's last attempt.

    Otherwise the turn would rightly become a dead letter, and those who wait for its answer would complain.
    """

    async def open_turn(key: TaskKey, mailbox: str, lease: Lease, **options: Any) -> Any:
        if lease.attempt >= MAX_ATTEMPTS:
            points.plan = never
        return await store.open_turn(key, mailbox, lease, **options)

    return open_turn


class LossyQueue:
    """A queue that loses, delays and repeats wake-ups. What a dead process puts back is lost, too."""

    def __init__(self, inner: Any, points: Points, faults: Faults, chance: Random) -> None:
        self._inner = inner
        self._points = points
        self._faults = faults
        self._chance = chance

    async def publish(self, wake_ups: Sequence[WakeUp]) -> None:
        strikes, chance = self._faults.strikes, self._chance
        now: list[WakeUp] = []
        for wake_up in wake_ups:
            if strikes("delay", chance, 0.02):  # for ever: the next sweep finds what it was for
                continue
            if strikes("delay", chance, 0.08):
                self._later(wake_up, chance.uniform(0, 10))
            else:
                now.append(wake_up)
            if strikes("duplicate", chance, 0.25):
                self._later(wake_up, chance.choice((0.0, chance.uniform(0, 90))))
        await self._inner.publish(now)

    def put(self, wake_up: WakeUp) -> None:
        if not self._points.is_dead:
            self._inner.put(wake_up)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def _later(self, wake_up: WakeUp, seconds: float) -> None:
        """Publish a wake-up even if the process is dead by then."""
        again = replace(wake_up, cause=f"{wake_up.cause}+")
        asyncio.get_running_loop().call_later(seconds, _put_from_outside, self._inner, again)


def _put_from_outside(queue: Any, wake_up: WakeUp) -> None:
    mark = PROCESS.set(None)
    try:
        queue.put(wake_up)
    finally:
        PROCESS.reset(mark)


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
