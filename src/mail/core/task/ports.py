"""Ports: what the engine needs from outside. The implementations are in `mail.adapters`."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from mail.core.protocol.message import MAILMessage, Tier
from mail.core.task.change import Claim, InboxEntry, Lease, Snapshot, TaskChange, Turn, WebhookClaim
from mail.core.task.events import Event
from mail.core.task.interswarm import PeerHealth, PeerRecord
from mail.core.task.task import Task, TaskKey, TaskStatus
from mail.core.task.turn_state import Checkpoint
from mail.core.task.webhooks import WebhookRecord


@dataclass(frozen=True, slots=True)
class WakeUp:
    """A hint that a mailbox has mail. It may be lost or duplicated, as the inbox decides.

    Attributes:
        cause: why the mail waits, such as the version of the task. A queue may drop duplicates, with the same mailbox and
            cause, for some minutes. Empty: no duplicate of any other.
        since: the last change of the task, as in `Task.updated`; the mail has waited since then at least.
        seq: the last seq of the task; later mail has a higher seq, and a wake-up of its own.
        not_before: when to wake the mailbox, in seconds since the epoch; 0 for immediately.
    """

    key: TaskKey
    mailbox: str
    tier: Tier
    cause: str = field(default="", compare=False)
    since: str = field(default="", compare=False)
    seq: int = field(default=0, compare=False)
    not_before: float = field(default=0.0, compare=False)


def wake_ups(task: Task) -> list[WakeUp]:
    """Return a wake-up for every mailbox of a task whose mail must be processed."""
    cause = str(task.version)
    return [
        WakeUp(task.key, mailbox, tier, cause, task.updated, task.seq, task.rests_until(mailbox))
        for mailbox, tier in task.ready()
    ]


class TurnQueue(Protocol):
    """Port: wakes workers."""

    async def publish(self, tokens: Sequence[WakeUp]) -> None:
        """Publish wake-ups: urgent tiers first, first in first out inside a tier."""
        ...


@dataclass(frozen=True, slots=True)
class Leased:
    """The mailbox is leased to another worker, whose commit will see its mail."""


@dataclass(frozen=True, slots=True)
class Idle:
    """There is no turn to run: the task is unknown or not running, or the mailbox is empty."""

    task: Task | None


@dataclass(frozen=True, slots=True)
class TaskPage:
    """A page of tasks, newest first; `cursor` leads to the next page, None on the last.

    If `is_ordered` is False, the tasks have no order, and the next page may contain newer ones.
    """

    tasks: list[Task]
    cursor: str | None
    is_ordered: bool = True


class Store(Protocol):
    """Port: stores tasks. A commit is atomic and, when acknowledged, durable."""

    async def load(self, key: TaskKey) -> Task | None:
        """Return the task's current state; None for an unknown task."""
        ...

    async def open_turn(
        self, key: TaskKey, mailbox: str, lease: Lease, *, now: float, history_after: int
    ) -> Turn | Leased | Idle:
        """Lease a mailbox that may be opened (`Task.lets_open`), and read what its next turn needs.

        `history_after` is the number of history portions that the caller already has. Leases that have expired at `now`
        don't count.
        """
        ...

    async def claim(
        self, key: TaskKey, mailbox: str, lease: Lease, *, now: float
    ) -> WebhookClaim | Leased | Idle:
        """Lease a mailbox that goes out (`mail.core.task.mailboxes.goes_out`), without reading messages.

        Return Idle only for an unknown task, or one with nothing to deliver.
        """
        ...

    async def save_checkpoint(self, turn: Turn, checkpoint: Checkpoint) -> None:
        """Store the progress of a turn. Raises LeaseLost if another worker has its lease."""
        ...

    async def read_leases(self, key: TaskKey, *, now: float) -> dict[str, Lease]:
        """Return the leases of a task that have not expired at `now`, by mailbox."""
        ...

    async def release(self, turn: Claim) -> None:
        """Release the lease without a commit; the mail stays."""
        ...

    async def commit(self, change: TaskChange) -> None:
        """Apply the change as a whole.

        Raises VersionConflict if the task is not at `expected_version`, and LeaseLost if another worker has the turn's
        lease; then nothing is written.
        """
        ...

    async def read_history(
        self, key: TaskKey, agent: str, *, upto: int | None = None
    ) -> list[dict[str, object]]:
        """Return the agent's history in a task, oldest first: all of it, or the first `upto` portions."""
        ...

    async def read_snapshot(self, key: TaskKey, at: int) -> Snapshot:
        """Return the task after the commit with the event `at`.

        `read_history`, up to the number in the snapshot's `histories`, returns the agents' histories. Raises BadRequest
        for an unknown event, and SnapshotExpired if that state is no longer stored.
        """
        ...

    async def read_inbox(self, key: TaskKey) -> list[InboxEntry]:
        """Return all mail in the task's mailboxes, in (tier, seq) order."""
        ...

    async def read_events(self, key: TaskKey, *, after: int = 0, limit: int | None = None) -> list[Event]:
        """Return the events with a higher seq than `after`, in order: all, or the first `limit`."""
        ...

    async def read_response(self, key: TaskKey, generation: int) -> MAILMessage | None:
        """Return the finishing message of a generation; None before it has ended."""
        ...

    async def wait_for_response(self, key: TaskKey, generation: int, *, seconds: float) -> MAILMessage | None:
        """Wait for a response and return it; None after `seconds`."""
        ...

    async def wait_for_change(self, key: TaskKey, *, after: int, seconds: float) -> int:
        """Wait until the task's seq exceeds `after` and return it; return `after` after `seconds`."""
        ...

    async def list_tasks(
        self,
        instance: str | None,
        *,
        status: TaskStatus | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> TaskPage:
        """Return a page of an instance's tasks, newest first. Raises BadRequest for an invalid cursor.

        Without an instance, return tasks of all; a store may have no order for those, and miss tasks that begin meanwhile.
        """
        ...

    async def list_ready(self, *, quiet_since: str | None = None) -> list[WakeUp]:
        """Return wake-ups for all mailboxes, of all tasks, whose mail must be processed; a restart or sweep publishes them.

        With `quiet_since`, a time as in `Task.updated`, return those of tasks not changed since.
        """
        ...

    async def list_overdue(self, now: float) -> list[TaskKey]:
        """Return the running tasks whose deadline (`Task.deadline`) has passed."""
        ...

    async def list_dead(
        self, instance: str | None, *, limit: int = 100, cursor: str | None = None
    ) -> TaskPage:
        """Return a page of tasks with dead letters, of an instance, newest first, or of all, in any order.

        The list may be slightly out of date. Raises BadRequest for an invalid cursor.
        """
        ...

    async def count_running(self, instance: str, *, upto: int) -> int:
        """Return how many tasks of an instance are running, at most `upto`; it may be slightly out of date."""
        ...

    async def count_active_instances(self) -> int:
        """Return how many instances have a running task."""
        ...


CallerRole = Literal["admin", "user", "agent"]
"""What a token lets its bearer be; an `agent` is another swarm."""


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """A built-in token as it is kept: only the SHA-256 digest of its text, in hex."""

    digest: str
    role: CallerRole
    id: str
    created: str


@dataclass(frozen=True, slots=True)
class TemplateRecord:
    """A swarm that an admin has loaded in the place of the configured one.

    Attributes:
        text: the swarm, as an entry of swarms.json.
        loaded: when, in ISO 8601, UTC.
        replaces: the SHA-256 digest, in hex, of the configured swarm at that time; it holds only in its place.
    """

    text: str
    loaded: str
    replaces: str


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """A caller's idempotency key.

    Attributes:
        digest: of the request that it was used for first.
        task_id: the task of that request.
        until: when it is forgotten, in seconds since the epoch.
    """

    digest: str
    task_id: str
    until: float


class ServerRecords(Protocol):
    """What a server keeps besides tasks."""

    async def claim_key(self, caller: str, key: str, record: KeyRecord, *, now: float) -> KeyRecord:
        """Keep what a key is used for, unless that is known already; returns what is known."""
        ...

    async def forget_key(self, caller: str, key: str, task_id: str) -> None:
        """Forget a key that was claimed for this task, of a request that was refused."""
        ...

    async def add_token(self, record: TokenRecord) -> None:
        """Keep a token."""
        ...

    async def find_token(self, digest: str) -> TokenRecord | None:
        """The token with this digest."""
        ...

    async def has_tokens(self) -> bool:
        """Whether any token was ever added."""
        ...

    async def tokens(self) -> list[TokenRecord]:
        """All tokens that are kept, the oldest first."""
        ...

    async def remove_token(self, digest: str) -> bool:
        """Forget a token; returns whether it was there."""
        ...

    async def health(self) -> str | None:
        """The health status that an admin has set, if any."""
        ...

    async def set_health(self, status: str) -> None:
        """Set the health status that other swarms see."""
        ...

    async def template(self) -> TemplateRecord | None:
        """The swarm that was loaded last, if any was."""
        ...

    async def set_template(self, record: TemplateRecord) -> None:
        """Keep a loaded swarm in the place of the one before it."""
        ...

    async def peers(self) -> list[PeerRecord]:
        """The swarms that are known, by name; those that have expired may be among them."""
        ...

    async def peer(self, name: str) -> PeerRecord | None:
        """The swarm of this name."""
        ...

    async def set_peer(self, record: PeerRecord) -> None:
        """Keep a swarm, in the place of the one of its name."""
        ...

    async def delete_peer(self, name: str) -> bool:
        """Forget a swarm; returns whether it was known."""
        ...

    async def peers_health(self) -> dict[str, PeerHealth]:
        """How the known swarms were when somebody looked last, by name; those never looked at are missing."""
        ...

    async def set_peer_health(self, name: str, health: PeerHealth) -> None:
        """Remember how a swarm is; one that is not known stays unknown."""
        ...

    async def webhooks(self, caller: str) -> list[WebhookRecord]:
        """The webhooks that a caller (`role:id@swarm`) has registered, the oldest first."""
        ...

    async def set_webhook(self, caller: str, record: WebhookRecord, *, limit: int) -> bool:
        """Keep a webhook, in the place of the one with its id; False where the caller has `limit` others."""
        ...

    async def delete_webhook(self, caller: str, webhook_id: str) -> bool:
        """Forget a webhook; returns whether it was known."""
        ...
