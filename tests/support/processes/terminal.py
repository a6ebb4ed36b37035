"""A `mail` command at a pseudo-terminal, and somebody who types."""

import fcntl
import io
import os
import pty
import re
import select
import struct
import termios
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from support.processes import forkserver
from support.processes.server import MAIL, environment

ROWS, COLUMNS = 40, 120

SCREEN = {"TERM": "xterm-256color", "PROMPT_TOOLKIT_NO_CPR": "1", "COLUMNS": str(COLUMNS), "LINES": str(ROWS)}

IMPATIENCE = 60.0
"""Seconds after which what should be shown counts as missing."""

_FORWARD = re.compile(r"\x1b\[(\d*)C")
_CONTROL = re.compile(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|[@-Z\\-_]|\][^\x07]*\x07)|\r")


class Screen(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


class Terminal:
    """Runs the command; what it has shown is `shown`, less colours and the movements of the cursor."""

    def __init__(self, *arguments: str, cwd: Path, env: Mapping[str, str] | None = None) -> None:
        self._screen, program = pty.openpty()
        fcntl.ioctl(program, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.raw = b""
        self._seen = 0
        self.process = forkserver.start(
            [*MAIL, *arguments],
            cwd=cwd,
            env=environment({**SCREEN, **(env or {})}),
            stdin=program,
            stdout=program,
            stderr=program,
            terminal=True,
        )
        os.close(program)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(IMPATIENCE)
        os.close(self._screen)

    @property
    def shown(self) -> str:
        """All text so far."""
        spaced = _FORWARD.sub(lambda found: " " * int(found[1] or 1), self.raw.decode("utf-8", "replace"))
        return _CONTROL.sub("", spaced)

    def type(self, keys: str) -> None:
        """Press keys; `\\r` is Enter, `\\x03` Ctrl+C."""
        self._seen = len(self.shown)
        os.write(self._screen, keys.encode())

    def expect(self, text: str) -> str:
        """Wait until this is shown after what was typed last; returns all that was."""
        deadline = time.monotonic() + IMPATIENCE
        while text not in self.shown[self._seen :]:
            assert time.monotonic() < deadline, f"never shown: {text}\n{self.shown}"
            assert self._read(), f"ended without showing: {text}\n{self.shown}"
        return self.shown[self._seen :]

    def end(self) -> int:
        """The exit code, once the command has ended."""
        deadline = time.monotonic() + IMPATIENCE
        while self._read():
            assert time.monotonic() < deadline, f"does not end\n{self.shown}"
        return self.process.wait(IMPATIENCE)

    def _read(self) -> bool:
        """Read what there is; returns whether the command may show more."""
        if not select.select([self._screen], [], [], 0.1)[0]:
            return self.process.poll() is None
        try:
            chunk = os.read(self._screen, 65536)
        except OSError:  # Linux's way to say that nobody has the terminal open any more
            return False
        self.raw += chunk
        return bool(chunk)
