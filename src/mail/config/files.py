"""Where `mail.toml` is, and what it says."""

import logging
import os
import tomllib
from pathlib import Path
from typing import Any

from mail.errors import ConfigurationError

logger = logging.getLogger(__name__)

DEFAULT_FILE = "mail.toml"
"""Looked for in the current directory."""

CONFIG_PATH_VARIABLE = "MAIL_CONFIG_PATH"
"""The environment variable that names another file."""


def find_file(path: str | Path | None = None) -> Path | None:
    """The file to read: `path`, else the one that MAIL_CONFIG_PATH names, else `mail.toml` in the current directory.

    None where there is no file and the defaults apply. Raises ConfigurationError when `path` is given
    and there is no such file: whoever asks for a file by name does not want the defaults.
    """
    if path is not None:
        if not Path(path).is_file():
            raise ConfigurationError(f"{path}: there is no such configuration file")
        return Path(path)
    named = os.environ.get(CONFIG_PATH_VARIABLE)
    found = Path(named or DEFAULT_FILE)
    if found.is_file():
        return found
    if named:
        logger.warning("%s names %s, which does not exist; the defaults apply", CONFIG_PATH_VARIABLE, named)
    return None


def read_file(path: Path) -> dict[str, Any]:
    """The file's tables. Raises ConfigurationError where it can't be read or is no TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{path}: can't be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: is not valid TOML: {error}") from error
