"""The directory that agents may use, and the only ways to what is in it.

A path is walked one part at a time from the open directory above it, and no symbolic link is followed, so
nothing outside can be named, not even by somebody who changes the tree meanwhile.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from mail.errors import ConfigurationError, ToolCallFault
from mail.stdlib.outcomes import ActionFailed

ROOT = "MAIL_STDLIB_FS_ROOT"
"""The environment variable that names the directory."""

MAX_PATH = 1024
"""Bytes of a path."""

MAX_DEPTH = 32
"""Directories below each other."""

Parts = tuple[str, ...]
"""A path below the root; the root itself has no parts."""

_DIRECTORY = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
_FILE = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


def parts_of(path: str) -> Parts:
    """The parts of a path below the root. Raises ToolCallFault for one that could lead anywhere else."""
    try:
        encoded = path.encode()
    except UnicodeEncodeError as error:
        raise ToolCallFault("a path must be text that UTF-8 can hold") from error
    if "\0" in path:
        raise ToolCallFault("a path can't hold a NUL")
    if path.startswith("/"):
        raise ToolCallFault(
            f"{path!r} is absolute; give a path below the root directory, such as 'notes/a.txt'"
        )
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    if ".." in parts:
        raise ToolCallFault(f"{path!r} holds '..'; name the directory itself")
    if len(encoded) > MAX_PATH or len(parts) > MAX_DEPTH:
        raise ToolCallFault(f"a path has at most {MAX_PATH} bytes and {MAX_DEPTH} parts")
    return parts


@contextmanager
def open_directory(parts: Parts, *, create: bool = False) -> Iterator[int]:
    """The descriptor of a directory, made first with `create` if it isn't there."""
    descriptor = _open_root()
    try:
        for depth, part in enumerate(parts, start=1):
            with explained(parts[:depth]):
                if create:
                    _make(part, descriptor)
                below = os.open(part, _DIRECTORY, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def open_file(parts: Parts) -> Iterator[int]:
    """The descriptor of a regular file, to read from. Anything else isn't even opened, as that can have effects."""
    if not parts:
        raise ToolCallFault("name a file; this is the root directory")
    with open_directory(parts[:-1]) as above, explained(parts):
        refuse_all_but_files(parts, os.stat(parts[-1], dir_fd=above, follow_symlinks=False))
        descriptor = os.open(parts[-1], _FILE, dir_fd=above)
        try:
            refuse_all_but_files(parts, os.fstat(descriptor))
            yield descriptor
        finally:
            os.close(descriptor)


def refuse_all_but_files(parts: Parts, found: os.stat_result) -> None:
    """Raise ToolCallFault for a directory, link, device, pipe or socket."""
    if not stat.S_ISREG(found.st_mode):
        raise ToolCallFault(f"{named(parts)} is {_article(kind_of(found.st_mode))}, not a file")


def kind_of(mode: int) -> str:
    """What a directory entry is: `file`, `directory`, `symlink` or `special`."""
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    return "symlink" if stat.S_ISLNK(mode) else "special"


def named(parts: Parts) -> str:
    """The path, as messages quote it."""
    return repr("/".join(parts) or ".")


@contextmanager
def explained(parts: Parts) -> Iterator[None]:
    """Turn what the operating system raises about a path into words that don't tell where the root is."""
    try:
        yield
    except FileNotFoundError as error:
        raise ToolCallFault(f"there is no {named(parts)}") from error
    except NotADirectoryError as error:
        raise ToolCallFault(
            f"{named(parts)} is no directory, or a symbolic link, which is not followed"
        ) from error
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ToolCallFault(f"{named(parts)} is a symbolic link, which is not followed") from error
        reason = os.strerror(error.errno) if error.errno else type(error).__name__
        raise ActionFailed(f"{named(parts)}: {reason}") from error


def _open_root() -> int:
    if os.open not in os.supports_dir_fd:  # pragma: no cover  # Windows
        raise ConfigurationError(
            "the actions on files need an operating system that opens files below directories"
        )
    root = os.environ.get(ROOT, "")
    if not root:
        raise ConfigurationError(f"set {ROOT} to the directory that agents may use")
    try:
        return os.open(root, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{ROOT} names no directory that can be read") from error


def _make(part: str, above: int) -> None:
    try:
        os.mkdir(part, dir_fd=above)
    except FileExistsError:
        pass


def _article(kind: str) -> str:
    return {"special": "a device, pipe or socket", "symlink": "a symbolic link"}.get(kind, f"a {kind}")
