"""Leases: a worker's right to run the turns of a mailbox, and what it has leased."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import inf
from typing import Protocol

from mail.core.protocol.message import Tier
from mail.core.protocol.values import value
from mail.core.task.task import Task

AHEAD_SECONDS = 120.0
"""Seconds that a sweep looks ahead where sweeps come each minute, or a little later: it has a message sent in time for
each task that will be due."""

QUIET_SECONDS = 30.0
"""Seconds after a commit before which mail that waits is not missed: its wake-up may be under way."""


@value(kw_only=True)
class Park:
    """Why nobody runs the next turn of a mailbox before a time.

    Attributes:
        on: what the turn waits for: a provider of models, or the action or agent that raised RetryLater.
        since: when the turn was parked first, in seconds since the epoch.
        urgent: how many messages of tiers 1 to 3 the mailbox had when the turn began, of which more end the park; None
            if only its time ends it.
        attempts: how many attempts at the model call have failed.
        ticket: its place among the calls of its caller that wait for the provider (`mail.core.decisions.permits`).
    """

    on: str
    since: float
    urgent: int | None = None
    attempts: int = 0
    ticket: int = 0


@value
class Lease:
    """The right to run the turns of one mailbox; or, with a park, that nobody has it until the lease expires.

    Attributes:
        token: identifies it: the name of its worker, a number, and when it began, with slashes between them.
        expires: until when, in seconds since the epoch; 0 if it has ended without a commit, and that is known already.
        attempt: how many attempts at the turn have failed if the lease ends without a commit or a release: 1 for a
            first attempt, and 0 if its end says nothing about the turn, which has not begun or only sends mail.
        seq: the seq of the message whose attempts are counted, or whose turn is parked; 0 for that at the head of the
            mailbox.
        park: why the turn of that message can't run now; None for the lease of a worker.
    """

    token: str
    expires: float
    attempt: int = 1
    seq: int = 0
    park: Park | None = None

    @property
    def worker(self) -> str:
        """The name of its worker."""
        return self.token.partition("/")[0]

    @property
    def since(self) -> float | None:
        """When it began, in seconds since the epoch; None if its token does not have it."""
        began, *_ = self.token.split("/")[2:] or [""]
        try:
            return float(began)
        except ValueError:
            return None

    def ended(self, failed: int, seq: int) -> "Lease":
        """Return the lease as it stays for the next turn: ended, after so many failed attempts at a message's turn."""
        return replace(self, expires=0.0, attempt=failed, seq=seq)

    def parked(self, until: float, failed: int, seq: int, park: Park) -> "Lease":
        """Return what takes the lease's place when its turn parks: nothing that its worker still does affects that."""
        return Lease(f"{self.token}/parked", until, failed, seq, park)

    def is_over(self, task: Task, mailbox: str) -> bool:
        """Return whether mail that came later has ended the park of a mailbox."""
        park = self.park
        return park is not None and park.urgent is not None and urgent_mail(task, mailbox) > park.urgent


def held(leases: Mapping[str, Lease]) -> dict[str, Lease]:
    """Return the leases of workers, without parks."""
    return {mailbox: lease for mailbox, lease in leases.items() if lease.park is None}


def urgent_mail(task: Task, mailbox: str) -> int:
    """Return how many messages of tiers 1 to 3 wait in a mailbox."""
    return sum(task.pending.get(mailbox, ())[: Tier.INTERRUPT])


def due_of(task: Task, leases: Iterable[Lease]) -> float | None:
    """Return when a task with these leases is due: at its deadline or at the end of a park, whichever is first.

    A park counts only while the task runs: in one that has stopped, its end begins no turn.

    A time at which something must happen to a task belongs to `Task.deadline`, which all stores index, and what then
    happens to `mail.core.decisions.turn.expire`. Sweeps find it within a minute at the latest; who needs it sooner
    publishes `mail.core.task.ports.look_at` with the commit.
    """
    deadline = task.deadline
    ends = [each.expires for each in leases if each.park is not None and each.expires and task.is_running]
    return min(*ends, inf if deadline is None else deadline) if ends else deadline


class Claim(Protocol):
    """A mailbox of a task that a worker has leased."""

    @property
    def task(self) -> Task:
        """The task, as it was at that time."""

    @property
    def mailbox(self) -> str:
        """The mailbox."""

    @property
    def lease(self) -> Lease:
        """The worker's lease."""


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
class DueTask:
    """A task that somebody must look after.

    Attributes:
        leases: its leases by mailbox, those that have expired included.
    """

    task: Task
    leases: Mapping[str, Lease]

    @property
    def due(self) -> float:
        """When something must happen to it, in seconds since the epoch; infinity for never."""
        due = due_of(self.task, self.leases.values())
        return inf if due is None else due

    def expired(self, now: float) -> list["ExpiredLease"]:
        """Return its leases and parks whose time is over."""
        return [
            ExpiredLease(self.task, mailbox, lease)
            for mailbox, lease in self.leases.items()
            if 0.0 < lease.expires <= now
        ]

    def is_leased(self, mailbox: str, now: float) -> bool:
        """Return whether nobody may open a mailbox: it has a lease that has not expired, or a park that is not over."""
        lease = self.leases.get(mailbox)
        return lease is not None and lease.expires > now and not lease.is_over(self.task, mailbox)


@value
class ExpiredLease:
    """A lease that its worker has neither renewed nor released in time."""

    task: Task
    mailbox: str
    lease: Lease
