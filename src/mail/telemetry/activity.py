"""A line of the log for each turn, delivery, request and end of a task: for logs that programs read.

It says who, what for and how long, never what anybody wrote.
"""

import logging

from mail.core.change import TaskChange, Turn
from mail.core.observing import Observer, ended_as, is_beginning
from mail.core.peers import peer_of
from mail.core.turn_work import TurnReport

logger = logging.getLogger("mail.activity")


class ActivityLog(Observer):
    """Writes them at INFO. The fields besides the text are for formatters that know them (`mail.utils.json_log`)."""

    def task_changed(self, change: TaskChange) -> None:
        about = {"task_id": change.task.task_id, "generation": change.ended or change.task.generation}
        if is_beginning(change):
            logger.info("task begun", extra=about)
        status = ended_as(change)
        if status is not None:
            logger.info("task %s", status.value, extra={**about, "status": status.value})
        for letter in change.buried:
            of_letter = {"agent": letter.extra["mailbox"], "attempts": letter.extra["attempts"]}
            logger.info("dead letter", extra={**about, **of_letter})

    def turn_ended(self, turn: Turn, report: TurnReport, seconds: float) -> None:
        outcome = (report.delivery or report.outcome).value
        what = "turn" if peer_of(turn.mailbox) is None else "delivery"
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

    def turn_failed(self, turn: Turn, error: BaseException) -> None:
        logger.info("turn failed: %s", type(error).__name__, extra=_of(turn))

    def request_ended(self, method: str, route: str, status: int, seconds: float) -> None:
        """An HTTP request was answered; `route` is its pattern, not its path, which may hold what people wrote."""
        about = {"method": method, "route": route, "status": status, "seconds": round(seconds, 6)}
        logger.info("request", extra=about)


def _of(turn: Turn) -> dict[str, object]:
    return {"task_id": turn.task.task_id, "agent": turn.mailbox, "message_id": turn.entry.message.id}
