"""Ports: what the engine needs from outside. The implementations are in `mail.adapters`."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from math import inf
from typing import Protocol

from mail.core.protocol.interswarm import MAILInterswarmMessage
from mail.core.protocol.message import MAILMessage, Tier
from mail.core.protocol.values import value
from mail.core.task.change import Commit, InboxEntry, Snapshot, TaskChange, Turn
from mail.core.task.context import Portion
from mail.core.task.documents import Document, Kind, PutIf
from mail.core.task.events import Event
from mail.core.task.files import FileRef
from mail.core.task.interswarm import Peer, RemoteState
from mail.core.task.leases import Claim, DueTask, ExpiredLease, Lease, WebhookClaim
from mail.core.task.live import LiveEvent
from mail.core.task.search import Excerpt, Search, Searched
from mail.core.task.swarm import History
from mail.core.task.task import Task, TaskKey, TaskStatus
from mail.core.task.turn_state import Checkpoint
from mail.core.task.waits import Wait
from mail.core.task.webhooks import Reply, TaskWebhook, Webhook


@value
class WakeUp:
    """A hint that a mailbox has mail. It may be lost or duplicated, as the inbox decides.

    Attributes:
        cause: why the mail waits, such as the version of the task. A queue may drop duplicates, with the same mailbox
            and cause, for some minutes. Empty: no duplicate of any other.
        since: the last change of the task, as in `Task.updated`; the mail has waited since then at least.
        seq: the last seq of the task; later mail has a higher seq, and a wake-up of its own.
        not_before: when to wake the mailbox, in seconds since the epoch; 0 for immediately.
        overtakes: whether it need not wait for other wake-ups of its mailbox, one of which a dead worker may hold.
    """

    key: TaskKey
    mailbox: str
    tier: Tier
    cause: str = field(default="", compare=False)
    since: str = field(default="", compare=False)
    seq: int = field(default=0, compare=False)
    not_before: float = field(default=0.0, compare=False)
    overtakes: bool = field(default=False, compare=False)


def wake_ups(task: Task, among: Iterable[str] | None = None) -> list[WakeUp]:
    """Return a wake-up for every mailbox of a task whose mail must be processed; with `among`, only for these."""
    key, cause = task.key, str(task.version)
    return [
        WakeUp(key, mailbox, tier, cause, task.updated, task.seq, task.not_before(mailbox))
        for mailbox, tier in task.ready(among)
    ]


def look_at(key: TaskKey, at: float) -> WakeUp:
    """Return a wake-up for nobody: at that time, a worker looks after the task (`Runtime.look_after`).

    Queues whose processes sweep each second leave it out.
    """
    return WakeUp(key, "", Tier.SYSTEM, not_before=at)


FIRST = (0.0, "")
"""The place before all records that wait."""


class TurnQueue(Protocol):
    """Port: wakes workers."""

    async def publish(self, wake_ups: Sequence[WakeUp], /) -> None:
        """Publish wake-ups: urgent tiers first; inside a tier, those of one caller are first in first out."""


@value
class Busy:
    """The mailbox is leased to another worker, whose commit will see its mail, or its turn is parked."""


@value
class Idle:
    """There is no turn to run: the task is unknown or not running, or the mailbox is empty."""

    task: Task | None


@value
class CallerUsage:
    """What the tasks of an instance take up.

    Attributes:
        bytes: how many they store (`Task.stored_bytes`).
        asleep: how many of them are asleep (`Task.is_asleep`).
    """

    bytes: int = 0
    asleep: int = 0


PAGE_BYTES = 4 * 1024 * 1024
"""The size of states after which a page of tasks ends: thousands of usual ones, some with long calls that wait."""


@value
class TaskPage:
    """A page of tasks, newest first; `cursor` leads to the next page, None on the last.

    It ends early after PAGE_BYTES: tasks that are paused at long calls are large.

    If `is_ordered` is False, the tasks have no order, and the next page may contain newer ones. `cursors` are those
    behind each of the tasks. Of a search, `searched` says what was searched: all texts, only those of some tasks, as
    the others are still to be indexed, or only titles and ids; `excerpts` are where each of the tasks has the words.
    """

    tasks: list[Task]
    cursor: str | None
    is_ordered: bool = True
    cursors: tuple[str, ...] = ()
    searched: Searched = Searched.TEXTS
    excerpts: tuple[Excerpt | None, ...] = ()

    def upto(self, max_bytes: int) -> "TaskPage":
        """Return the beginning of the page: the tasks that have stored so many bytes together, and at least one."""
        total = 0
        for n, task in enumerate(self.tasks):
            total += task.stored_bytes
            if n and total > max_bytes:
                return replace(self, tasks=self.tasks[:n], cursor=self.cursors[n - 1])
        return self


class Contents(Protocol):
    """Port: stores long texts of tasks, each once under its reference (`mail.core.task.context.reference`)."""

    async def put_content(self, key: TaskKey, ref: str, text: str) -> None:
        """Store a text of a task, which a fork inherits; nothing happens if the task has it already."""

    async def read_content(
        self, key: TaskKey, ref: str, *, offset: int, length: int
    ) -> tuple[str, int] | None:
        """Return `length` characters of a text from `offset` on, and how many it has in all; None for no such text."""


class WaitRecords(Protocol):
    """Port: the records of calls that finish later, and of timers; commits change them, too (`TaskChange.waits`)."""

    async def put_wait(self, key: TaskKey, wait: Wait, *, instead_of: Wait | None = None) -> bool:
        """Store a record if there is none with its id, or only `instead_of` an unchanged one; return whether it is.

        Nothing else of the task is written.
        """

    async def read_wait(self, key: TaskKey, wait_id: str) -> Wait | None:
        """Return the record of a task with this id; None if there is none."""

    async def list_waits(self, key: TaskKey, *, after: tuple[float, str] = FIRST, limit: int) -> list[Wait]:
        """Return the first records of a task that wait, by (due, id), behind `after`.

        Some may be of calls and reminders that have ended with their task (`mail.core.decisions.waits.is_open`).
        """


class Store(Contents, WaitRecords, Protocol):
    """Port: stores tasks. A commit is atomic and, when acknowledged, durable."""

    async def load(self, key: TaskKey) -> Task | None:
        """Return the task's current state; None for an unknown task."""

    async def open_turn(
        self, key: TaskKey, mailbox: str, lease: Lease, *, now: float, history_after: int
    ) -> Turn | Busy | Idle:
        """Lease a mailbox that may be opened (`Task.lets_open`), and read what its next turn needs.

        `history_after` is the number of history portions that the caller already has. Portions that the agent no longer
        reads (`mail.core.task.context.Cut`) are left out. Leases that have expired at `now` don't count, nor does a
        park that is over (`Lease.is_over`). Raises TextGone if any of it is stored no longer.
        """

    async def claim(
        self, key: TaskKey, mailbox: str, lease: Lease, *, now: float
    ) -> WebhookClaim | Busy | Idle:
        """Lease a mailbox that goes out (`mail.core.task.mailboxes.goes_out`), without reading messages.

        Return Idle only for an unknown task, or one with nothing to deliver.
        """

    async def save_checkpoint(self, turn: Turn, checkpoint: Checkpoint, *, on_disk: bool = False) -> None:
        """Store the progress of a turn; with `on_disk`, so that it survives a power failure, whatever the settings are.

        Raises LeaseLost if another worker has its lease.
        """

    async def read_leases(self, key: TaskKey, *, now: float) -> dict[str, Lease]:
        """Return the leases of a task that have not expired at `now`, parks included, by mailbox."""

    async def renew(self, turns: Sequence[Claim], *, expires: float) -> set[str]:
        """Let the leases of turns expire at `expires`; return the tokens of those that are lost.

        A lease that has expired is renewed, too, unless another worker has its mailbox.
        """

    async def park(self, turn: Turn, parked: Lease, checkpoint: Checkpoint | None) -> None:
        """Replace the lease of a turn by a park, and store its checkpoint, if it has one; see `list_due`.

        Raises LeaseLost if another worker has its lease; then nothing is written.
        """

    async def end_expired(self, due: DueTask, *, now: float) -> list[ExpiredLease]:
        """End the leases and parks of a task that have expired at `now`, and return each to one caller only.

        They stay until their mailboxes are opened, with 0 for `expires`. The task is then due again when the next of
        them expires, or is to be checked later (`list_due`).
        """

    async def release(self, turn: Claim, *, left: Lease | None = None) -> None:
        """Release the lease without a commit; the mail stays.

        The lease that is `left` in its place (`Lease.ended`) is for the next turn to know (`Turn.replaced`).
        """

    async def commit(self, change: TaskChange) -> None:
        """Apply the change as a whole. Histories and mail that it inherits are copied before, piece by piece.

        Raises VersionConflict if the task is not at `expected_version`, and LeaseLost if another worker has the turn's
        lease; then nothing is written.
        """

    async def read_portions(
        self, key: TaskKey, agent: str, *, after: int = 0, upto: int | None = None, at: int | None = None
    ) -> list[Portion]:
        """Return the agent's history in a task, oldest first: all of it, or portion `after` + 1 up to portion `upto`.

        `at` is the seq of a commit before which all these portions were stored, so that a store need not look behind
        it.
        """

    async def read_commit(self, key: TaskKey, at: int) -> Commit:
        """Return the commit with the event `at`. The time and memory that it takes don't grow with the task.

        Of a fork's first commit, it may return only some of the events. Raises BadRequest for an unknown event, and
        SnapshotExpired if that commit is no longer stored.
        """

    async def read_snapshot(self, key: TaskKey, at: int) -> Snapshot:
        """Return the task after the commit with the event `at`.

        `read_events`, up to its `seq`, returns its events, and `read_portions`, up to the number in the snapshot's
        `histories`, the agents' histories: neither is read for the snapshot, nor is the mail. Raises BadRequest
        for an unknown event, and SnapshotExpired if that state is no longer stored.
        """

    async def read_inbox(
        self, key: TaskKey, *, after: InboxEntry | None = None, max_bytes: int | None = None
    ) -> list[InboxEntry]:
        """Return the mail in the task's mailboxes, in (tier, seq, mailbox) order; with `after`, the mail behind that.

        With `max_bytes`, the list ends with the message with which it reaches that size (`mail.core.task.size`).
        """

    async def read_events(
        self, key: TaskKey, *, after: int = 0, limit: int | None = None, max_bytes: int | None = None
    ) -> list[Event]:
        """Return the events with a higher seq than `after`, in order: all, or the first `limit`.

        With `max_bytes`, the list ends with the commit with which it reaches about that size; so a slice of a long
        timeline takes little memory, and an empty list still means that there are no more events.
        """

    async def read_response(self, key: TaskKey, generation: int) -> MAILMessage | None:
        """Return the finishing message of a generation; None before it has ended."""

    async def wait_for_response(self, key: TaskKey, generation: int, *, seconds: float) -> MAILMessage | None:
        """Wait for a response and return it; None after `seconds`."""

    async def wait_for_change(self, key: TaskKey, *, after: int, seconds: float) -> int:
        """Wait until the task's seq exceeds `after` and return it; return `after` after `seconds`."""

    async def list_tasks(
        self,
        instance: str | None,
        *,
        status: TaskStatus | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> TaskPage:
        """Return a page of an instance's tasks, newest first. Raises BadRequest for an invalid cursor.

        Without an instance, return tasks of all; a store may have no order for those, and miss tasks that begin
        meanwhile.
        """

    async def search(
        self, instance: str, search: Search, *, limit: int = 100, cursor: str | None = None
    ) -> TaskPage:
        """Return a page of the tasks of an instance that have what is searched for, the last changed first.

        What was committed less than five seconds ago may be missing. A store without an index of texts searches titles
        and ids, newest first, and may return less than a page. Raises BadRequest for an invalid cursor.
        """

    async def find_asks(self, who: str, *, start: str = "", limit: int) -> list[tuple[str, TaskKey]]:
        """Return what waits for a decision of somebody, oldest first from the id `start` on: ids, and the tasks.

        Commits change this index (`TaskChange.asks`); a deletion takes its task out of it.
        """

    async def list_ready(self, *, quiet_since: str | None = None, now: float = inf) -> list[WakeUp]:
        """Return wake-ups for all mailboxes of all tasks with mail to process; a restart or sweep publishes them.

        With `quiet_since`, a time as in `Task.updated`, return those of tasks not changed since. Leave out mailboxes
        with a lease that has not expired at `now`, or a park that is not over; by default none.
        """

    async def list_due(self, until: float) -> list[DueTask]:
        """Return the tasks that somebody must look after until then.

        These are the running and paused tasks that are due (`mail.core.task.leases.due_of`), and running ones with a
        lease that has expired. A store whose queue may lose wake-ups finds those leases, and parks of tasks that others
        have committed meanwhile, when it has the task checked: some minutes at most after its last commit or renewal,
        as long as mail waits. Of very many, it may leave out the last.
        """

    async def list_dead(
        self, instance: str | None, *, limit: int = 100, cursor: str | None = None
    ) -> TaskPage:
        """Return a page of tasks with dead letters, of an instance, newest first, or of all, in any order.

        The list may be slightly out of date. Raises BadRequest for an invalid cursor.
        """

    async def count_running(self, instance: str, *, upto: int) -> int:
        """Return how many tasks of an instance are running, at most `upto`; it may be slightly out of date."""

    async def count_active_instances(self) -> int:
        """Return how many instances have a running task."""

    async def list_oldest(self, *, limit: int, cursor: str | None = None) -> TaskPage:
        """Return a page of the tasks of all callers, oldest first, without those of the server.

        A store whose data expires has no such order: it returns none, and says so (`TaskPage.is_ordered`).
        """

    async def usage_of(self, instance: str) -> CallerUsage:
        """Return what the tasks of an instance take up; it may be slightly out of date."""

    async def delete(self, task: Task) -> None:
        """Delete a task, with everything that it stores, unless it has changed: it is gone as a whole.

        A process that dies meanwhile may leave invisible parts, which `list_due` deletes. Many may be deleted at the
        same time. Raises VersionConflict.
        """

    async def scrub(self, *, is_quiet: bool) -> bool:
        """Overwrite what deletions have left in unused space, and give that back; nothing to do for most stores.

        Call it after a deletion, and again while it returns true: there is more to do. What others have to wait for is
        done when it is called while this process `is_quiet`.
        """


async def read_history(
    store: Store, key: TaskKey, agent: str, *, after: int = 0, upto: int | None = None, at: int | None = None
) -> History:
    """Return the entries of an agent's history in a task, oldest first, within the bounds of `read_portions`."""
    portions = await store.read_portions(key, agent, after=after, upto=upto, at=at)
    return [entry for portion in portions for entry in portion.entries]


class LiveReceiver(Protocol):
    """Takes what a `LiveLink` brings from other processes."""

    def mark(self, key: TaskKey, *, seconds: float, deltas: bool) -> None:
        """Publish the live events of a task to the link for so many seconds, as another process watches it."""

    def deliver(self, key: TaskKey, events: Sequence[LiveEvent]) -> None:
        """Pass the events of a task that runs in another process to those who watch it here."""


class LiveLink(Protocol):
    """Port: carries live events between the processes of a store. It may lose events.

    It must cost nothing for tasks that nobody watches: no request to the store.
    """

    def attach(self, receiver: LiveReceiver) -> None:
        """Set who takes what comes from other processes."""

    async def announce(self, key: TaskKey, *, seconds: float, deltas: bool) -> None:
        """Let other processes know that this one watches a task, for so many seconds. Never raises."""

    def publish(self, key: TaskKey, event: LiveEvent) -> None:
        """Send an event of a task that another process watches; it may be sent later, together with others."""

    async def flush(self, key: TaskKey) -> None:
        """Send what can be sent at the end of a turn, after which the process may be frozen. Never raises."""


class Documents(Protocol):
    """Port: small documents, for everything that is not a task. Each method is atomic."""

    async def get(self, kind: Kind, *key: str) -> Document | None:
        """Return a document; it may have expired."""

    async def put(
        self,
        kind: Kind,
        document: Document,
        *,
        condition: PutIf = PutIf.ALWAYS,
        now: float = 0.0,
        limit: int | None = None,
        where: Mapping[str, str] | None = None,
    ) -> bool:
        """Set the fields of a document, keep the fields that it has besides, and return whether the condition held.

        Args:
            where: the values that its fields must have, with the condition PRESENT.
            now: an expired document counts as absent, in seconds since the epoch.
            limit: the most documents that may share all but the last part of the key; None for any number. Two
                writers at the same time may both find room.
        """

    async def delete(self, kind: Kind, *key: str, where: Mapping[str, str] | None = None) -> bool:
        """Delete a document if its fields have the values of `where`; return whether it was deleted."""

    async def find(self, kind: Kind, *partition: str) -> list[Document]:
        """Return the documents with a key that begins with `partition`, in no order."""

    async def page(self, kind: Kind, *, limit: int, before: str = "") -> list[Document]:
        """Return the last documents of a kind whose keys have one part, the last key first: those `before` a key."""


class Files(Protocol):
    """Port: stores the bytes of files, once per caller, and which tasks refer to them."""

    async def put_file(self, instance: str, file: FileRef, data: bytes, *, secret: str, now: float) -> None:
        """Store a file of a caller, until `UNUSED_SECONDS` after `now` if no task refers to it until then.

        Its `secret` signs the links to it. A file that is stored already keeps its name and secret.
        """

    async def unused_bytes(self, instance: str, *, now: float) -> int:
        """Return how many bytes a caller has stored about within the last day that no task refers to; not less."""

    async def find_file(self, instance: str, file_id: str) -> FileRef | None:
        """Return the reference of a caller's file, under the name that it was stored with; None if there is none."""

    async def read_secret(self, instance: str, file_id: str) -> str | None:
        """Return the secret of a caller's file; None if there is none."""

    async def read_file(self, instance: str, file_id: str) -> bytes | None:
        """Return the bytes of a caller's file; None if there is none."""

    async def keep_file(self, key: TaskKey, file: FileRef) -> bool:
        """Note that a task refers to a file of its caller, which then stays as long as the task; False if it is gone.

        The task may not exist yet. Nothing happens if it refers to the file already.
        """

    async def files_of(self, key: TaskKey) -> list[FileRef]:
        """Return the files that a task refers to, in no order."""

    async def drop_files(self, key: TaskKey) -> None:
        """Forget what a deleted task refers to, and delete the files to which no other task refers."""

    async def drop_unused(self, instance: str) -> None:
        """Delete the files of a caller to which no task refers."""


ReadFile = Callable[[str], Awaitable[bytes | None]]
"""Returns the bytes of a file by its id; None if it is gone."""


class Peers(Protocol):
    """Port: sends mail to other swarms."""

    async def deliver(
        self,
        message: MAILInterswarmMessage,
        *,
        back: bool,
        known: Peer | None = None,
        read: ReadFile | None = None,
    ) -> str | RemoteState | None:
        """Send a message to `/interswarm/back` or `/interswarm/forward`, or by the protocol of its peer.

        Return the principal under which the peer stores the task (its `local_runner`), if it says so; or the task of a
        peer that never calls this server. Raises PeerRefused for permanent errors: an unknown peer, no token, a 4xx
        response; and PeerUnavailable for temporary ones: no response in time, 429, 5xx, and, as PeerUnreachable, no
        connection.

        Args:
            known: the part of the peer in the task, if there is one.
            read: reads the files of the message; without it, the peer gets only those that it can fetch.
        """

    async def poll(self, swarm: str, task_id: str) -> RemoteState:
        """Return the state of a task at a peer that never calls this server. Raises as `deliver`."""

    async def cancel(self, swarm: str, task_id: str) -> None:
        """Cancel a task at such a peer, unless it has ended there. Raises as `deliver`."""

    async def origin_of(self, swarm: str) -> tuple[str, str]:
        """Return the `FileRef.origin` and `region` of files of a swarm; two empty texts for an unknown one."""

    async def fetch_file(self, file: FileRef) -> bytes:
        """Return a file from where it comes; it needs no registry. Raises PeerRefused and PeerUnavailable."""

    async def known(self) -> Sequence[str]:
        """Return the names of the swarms that mail can be sent to."""

    async def caller_ids(self, swarm: str) -> Sequence[str]:
        """Return the ids of the tokens with which a swarm may call this server, its own first.

        Empty for an unknown swarm, and for one that never calls.
        """

    async def obstacle(self, swarm: str) -> str:
        """Return why mail of a swarm can't be answered; empty if it can, as far as this process knows."""

    async def discover(self, urls: Sequence[str]) -> str:
        """Register the swarms that servers at these URLs run or know; return the outcome as text for an agent."""


class Members(Protocol):
    """Port: sends mail to members of the swarm that are outside of it (`mail.core.task.members`)."""

    async def send(self, key: TaskKey, member: str, address: str, message: MAILMessage, /) -> None:
        """Send what a task has for a member, once, however often it is called.

        `address` says where the member is reached (`SwarmCore.members`). Raises PeerRefused, PeerUnavailable.
        """


class Webhooks(Protocol):
    """Port: sends events to webhooks."""

    @property
    def retry_seconds(self) -> Sequence[float]:
        """The pauses after each consecutive failure."""

    async def check(self, webhook: Webhook) -> None:
        """Raise BadRequest for a URL that is not allowed, or a secret that doesn't exist."""

    async def registered(self, caller: str) -> Sequence[Webhook]:
        """Return the webhooks that a caller (`role:id@swarm`) has registered for its tasks."""

    async def link_token(self, secret_ref: str, approval_id: str) -> str:
        """Return the token in the link of an approval: it is made of the secret, so that nothing of it is stored.

        Raises BadRequest for a missing secret, and StoreUnavailable.
        """

    async def send(self, hook: TaskWebhook, event_id: str, body: bytes, *, seconds: float) -> Reply:
        """Send an event to a webhook, within so many seconds; the event id is the same at every attempt."""
