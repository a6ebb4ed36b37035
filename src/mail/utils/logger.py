"""Logging for programs that embed MAIL: readable lines on the console, and a file a day.

`mail server` and the Lambda functions set their logs up themselves; libraries must not. So this is only done when
a program asks for it.
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

TALKATIVE = ("LiteLLM", "LiteLLM Proxy", "LiteLLM Router", "httpcore", "httpx", "openai", "urllib3")
"""Loggers of others that have handlers of their own, or tell every request; they only speak when something is wrong."""


def get_loggers() -> list[str]:
    """Return the names of all loggers that there are, in order."""
    return sorted(logging.root.manager.loggerDict)


def init_logger() -> None:
    """Write logs to the console, and to a file that is begun anew every day.

    The file is `mail.log` in the folder `logs`, or the one that MAIL_LOG_DIR names; where nothing can be written
    there, a warning says so. MAIL_LOG_LEVEL decides what MAIL's own loggers tell: INFO, unless it says otherwise.
    To call this again changes nothing but the level.
    """
    level = os.environ.get(LEVEL_VARIABLE, "INFO").upper()
    if level not in logging.getLevelNamesMapping():
        raise ValueError(f"{LEVEL_VARIABLE}: {level!r} is no level; use DEBUG, INFO, WARNING or ERROR")
    logging.getLogger("mail").setLevel(level)
    root = logging.getLogger()
    if not any(isinstance(handler, RichHandler) for handler in root.handlers):
        root.addHandler(RichHandler(console=Console(stderr=True), rich_tracebacks=True, show_path=False))
    if not any(isinstance(handler, TimedRotatingFileHandler) for handler in root.handlers):
        _add_file(root)
    for name in TALKATIVE:
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
