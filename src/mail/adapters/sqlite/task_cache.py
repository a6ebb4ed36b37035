"""A task in memory, for a store that is the only writer of its tasks."""

from bisect import insort
from collections import defaultdict
from operator import attrgetter

from mail.core.protocol.message import MAILMessage
from mail.core.task.change import InboxEntry, Lease, TaskChange
from mail.core.task.mailboxes import goes_out
from mail.core.task.task import Task
from mail.core.task.turn_state import Checkpoint

_place = attrgetter("tier", "seq")


class CachedTask:
    """What the file holds of a task and its inboxes, and who is at work on it.

    Attributes:
        row: the task's row in the file.
        leases: per mailbox, the lease of the turn that is being run.
        answer: the generation that ended last while in memory, and its finishing message.
        checkpoints: per mailbox and seq of a message, how far the unfinished turn that reads it has come.
    """

    def __init__(self, row: int, task: Task) -> None:
        self.row = row
        self.task = task
        self.answer: tuple[int, MAILMessage] | None = None
        self.leases: dict[str, Lease] = {}
        self.checkpoints: dict[tuple[str, int], Checkpoint] = {}
        self._mail: defaultdict[str, list[InboxEntry]] = defaultdict(list)

    def is_leased(self, mailbox: str, now: float) -> bool:
        """Whether somebody's lease of the mailbox has not expired."""
        lease = self.leases.get(mailbox)
        return lease is not None and lease.expires > now

    def count_leases(self, now: float) -> int:
        """How many mailboxes of agents are leased."""
        return sum(lease.expires > now for mailbox, lease in self.leases.items() if not goes_out(mailbox))

    def head(self, mailbox: str) -> InboxEntry | None:
        """The message that is next in a mailbox."""
        mail = self._mail.get(mailbox)
        return mail[0] if mail else None

    def all_mail(self) -> list[InboxEntry]:
        """Everything that waits, in the order of (tier, seq)."""
        return sorted((entry for mail in self._mail.values() for entry in mail), key=_place)

    def put(self, entry: InboxEntry) -> None:
        """Put a message into its place."""
        insort(self._mail[entry.mailbox], entry, key=_place)

    def finished_checkpoint(self, change: TaskChange) -> tuple[str, int] | None:
        """The place of the checkpoint that the change makes useless, if there is one."""
        if change.consumed is None:
            return None
        place = (change.consumed.mailbox, change.consumed.seq)
        return place if place in self.checkpoints else None

    def apply(self, change: TaskChange) -> None:
        """Take over what has been committed to the file."""
        if change.response is not None and change.ended is not None:
            self.answer = change.ended, change.response
        self.task = change.task
        if change.consumed is not None:
            mailbox = change.consumed.mailbox
            for entry in (change.consumed, *change.also_read):
                self._mail[mailbox].remove(entry)
            self.checkpoints.pop((mailbox, change.consumed.seq), None)
        for entry in change.deliveries:
            self.put(entry)
        if change.turn is not None:
            del self.leases[change.turn.mailbox]
