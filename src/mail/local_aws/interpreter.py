"""The Python that functions run in, and what it finds to import."""

import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mail.errors import ConfigurationError

_RUNTIME_PACKAGES = ("awslambdaric", "runtime_client", "simplejson", "snapshot_restore_py")
"""What Lambda's own Python brings along: its runtime client, and what that needs."""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python and its import path."""

    python: Path
    path: tuple[Path, ...]


def source_interpreter() -> Interpreter:
    """This very Python, with all that it can import: for code that wasn't built."""
    return Interpreter(Path(sys.executable), ())


def built_interpreter(layers: Sequence[Path], runtime: str, folder: Path) -> Interpreter:
    """One that finds only the layers' packages and Lambda's own, as on AWS; `folder` is where it may be made.

    Raises ConfigurationError when this Python isn't the one that the layers are built for.
    """
    ours = "python{}.{}".format(*sys.version_info)
    if runtime != ours:
        raise ConfigurationError(
            f"the layers are built for {runtime}, and this is {ours}; run mail with {runtime}"
        )
    if not folder.exists():
        subprocess.run(  # noqa: S603 - the command is our own
            [sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, capture_output=True
        )
        packages = folder / "lib" / ours / "site-packages"
        for name in _RUNTIME_PACKAGES:
            found = Path(_origin(name))
            found = found.parent if found.name == "__init__.py" else found
            (packages / found.name).symlink_to(found)
    return Interpreter(folder / "bin" / "python", tuple(layer / "python" for layer in reversed(layers)))


def require_runtime_client() -> None:
    """Raises ConfigurationError where Amazon's runtime client isn't installed."""
    _origin("awslambdaric")


def _origin(name: str) -> str:
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        raise ConfigurationError(f"{name} is missing: pip install awslambdaric")
    return found.origin
