"""How long a model that has failed is left alone: pure functions that make of its breaker the next one."""

from dataclasses import replace

from mail.core.task.fallback import Breaker, SwitchCause

OPEN_SECONDS = 30.0
"""Seconds for which a breaker stays open the first time; each further failure doubles them."""

LONGEST_OPEN = 600.0

PROBE_SECONDS = 60.0
"""Seconds for which one call tries whether a model works again, while other tasks wait with theirs."""

MANY_FAILURES = 10


def opened(
    breaker: Breaker | None, now: float, cause: SwitchCause, retry_after: float | None = None
) -> Breaker:
    """Open the breaker of a model that has failed, for longer after each failure, or as long as its provider asks.

    While it is open, the calls that began before that fail as well; they change nothing.
    """
    if breaker is not None and breaker.until > now and not breaker.is_tried:
        return breaker
    failures = 0 if breaker is None else breaker.failures
    seconds = max(OPEN_SECONDS * 2**failures, retry_after or 0.0)
    return Breaker(now + min(seconds, LONGEST_OPEN), min(failures + 1, MANY_FAILURES), cause)


def tried(breaker: Breaker | None, now: float) -> Breaker | None:
    """Let one call try the model, once its breaker has been open for its time."""
    if breaker is None or breaker.until > now:
        return breaker
    return replace(breaker, until=now + PROBE_SECONDS, is_tried=True)


def closed(_breaker: Breaker | None, _now: float) -> None:
    """Close the breaker of a model that has replied."""
