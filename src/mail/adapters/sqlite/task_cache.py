"""A task in memory, for a store that is the only writer."""

from bisect import insort
from collections import defaultdict
from operator import attrgetter

from mail.core.protocol.message import MAILMessage
from mail.core.task.change import Claim, InboxEntry, Lease, TaskChange
from mail.core.task.mailboxes import goes_out
from mail.core.task.task import Task
from mail.core.task.turn_state import Checkpoint

_order = attrgetter("tier", "seq")


class CachedTask:
    """A task with its inboxes, as in the file, and its leases.

    Attributes:
        row: the task's row in the file.
        leases: the leases of running turns, by mailbox.
        answer: the last generation that has ended while the task was cached, and its finishing message.
        checkpoints: the checkpoints of unfinished turns, by the mailbox and seq of their message.
    """

    def __init__(self, row: int, task: Task) -> None:
        self.row = row
        self.task = task
        self.answer: tuple[int, MAILMessage] | None = None
        self.leases: dict[str, Lease] = {}
        self.checkpoints: dict[tuple[str, int], Checkpoint] = {}
        self._mail: defaultdict[str, list[InboxEntry]] = defaultdict(list)

    def is_leased(self, mailbox: str, now: float) -> bool:
        """Return whether the mailbox has a lease that has not expired."""
        lease = self.leases.get(mailbox)
        return lease is not None and lease.expires > now

    def has_lease(self, turn: Claim) -> bool:
        """Return whether the mailbox of a turn is still leased to it, or was last."""
        lease = self.leases.get(turn.mailbox)
        return lease is not None and lease.token == turn.lease.token

    def count_leases(self, now: float) -> int:
        """Return the number of leased mailboxes of agents."""
        return sum(lease.expires > now for mailbox, lease in self.leases.items() if not goes_out(mailbox))

    def head(self, mailbox: str) -> InboxEntry | None:
        """Return the next message of a mailbox."""
        mail = self._mail.get(mailbox)
        return mail[0] if mail else None

    def all_mail(self) -> list[InboxEntry]:
        """Return all waiting mail, by (tier, seq)."""
        return sorted((entry for mail in self._mail.values() for entry in mail), key=_order)

    def put(self, entry: InboxEntry) -> None:
        """Add a message."""
        insort(self._mail[entry.mailbox], entry, key=_order)

    def finished_checkpoint(self, change: TaskChange) -> tuple[str, int] | None:
        """Return the key of the checkpoint of the turn that the change ends, if there is one."""
        if change.consumed is None:
            return None
        key = (change.consumed.mailbox, change.consumed.seq)
        return key if key in self.checkpoints else None

    def apply(self, change: TaskChange) -> None:
        """Apply a change that was committed to the file."""
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
