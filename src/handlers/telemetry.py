"""The functions' log, as JSON lines with the task's id."""

import logging
import os
import sys
from typing import Any

from aws_lambda_powertools.logging.formatter import LambdaPowertoolsFormatter

from mail.bootstrap import service_name
from mail.core.turns.context import leave_task, log_fields

LEVEL_VARIABLE = "POWERTOOLS_LOG_LEVEL"

_formatter = LambdaPowertoolsFormatter(service=service_name(), utc=True, use_rfc3339=True)
"""Lambda filters lines by `level` only if their `timestamp` is one of RFC 3339."""

SERVER_LOGGERS = ("uvicorn", "uvicorn.access")
"""Have handlers of their own, which write plain text, in the function whose server is uvicorn."""


class _TaskFilter(logging.Filter):
    """Adds task, agent and message to each log line."""

    def filter(self, record: logging.LogRecord) -> bool:
        for name, value in log_fields().items():
            if not hasattr(record, name):
                setattr(record, name, value)
        return True


def set_up() -> None:
    """Write the logs of the process to standard output as JSON lines."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(_formatter)
    handler.addFilter(_TaskFilter())
    logging.root.handlers = [handler]  # replaces the runtime's own
    logging.root.setLevel(logging.WARNING)
    for name in SERVER_LOGGERS:
        server = logging.getLogger(name)
        server.handlers, server.propagate = [], True
        server.setLevel(logging.NOTSET)
    logging.getLogger("mail").setLevel(os.environ.get(LEVEL_VARIABLE, "INFO"))


def begin_invocation(context: Any) -> None:
    """Add the invocation to all following log lines, and drop the task of the previous invocation."""
    begin_request(context.aws_request_id, context.function_name)


def begin_request(request_id: str, function_name: str) -> None:
    """Do the same where only these two are known of the invocation."""
    leave_task()
    _formatter.append_keys(function_name=function_name, function_request_id=request_id)
