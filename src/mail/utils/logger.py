"""Logging for programs that embed MAIL: readable lines on the console, and one file per day.

Call `init_logger` to set it up. `mail server` and the Lambda functions have their own logs.
"""

import logging
import os
from logging.handlers import TimedRotatingFileHandler
from pathlib import Path

from rich.console import Console
from rich.logging import RichHandler

FOLDER_VARIABLE = "MAIL_LOG_DIR"
LEVEL_VARIABLE = "MAIL_LOG_LEVEL"
DEFAULT_FOLDER = "logs"
FILE = "mail.log"
KEPT_DAYS = 14

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

VERBOSE = (
    "LiteLLM",
    "LiteLLM Proxy",
    "LiteLLM Router",
    "httpcore",
    "httpcore2",
    "httpx",
    "httpx2",
    "openai",
    "urllib3",
)
"""Verbose loggers of other libraries, which are limited to warnings and lose their own handlers."""


def get_loggers() -> list[str]:
    """Return the names of all loggers, sorted."""
    return sorted(logging.root.manager.loggerDict)


def init_logger() -> None:
    """Write logs to the console, and to a file that is rotated every day.

    The file is `mail.log` in the folder `logs`, or in the one that MAIL_LOG_DIR names; if it can't be written, a
    warning is logged. MAIL_LOG_LEVEL sets the level of MAIL's own loggers, by default INFO. Further calls only change
    the level.
    """
    level = os.environ.get(LEVEL_VARIABLE, "INFO").upper()
    if level not in logging.getLevelNamesMapping():
        raise ValueError(f"{LEVEL_VARIABLE}: {level!r} is not a log level; use DEBUG, INFO, WARNING or ERROR")
    logging.getLogger("mail").setLevel(level)
    root = logging.getLogger()
    if not any(isinstance(handler, RichHandler) for handler in root.handlers):
        root.addHandler(RichHandler(console=Console(stderr=True), rich_tracebacks=True, show_path=False))
    if not any(isinstance(handler, TimedRotatingFileHandler) for handler in root.handlers):
        _add_file(root)
    for name in VERBOSE:
        quiet = logging.getLogger(name)
        quiet.setLevel(logging.WARNING)
        quiet.propagate = True
        for handler in list(quiet.handlers):
            quiet.removeHandler(handler)


def _add_file(root: logging.Logger) -> None:
    path = Path(os.environ.get(FOLDER_VARIABLE) or DEFAULT_FOLDER) / FILE
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handler = TimedRotatingFileHandler(
            path, when="midnight", backupCount=KEPT_DAYS, encoding="utf-8", delay=False
        )
    except OSError as error:
        logging.getLogger(__name__).warning("logs are not written to %s: %s", path, error)
        return
    handler.setFormatter(logging.Formatter(FORMAT))
    root.addHandler(handler)
