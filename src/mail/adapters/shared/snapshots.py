"""What a commit keeps of the moment that it made, so that a task can be read as it was then.

A commit keeps the task's state, and which mail it has brought and taken; the messages themselves are in the events that
announced them. So the mail of a moment is what all commits up to then have brought, less what they have taken.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pydantic_core import from_json, to_json

from mail.core.protocol.message import Tier
from mail.core.task.change import HistoryRecord, InboxEntry, Snapshot, TaskChange
from mail.core.task.events import Event
from mail.core.task.task import Task
from mail.errors import BadRequest, SnapshotExpired

Waiting = dict[tuple[str, int], Tier]
"""By mailbox and seq, the mail that waits."""


def rows_of(change: TaskChange) -> Iterator[tuple[int, HistoryRecord | None, tuple[Event, ...]]]:
    """A commit as rows of a table in which a row holds one history record: its seq, record and events.

    That is one row but for a new task that brings the histories of several agents: then all but the last get a
    row with one of the first events.
    """
    *early, last = change.histories or (None,)
    assert len(change.events) > len(early) or not early
    for event, record in zip(change.events, early, strict=False):
        yield event.seq, record, (event,)
    yield change.task.seq, last, change.events[len(early) :]


def encode_delivered(change: TaskChange) -> str | None:
    """The places of the mail that a commit brings: `[[mailbox, tier, seq], …]`."""
    places = [(entry.mailbox, entry.tier, entry.seq) for entry in change.deliveries]
    return to_json(places).decode() if places else None


def encode_read(change: TaskChange) -> str | None:
    """The places of the mail that it takes away: `[mailbox, seq, …]`."""
    gone = change.consumed
    if gone is None:
        return None
    return to_json([gone.mailbox, gone.seq, *(entry.seq for entry in change.also_read)]).decode()


def deliver(waiting: Waiting, delivered: str | bytes | None) -> None:
    """Add what `encode_delivered` has written."""
    if delivered is not None:
        waiting |= {(mailbox, seq): Tier(tier) for mailbox, tier, seq in from_json(delivered)}


def waits_after(commits: Iterable[tuple[str | None, str | None]]) -> Waiting:
    """What waits after some commits, which are given by what `encode_delivered` and `encode_read` have written."""
    waiting: Waiting = {}
    for delivered, read in commits:
        if read is not None:
            mailbox, *seqs = from_json(read)
            for seq in seqs:
                waiting.pop((mailbox, seq), None)
        deliver(waiting, delivered)
    return waiting


def check_snapshot(task: Task, at: int) -> None:
    """Raise BadRequest unless the task has an event of this seq."""
    if not 1 <= at <= task.seq:
        raise BadRequest(f"task {task.task_id!r} has the events 1 to {task.seq}, and none with the seq {at}")


def take_snapshot(task: Task, waiting: Mapping[tuple[str, int], Tier], events: Sequence[Event]) -> Snapshot:
    """The task as it was, from the mail that waited and the events up to then.

    Raises MomentNotKept where some of that is missing: an earlier version did not keep it, or its retention is over.
    """
    messages = {event.seq: event.message for event in events if event.message is not None}
    places = sorted((tier, seq, mailbox) for (mailbox, seq), tier in waiting.items())
    expected = {
        (mailbox, tier): count
        for mailbox, counts in task.pending.items()
        for tier, count in zip(Tier, counts, strict=True)
        if count
    }
    is_whole = Counter((mailbox, tier) for tier, _, mailbox in places) == expected
    if not is_whole or any(seq not in messages for _, seq, _ in places):
        raise SnapshotExpired(
            f"not all of the mail that waited in task {task.task_id!r} at {task.seq} is kept"
        )
    mail = [InboxEntry(mailbox, tier, seq, messages[seq]) for tier, seq, mailbox in places]
    return Snapshot(task, [event for event in events if event.seq <= task.seq], mail)
