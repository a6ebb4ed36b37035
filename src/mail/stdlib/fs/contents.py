"""Reading and writing a file below the root."""

import codecs
import os
import secrets
import stat
from dataclasses import dataclass

from mail.errors import ToolCallFault
from mail.stdlib.fs.root import Parts, explained, named, open_directory, open_file, refuse_all_but_files

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a file; `text` is None where it is no text, `next_offset` where it is the last."""

    size: int
    text: str | None
    next_offset: int | None


def read_piece(parts: Parts, offset: int, limit: int) -> Piece:
    """At most `limit` bytes of a file from byte `offset` on; a character that the limit cuts is left to the next."""
    with open_file(parts) as descriptor, explained(parts):
        size = os.fstat(descriptor).st_size
        data = os.pread(descriptor, limit, offset)
    end = offset + len(data)
    if b"\0" in data:
        return Piece(size, None, None)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data, final=end >= size)
    end -= len(decoder.getstate()[0])
    return Piece(size, text, end if end < size and data else None)


def write_whole(parts: Parts, content: bytes, *, overwrite: bool) -> None:
    """Make `content` a file's content: readers see the old or the new, never a part.

    Directories on the way are made. Raises ToolCallFault where the file is there already and `overwrite` is not
    set, or where something else than a file is.
    """
    if not parts:
        raise ToolCallFault("name a file; this is the root directory")
    with open_directory(parts[:-1], create=True) as above, explained(parts):
        present = _present(parts, above)
        if present is not None and not overwrite:
            raise _there(parts)
        draft = f".{secrets.token_hex(8)}.tmp"
        try:
            _write_new(draft, above, content, present)
            if overwrite:
                os.replace(draft, parts[-1], src_dir_fd=above, dst_dir_fd=above)
            else:
                os.link(draft, parts[-1], src_dir_fd=above, dst_dir_fd=above, follow_symlinks=False)
        except FileExistsError as error:
            raise _there(parts) from error
        finally:
            _remove(draft, above)
        os.fsync(above)


def _present(parts: Parts, above: int) -> os.stat_result | None:
    """What is there already. Raises ToolCallFault where that is no file."""
    try:
        found = os.stat(parts[-1], dir_fd=above, follow_symlinks=False)
    except FileNotFoundError:
        return None
    refuse_all_but_files(parts, found)
    return found


def _write_new(name: str, above: int, content: bytes, like: os.stat_result | None) -> None:
    """Write a file that must not be there yet, with the permissions of the one that it shall replace."""
    with os.fdopen(os.open(name, _NEW, 0o666, dir_fd=above), "wb") as file:
        if like is not None:
            os.fchmod(file.fileno(), stat.S_IMODE(like.st_mode) & 0o777)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _remove(name: str, above: int) -> None:
    try:
        os.unlink(name, dir_fd=above)
    except FileNotFoundError:
        pass


def _there(parts: Parts) -> ToolCallFault:
    return ToolCallFault(f"{named(parts)} is there already; set overwrite to replace it")
