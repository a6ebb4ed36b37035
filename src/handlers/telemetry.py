"""The functions' log, as JSON lines with the task's id."""

import logging
import os
import sys
from typing import Any

from mail.bootstrap import JSONFormatter, service_name
from mail.core.turns.context import leave_task

LEVEL_VARIABLE = "POWERTOOLS_LOG_LEVEL"

_service = {"service": service_name()}

_formatter = JSONFormatter(_service)
"""Lambda filters lines by `level` only if their `timestamp` is one of RFC 3339."""

SERVER_LOGGERS = ("uvicorn", "uvicorn.access")
"""Have handlers of their own, which write plain text, in the function whose server is uvicorn."""


def set_up() -> None:
    """Write the logs of the process to standard output as JSON lines."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(_formatter)
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
    _formatter.fields = {**_service, "function_name": function_name, "function_request_id": request_id}
