"""Logs for programs: each line is a JSON object that says which task, agent and message it is about."""

import json
import logging
from datetime import UTC, datetime

from mail.core.task.context import CURRENT_AGENT, CURRENT_MESSAGE, CURRENT_TASK

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


class JSONFormatter(logging.Formatter):
    """A record as one line. What was given as `extra` are fields of their own.

    It adds nothing to what is logged; nothing logs, at INFO or above, a body, a key or a token. The traceback of
    foreign code, such as an agent that fails, is logged as it is.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        line: dict[str, object] = {
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        about = {
            "task_id": CURRENT_TASK.get(),
            "agent": CURRENT_AGENT.get(),
            "message_id": CURRENT_MESSAGE.get(),
        }
        line |= {name: value for name, value in about.items() if value}
        line |= {name: value for name, value in vars(record).items() if name not in _STANDARD}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        return json.dumps(line, default=str, ensure_ascii=False)
