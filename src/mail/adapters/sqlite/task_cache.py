"""A task in memory, for a store that is the only writer."""

from bisect import insort
from collections import defaultdict
from collections.abc import Iterable

from mail.core.protocol.message import MAILMessage
from mail.core.task.change import InboxEntry, Position, TaskChange
from mail.core.task.leases import Claim, Lease, due_of
from mail.core.task.mailboxes import goes_out
from mail.core.task.size import json_size, message_size, paused_size, text_size
from mail.core.task.stored import TaskEncoder
from mail.core.task.task import Task
from mail.core.task.turn_state import Checkpoint

IndexColumns = tuple[str, float | None, bool, bool]
"""The columns of a task's row that tasks are looked up by: status, due, delivering and dead."""


def index_columns(task: Task, leases: Iterable[Lease] = ()) -> IndexColumns:
    """Return what the row of a task with these leases has in these columns."""
    return task.listed_as, due_of(task, leases), task.has_outbound_mail, bool(task.dead_letters)


class CachedTask:
    """A task with the positions of its mail, as in the file, and its leases.

    The texts of messages and checkpoints are kept, too, until `forget`.

    Attributes:
        row: the task's row in the file.
        columns: what that row says.
        encoder: encodes the states of the task for the file.
        leases: the leases of running turns, and parks, by mailbox.
        open_turns: the places of turns in the file of open turns, by mailbox (`mail.adapters.sqlite.open_turns`).
        answer: the last generation that has ended while the task was cached, and its finishing message, if it is kept.
        checkpoints: the mailbox and seq of each message with an unfinished turn, and its checkpoint, if it is kept.
        size: the size of the texts that are kept, and of the arguments of calls at which the task is paused.
        committing: the change that a thread is writing to the file.
    """

    def __init__(self, row: int, task: Task, encoder: TaskEncoder) -> None:
        self.row = row
        self.task = task
        self.columns = index_columns(task)
        self.encoder = encoder
        self.answer: tuple[int, MAILMessage] | None = None
        self.leases: dict[str, Lease] = {}
        self.open_turns: dict[str, int] = {}
        self.checkpoints: dict[tuple[str, int], Checkpoint | None] = {}
        self.size = paused_size(task.generation.breakpoint)
        self.committing: TaskChange | None = None
        self._mail: defaultdict[str, list[Position]] = defaultdict(list)
        self._entries: dict[Position, InboxEntry] = {}

    def is_leased(self, mailbox: str, now: float) -> bool:
        """Return whether the mailbox has a lease that has not expired, or whose turn is being committed.

        A park counts until it is over.
        """
        lease = self.leases.get(mailbox)
        if lease is None or lease.is_over(self.task, mailbox):
            return False
        return lease.expires > now or self._is_committing(mailbox)

    def has_lease(self, turn: Claim) -> bool:
        """Return whether the mailbox of a turn is still leased to it, or was last."""
        lease = self.leases.get(turn.mailbox)
        return lease is not None and lease.token == turn.lease.token

    def has_expired(self, now: float) -> bool:
        """Return whether a worker has not renewed a lease in time."""
        return any(0.0 < lease.expires <= now and lease.park is None for lease in self.leases.values())

    def count_leases(self, now: float, besides: str) -> int:
        """Return the number of leased mailboxes of agents, besides one of them, whose park mail may have ended."""
        others = (lease for name, lease in self.leases.items() if name != besides and not goes_out(name))
        return sum(lease.expires > now for lease in others)

    @property
    def is_in_use(self) -> bool:
        """Whether a turn runs or a thread writes, so that the task must stay in memory; parks are in the file."""
        return self.committing is not None or any(lease.park is None for lease in self.leases.values())

    def head(self, mailbox: str) -> Position | None:
        """Return where the next message of a mailbox is."""
        mail = self._mail.get(mailbox)
        return mail[0] if mail else None

    def all_mail(self) -> list[Position]:
        """Return where all mail waits, by (tier, seq, mailbox)."""
        return sorted(position for mail in self._mail.values() for position in mail)

    def mailboxes(self) -> list[str]:
        """Return the mailboxes that have had mail."""
        return list(self._mail)

    def entry(self, position: Position) -> InboxEntry | None:
        """Return a waiting message; None if its text is not kept."""
        return self._entries.get(position)

    def place(self, position: Position) -> None:
        """Add a message whose text is in the file."""
        insort(self._mail[position[2]], position)

    def keep_checkpoint(self, mailbox: str, seq: int, checkpoint: Checkpoint) -> None:
        """Keep the checkpoint of a turn."""
        self._drop_checkpoint(mailbox, seq)
        self.checkpoints[mailbox, seq] = checkpoint
        self.size += _checkpoint_size(checkpoint)

    def finished_checkpoint(self, change: TaskChange) -> tuple[str, int] | None:
        """Return the key of the checkpoint of the turn that the change ends, if there is one."""
        if change.consumed is None:
            return None
        key = (change.consumed.mailbox, change.consumed.seq)
        return key if key in self.checkpoints else None

    def apply(self, change: TaskChange, columns: IndexColumns) -> None:
        """Apply a change that was committed to the file, and what the task's row says after it."""
        if change.response is not None and change.ended is not None:
            self._keep_answer(change.ended, change.response)
        if change.task.generation.breakpoint is not self.task.generation.breakpoint:
            before, after = self.task.generation.breakpoint, change.task.generation.breakpoint
            self.size += paused_size(after) - paused_size(before)
        self.task, self.columns = change.task, columns
        if change.consumed is not None:
            mailbox = change.consumed.mailbox
            mail = self._mail[mailbox]
            for entry in (change.consumed, *change.also_read):
                position = (entry.tier, entry.seq, mailbox)
                mail.remove(position)
                if (kept := self._entries.pop(position, None)) is not None:
                    self.size -= kept.size
            if self.checkpoints:
                self._drop_checkpoint(mailbox, change.consumed.seq)
        for entry in change.deliveries:
            position = (entry.tier, entry.seq, entry.mailbox)
            insort(self._mail[entry.mailbox], position)
            self._entries[position] = entry
            self.size += entry.size

    def forget(self) -> None:
        """Drop all texts that are kept; they are in the file."""
        self.answer = None
        self.checkpoints = dict.fromkeys(self.checkpoints)
        self._entries = {}
        self.size = paused_size(self.task.generation.breakpoint)

    def _is_committing(self, mailbox: str) -> bool:
        change = self.committing
        return change is not None and change.turn is not None and change.turn.mailbox == mailbox

    def _keep_answer(self, generation: int, message: MAILMessage) -> None:
        if self.answer is not None:
            self.size -= message_size(self.answer[1])
        self.answer = (generation, message)
        self.size += message_size(message)

    def _drop_checkpoint(self, mailbox: str, seq: int) -> None:
        kept = self.checkpoints.pop((mailbox, seq), None)
        if kept is not None:
            self.size -= _checkpoint_size(kept)


def _checkpoint_size(checkpoint: Checkpoint) -> int:
    calls = sum(
        json_size(call.tool_args) + json_size(call.completion) + json_size(call.responses)
        for call in checkpoint.calls
    )
    results = sum(text_size(receipt.content) for receipt in checkpoint.receipts if receipt is not None)
    return calls + results
