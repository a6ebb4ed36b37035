"""The log for people: a line when a task begins, when an agent has worked, when a task ends, and for each request."""

import logging
from datetime import datetime

from mail.core.engine.leased_turn import TurnReport
from mail.core.engine.telemetry import Observer, ended_as, is_beginning
from mail.core.task.change import TaskChange
from mail.core.task.costs import NO_USAGE, Usage
from mail.core.task.leases import Claim
from mail.core.task.mailboxes import is_sent

logger = logging.getLogger("mail.activity")

details = logging.getLogger("mail.activity.details")
"""Logs requests and quick turns, of which there may be thousands a second: for people who watch a terminal."""

QUICK_SECONDS = 0.01
"""Turns without a model that take less time are details."""

PROBES = frozenset({"/health", "/live", "/metrics"})
"""Routes that are requested all the time; they are logged only if something is wrong."""


class TextLog(Observer):
    """Logs lines at INFO, without any content of messages."""

    @property
    def shows_details(self) -> bool:
        """Whether requests and quick turns are logged."""
        return details.isEnabledFor(logging.INFO)

    def request_ended(self, method: str, route: str, status: int, seconds: float) -> None:
        """Log an HTTP request, by the pattern of its route: the path may hold text of callers."""
        if status >= 400 or route not in PROBES:
            details.info("%s %s: %s in %s", method, route, status, _seconds(seconds))

    def task_changed(self, change: TaskChange) -> None:
        for letter in change.dead_letters:
            logger.warning("task %s: mail for %s is a dead letter", change.task.task_id, letter.mailbox)
        if not logger.isEnabledFor(logging.INFO):
            return
        task = change.task
        if is_beginning(change):
            logger.info("task %s started by %s for %s", task.task_id, task.instance, task.entrypoint)
        status = ended_as(change)
        if status is not None:
            usage = sum(task.usage.values(), NO_USAGE)
            logger.info("task %s %s%s%s", task.task_id, status.value, _duration(change), _cost(usage))

    def turn_ended(self, turn: Claim, report: TurnReport, seconds: float) -> None:
        is_quick = seconds < QUICK_SECONDS and not report.usage and report.outbound is None
        log = details if is_quick else logger
        if not log.isEnabledFor(logging.INFO):
            return
        outcome = report.outbound or report.outcome
        told = "" if outcome is TurnReport.Outcome.COMMITTED else f" ({outcome.value.replace('_', ' ')})"
        what = "delivery to" if is_sent(turn.mailbox) else "turn of"
        log.info(
            "task %s: %s %s took %s%s%s",
            turn.task.task_id,
            what,
            turn.mailbox,
            _seconds(seconds),
            _cost(report.usage),
            told,
        )

    def turn_failed(self, turn: Claim, report: TurnReport, error: BaseException) -> None:
        logger.warning(
            "task %s: turn of %s failed: %s", turn.task.task_id, turn.mailbox, type(error).__name__
        )


def _duration(change: TaskChange) -> str:
    """Return the task's duration; nothing for a task that was resumed, as it also waited for its caller."""
    if change.ended not in (None, 1) or not change.events:
        return ""
    begin, end = (datetime.fromisoformat(each) for each in (change.task.started, change.events[-1].timestamp))
    return f" after {_seconds((end - begin).total_seconds())}"


def _seconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _cost(usage: Usage) -> str:
    """Return the tokens and the price of model calls."""
    if not usage:
        return ""
    price = "unknown price" if usage.unpriced_calls else f"${usage.cost:.4f}"
    return f", {usage.input_tokens} + {usage.output_tokens} tokens, {price}"
