"""The name by which users call `mail` where they are, and the server that it calls if they name none."""

import os
import shutil
import sys
from pathlib import Path

from mail.errors import ConfigurationError
from mail.server import PROGRAM_VARIABLE

SERVER_VARIABLE = "MAIL_SERVER"

DEFAULT_PORT = 8000

DEFAULT_SERVER = f"http://localhost:{DEFAULT_PORT}"
"""The server of commands that name none, unless mail.toml configures another address."""


def program() -> str:
    """Return how the user can call `mail`: by its name if it is on PATH, else as this process was started."""
    called, found = Path(sys.argv[0]), shutil.which("mail")
    if not found and (given := os.environ.get(PROGRAM_VARIABLE)):
        return given
    if called.stem != "mail" or (found and Path(found).absolute() == called.absolute()):
        return "mail"
    start = Path(os.environ.get("PWD") or Path.cwd())  # scripts/dev.py changes the current folder
    return str(called.relative_to(start) if called.is_relative_to(start) else called)


def configured_server(config: Path | None = None) -> str:
    """Return the URL of the server that is configured for this machine."""
    from mail.config import load_config

    try:
        server = load_config(config).server
    except ConfigurationError:  # commands that need a configuration report it
        return DEFAULT_SERVER
    host = "localhost" if server.host in ("", "0.0.0.0", "::") else server.host  # noqa: S104 - can't be called
    return f"http://{f'[{host}]' if ':' in host else host}:{server.port}"
