"""The log of a server process."""

import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from copy import copy

from mail import bootstrap
from mail.config import ServerConfig
from mail.errors import ConfigurationError

THROTTLED = (
    "asyncio",
    "uvicorn.error",
    "psycopg.pool",
    "mail.server",
    "mail.http.sse",
    "mail.adapters.sqlite",
    "mail.adapters.postgres",
    "mail.core.engine.wake_ups",
)
"""Loggers to which strangers, or a database in trouble, can write any number of lines."""

THROTTLE_SECONDS = 1.0

MAX_KNOWN = 1000
"""Warnings that are remembered."""

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
LEVEL_VARIABLE = "MAIL_LOG_LEVEL"

DETAILS = "mail.activity.details"
"""The logger of requests and quick turns (`mail.adapters.telemetry.text_log`)."""


def set_up_logging(config: ServerConfig) -> None:
    """Log MAIL at INFO (DEBUG with `debug`, or MAIL_LOG_LEVEL) and other libraries at WARNING.

    Requests and quick turns are logged on a terminal, and elsewhere if a level was chosen.

    Raises ConfigurationError for an unknown level.
    """
    chosen = os.environ.get(LEVEL_VARIABLE) or ("DEBUG" if config.debug else "")
    level = chosen or "INFO"
    if level.upper() not in logging.getLevelNamesMapping():
        raise ConfigurationError(
            f"{LEVEL_VARIABLE}: {level!r} is not a log level; use DEBUG, INFO, WARNING or ERROR"
        )
    logging.basicConfig(format=LOG_FORMAT, level=logging.WARNING)
    is_terminal = sys.stderr.isatty()
    formatter = bootstrap.log_formatter(config.telemetry) or (TerminalFormatter() if is_terminal else None)
    if formatter is not None:
        for handler in logging.root.handlers:
            handler.setFormatter(formatter)
    for handler in logging.root.handlers:
        handler.addFilter(Throttle())
    logging.getLogger("mail").setLevel(level.upper())
    if not chosen and not is_terminal:
        logging.getLogger(DETAILS).setLevel(logging.WARNING)
    if config.debug:
        logging.getLogger("uvicorn").setLevel(logging.INFO)


class TerminalFormatter(logging.Formatter):
    """Formats records for a terminal: the time of day and the text; from warnings on, also the level and the logger."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(message)s", "%H:%M:%S")
        self._problem = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, and the traceback if there is one."""
        return self._problem.format(record) if record.levelno >= logging.WARNING else super().format(record)


class Throttle(logging.Filter):
    """Passes the same warning of `THROTTLED` at most once a second, with the number of those that it has dropped.

    Warnings are the same if the same line of code logs them, with the same error.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._next: dict[tuple[str, int, str], float] = {}
        self._dropped: Counter[tuple[str, int, str]] = Counter()

    def filter(self, record: logging.LogRecord) -> bool | logging.LogRecord:
        """Return whether a record is logged, or the record to log in its place."""
        if record.levelno < logging.WARNING or not record.name.startswith(THROTTLED):
            return True
        error = record.exc_info[1] if record.exc_info else None
        key = (record.pathname, record.lineno, repr(error))
        now = self._clock()
        if now < self._next.get(key, 0.0):
            self._dropped[key] += 1
            return False
        if len(self._next) > MAX_KNOWN:
            self._next.clear()
        self._next[key] = now + THROTTLE_SECONDS
        dropped = self._dropped.pop(key, 0)
        if not dropped:
            return True
        counted = copy(record)
        counted.msg, counted.args = f"{record.getMessage()} ({dropped} more since the last such line)", None
        return counted
