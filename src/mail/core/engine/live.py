"""Live events: from the turns and calls of this process, and of others by a link, to those who watch a task here."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from mail.core.task.live import LiveEvent, LiveKind
from mail.core.task.ports import LiveLink
from mail.core.task.task import TaskKey
from mail.core.turns.activity import Activities

EXPECT_SECONDS = 5.0
"""For which a task counts as watched after a message whose sender is about to open a stream."""

WATCH_SECONDS = 60.0
"""Seconds for which other processes publish a task's events after an announcement."""

ANNOUNCE_SECONDS = 20.0
"""Seconds between two announcements of a watch."""

MANY_EVENTS = 1_000
"""Events that a slow watcher may leave unread; then the oldest are dropped."""


class LiveSubscription:
    """The live events of a task, for one who watches it."""

    def __init__(self, *, deltas: bool) -> None:
        self.deltas = deltas
        self._events: deque[LiveEvent] = deque(maxlen=MANY_EVENTS)
        self._seen: dict[str, set[int] | None] = {}
        """The numbers of the events that have come, by turn; None for a turn that has ended."""
        self._ready = asyncio.Event()

    def put(self, event: LiveEvent) -> None:
        """Add an event, unless it has come before."""
        if event.kind is LiveKind.TEXT_DELTA:
            if not self.deltas:
                return
        elif event.is_of_turn:
            seen = self._seen.setdefault(event.turn, set())
            if seen is None or event.n in seen:
                return
            if event.kind is LiveKind.TURN_ENDED:
                self._seen[event.turn] = None
                self._forget()
            else:
                seen.add(event.n)
        self._events.append(event)
        self._ready.set()

    def take(self) -> list[LiveEvent]:
        """Return the events that have come."""
        events = list(self._events)
        self._events.clear()
        self._ready.clear()
        return events

    async def wait(self) -> None:
        """Wait until there is an event."""
        await self._ready.wait()

    def _forget(self) -> None:
        """Forget the oldest of many turns that have ended."""
        ended = [turn for turn, seen in self._seen.items() if seen is None]
        for turn in ended[:-MANY_TURNS]:
            del self._seen[turn]


MANY_TURNS = 100
"""Ended turns of which late events are known and dropped."""


@dataclass(slots=True)
class _Watched:
    """Who watches a task: subscriptions here; other processes and expected callers until a time of the event loop."""

    here: list[LiveSubscription] = field(default_factory=list)
    elsewhere_until: float = 0.0
    expected_until: float = 0.0
    deltas_until: float = 0.0


class LiveHub:
    """Passes live events on.

    Attributes:
        watched: the tasks that somebody watches. Turns look here before they make an event.
    """

    def __init__(self, activities: Activities, link: LiveLink | None = None) -> None:
        self.watched: dict[TaskKey, _Watched] = {}
        self._activities = activities
        self._link = link
        self._loop: asyncio.AbstractEventLoop | None = None
        if link is not None:
            link.attach(self)

    @asynccontextmanager
    async def subscribe(self, key: TaskKey, *, deltas: bool = False) -> AsyncGenerator[LiveSubscription]:
        """Watch a task, in the block: first what runs now, then what happens."""
        self._loop = asyncio.get_running_loop()
        subscription = LiveSubscription(deltas=deltas)
        watched = self.watched.setdefault(key, _Watched())
        watched.here.append(subscription)
        for activity in self._activities(key):
            for event in (*activity.current(), *activity.written()):
                subscription.put(event)
        announcing = None
        try:
            if self._link is not None:
                await self.announce(key, deltas=deltas)
                announcing = asyncio.create_task(self._announce_again(key, deltas=deltas))
            yield subscription
        finally:
            if announcing is not None:
                announcing.cancel()
                with suppress(asyncio.CancelledError):
                    await announcing
            watched.here.remove(subscription)
            self._forget(key, watched)

    async def expect(self, key: TaskKey, *, deltas: bool) -> None:
        """Take a task for watched, here and elsewhere, as the sender of its message is about to open a stream.

        A model is only asked for pieces of its reply if somebody wants them when its call begins.
        """
        self._loop = asyncio.get_running_loop()
        watched = self.watched.setdefault(key, _Watched())
        watched.expected_until = self._now() + EXPECT_SECONDS
        self._loop.call_at(watched.expected_until, self._forget, key, watched)
        if deltas:
            watched.deltas_until = max(watched.deltas_until, watched.expected_until)
        await self.announce(key, deltas=deltas)

    async def announce(self, key: TaskKey, *, deltas: bool) -> None:
        """Let other processes know that this one watches a task."""
        if self._link is not None:
            await self._link.announce(key, seconds=WATCH_SECONDS, deltas=deltas)

    async def _announce_again(self, key: TaskKey, *, deltas: bool) -> None:
        while True:
            await asyncio.sleep(ANNOUNCE_SECONDS)
            await self.announce(key, deltas=deltas)

    def publish(self, key: TaskKey, event: LiveEvent) -> None:
        """Pass on the event of a turn that runs here; safe to call in the threads of actions."""
        loop = self._loop
        try:
            is_here = asyncio.get_running_loop() is loop
        except RuntimeError:
            is_here = False
        if is_here:
            self._publish(key, event)
        elif loop is not None:
            with suppress(RuntimeError):  # the loop has been closed
                loop.call_soon_threadsafe(self._publish, key, event)

    def _publish(self, key: TaskKey, event: LiveEvent) -> None:
        watched = self.watched.get(key)
        if watched is None:
            return
        for subscription in watched.here:
            subscription.put(event)
        if self._link is not None and watched.elsewhere_until > self._now():
            self._link.publish(key, event)
        else:
            self._forget(key, watched)

    def wants_deltas(self, key: TaskKey) -> bool:
        """Return whether somebody wants the pieces of models' replies in a task."""
        watched = self.watched.get(key)
        if watched is None or self._loop is None:
            return False
        return watched.deltas_until > self._loop.time() or any(each.deltas for each in watched.here)

    async def flush(self, key: TaskKey) -> None:
        """Send what can be sent at the end of a turn, or after the report of a call."""
        if self._link is not None and key in self.watched:
            await self._link.flush(key)

    def mark(self, key: TaskKey, *, seconds: float, deltas: bool) -> None:
        """Publish the events of a task for another process, first those that tell what runs now (`LiveReceiver`)."""
        self._loop = asyncio.get_running_loop()
        now = self._now()
        for other, each in list(self.watched.items()):  # turns that have ended leave their task marked
            self._forget(other, each)
        watched = self.watched.setdefault(key, _Watched())
        watched.elsewhere_until = max(watched.elsewhere_until, now + seconds)
        if deltas:
            watched.deltas_until = max(watched.deltas_until, now + seconds)
        if self._link is not None:
            for activity in self._activities(key):
                for event in activity.current():
                    self._link.publish(key, event)

    def deliver(self, key: TaskKey, events: Sequence[LiveEvent]) -> None:
        """Pass on the events of a task that runs in another process (`LiveReceiver`)."""
        watched = self.watched.get(key)
        for subscription in watched.here if watched is not None else ():
            for event in events:
                subscription.put(event)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _forget(self, key: TaskKey, watched: _Watched) -> None:
        is_over = not watched.here and max(watched.elsewhere_until, watched.expected_until) <= self._now()
        if is_over and self.watched.get(key) is watched:
            del self.watched[key]
