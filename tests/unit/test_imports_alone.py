"""Importing `mail` changes nothing outside `mail`."""

import pkgutil
import subprocess
import sys

import pytest

import mail

CHECK = """\
import asyncio, importlib, json, logging, signal, sys, threading, warnings

def state():
    return {
        "json": dict(vars(json.JSONEncoder)) | dict(vars(json.JSONDecoder)),
        "warnings": list(warnings.filters),
        "showwarning": warnings.showwarning,
        "handlers": list(logging.getLogger().handlers),
        "level": logging.getLogger().level,
        "excepthook": (sys.excepthook, threading.excepthook, sys.unraisablehook),
        "signals": [signal.getsignal(number) for number in signal.valid_signals()],
        "threads": threading.active_count(),
        "path": list(sys.path),
        "profile": (sys.getprofile(), sys.gettrace()),
        "loops": type(asyncio.get_event_loop_policy()),
        "switch": sys.getswitchinterval(),
        "recursion": sys.getrecursionlimit(),
    }

before = state()
for name in sys.argv[1:]:
    importlib.import_module(name)
after = state()
changed = [name for name in before if before[name] != after[name]]
foreign = [
    name for name, module in sys.modules.items()
    if module is not None and (type(module).__module__ or "").startswith(("mail.", "handlers."))
    and not name.startswith("mail")
]
print(changed + foreign)
"""


def public_modules() -> list[str]:
    """Every package and module of `mail`, except programs and what needs a package that isn't required."""
    modules = [module.name for module in pkgutil.walk_packages(mail.__path__, "mail.")]
    return ["mail", *(name for name in modules if not name.endswith("__main__") and ".examples." not in name)]


@pytest.mark.soak
def test_importing_every_module_changes_nothing_outside_mail() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CHECK, *public_modules()],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]", done.stdout
