"""Live events through the table, as a turn and its watcher run in different functions.

The watcher notes in the item of the task until when it watches. A turn reads that with the lease that it takes or
renews, and then keeps its latest events in an item of its own, written once a second at most. The watcher reads these
items with the state of the task, for which it polls anyway. It infers the start and end of turns from their leases. A
turn that runs when the watch begins learns of it when it renews its lease; until then, the watcher infers from the
turn's checkpoint which actions run. A call that finishes later has an item of its own, too: a report reads the item of
the task, and with it who watches.
"""

import asyncio
import logging
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType

from mail.adapters.aws.items import META, Item, decode_leases, live_key, number, partition, string
from mail.adapters.aws.table import ConditionFailed, DynamoDBTable
from mail.adapters.shared.live import join_deltas
from mail.core.protocol.clock import Clock
from mail.core.task.leases import Lease
from mail.core.task.live import LiveEvent, LiveKind
from mail.core.task.mailboxes import goes_out
from mail.core.task.ports import LiveReceiver
from mail.core.task.task import TaskKey
from mail.core.task.turn_state import Checkpoint, Receipt
from mail.errors import StoreUnavailable

PAUSE_SECONDS = 1.0
"""Seconds between two writes of a turn."""

GATHER_SECONDS = 0.02
"""Seconds for which further events are awaited before a write."""

KEPT_BYTES = 4_000
"""The size of the latest events that a turn keeps in its item."""

KEPT_SECONDS = 3_600
"""Seconds after which DynamoDB deletes the item."""

CALL = "!"
"""The start of what stands in place of an agent's name for a call, before its digest."""

SYNTHETIC = 10**9
"""The number of the end of a turn that was seen from its lease."""

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Turn:
    """The latest events of a turn that runs here.

    Attributes:
        stored: how many of them the item has.
        written: when that was written, by the clock of the event loop.
        over: set when the turn has ended.
    """

    token: str
    written: float
    events: list[LiveEvent] = field(default_factory=list)
    stored: int = 0
    is_changed: bool = False
    over: asyncio.Event = field(default_factory=asyncio.Event)
    writing: asyncio.Task[None] | None = None

    def trim(self) -> None:
        """Join new pieces of text, and drop the oldest events that don't fit into the item."""
        self.events[self.stored :] = join_deltas(self.events[self.stored :])
        size = sum(len(event.encoded) for event in self.events)
        dropped = 0
        while size > KEPT_BYTES and dropped < len(self.events) - 1:
            size -= len(self.events[dropped].encoded)
            dropped += 1
        del self.events[:dropped]


@dataclass(slots=True)
class _Followed:
    """A task that is watched here, and what was seen in it.

    Attributes:
        began: since when it is watched, in ISO 8601.
        turns: the running turns, by agent.
        texts: by turn, the number of its last piece of text; by call, that of its last report.
        over: turns that were seen to end.
        inferred: actions that run according to a checkpoint, by turn and call.
        is_new: whether nothing was looked at yet.
    """

    began: str
    until: float
    deltas_until: float
    announced: float
    turns: dict[str, str] = field(default_factory=dict)
    texts: dict[str, int] = field(default_factory=dict)
    over: set[str] = field(default_factory=set)
    inferred: set[tuple[str, str]] = field(default_factory=set)
    is_new: bool = True


class DynamoDBLive:
    """`mail.core.task.ports.LiveLink` through the table."""

    def __init__(self, table: DynamoDBTable, clock: Clock) -> None:
        self._table = table
        self._clock = clock
        self._receiver: LiveReceiver | None = None
        self._marks: dict[TaskKey, tuple[float, float]] = {}
        self._turns: dict[tuple[TaskKey, str], _Turn] = {}
        self._followed: dict[TaskKey, _Followed] = {}

    def attach(self, receiver: LiveReceiver) -> None:
        self._receiver = receiver

    # ---------------------------------------------------------------------------------------------- the watcher

    async def announce(self, key: TaskKey, *, seconds: float, deltas: bool) -> None:
        now = self._now()
        self._followed = {each: known for each, known in self._followed.items() if known.until > now}
        known = self._followed.get(key)
        if known is not None:
            known.until = now + seconds
            if now - known.announced < seconds / 2 and (not deltas or known.deltas_until > now + seconds / 2):
                return
        else:
            known = self._followed[key] = _Followed(self._iso(now), now + seconds, 0.0, now)
        known.announced = now
        update, values = "SET #watched = :until", {":until": number(now + seconds)}
        if deltas:
            known.deltas_until = now + seconds
            update += ", #watched_deltas = :until"
        with suppress(ConditionFailed):  # the task has not begun
            try:
                await self._table.update((partition(key), META), update, "attribute_exists(#PK)", values)
            except StoreUnavailable:
                logger.warning("task %s: turns don't know that it is watched", key.task_id)

    def follows(self, key: TaskKey) -> bool:
        """Return whether the task is watched here, so that its live items must be read."""
        known = self._followed.get(key)
        return known is not None and known.until > self._now()

    def unaware(self, key: TaskKey, task: Item, items: Iterable[Item]) -> list[str]:
        """Return the agents whose turns run when the watch begins, and have published nothing: they may not know of it.

        A turn that was taken over is left out, as its checkpoint may be that of the earlier attempt.
        """
        known = self._followed.get(key)
        if known is None or not known.is_new:
            return []
        known.is_new = False
        published = set[str]()
        for item in items:
            with suppress(ValueError):  # a newer version may have other events
                published.add(LiveEvent.decode_all(item["events"]["S"])[-1].turn)
        return [
            agent
            for agent, lease in self._running(task).items()
            if lease.token not in published and lease.attempt == 1
        ]

    def _running(self, task: Item) -> dict[str, Lease]:
        now = self._now()
        return {
            agent: lease
            for agent, lease in decode_leases(task).items()
            if lease.expires > now and lease.park is None and not goes_out(agent)
        }

    def take(
        self,
        key: TaskKey,
        task: Item,
        items: Iterable[Item],
        checkpoints: Mapping[str, Checkpoint] = MappingProxyType({}),
    ) -> None:
        """Deliver what the items of a task and of its turns say, and the checkpoints of those that are `unaware`."""
        known, receiver = self._followed.get(key), self._receiver
        if known is None or receiver is None:
            return
        now, leases = self._now(), self._running(task)
        events: list[LiveEvent] = []
        before, known.turns = known.turns, {agent: lease.token for agent, lease in leases.items()}
        for agent, lease in leases.items():
            if before.get(agent) != lease.token:
                events.append(_started(agent, lease, self._iso(now if lease.since is None else lease.since)))
        for agent, checkpoint in checkpoints.items():
            if agent not in leases:  # its lease has expired while the checkpoint was read
                continue
            for event in _running_actions(agent, leases[agent].token, checkpoint, self._iso(now)):
                known.inferred.add((event.turn, event.extra["tool_call_id"]))
                events.append(event)
        running = {*before.values(), *known.turns.values()}
        for item in items:
            with suppress(ValueError):  # a newer version may have other events
                events += self._new_events(known, LiveEvent.decode_all(item["events"]["S"]), running)
        there = decode_leases(task)
        for agent, token in before.items():
            if known.turns.get(agent) != token:
                outcome = "taken_over" if agent in there else "ended"
                events.append(_ended(agent, token, self._iso(now), outcome))
                known.over.add(token)
        receiver.deliver(key, events)

    def _new_events(
        self, known: _Followed, stored: Sequence[LiveEvent], running: Container[str]
    ) -> Iterator[LiveEvent]:
        """Yield the events of a turn's item; of a turn whose lease nobody saw, if it was watched, and with an end."""
        last = stored[-1]
        is_over = last.is_of_turn and last.turn not in running
        if is_over and (last.turn in known.over or last.timestamp < known.began):
            return
        for event in stored:
            if event.kind in (LiveKind.TEXT_DELTA, LiveKind.ACTION_PROGRESS):
                if event.n <= known.texts.get(event.turn, 0):
                    continue
                known.texts[event.turn] = event.n
            if event.kind is LiveKind.ACTION_STARTED and (
                (event.turn, event.extra["tool_call_id"]) in known.inferred
            ):
                continue
            yield event
        if is_over:
            known.over.add(last.turn)
            known.texts.pop(last.turn, None)
            yield _ended(last.extra["agent"], last.turn, last.timestamp, "ended")

    # -------------------------------------------------------------------------------------------------- the turn

    def note(self, key: TaskKey, task: Item) -> None:
        """Take note of who watches a task, from its item."""
        now = self._now()
        until = float(task["watched"]["N"])
        deltas = float(task["watched_deltas"]["N"]) if "watched_deltas" in task else 0.0
        self._marks = {each: mark for each, mark in self._marks.items() if mark[0] > now}
        if until > now and self._receiver is not None and self._marks.get(key) != (until, deltas):
            self._marks[key] = (until, deltas)
            self._receiver.mark(key, seconds=until - now, deltas=deltas > now)

    def publish(self, key: TaskKey, event: LiveEvent) -> None:
        agent = event.agent if event.is_of_turn else f"{CALL}{event.turn}"
        turn = self._turns.get((key, agent))
        if turn is None or turn.token != event.turn or turn.over.is_set():
            written = float("-inf") if turn is None else turn.written
            self._forget_ended()
            turn = self._turns[key, agent] = _Turn(event.turn, written)
        elif any(each.n == event.n for each in turn.events):
            return
        turn.events.append(event)
        if event.kind is LiveKind.TURN_ENDED:
            turn.over.set()
        elif event.kind is not LiveKind.TURN_STARTED:  # the lease shows both
            turn.is_changed = True
            if turn.writing is None:
                turn.writing = asyncio.create_task(self._write_soon(key, agent, turn))

    async def flush(self, key: TaskKey) -> None:
        """Write what is left of calls, and of turns that have ended and haven't written within the last second."""
        for name, turn in [*self._turns.items()]:
            is_call = name[1].startswith(CALL)
            if name[0] == key and (is_call or turn.over.is_set()) and turn.writing is not None:
                await turn.writing
                turn.over.set()
        self._forget_ended()

    def _forget_ended(self) -> None:
        """Forget the turns that have ended, except those that the next turn of their agent must wait for."""
        since = self._loop_time() - PAUSE_SECONDS
        self._turns = {
            name: turn
            for name, turn in self._turns.items()
            if not turn.over.is_set() or turn.writing is not None or turn.written >= since
        }

    async def _write_soon(self, key: TaskKey, agent: str, turn: _Turn) -> None:
        try:
            while turn.is_changed:
                pause = max(turn.written + PAUSE_SECONDS - self._loop_time(), GATHER_SECONDS)
                with suppress(TimeoutError):
                    await asyncio.wait_for(turn.over.wait(), pause)
                if self._loop_time() < turn.written + PAUSE_SECONDS:
                    return
                await self._write(key, agent, turn)
        finally:
            turn.writing = None

    async def _write(self, key: TaskKey, agent: str, turn: _Turn) -> None:
        turn.trim()
        turn.is_changed, turn.written, turn.stored = False, self._loop_time(), len(turn.events)
        item = {
            "PK": string(partition(key)),
            "SK": string(live_key(agent)),
            "events": string(f"[{b','.join(event.encoded for event in turn.events).decode()}]"),
            "expires_at": number(int(self._now()) + KEPT_SECONDS),
        }
        try:
            await self._table.put_many([item])
        except StoreUnavailable:
            logger.warning("task %s: live events could not be written", key.task_id)

    def _now(self) -> float:
        return self._clock.now().timestamp()

    @staticmethod
    def _loop_time() -> float:
        return asyncio.get_running_loop().time()

    @staticmethod
    def _iso(seconds: float) -> str:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def _started(agent: str, lease: Lease, timestamp: str) -> LiveEvent:
    extra = {"agent": agent} | ({"attempt": lease.attempt} if lease.attempt > 1 else {})
    return LiveEvent(
        LiveKind.TURN_STARTED, lease.token, 1, timestamp, f"agent {agent} has begun a turn", extra
    )


def _running_actions(agent: str, token: str, checkpoint: Checkpoint, timestamp: str) -> Iterator[LiveEvent]:
    """Yield the events of the actions that have begun, and of which the turn has no result yet."""
    for n, (call, receipt) in enumerate(
        zip(checkpoint.calls, checkpoint.receipts, strict=True), SYNTHETIC + 1
    ):
        if receipt is not None and receipt.state is Receipt.State.STARTED:
            extra = {"agent": agent, "tool_name": call.tool_name, "tool_call_id": call.tool_call_id}
            text = f"agent {agent}: the action {call.tool_name}"
            yield LiveEvent(LiveKind.ACTION_STARTED, token, n, timestamp, text, extra)


def _ended(agent: str, token: str, timestamp: str, outcome: str) -> LiveEvent:
    text = f"the turn of agent {agent} has ended"
    return LiveEvent(
        LiveKind.TURN_ENDED, token, SYNTHETIC, timestamp, text, {"agent": agent, "outcome": outcome}
    )
