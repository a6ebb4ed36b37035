"""Logs for programs: each line is a JSON object with the ids of the task, agent and message it is about."""

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType

from mail.core.engine.leased_turn import TurnReport
from mail.core.engine.telemetry import Observer, ended_as, is_beginning
from mail.core.task.change import TaskChange, Turn
from mail.core.task.leases import Claim
from mail.core.task.mailboxes import is_sent
from mail.core.turns.context import log_fields

logger = logging.getLogger("mail.activity")

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


class JSONFormatter(logging.Formatter):
    """Formats a log record as one line of JSON. The items of `extra` become fields of the line.

    The formatter adds nothing confidential: nothing logs a body, a key or a token at INFO or above. The traceback of
    foreign code, such as a failing agent, is logged as it is. `fields` are in every line.
    """

    def __init__(self, fields: Mapping[str, object] = MappingProxyType({})) -> None:
        super().__init__()
        self.fields = fields

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        line: dict[str, object] = {
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= self.fields
        line |= log_fields()
        line |= {name: value for name, value in vars(record).items() if name not in _STANDARD}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        return json.dumps(line, default=str, ensure_ascii=False)


class ActivityLog(Observer):
    """Logs a line at INFO for each turn, delivery, request and end of a task, without any content of messages."""

    def task_changed(self, change: TaskChange) -> None:
        about = {"task_id": change.task.task_id, "generation": change.ended or change.task.generation.number}
        if is_beginning(change):
            logger.info("task begun", extra=about)
        status = ended_as(change)
        if status is not None:
            logger.info("task %s", status.value, extra={**about, "status": status.value})
        for letter in change.dead_letters:
            dead = {"agent": letter.mailbox, "attempts": letter.attempts}
            logger.info("dead letter", extra={**about, **dead})

    def turn_ended(self, turn: Claim, report: TurnReport, seconds: float) -> None:
        outcome = (report.outbound or report.outcome).value
        what = "delivery" if is_sent(turn.mailbox) else "turn"
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

    def turn_failed(self, turn: Claim, report: TurnReport, error: BaseException) -> None:
        logger.info("turn failed: %s", type(error).__name__, extra=_of(turn))

    def request_ended(self, method: str, route: str, status: int, seconds: float) -> None:
        """Log an HTTP request, by the pattern of its route: the path may hold text of callers."""
        about = {"method": method, "route": route, "status": status, "seconds": round(seconds, 6)}
        logger.info("request", extra=about)


def _of(turn: Claim) -> dict[str, object]:
    about = {"message_id": turn.entry.message.id} if isinstance(turn, Turn) else {}
    return {"task_id": turn.task.task_id, "agent": turn.mailbox, **about}
