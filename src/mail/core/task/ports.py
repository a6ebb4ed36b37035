"""What the engine needs from the outside, in its own words. Adapters live in `stores` and `queues`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from mail.core.protocol.message import MAILMessage, Tier
from mail.core.task.change import Claim, InboxEntry, Lease, Snapshot, TaskChange, Turn, WebhookClaim
from mail.core.task.documents import Document, Kind, PutIf
from mail.core.task.events import Event
from mail.core.task.task import Task, TaskKey, TaskStatus
from mail.core.task.turn_state import Checkpoint


@dataclass(frozen=True, slots=True)
class WakeUp:
    """A hint that a mailbox has mail. It may be lost or doubled: the inbox is the truth.

    Attributes:
        cause: why the mail waits, such as the version of the task that brought it. Tokens of one mailbox with one
            cause are one wake-up: a queue may drop all but the first for some minutes. Empty: like no other.
        since: when the task changed last, as in `Task.updated`; the mail has waited for at least as long.
        seq: how far the task was; mail with a higher seq came later, and has a token of its own.
        not_before: when the mailbox is to be woken, in seconds since the epoch; 0 for at once.
    """

    key: TaskKey
    mailbox: str
    tier: Tier
    cause: str = field(default="", compare=False)
    since: str = field(default="", compare=False)
    seq: int = field(default=0, compare=False)
    not_before: float = field(default=0.0, compare=False)


def wake_ups(task: Task) -> list[WakeUp]:
    """A token for every mailbox of a task with mail that is to be worked on."""
    cause = str(task.version)
    return [
        WakeUp(task.key, mailbox, tier, cause, task.updated, task.seq, task.rests_until(mailbox))
        for mailbox, tier in task.ready()
    ]


class TurnQueue(Protocol):
    """Wakes workers up."""

    async def publish(self, wake_ups: Sequence[WakeUp], /) -> None:
        """Hand out the tokens: urgent tiers first, first in first out inside a tier."""
        ...


@dataclass(frozen=True, slots=True)
class Leased:
    """Somebody else runs a turn of this mailbox; their commit will see its mail."""


@dataclass(frozen=True, slots=True)
class Idle:
    """There is no turn to run: no such task, it isn't running, or the mailbox is empty."""

    task: Task | None


@dataclass(frozen=True, slots=True)
class TaskPage:
    """Some tasks, newest first; `cursor` asks for the next page, None on the last.

    They are in no order where `is_ordered` is False; what is on the next page may be newer then.
    """

    tasks: list[Task]
    cursor: str | None
    is_ordered: bool = True


class Store(Protocol):
    """Where tasks live. A commit is atomic and, once acknowledged, durable."""

    async def load(self, key: TaskKey) -> Task | None:
        """The task's current state."""
        ...

    async def open_turn(
        self, key: TaskKey, mailbox: str, lease: Lease, *, now: float, history_after: int
    ) -> Turn | Leased | Idle:
        """Lease a mailbox of a task that lets it be opened (`Task.lets_open`), and read what its next turn needs.

        `history_after` is the number of history records the caller already has. A lease that has
        expired at `now` counts as none.
        """
        ...

    async def claim(
        self, key: TaskKey, mailbox: str, lease: Lease, *, now: float
    ) -> WebhookClaim | Leased | Idle:
        """Lease a mailbox that goes out (`mail.core.task.mailboxes.goes_out`), without looking for messages in it.

        Idle only where there is no such task, or nothing for it to do.
        """
        ...

    async def save_checkpoint(self, turn: Turn, checkpoint: Checkpoint) -> None:
        """Remember how far the turn has come. Raises LeaseLost when the turn is not the caller's any more."""
        ...

    async def read_leases(self, key: TaskKey, *, now: float) -> dict[str, Lease]:
        """By mailbox, the leases of a task that have not expired at `now`."""
        ...

    async def release(self, turn: Claim) -> None:
        """Give the lease back without a commit; the mail stays."""
        ...

    async def commit(self, change: TaskChange) -> None:
        """Apply the change as a whole.

        Raises VersionConflict when the task is not at `expected_version`, LeaseLost when the turn's
        lease is somebody else's by now; then nothing is written.
        """
        ...

    async def read_history(
        self, key: TaskKey, agent: str, *, upto: int | None = None
    ) -> list[dict[str, object]]:
        """The agent's history in a task, oldest first: the whole of it, or its records up to the `upto`-th."""
        ...

    async def read_snapshot(self, key: TaskKey, at: int) -> Snapshot:
        """The task as the commit left it that holds the event `at`; what a commit does happens at once.

        An agent's history is then what `read_history` gives up to the number in the task's `histories`. Raises
        BadRequest for an event that the task does not have, MomentNotKept where that moment can't be read any more.
        """
        ...

    async def read_inbox(self, key: TaskKey) -> list[InboxEntry]:
        """All mail that waits in the task's mailboxes, in (tier, seq) order."""
        ...

    async def read_events(self, key: TaskKey, *, after: int = 0, limit: int | None = None) -> list[Event]:
        """The events with a higher seq than `after`, in order: all of them, or the first `limit`."""
        ...

    async def read_response(self, key: TaskKey, generation: int) -> MAILMessage | None:
        """The finishing message of a generation, once it has ended."""
        ...

    async def wait_for_response(self, key: TaskKey, generation: int, *, seconds: float) -> MAILMessage | None:
        """`read_response` as soon as there is one; None when the time is up."""
        ...

    async def wait_for_change(self, key: TaskKey, *, after: int, seconds: float) -> int:
        """Return the task's seq as soon as it is past `after`, or `after` when the time is up."""
        ...

    async def list_tasks(
        self,
        instance: str | None,
        *,
        status: TaskStatus | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> TaskPage:
        """A page of the instance's tasks, newest first. Raises BadRequest for a cursor it did not make.

        None: of everybody's. DynamoDB has no order of those, and a task that begins meanwhile may be missing.
        """
        ...

    async def list_ready(self, *, quiet_since: str | None = None) -> list[WakeUp]:
        """A token for every mailbox with mail to be worked on, of all tasks: what a restart or a sweep publishes.

        With `quiet_since`, a time as in `Task.updated`, only of the tasks that have not changed since.
        """
        ...

    async def list_overdue(self, now: float) -> list[TaskKey]:
        """The running tasks that are due (`Task.deadline`)."""
        ...

    async def list_dead(
        self, instance: str | None, *, limit: int = 100, cursor: str | None = None
    ) -> TaskPage:
        """A page of the tasks with dead letters (`Task.dead_letters`), of an instance or, in any order, of all of them.

        An instance's newest tasks come first. The list may lag behind a little. Raises BadRequest for a cursor that it
        did not make.
        """
        ...

    async def count_running(self, instance: str, *, upto: int) -> int:
        """How many tasks of an instance are running, counted to `upto` at most; it may lag behind a little."""
        ...

    async def count_active_instances(self) -> int:
        """How many instances have a running task."""
        ...


class Documents(Protocol):
    """Where everything lives that is not a task, as small documents. Each method is atomic."""

    async def get(self, kind: Kind, *key: str) -> Document | None:
        """Return a document; it may have expired."""
        ...

    async def put(
        self,
        kind: Kind,
        document: Document,
        *,
        condition: PutIf = PutIf.ALWAYS,
        now: float = 0.0,
        limit: int | None = None,
    ) -> bool:
        """Set the fields of a document, keep the fields that it has besides, and return whether the condition held.

        Args:
            now: an expired document counts as absent, in seconds since the epoch.
            limit: the most documents that may share all but the last part of the key; None for any number. Two
                writers at the same time may both find room.
        """
        ...

    async def delete(self, kind: Kind, *key: str, where: Mapping[str, str] | None = None) -> bool:
        """Delete a document if its fields have the values of `where`; return whether it was deleted."""
        ...

    async def find(self, kind: Kind, *partition: str) -> list[Document]:
        """Return the documents whose key begins with `partition`, in no order."""
        ...
