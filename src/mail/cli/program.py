"""How users call `mail` where they are, for hints that can be typed."""

import os
import shutil
import sys
from pathlib import Path

from mail.server import PROGRAM_VARIABLE


def program() -> str:
    """Return how the user can call `mail`: by its name if it is on PATH, else as this process was started."""
    called, found = Path(sys.argv[0]), shutil.which("mail")
    if not found and (given := os.environ.get(PROGRAM_VARIABLE)):
        return given
    if called.stem != "mail" or (found and Path(found).absolute() == called.absolute()):
        return "mail"
    start = Path(os.environ.get("PWD") or Path.cwd())  # scripts/dev.py changes the current folder
    return str(called.relative_to(start) if called.is_relative_to(start) else called)
