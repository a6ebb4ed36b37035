"""Reading a task as it was after an earlier commit.

A commit stores the task's state, and which mail it delivered and consumed; the messages themselves are in the events of
their commits. So the mail that waited after a commit is all that was delivered up to it, less what was consumed.

A commit without events has no seq of its own. It changes the state after the last event, and what was consumed up to
it.
"""

from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic_core import from_json, to_json

from mail.core.engine.pacing import Paced
from mail.core.engine.watch import SLICE_BYTES
from mail.core.protocol.message import MAILMessage, Tier
from mail.core.task.change import HistoryRecord, InboxEntry, Inheritance, Snapshot, TaskChange
from mail.core.task.events import Event, encode_events
from mail.core.task.size import event_size
from mail.core.task.task import Task
from mail.errors import BadRequest, SnapshotExpired

MOVED_BY = 2**30
"""By so much less is the seq of a history whose commit was dropped: behind all that a fork inherits."""

Waiting = dict[tuple[str, int], Tier]
"""The tiers of waiting mail, by mailbox and seq."""


def rows_of(change: TaskChange) -> list[tuple[int, HistoryRecord | None, bytes]]:
    """Split a commit into rows with at most one agent's history each: seq, history and encoded events.

    A commit is one row, except for an import: a new task with the histories of several agents has a row for each, and
    all but the last row have one of the first events. What a fork inherits is copied to further rows.
    """
    if len(change.histories) < 2:
        return [(change.last_seq, change.histories[0] if change.histories else None, change.encoded_events)]
    *early, last = change.histories
    assert len(change.events) > len(early)
    rows = [
        (event.seq, record, encode_events([event]))
        for event, record in zip(change.events, early, strict=False)
    ]
    return [*rows, (change.last_seq, last, encode_events(change.events[len(early) :]))]


async def fork_slices(
    change: TaskChange,
    inherits: Inheritance,
    read: Callable[[int], Awaitable[MAILMessage]],
    pacer: Paced,
) -> AsyncGenerator[TaskChange]:
    """Yield the first commit of a fork in slices, so that one of them is in memory at a time.

    `read` returns a message of the first task by its seq there. The slice with the last event makes the task complete;
    usually it is the only one.
    """
    entries: defaultdict[int, list[InboxEntry]] = defaultdict(list)
    for entry in change.deliveries:
        entries[entry.seq].append(entry)
    events, deliveries, histories, size = list[Event](), list[InboxEntry](), change.histories, 0

    def part() -> TaskChange:
        return replace(
            change,
            events=tuple(events),
            encoded_events=encode_events(events),
            deliveries=tuple(deliveries),
            histories=histories,
        )

    for event in change.events:
        if event.message is not None and event.seq in inherits.mail:
            if size > SLICE_BYTES:
                yield part()
                events, deliveries, histories, size = [], [], (), 0
            found = await read(inherits.mail[event.seq])
            message = found.copied_to(change.task.task_id, new_id=event.message.id)
            events.append(event._replace(message=message))
            deliveries += (replace(entry, message=message) for entry in entries[event.seq])
        else:
            events.append(event)
            deliveries += entries[event.seq]
        added = event_size(events[-1])
        await pacer.pause(added)
        size += added
    yield part()


def encode_delivered(change: TaskChange) -> str | None:
    """Encode which mail a commit delivers: `[[mailbox, tier, seq], …]`."""
    if not change.deliveries:
        return None
    return to_json([(entry.mailbox, int(entry.tier), entry.seq) for entry in change.deliveries]).decode()


def encode_read(change: TaskChange) -> str | None:
    """Encode which mail a commit consumes: `[mailbox, seq, …]`. Two such lists make one that says what both say."""
    consumed = change.consumed
    if consumed is None:
        return None
    return to_json([consumed.mailbox, consumed.seq, *(entry.seq for entry in change.also_read)]).decode()


def decode_read(read: str | bytes | None) -> list[tuple[str, int]]:
    """Return the mailbox and seq of each message that `encode_read` has encoded."""
    if read is None:
        return []
    mailbox = ""
    positions = []
    for each in from_json(read):
        if isinstance(each, str):
            mailbox = each
        else:
            positions.append((mailbox, each))
    return positions


def delivered_by(delivered: str | bytes | None) -> Waiting:
    """Return the mail that `encode_delivered` has encoded."""
    return {(mailbox, seq): Tier(tier) for mailbox, tier, seq in from_json(delivered)} if delivered else {}


def follow_mail(waiting: Waiting, commits: Iterable[Sequence[Any]]) -> None:
    """Change which mail waits as commits did, each given as `encode_delivered` and `encode_read` have encoded it."""
    for delivered, read in commits:
        waiting |= delivered_by(delivered)
        for position in decode_read(read):
            waiting.pop(position, None)


def check_snapshot(task: Task, at: int) -> None:
    """Raise BadRequest unless the task has an event of this seq."""
    if not 1 <= at <= task.seq:
        raise BadRequest(f"task {task.task_id!r} has events 1 to {task.seq}; it has no event {at}")


def check_stored(first: Event, at: int) -> None:
    """Raise SnapshotExpired if the first stored event of a task is behind this seq."""
    if first.seq > at:
        raise SnapshotExpired


def take_snapshot(task: Task, waiting: Mapping[tuple[str, int], Tier]) -> Snapshot:
    """Assemble the task as it was, from the mail that waited.

    Raises SnapshotExpired if some of the commits that delivered the mail are no longer stored.
    """
    mail = sorted((tier, seq, mailbox) for (mailbox, seq), tier in waiting.items())
    expected = {
        (mailbox, tier): count
        for mailbox, counts in task.pending.items()
        for tier, count in zip(Tier, counts, strict=True)
        if count
    }
    if Counter((mailbox, tier) for tier, _, mailbox in mail) != expected:
        raise SnapshotExpired(
            f"not all of the mail that waited in task {task.task_id!r} at {task.seq} is stored"
        )
    return Snapshot(task, mail)


def message_of(events: Iterable[Event], seq: int) -> MAILMessage | None:
    """Return the message that one of a commit's events announces."""
    return next((event.message for event in events if event.seq == seq), None)
