"""`read_file`, `write_file`, `delete_file`, `list_directory`, `create_directory`, `find_files` and `search_files`.

They are plain functions, so each runs in a thread and can't block other agents.
"""

from collections.abc import Iterator
from typing import Any

from pydantic import Field

from mail.api.actions import action
from mail.errors import ToolCallFault
from mail.stdlib.arguments import Arguments
from mail.stdlib.fs.files import (
    Entry,
    Walk,
    list_entries,
    matches,
    open_directory,
    parts_of,
    read_piece,
    remove_file,
    search,
    write_whole,
)
from mail.utils.outcomes import as_json

__all__ = [
    "create_directory",
    "delete_file",
    "find_files",
    "list_directory",
    "read_directory",
    "read_file",
    "search_files",
    "write_file",
]

MAX_READ_BYTES = 64 * 1024
"""Bytes of a file that one call reads."""

MAX_WRITE_BYTES = 1024 * 1024
"""Bytes of a file that an agent may write."""

MAX_ENTRIES = 1000
"""Entries or paths that one call returns."""

_PATH = "The path below the root directory, separated by /."
_FOLDER = "The directory to look in, below the root directory; '.' is the root directory itself."
_GLOB = "A glob such as *.txt or notes/**/*.md; one without / matches names in any directory."


class ReadFile(Arguments):
    """The arguments of `read_file`."""

    path: str = Field(description=_PATH)
    offset: int = Field(default=0, ge=0, lt=2**63, description="The byte to begin at.")


class WriteFile(Arguments):
    """The arguments of `write_file`."""

    path: str = Field(description=_PATH)
    content: str = Field(description="The whole content of the file.")
    overwrite: bool = Field(default=True, description="Whether to replace an existing file.")


class DeleteFile(Arguments):
    """The arguments of `delete_file`."""

    path: str = Field(description=_PATH)


class CreateDirectory(DeleteFile):
    """The arguments of `create_directory`."""


class ListDirectory(Arguments):
    """The arguments of `list_directory` and `read_directory`."""

    path: str = Field(default=".", description=_FOLDER)


class FindFiles(ListDirectory):
    """The arguments of `find_files`."""

    pattern: str = Field(min_length=1, max_length=500, description=_GLOB)


class SearchFiles(ListDirectory):
    """The arguments of `search_files`."""

    text: str = Field(
        min_length=1, max_length=1000, description="The text to look for, literally, not a pattern."
    )
    pattern: str = Field(default="*", min_length=1, max_length=500, description=f"Which files. {_GLOB}")
    ignore_case: bool = Field(default=False, description="Whether to ignore upper and lower case.")


@action(read_only=True)
def read_file(request: ReadFile) -> str:
    """Read a text file. Returns JSON: path, size in bytes, text, and next_offset if there is more."""
    segments = parts_of(request.path)
    piece = read_piece(segments, request.offset, MAX_READ_BYTES)
    shown: dict[str, Any] = {"path": "/".join(segments), "size": piece.size, "text": piece.text}
    if piece.text is None:
        shown["not_shown"] = "the file is not text"
    if piece.next_offset is not None:
        shown["next_offset"] = piece.next_offset
    return as_json(shown)


@action(sequential=True)
def write_file(request: WriteFile) -> str:
    """Write a text file, and create missing directories. Returns JSON: path and size in bytes."""
    try:
        content = request.content.encode()
    except UnicodeEncodeError as error:
        raise ToolCallFault("the content must be text that UTF-8 can encode") from error
    if len(content) > MAX_WRITE_BYTES:
        raise ToolCallFault(f"the content has {len(content)} bytes; at most {MAX_WRITE_BYTES} may be written")
    segments = parts_of(request.path)
    write_whole(segments, content, overwrite=request.overwrite)
    return as_json({"path": "/".join(segments), "size": len(content)})


@action(sequential=True)
def delete_file(request: DeleteFile) -> str:
    """Delete a file. Returns JSON: path."""
    segments = parts_of(request.path)
    remove_file(segments)
    return as_json({"path": "/".join(segments)})


@action(sequential=True, idempotent=True)
def create_directory(request: CreateDirectory) -> str:
    """Create a directory, and those on the way to it; one that exists is no error. Returns JSON: path."""
    segments = parts_of(request.path)
    with open_directory(segments, create=True):
        return as_json({"path": "/".join(segments) or "."})


@action(read_only=True)
def list_directory(request: ListDirectory) -> str:
    """List a directory. Returns JSON: path and entries, each with name, kind and, for files, size in bytes."""
    return _list(request)


@action(read_only=True)
def read_directory(request: ListDirectory) -> str:
    """List a directory, as list_directory does. Returns JSON: path and entries."""
    return _list(request)


def _list(request: ListDirectory) -> str:
    segments = parts_of(request.path)
    entries = list_entries(segments)
    shown: dict[str, Any] = {
        "path": "/".join(segments) or ".",
        "entries": [
            {
                "name": entry.segments[-1],
                "kind": entry.kind,
                **({"size": entry.size} if entry.kind == "file" else {}),
            }
            for entry in entries[:MAX_ENTRIES]
        ],
    }
    if len(entries) > MAX_ENTRIES:
        shown["left_out"] = len(entries) - MAX_ENTRIES
    return as_json(shown)


@action(read_only=True)
def find_files(request: FindFiles) -> str:
    """Find files by name, in a directory and all below it. Returns JSON: paths, and whether there may be more."""
    walk = Walk(parts_of(request.path))
    paths: list[str] = []
    for entry in _files(walk, request.pattern):
        if len(paths) == MAX_ENTRIES:
            return as_json({"paths": paths, "is_partial": True})
        paths.append(entry.path)
    return as_json({"paths": paths, "is_partial": walk.is_partial})


@action(read_only=True)
def search_files(request: SearchFiles) -> str:
    """Find lines that contain a text, in the files of a directory and all below it.

    Returns JSON: matches, each with path, line number and line, and whether there may be more.
    """
    walk = Walk(parts_of(request.path))
    found = search(_files(walk, request.pattern), request.text, ignore_case=request.ignore_case)
    return as_json({"matches": found.matches, "is_partial": found.is_partial or walk.is_partial})


def _files(walk: Walk, glob: str) -> Iterator[Entry]:
    """Yield the files that match the glob, by path relative to the start of the walk, or by name."""
    pattern = parts_of(glob)
    skipped = len(walk.top)
    for entry in walk:
        fits = matches(entry.segments[skipped:] if "/" in glob else entry.segments[-1:], pattern)
        if fits and entry.kind == "file":
            yield entry
