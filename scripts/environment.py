"""Ends a script that runs without the virtual environment, with the remedy. To be imported before MAIL."""

import sys
from importlib.util import find_spec

if find_spec("mail") is None:
    sys.exit(
        "MAIL is not installed for this Python. Activate the virtual environment: . .venv/bin/activate\n"
        "If there is none yet, create it: python3 scripts/dev.py demo"
    )
