"""Parks: a turn that can't run now leaves its mailbox to nobody until a time. Pure functions."""

from mail.core.protocol.clock import Clock
from mail.core.task.change import Turn
from mail.core.task.leases import Lease, Park, urgent_mail
from mail.errors import LONGEST_PARK, ProviderBusy, RetryLater


def parked_before(turn: Turn) -> Park | None:
    """Return the park that a turn comes from; None if it has not been parked."""
    replaced = turn.replaced
    return replaced.park if replaced is not None and replaced.seq == turn.entry.seq else None


def may_park(turn: Turn, clock: Clock) -> bool:
    """Return whether a turn may be parked, as it has not been for 24 hours in all."""
    before = parked_before(turn)
    return before is None or clock.now().timestamp() < before.since + LONGEST_PARK


def park(turn: Turn, later: RetryLater, on: str, failed: int, clock: Clock) -> Lease:
    """Return what a turn leaves in place of its lease.

    Args:
        on: the action or the agent that raised `later`.
        failed: how many attempts at the turn had failed when it was opened.
    """
    before, now = parked_before(turn), clock.now().timestamp()
    since = now if before is None else before.since
    until = min(now + later.retry_after, since + LONGEST_PARK)
    if isinstance(later, ProviderBusy):
        reason = Park(on=later.provider, since=since, attempts=later.attempts, ticket=later.ticket)
    else:
        reason = Park(on=on, since=since, urgent=urgent_mail(turn.task, turn.mailbox))
    return turn.lease.parked(until, failed, turn.entry.seq, reason)
