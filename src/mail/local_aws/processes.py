"""Child processes that never outlive this one, and the Python interpreters of functions."""

import importlib.util
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

from mail.errors import ConfigurationError, MAILError

LOOPBACK = "127.0.0.1"

PORTS = range(20_000, 32_768)
"""The ports that servers get: no system gives these to a connection, which could take one before its server does."""

TERMINATION_SECONDS = 3
"""Seconds between SIGTERM and SIGKILL."""

_KEEPER = f"""
import os, signal, subprocess, sys, threading
child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, start_new_session=True)
signal.signal(signal.SIGTERM, lambda *_: child.terminate())
def end_with_the_parent():
    os.read(0, 1)
    child.terminate()
    try:
        child.wait({TERMINATION_SECONDS})
    except subprocess.TimeoutExpired:
        child.kill()
threading.Thread(target=end_with_the_parent, daemon=True).start()
code = child.wait()
os._exit(code if code >= 0 else 128 - code)
"""
"""Runs a command until it ends or standard input is closed, which also happens when the parent is killed."""


class KeptProcess:
    """A command that runs until it ends, `stop` is called, or this process ends. A context manager.

    Ctrl+C in the terminal doesn't reach it; its owner stops it.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path | None = None,
        output: IO[bytes] | int = subprocess.DEVNULL,
    ) -> None:
        self._keeper = subprocess.Popen(  # noqa: S603 - the command is our own
            [sys.executable, "-I", "-S", "-c", _KEEPER, *command],
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output if output == subprocess.DEVNULL else subprocess.STDOUT,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def ended(self) -> int | None:
        """The exit code; None while it runs."""
        return self._keeper.poll()

    def stop(self) -> None:
        """Terminate the process, and wait for its end."""
        assert self._keeper.stdin is not None
        with suppress(BrokenPipeError):
            self._keeper.stdin.close()
        self._keeper.wait()

    def wait_until(self, ready: Callable[[], bool], *, seconds: float, name: str) -> None:
        """Wait until the process is ready. Raises MAILError if it ends or times out."""
        deadline = time.monotonic() + seconds
        while not ready():
            if self.ended is not None:
                raise MAILError(f"{name} ended immediately, with exit code {self.ended}")
            if time.monotonic() > deadline:
                self.stop()
                raise MAILError(f"{name} did not answer within {seconds:.0f} s")
            time.sleep(0.02)


def free_port() -> int:
    """Return a free port of the loopback interface."""
    while True:
        port = secrets.choice(PORTS)  # processes with the same seed draw different ones
        with socket.socket() as probe, suppress(OSError):
            probe.bind((LOOPBACK, port))
            return port


def listens(port: int) -> bool:
    """Return whether a port of the loopback interface accepts connections."""
    with socket.socket() as probe:
        return probe.connect_ex((LOOPBACK, port)) == 0


def system_environment() -> dict[str, str]:
    """Return the environment variables that any program needs, without those for AWS, Python or MAIL."""
    needed = ("PATH", "HOME", "TMPDIR", "TEMP", "LANG", "SYSTEMROOT", "LD_LIBRARY_PATH")
    return {name: value for name in needed if (value := os.environ.get(name))}


_RUNTIME_PACKAGES = ("awslambdaric", "runtime_client", "simplejson", "snapshot_restore_py")
"""The packages of Lambda's own Python: the runtime client and its dependencies."""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python and its import path."""

    python: Path
    path: tuple[Path, ...]


def handlers_folder() -> Path:
    """Return the folder that holds the package `handlers`: `src` in a checkout, `deployed` of an installed wheel.

    An environment with MAIL has no top-level package but `mail`, so only functions have this folder on their path.
    """
    installed = Path(__file__).with_name("deployed")
    return installed if installed.is_dir() else Path(__file__).parents[2]


def source_interpreter() -> Interpreter:
    """Return this Python, its packages and the handlers, for code that wasn't built."""
    return Interpreter(Path(sys.executable), (handlers_folder(),))


def built_interpreter(layers: Sequence[Path], runtime: str, folder: Path) -> Interpreter:
    """Make an interpreter in `folder` that finds only the layers' packages and Lambda's own, as on AWS.

    Raises ConfigurationError if the layers are built for another version of Python.
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
    """Raise ConfigurationError if Amazon's runtime client isn't installed."""
    _origin("awslambdaric")


def _origin(name: str) -> str:
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        raise ConfigurationError(f"{name} is missing: pip install 'mail-serverless[aws]'")
    return found.origin
