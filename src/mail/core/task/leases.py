"""Leases: a worker's right to run the turns of a mailbox, and what it has leased."""

from dataclasses import replace
from typing import Protocol

from mail.core.protocol.values import value
from mail.core.task.task import Task


@value
class Lease:
    """The right to run the turns of one mailbox.

    Attributes:
        token: identifies it: the name of its worker, a number, and when it began, with slashes between them.
        expires: until when, in seconds since the epoch; 0 if it has ended without a commit, and that is known already.
        attempt: how many attempts at the turn have failed if the lease ends without a commit or a release: 1 for a
            first attempt, and 0 if its end says nothing about the turn, which has not begun or only sends mail.
        seq: the seq of the message whose attempts are counted; 0 for that at the head of the mailbox.
    """

    token: str
    expires: float
    attempt: int = 1
    seq: int = 0

    @property
    def worker(self) -> str:
        """The name of its worker."""
        return self.token.partition("/")[0]

    @property
    def since(self) -> float | None:
        """When it began, in seconds since the epoch; None if its token does not have it."""
        *_, began = self.token.split("/")[2:] or [""]
        try:
            return float(began)
        except ValueError:
            return None

    def ended(self, failed: int, seq: int) -> "Lease":
        """Return the lease as it stays for the next turn: ended, after so many failed attempts at a message's turn."""
        return replace(self, expires=0.0, attempt=failed, seq=seq)


class Claim(Protocol):
    """A mailbox of a task that a worker has leased."""

    @property
    def task(self) -> Task:
        """The task, as it was at that time."""
        ...

    @property
    def mailbox(self) -> str:
        """The mailbox."""
        ...

    @property
    def lease(self) -> Lease:
        """The worker's lease."""
        ...


@value
class WebhookClaim:
    """A claim on a webhook's mailbox, which contains no messages: its mail is the timeline of the task.

    Attributes:
        replaced: as in `Turn`.
    """

    task: Task
    mailbox: str
    lease: Lease
    replaced: Lease | None = None


@value
class ExpiredLease:
    """A lease that its worker has neither renewed nor released in time."""

    task: Task
    mailbox: str
    lease: Lease
