"""The log of a server process."""

import logging
import os

from mail import bootstrap
from mail.config import ServerConfig
from mail.errors import ConfigurationError

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
LEVEL_VARIABLE = "MAIL_LOG_LEVEL"


def set_up_logging(config: ServerConfig) -> None:
    """Log MAIL at INFO (DEBUG with `debug`, or MAIL_LOG_LEVEL) and other libraries at WARNING.

    Raises ConfigurationError for an unknown level.
    """
    level = os.environ.get(LEVEL_VARIABLE) or ("DEBUG" if config.debug else "INFO")
    if level.upper() not in logging.getLevelNamesMapping():
        raise ConfigurationError(
            f"{LEVEL_VARIABLE}: {level!r} is not a log level; use DEBUG, INFO, WARNING or ERROR"
        )
    logging.basicConfig(format=LOG_FORMAT, level=logging.WARNING)
    formatter = bootstrap.log_formatter(config.telemetry)
    if formatter is not None:
        for handler in logging.root.handlers:
            handler.setFormatter(formatter)
    logging.getLogger("mail").setLevel(level.upper())
    if config.debug:
        logging.getLogger("uvicorn").setLevel(logging.INFO)
