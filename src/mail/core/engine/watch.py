"""Waiting for a task: for the answer to a message, or for its events as they happen."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass

from mail.core.protocol.clock import Clock
from mail.core.protocol.message import MAILMessage
from mail.core.task.events import Event
from mail.core.task.ports import Store
from mail.core.task.task import Task, TaskKey
from mail.errors import TaskNotFound

LONG_POLL = 60.0
"""Seconds for which the store is asked to wait at a time."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """What became of a submission.

    Attributes:
        generation: the generation of the task that it came into. If it joined a running task, the answer may
            come before it is read; then the next generation's answer is its own.
        after: the seq of the last event before it.
        seq: that of its own message.
    """

    key: TaskKey
    generation: int
    after: int
    seq: int


class Watching:
    """Whoever waits for tasks. Nothing here changes one."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.store = store
        self.clock = clock

    async def find(self, key: TaskKey, message_id: str) -> Submitted | None:
        """What became of a message that was submitted to a task, by whichever process; None if it never was."""
        if await self.store.load(key) is None:
            return None
        generation = 1
        for event in await self.store.read_events(key):
            if event.message is not None and event.message.id == message_id:
                return Submitted(key, generation, event.seq - 1, event.seq)
            generation += event.is_terminal
        return None

    async def wait(self, submitted: Submitted, seconds: float | None = None) -> MAILMessage | None:
        """The finishing message that answers a submission; None when the time is up."""
        until = None if seconds is None else self._now() + seconds
        generation, after = submitted.generation, submitted.after
        while True:
            left = LONG_POLL if until is None else max(0.0, min(LONG_POLL, until - self._now()))
            response = await self.store.wait_for_response(submitted.key, generation, seconds=left)
            if response is not None:
                if submitted.after == 0:  # it began the task, so nobody else's message was there before
                    return response
                end = await self._end_of_generation(submitted.key, after)
                if end.answers(submitted.seq):
                    return response
                generation, after = generation + 1, end.seq
            elif until is not None and self._now() >= until:
                return None

    async def _end_of_generation(self, key: TaskKey, after: int) -> Event:
        return next(event for event in await self.store.read_events(key, after=after) if event.is_terminal)

    async def watch(
        self, key: TaskKey, *, after: int = 0, answering: int | None = None, heartbeat: float = 15.0
    ) -> AsyncGenerator[list[Event]]:
        """The task's events past `after`, in batches as they happen; an empty batch is a heartbeat.

        Ends with the event that answers the message with the seq `answering` or, without one, when the task
        has stopped and every event was given.
        """
        while True:
            task = await self._load(key)
            events = await self.store.read_events(key, after=after)
            if answering is not None:
                events = _up_to_answer(events, answering)
            if events:
                yield events
                after = events[-1].seq
                if answering is not None and events[-1].answers(answering):
                    return
                if after > task.seq:  # somebody has committed since the task was loaded: it may have stopped
                    continue
            if answering is None and not task.is_running and after >= task.seq:
                return
            if await self.store.wait_for_change(key, after=after, seconds=heartbeat) <= after:
                yield []

    async def _load(self, key: TaskKey) -> Task:
        task = await self.store.load(key)
        if task is None:
            raise TaskNotFound(f"there is no task {key.task_id!r}")
        return task

    def _now(self) -> float:
        return self.clock.now().timestamp()


def _up_to_answer(events: list[Event], seq: int) -> list[Event]:
    for position, event in enumerate(events):
        if event.answers(seq):
            return events[: position + 1]
    return events
