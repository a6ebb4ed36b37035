"""The reloader of `mail server --reload`."""

import socket
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import uvicorn
from uvicorn.supervisors.statreload import StatReload


class Reloader(StatReload):
    """Restarts the server when source code in this folder changes, or one of some further files."""

    def __init__(
        self,
        config: uvicorn.Config,
        target: Callable[[list[socket.socket] | None], None],
        sockets: list[socket.socket],
        files: Iterable[Path],
    ) -> None:
        super().__init__(config, target, sockets)
        self._files = tuple(files)

    def iter_py_files(self) -> Iterator[Path]:
        """Yield the files to watch."""
        yield from super().iter_py_files()
        yield from self._files
