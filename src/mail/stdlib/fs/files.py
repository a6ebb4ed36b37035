"""Access to the files in the directory that agents may use: opening, listing, reading, writing and searching.

A path is opened one component at a time, relative to the open parent directory, and symbolic links are not followed: no
path can lead outside, not even if another process changes the tree in the meantime.
"""

import codecs
import errno
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from mail.errors import AgentFault, ConfigurationError, ToolCallFault
from mail.utils.outcomes import ActionFailed, cut

ROOT = "MAIL_STDLIB_FS_ROOT"
"""The environment variable that names the directory."""

MAX_PATH = 1024
"""Bytes of a path."""

MAX_DEPTH = 32
"""Levels of nested directories."""

Parts = tuple[str, ...]
"""The components of a path below the root; the root itself has none."""

_DIRECTORY = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
_FILE = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


def parts_of(path: str) -> Parts:
    """Return the components of a path below the root. Raises ToolCallFault for one that could lead outside."""
    try:
        encoded = path.encode()
    except UnicodeEncodeError as error:
        raise ToolCallFault("a path must be text that UTF-8 can encode") from error
    if "\0" in path:
        raise ToolCallFault("a path can't contain a NUL")
    if path.startswith("/"):
        raise ToolCallFault(
            f"{path!r} is absolute; give a path below the root directory, such as 'notes/a.txt'"
        )
    segments = tuple(part for part in path.split("/") if part not in ("", "."))
    if ".." in segments:
        raise ToolCallFault(f"{path!r} contains '..'; name the directory itself")
    if len(encoded) > MAX_PATH or len(segments) > MAX_DEPTH:
        raise ToolCallFault(f"a path has at most {MAX_PATH} bytes and {MAX_DEPTH} segments")
    return segments


@contextmanager
def open_directory(segments: Parts, *, create: bool = False) -> Iterator[int]:
    """Open a directory; with `create`, create it first if it is missing."""
    descriptor = _open_root()
    try:
        for depth, part in enumerate(segments, start=1):
            with explained(segments[:depth]):
                if create:
                    with suppress(FileExistsError):
                        os.mkdir(part, dir_fd=descriptor)
                below = os.open(part, _DIRECTORY, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _folder_of(segments: Parts, *, create: bool = False) -> Iterator[int]:
    """Open the directory of a file; with `create`, create it first if it is missing."""
    if not segments:
        raise ToolCallFault("name a file; this is the root directory")
    with open_directory(segments[:-1], create=create) as above, explained(segments):
        yield above


@contextmanager
def open_file(segments: Parts) -> Iterator[int]:
    """Open a regular file for reading. Nothing else is opened, as opening a device can have effects."""
    with _folder_of(segments) as above:
        require_regular_file(segments, os.stat(segments[-1], dir_fd=above, follow_symlinks=False))
        descriptor = os.open(segments[-1], _FILE, dir_fd=above)
        try:
            require_regular_file(segments, os.fstat(descriptor))
            yield descriptor
        finally:
            os.close(descriptor)


def require_regular_file(segments: Parts, found: os.stat_result) -> None:
    """Raise ToolCallFault for a directory, link, device, pipe or socket."""
    if not stat.S_ISREG(found.st_mode):
        raise ToolCallFault(f"{named(segments)} is {_article(kind_of(found.st_mode))}, not a file")


def kind_of(mode: int) -> str:
    """Return the kind of a directory entry: `file`, `directory`, `symlink` or `special`."""
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    return "symlink" if stat.S_ISLNK(mode) else "special"


def named(segments: Parts) -> str:
    """Return the path, quoted for messages."""
    return repr("/".join(segments) or ".")


@contextmanager
def explained(segments: Parts) -> Iterator[None]:
    """Translate errors of the operating system, without revealing the location of the root."""
    try:
        yield
    except FileNotFoundError as error:
        raise ToolCallFault(f"there is no {named(segments)}") from error
    except NotADirectoryError as error:
        raise ToolCallFault(
            f"{named(segments)} is not a directory, or is a symbolic link, which is not followed"
        ) from error
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ToolCallFault(f"{named(segments)} is a symbolic link, which is not followed") from error
        reason = os.strerror(error.errno) if error.errno else type(error).__name__
        raise ActionFailed(f"{named(segments)}: {reason}") from error


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
        raise ConfigurationError(f"{ROOT} does not name a readable directory") from error


def _article(kind: str) -> str:
    return {"special": "a device, pipe or socket", "symlink": "a symbolic link"}.get(kind, f"a {kind}")


MAX_VISITED = 50_000
"""Directory entries that one walk visits."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A directory entry."""

    segments: Parts
    kind: str
    size: int

    @property
    def path(self) -> str:
        """The path below the root."""
        return "/".join(self.segments)


class Walk:
    """The entries below a directory, depth first and sorted by name.

    Attributes:
        top: the directory.
        is_partial: whether entries were left out, beyond `MAX_VISITED` entries or `MAX_DEPTH` levels.
    """

    def __init__(self, top: Parts) -> None:
        self.is_partial = False
        self.top = top
        self._visited = 0

    def __iter__(self) -> Iterator[Entry]:
        waiting = [iter(list_entries(self.top))]
        while waiting:
            entry = next(waiting[-1], None)
            if entry is None:
                waiting.pop()
                continue
            if self._visited == MAX_VISITED:
                self.is_partial = True
                return
            self._visited += 1
            yield entry
            if entry.kind == "directory":
                waiting.append(iter(self._below(entry)))

    def _below(self, entry: Entry) -> list[Entry]:
        """Return the entries of a directory, which may be gone by now."""
        if len(entry.segments) >= MAX_DEPTH:
            self.is_partial = True
            return []
        try:
            return list_entries(entry.segments)
        except AgentFault:  # deleted, changed or unreadable in the meantime
            self.is_partial = True
            return []


def list_entries(segments: Parts) -> list[Entry]:
    """Return the entries of a directory, by name."""
    with open_directory(segments) as descriptor, explained(segments), os.scandir(descriptor) as scan:
        entries = [_entry(segments, each) for each in scan]
    return sorted((entry for entry in entries if entry is not None), key=lambda entry: entry.segments)


def _entry(segments: Parts, each: os.DirEntry[str]) -> Entry | None:
    try:
        found = each.stat(follow_symlinks=False)
    except FileNotFoundError:  # deleted in the meantime
        return None
    return Entry((*segments, each.name), kind_of(found.st_mode), found.st_size)


def matches(segments: Parts, pattern: Parts) -> bool:
    """Return whether a path matches a glob: `*`, `?` and `[…]` within a component, `**` for any number of components.

    Takes at most time proportional to components × pattern.
    """
    reached = _past_stars({0}, pattern)
    for part in segments:
        after = {at for at in reached if at < len(pattern) and pattern[at] == "**"}
        after |= {
            at + 1
            for at in reached
            if at < len(pattern) and pattern[at] != "**" and fnmatchcase(part, pattern[at])
        }
        reached = _past_stars(after, pattern)
    return len(pattern) in reached


def _past_stars(positions: set[int], pattern: Parts) -> set[int]:
    """Return the positions in the pattern, and those after each `**`, which may match nothing."""
    found = set(positions)
    for at in positions:
        while at < len(pattern) and pattern[at] == "**":
            at += 1  # noqa: PLW2901
            found.add(at)
    return found


_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a file; `text` is None if it isn't text, `next_offset` if it is the last piece."""

    size: int
    text: str | None
    next_offset: int | None


def read_piece(segments: Parts, offset: int, limit: int) -> Piece:
    """Return at most `limit` bytes of a file from byte `offset`; a character that is cut belongs to the next piece."""
    with open_file(segments) as descriptor, explained(segments):
        size = os.fstat(descriptor).st_size
        data = os.pread(descriptor, limit, offset)
    end = offset + len(data)
    if b"\0" in data:
        return Piece(size, None, None)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data, final=end >= size)
    end -= len(decoder.getstate()[0])
    return Piece(size, text, end if end < size and data else None)


def write_whole(segments: Parts, content: bytes, *, overwrite: bool) -> None:
    """Write a file atomically, and create missing directories.

    Raises ToolCallFault if the file exists and `overwrite` is not set, or if the path is not a regular file.
    """
    with _folder_of(segments, create=True) as above:
        present = _present(segments, above)
        if present is not None and not overwrite:
            raise _exists(segments)
        draft = f".{secrets.token_hex(8)}.tmp"
        try:
            _write_new(draft, above, content, present)
            if overwrite:
                os.replace(draft, segments[-1], src_dir_fd=above, dst_dir_fd=above)
            else:
                os.link(draft, segments[-1], src_dir_fd=above, dst_dir_fd=above, follow_symlinks=False)
        except FileExistsError as error:
            raise _exists(segments) from error
        finally:
            with suppress(FileNotFoundError):
                os.unlink(draft, dir_fd=above)
        os.fsync(above)


def remove_file(segments: Parts) -> None:
    """Delete a regular file. Raises ToolCallFault if there is none, or if the path is something else."""
    with _folder_of(segments) as above:
        require_regular_file(segments, os.stat(segments[-1], dir_fd=above, follow_symlinks=False))
        os.unlink(segments[-1], dir_fd=above)
        os.fsync(above)


def _present(segments: Parts, above: int) -> os.stat_result | None:
    """Return the status of the present file; None if there is none. Raises ToolCallFault if it isn't a regular file."""
    try:
        found = os.stat(segments[-1], dir_fd=above, follow_symlinks=False)
    except FileNotFoundError:
        return None
    require_regular_file(segments, found)
    return found


def _write_new(name: str, above: int, content: bytes, like: os.stat_result | None) -> None:
    """Write a new file, with the permissions of the file that it will replace."""
    with os.fdopen(os.open(name, _NEW, 0o666, dir_fd=above), "wb") as file:
        if like is not None:
            os.fchmod(file.fileno(), stat.S_IMODE(like.st_mode) & 0o777)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _exists(segments: Parts) -> ToolCallFault:
    return ToolCallFault(f"{named(segments)} already exists; set overwrite to replace it")


MAX_MATCHES = 200
"""Lines that one search returns."""

MAX_FILE_BYTES = 1024 * 1024
"""Larger files are skipped."""

MAX_SEARCHED_BYTES = 64 * 1024 * 1024
"""Bytes that one search reads."""

MAX_LINE = 300
"""Characters of a line that are returned."""


@dataclass(slots=True)
class Found:
    """The matching lines; `is_partial` if files or lines were left out. Binary files don't count."""

    matches: list[dict[str, Any]] = field(default_factory=list)
    is_partial: bool = False


def search(files: Iterable[Entry], text: str, *, ignore_case: bool) -> Found:
    """Return the lines of the files that contain the text."""
    found = Found()
    wanted = text.casefold() if ignore_case else text
    searched = 0
    for entry in files:
        if entry.size > MAX_FILE_BYTES or searched + entry.size > MAX_SEARCHED_BYTES:
            found.is_partial = True
            continue
        searched += entry.size
        try:
            lines = _lines(entry)
        except AgentFault:  # deleted, changed or unreadable in the meantime
            found.is_partial = True
            continue
        for number, line in enumerate(lines, start=1):
            if wanted not in (line.casefold() if ignore_case else line):
                continue
            if len(found.matches) == MAX_MATCHES:
                found.is_partial = True
                return found
            found.matches.append({"path": entry.path, "line": number, "text": cut(line, MAX_LINE)})
    return found


def _lines(entry: Entry) -> Iterator[str]:
    text = read_piece(entry.segments, 0, MAX_FILE_BYTES).text or ""
    return iter(text.split("\n"))
