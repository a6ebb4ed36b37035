"""Files: each is stored once per caller under a digest of its bytes, and counted by the tasks that refer to it.

Messages and histories contain references. The bytes are read at the last moment, for a model that takes them or for a
caller. Nothing changes a file; it is deleted with the last task that refers to it.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from codecs import getincrementaldecoder
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from hmac import compare_digest
from hmac import digest as hmac_digest
from mimetypes import guess_type
from pathlib import Path
from typing import Any, Self

from mail.core.protocol.message import MAILMessage
from mail.core.protocol.values import value
from mail.core.protocol.xml import MAIL
from mail.errors import BadRequest

UNUSED_SECONDS = 86_400.0
"""Seconds after which a file is deleted that no message has."""

MAX_FILE_BYTES = 20 * 1024 * 1024
"""The default limit for the size of a file."""

LINK_SECONDS = 7 * 86_400
"""Seconds for which other swarms can fetch a file that was sent to them."""

MAX_FILES = 10
"""Files of one message."""

MAX_FILES_OF_TASK = 1_000
"""Files that one task may refer to."""

MAX_NAME = 255
"""Characters of the name of a file."""

FILES = "files"
"""The key of a message's files in its `routing_info`, and in an entry of a history. Models don't see the latter."""

UNKNOWN_TYPE = "application/octet-stream"

_PIECE = 64 * 1024

_ID = "[0-9a-f]{32}"
_LINK = re.compile(rf"([A-Za-z0-9_-]+)\.({_ID})\.([0-9]{{1,12}})\.[0-9a-f]{{64}}")
_MENTION = re.compile(rf"\bfile:({_ID})(?![0-9a-f])")
_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,126}/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}")

NO_FILES: Mapping[str, "FileRef"] = {}

_MAGIC: tuple[tuple[str, bytes, int, bytes], ...] = (
    ("image/png", b"\x89PNG\r\n\x1a\n", 0, b""),
    ("image/jpeg", b"\xff\xd8\xff", 0, b""),
    ("image/gif", b"GIF8", 0, b""),
    ("image/webp", b"RIFF", 8, b"WEBP"),
    ("audio/wav", b"RIFF", 8, b"WAVE"),
    ("audio/mpeg", b"ID3", 0, b""),
    ("application/pdf", b"%PDF-", 0, b""),
    ("application/zip", b"PK\x03\x04", 0, b""),
)
"""Types that the first bytes of a file show: how it begins, and what it has at an offset."""

# without archives, as documents of offices are some
_SHOWN = frozenset(each for each, *_ in _MAGIC if each != "application/zip")


@value
class FileRef:
    """A reference to a file.

    Attributes:
        id: what its content alone decides (`file_id`).
        name: its name in this task, for people and models.
        type: its media type, such as `image/png`.
        size: its bytes.
        swarm, link: the swarm that it comes from, and what fetches it there for some days; empty for one of this swarm.
        origin, region: the URL of that swarm, by the registry of this one, and the AWS region for which requests to it
            are signed, if they are.
    """

    id: str
    name: str
    type: str
    size: int
    swarm: str = ""
    link: str = ""
    origin: str = ""
    region: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the reference as messages and histories contain it."""
        shown: dict[str, Any] = {"id": self.id, "name": self.name, "type": self.type, "bytes": self.size}
        if self.link:
            shown |= {"swarm": self.swarm, "link": self.link}
        return {**shown, "origin": self.origin, "region": self.region} if self.link and self.origin else shown

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Self:
        """Return the reference that `as_json` has written. Raises KeyError and TypeError for anything else."""
        ref, name, kind, size = given["id"], given["name"], given["type"], given["bytes"]
        place = [given.get(each, "") for each in ("swarm", "link", "origin", "region")]
        texts = (ref, name, kind, *place)
        if not isinstance(size, int) or not all(isinstance(text, str) for text in texts):
            raise TypeError
        is_sound = re.fullmatch(_ID, ref) and _TYPE.fullmatch(kind) and name.isprintable() and size > 0
        if not is_sound:  # another swarm may write anything here
            raise TypeError
        return cls(ref, name[:MAX_NAME], kind, size, *place)

    @property
    def in_words(self) -> str:
        """What a model reads of it: `[file plan.pdf, application/pdf, 1.2 MB, file:0f…]`."""
        return f"[file {self.name}, {self.type}, {size_in_words(self.size)}, file:{self.id}]"

    @property
    def is_text(self) -> bool:
        """Whether it can be read as text."""
        return self.type.startswith("text/") or self.type in ("application/json", "application/xml")


@value
class File:
    """A file that an action returns, or that goes with a message.

    Attributes:
        data: its bytes.
        name: its name, without folders; one is made of its digest and type by default.
        type: its media type, such as `application/pdf`; by default it is what the first bytes show.
    """

    data: bytes
    name: str = ""
    type: str = ""

    @classmethod
    def from_path(cls, path: str | Path, type: str = "") -> Self:  # noqa: A002  # as the field
        """Return a file of the disk, under its name there. Raises OSError."""
        path = Path(path)
        return cls(path.read_bytes(), path.name, type or guess_type(path.name)[0] or "")


def file_id(data: bytes) -> str:
    """Return the id of a file: the first half of the SHA-256 of its bytes, in hexadecimal."""
    return sha256(data).hexdigest()[:32]


def make_reference(data: bytes, name: str = "", declared: str = "") -> FileRef:
    """Return a reference to the file with these bytes.

    Its type is what the first bytes show, else what is declared, else text or unknown. Raises BadRequest for no bytes,
    an invalid name or type, and for a type that the bytes contradict.
    """
    if not data:
        raise BadRequest("the file is empty")
    declared = declared.partition(";")[0].strip().lower()
    if declared and not _TYPE.fullmatch(declared):
        raise BadRequest(f"{declared[:40]!r} is not a media type such as image/png")
    begun = (rest for rest in _MAGIC if data.startswith(rest[1]))
    shown = next((kind for kind, _, offset, there in begun if data.startswith(there, offset)), "")
    if declared in _SHOWN and declared != shown:
        raise BadRequest(
            f"the file is declared as {declared}, but its first bytes show {shown or 'something else'}"
        )
    kind = shown if shown in _SHOWN else declared
    if not kind or kind == UNKNOWN_TYPE:
        kind = shown or ("text/plain" if _is_text(data) else UNKNOWN_TYPE)
    ref = file_id(data)
    return FileRef(ref, checked_name(name) or default_name(ref, kind), kind, len(data))


def checked_name(name: str) -> str:
    """Return the name of a file without folders. Raises BadRequest for one that is too long or can't be shown."""
    name = name.replace("\\", "/").rpartition("/")[2].strip()
    if len(name) > MAX_NAME or not name.isprintable():
        raise BadRequest(f"the name of a file has at most {MAX_NAME} characters, all of them printable")
    return name


def default_name(ref: str, kind: str) -> str:
    """Return the name of a file that has none: `0f3a9c1e.png`."""
    ending = kind.partition("/")[2].partition("+")[0].removeprefix("x-")
    return f"{ref[:8]}.{'txt' if ending == 'plain' else 'bin' if kind == UNKNOWN_TYPE else ending}"


def size_in_words(size: int) -> str:
    """Return a number of bytes in words: `1.2 MB`."""
    if size < 1_000:
        return f"{size} bytes"
    return f"{size / 1e3:.0f} kB" if size < 1_000_000 else f"{size / 1e6:.1f} MB"


def make_link(instance: str, file_id: str, secret: str, until: int) -> str:
    """Return what fetches a file of a caller until a time, in seconds since the epoch, signed with its `secret`."""
    owner = urlsafe_b64encode(instance.encode(errors="surrogatepass")).decode().rstrip("=")
    place = f"{owner}.{file_id}.{until}"
    return f"{place}.{_signature(place, secret)}"


def place_of(link: str) -> tuple[str, str, int] | None:
    """Return whose file a link fetches, which one, and until when; None for what is no link."""
    found = _LINK.fullmatch(link)
    if found is None:
        return None
    try:
        owner = urlsafe_b64decode(found[1] + "=" * (-len(found[1]) % 4)).decode(errors="surrogatepass")
    except ValueError:
        return None
    return owner, found[2], int(found[3])


def is_signed(link: str, secret: str) -> bool:
    """Return whether a link was made with this secret."""
    place, _, signature = link.rpartition(".")
    return compare_digest(signature, _signature(place, secret))


def _signature(place: str, secret: str) -> str:
    return hmac_digest(secret.encode(), place.encode(), "sha256").hex()


def mentioned(texts: Iterable[str]) -> list[str]:
    """Return the ids of the files that texts mention, as `file:<id>`, in the order of their first mention."""
    return list(dict.fromkeys(ref for text in texts if "file:" in text for ref in _MENTION.findall(text)))


def files_in(holder: Mapping[str, Any] | None) -> list[FileRef]:
    """Return the references in the `routing_info` of a message, or in an entry of a history; none for invalid ones."""
    given = None if holder is None else holder.get(FILES)
    if not given or not isinstance(given, list):
        return []
    try:
        return [FileRef.read(each) for each in given][:MAX_FILES]
    except (KeyError, TypeError):
        return []


def attach(message: MAILMessage, files: Mapping[str, FileRef]) -> MAILMessage:
    """Return a message with those of the files that its text mentions, besides those that it has."""
    payload = message.message
    if "file:" not in payload.body:
        return message
    attached = {each.id: each for each in files_in(payload.routing_info)}
    attached |= {ref: files[ref] for ref in mentioned([payload.body]) if ref in files}
    if not attached:
        return message
    return MAILMessage.trusted(
        message_id=message.id,
        timestamp=message.timestamp,
        msg_type=message.msg_type,
        message=payload.routed(with_files(payload.routing_info or {}, [*attached.values()][:MAX_FILES])),
    )


def in_words(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry of a history with a line for each of its files, in place of the references."""
    lines = [MAIL.escape(file.in_words) for file in files_in(entry)]
    rest = {name: value for name, value in entry.items() if name != FILES}
    return {**rest, "content": "\n".join((rest["content"], *lines))} if lines else rest


def with_files(holder: Mapping[str, Any], files: Sequence[FileRef]) -> dict[str, Any]:
    """Return a `routing_info`, or an entry of a history, with references."""
    return {**holder, FILES: [each.as_json() for each in files]} if files else dict(holder)


def _is_text(data: bytes) -> bool:
    if b"\0" in data:
        return False
    read = getincrementaldecoder("utf-8")().decode  # in pieces, as a text may take four times its bytes
    try:
        for start in range(0, len(data), _PIECE):
            read(data[start : start + _PIECE], start + _PIECE >= len(data))
    except UnicodeDecodeError:
        return False
    return True
