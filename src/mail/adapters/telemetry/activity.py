"""A line of the log for each turn, delivery, request and end of a task: for logs that programs read.

It says who, what for and how long, never what anybody wrote.
"""

import logging

from mail.core.engine.telemetry import Observer, TurnReport, ended_as, is_beginning
from mail.core.task.change import Claim, TaskChange, Turn
from mail.core.task.mailboxes import goes_out

logger = logging.getLogger("mail.activity")


class ActivityLog(Observer):
    """Writes them at INFO. The fields besides the text are for formatters that know them (`mail.adapters.telemetry.json_log`)."""

    def task_changed(self, change: TaskChange) -> None:
        about = {"task_id": change.task.task_id, "generation": change.ended or change.task.generation.number}
        if is_beginning(change):
            logger.info("task begun", extra=about)
        status = ended_as(change)
        if status is not None:
            logger.info("task %s", status.value, extra={**about, "status": status.value})
        for letter in change.dead_letters:
            of_letter = {"agent": letter.extra["mailbox"], "attempts": letter.extra["attempts"]}
            logger.info("dead letter", extra={**about, **of_letter})

    def turn_ended(self, turn: Claim, report: TurnReport, seconds: float) -> None:
        outcome = (report.delivery or report.outcome).value
        what = "delivery" if goes_out(turn.mailbox) else "turn"
        about: dict[str, object] = {"outcome": outcome, "seconds": round(seconds, 6)}
        if report.conflicts:
            about["conflicts"] = report.conflicts
        if report.usage:
            about |= {
                "input_tokens": report.usage.input_tokens,
                "output_tokens": report.usage.output_tokens,
                "cost": report.usage.cost,
            }
        logger.info("%s %s", what, outcome, extra={**_of(turn), **about})

    def turn_failed(self, turn: Claim, error: BaseException) -> None:
        logger.info("turn failed: %s", type(error).__name__, extra=_of(turn))

    def request_ended(self, method: str, route: str, status: int, seconds: float) -> None:
        """An HTTP request was answered; `route` is its pattern, not its path, which may hold what people wrote."""
        about = {"method": method, "route": route, "status": status, "seconds": round(seconds, 6)}
        logger.info("request", extra=about)


def _of(turn: Claim) -> dict[str, object]:
    about = {"message_id": turn.entry.message.id} if isinstance(turn, Turn) else {}
    return {"task_id": turn.task.task_id, "agent": turn.mailbox, **about}
