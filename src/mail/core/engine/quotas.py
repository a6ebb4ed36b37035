"""What callers of a server may keep busy at once. Agents among themselves are bounded by the steps of their task."""

from dataclasses import dataclass

from mail.core.task.change import TaskChange
from mail.core.task.mailboxes import peer_of
from mail.core.task.task import Task
from mail.errors import MailboxFull


@dataclass(frozen=True, slots=True)
class Quotas:
    """The limits that a runtime holds its callers to; None for no limit.

    Attributes:
        running_tasks: how many tasks of one instance may run when another one begins or goes on.
        mailbox_depth: how many messages may wait in a mailbox when somebody outside of the swarm adds one.
    """

    running_tasks: int | None = None
    mailbox_depth: int | None = None

    def check_depth(self, before: Task | None, change: TaskChange) -> None:
        """Raise MailboxFull where somebody outside adds to a mailbox that is deep enough.

        It holds when the change is committed, as that only succeeds on the very state that is looked at here. What lets
        a task go on that has stopped is let through, as nothing else would ever empty its mailboxes.
        """
        limit = self.mailbox_depth
        if limit is None or before is None or change.task.generation.number != before.generation.number:
            return
        for entry in change.deliveries:
            sender = entry.message.sender.address_type
            is_word_for_peers = peer_of(entry.mailbox) is not None and sender == "agent"
            if sender == "system" or is_word_for_peers:
                continue
            if sum(before.pending.get(entry.mailbox, ())) >= limit:
                raise MailboxFull(
                    f"{limit} messages or more wait for {entry.mailbox!r} in task {before.task_id!r}; try again later"
                )


NO_QUOTAS = Quotas()
