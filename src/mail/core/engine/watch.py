"""Waiting for a task: for the answer to a message, or for its events as they happen."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from weakref import WeakValueDictionary

from mail.core.engine.commit import load_task
from mail.core.engine.live import LiveHub
from mail.core.engine.pacing import Paced
from mail.core.engine.waits import open_waits
from mail.core.protocol.clock import Clock
from mail.core.protocol.message import MAILMessage
from mail.core.protocol.values import value
from mail.core.task.callbacks import LaterCall
from mail.core.task.change import InboxEntry, Snapshot
from mail.core.task.events import Event
from mail.core.task.live import LiveEvent
from mail.core.task.ports import Store
from mail.core.task.size import event_size
from mail.core.task.task import TaskKey
from mail.errors import SnapshotExpired

LONG_POLL = 60.0
"""The longest time, in seconds, that one call to the store waits."""


SLICE_BYTES = 128 * 1024
"""About how much of a timeline is in memory at a time."""

READ_AT_ONCE = 4
"""Streams of a caller that read events at the same time: a long commit takes ten times its size while it is read."""


async def read_timeline(
    store: Store, key: TaskKey, pacer: Paced, *, after: int = 0, upto: int | None = None
) -> AsyncGenerator[Event]:
    """Yield the events of a task past `after`, up to `upto` or to the last one. Raises TaskNotFound.

    They are read in slices, with pauses between them.
    """
    is_first = True
    while upto is None or after < upto:
        if not is_first:
            await pacer.pause(SLICE_BYTES)
        is_first = False
        events = await store.read_events(key, after=after, max_bytes=SLICE_BYTES)
        if not events:
            return
        for event in events:
            if upto is not None and event.seq > upto:
                return
            yield event
        after = events[-1].seq


async def read_event(store: Store, key: TaskKey, seq: int) -> Event:
    """Return an event of a task. Raises SnapshotExpired."""
    for event in await store.read_events(key, after=seq - 1, limit=1):
        if event.seq == seq:
            return event
    raise SnapshotExpired(f"event {seq} of task {key.task_id!r} is no longer stored")


async def read_message(store: Store, key: TaskKey, seq: int) -> MAILMessage:
    """Return the message that the event `seq` of a task delivered. Raises SnapshotExpired."""
    if (message := (await read_event(store, key, seq)).message) is None:
        raise SnapshotExpired(f"message {seq} of task {key.task_id!r} is no longer stored")
    return message


async def read_waiting(store: Store, snapshot: Snapshot) -> AsyncGenerator[InboxEntry]:
    """Yield the mail that waited in a task as it was, reading one message at a time. Raises SnapshotExpired."""
    for tier, seq, mailbox in snapshot.waiting:
        await asyncio.sleep(0)
        yield InboxEntry(mailbox, tier, seq, await read_message(store, snapshot.task.key, seq))


async def read_page(
    store: Store,
    key: TaskKey,
    pacer: Paced,
    *,
    after: int,
    upto: int,
    limit: int | None = None,
    max_bytes: int,
) -> list[Event]:
    """Return the events of a task past `after`, up to `upto`: the first `limit`, or commits that reach about a size.

    They are read in slices as by `read_timeline`.
    """
    events: list[Event] = []
    while after < upto and max_bytes > 0 and (limit is None or len(events) < limit):
        if events:
            await pacer.pause(SLICE_BYTES)
        left = None if limit is None else limit - len(events)
        found = await store.read_events(key, after=after, limit=left, max_bytes=min(max_bytes, SLICE_BYTES))
        if not found:
            break
        events += found
        after = found[-1].seq
        max_bytes -= sum(map(event_size, found))
    return events


@value
class Submitted:
    """The position of an accepted submission in its task.

    Attributes:
        generation: the generation of the task that the message entered. In a task that was running, this generation
            may end before the message is read; then the next one answers it.
        after: the seq of the last event before the message.
        seq: the seq of the message.
        expects_output: whether the answer has to fit an output schema.
    """

    key: TaskKey
    generation: int
    after: int
    seq: int
    expects_output: bool = False


class Watch:
    """Reads tasks as they change; it never changes one."""

    def __init__(self, store: Store, clock: Clock, pacer: Paced, live: LiveHub) -> None:
        self._store = store
        self._clock = clock
        self._pacer = pacer
        self._live = live
        self._reading: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def find(self, key: TaskKey, message_id: str) -> Submitted | None:
        """Return where a submitted message entered a task, whichever process accepted it; None if none did."""
        if await self._store.load(key) is None:
            return None
        generation = 1
        async for event in read_timeline(self._store, key, self._pacer):
            if event.message is not None and event.message.id == message_id:
                return Submitted(key, generation, event.seq - 1, event.seq)
            generation += event.is_terminal
        return None

    async def wait(self, submitted: Submitted, seconds: float | None = None) -> MAILMessage | None:
        """Return the finishing message that answers a submission; None after `seconds` without one."""
        until = None if seconds is None else self._now() + seconds
        generation, after = submitted.generation, submitted.after
        while True:
            left = LONG_POLL if until is None else max(0.0, min(LONG_POLL, until - self._now()))
            response = await self._store.wait_for_response(submitted.key, generation, seconds=left)
            if response is not None:
                if submitted.after == 0:  # it began the task, so no earlier message can have been answered
                    return response
                end = await self._end_of_generation(submitted.key, after)
                if end.answers(submitted.seq):
                    return response
                generation, after = generation + 1, end.seq
            elif until is not None and self._now() >= until:
                return None

    async def _end_of_generation(self, key: TaskKey, after: int) -> Event:
        async for event in read_timeline(self._store, key, self._pacer, after=after):
            if event.is_terminal:
                return event
        raise AssertionError("a generation with a response has a terminal event")

    async def watch(
        self,
        key: TaskKey,
        *,
        after: int = 0,
        answer_to: int | None = None,
        heartbeat: float = 15.0,
        calls: bool = False,
    ) -> AsyncGenerator[list[Event] | list[LiveEvent]]:
        """Yield the task's events past `after` in batches, and an empty batch after `heartbeat` quiet seconds.

        With `calls`, how far the calls have come that wait now follows on the events that are stored.
        Ends with the event that answers the message with the seq `answer_to`; without one, after the last event of
        a stopped task. Raises TaskNotFound.
        """
        reading = self._reading.setdefault(key.instance, asyncio.Semaphore(READ_AT_ONCE))
        while True:
            task = await load_task(self._store, key)
            if task.seq > after:  # many streams may begin at once, or wait for the same event
                async with reading:
                    await asyncio.sleep(0)
                    size = task.stored_bytes * (task.seq - after) // task.seq
                    await self._pacer.pause(min(SLICE_BYTES, size))
                    events = await self._store.read_events(key, after=after, max_bytes=SLICE_BYTES)
            else:
                events = []
            if answer_to is not None:
                upto = next((n for n, event in enumerate(events, 1) if event.answers(answer_to)), None)
                events = events[:upto]
            if events:
                after, is_answered = events[-1].seq, answer_to is not None and events[-1].answers(answer_to)
                yield events
                del events  # what is sent need not stay in memory while nothing happens
                if is_answered:
                    return
                if after > task.seq:  # a later commit may have stopped the task
                    continue
            if answer_to is None and not task.is_running and after >= task.seq:
                return
            if calls and task.waits.calls:
                waits = open_waits(self._store, task)
                yield [LiveEvent.of_call(wait) async for wait in waits if isinstance(wait, LaterCall)]
            calls = False
            if await self._store.wait_for_change(key, after=after, seconds=heartbeat) <= after:
                yield []

    async def with_live(
        self, key: TaskKey, events: AsyncGenerator[list[Event] | list[LiveEvent]], *, deltas: bool = False
    ) -> AsyncGenerator[list[Event] | list[LiveEvent]]:
        """Yield the batches of a watch, and between them batches of live events: what running turns do, at once.

        Live events may be lost, and a turn that is killed leaves some without an end. With `deltas`, they include the
        pieces of models' replies, which lets models stream their replies.
        """
        is_over = False  # then nothing more comes, not even the late live events of another process
        async with aclosing(events), self._live.subscribe(key, deltas=deltas) as subscription:
            while True:
                following = asyncio.ensure_future(anext(events, None))
                try:
                    while not following.done() and not is_over:
                        ready = asyncio.ensure_future(subscription.wait())
                        try:
                            await asyncio.wait((following, ready), return_when=asyncio.FIRST_COMPLETED)
                        finally:
                            ready.cancel()
                        if live := subscription.take():
                            yield live
                    batch = await following
                finally:
                    if not following.done():
                        following.cancel()
                        await asyncio.gather(following, return_exceptions=True)
                if batch is None:
                    return
                yield batch
                last = batch[-1] if batch else None
                is_over = isinstance(last, Event) and last.answers(last.seq)

    def _now(self) -> float:
        return self._clock.now().timestamp()
