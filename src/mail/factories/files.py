"""Files in the requests of models: a history has references, and the bytes go in at the last moment.

Only files of types that the model takes do. Of each it reads a line, by which it can pass the file on.
"""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from mail.core.protocol.xml import MAIL
from mail.core.task.files import FILES, files_in, in_words
from mail.core.turns.context import TURN
from mail.errors import ConfigurationError
from mail.factories.items import Entry
from mail.factories.models import traits_of

ATTACHED = "attached"
"""Key in an entry of a request: the files that the model gets, as `Attachment`s."""

IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
PDF = "application/pdf"

GONE = "[file {} is no longer stored]"


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file that a model gets."""

    name: str
    type: str
    data: bytes

    @property
    def is_image(self) -> bool:
        """Whether it is an image."""
        return self.type in IMAGES

    @property
    def url(self) -> str:
        """The file as a data URL."""
        return f"data:{self.type};base64,{b64encode(self.data).decode()}"


def accepted_types(llm: str) -> tuple[str, ...]:
    """Return the media types of files that a model takes, by the table; none for a model that the table lacks."""
    traits = traits_of(llm)
    return (*(IMAGES if traits.sees else ()), *((PDF,) if traits.reads_pdf else ()))


def check_accepts(where: str, accepts: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return the types that an agent is said to accept. Raises ConfigurationError for other types than models get."""
    known = (*IMAGES, PDF)
    for pattern in accepts or ():
        if isinstance(accepts, str) or not any(fnmatchcase(each, pattern) for each in known):
            raise ConfigurationError(
                f"{where}: accepts must be a list of types that models get (image/*, {', '.join(known)}), "
                f"not {accepts!r}"
            )
    return None if accepts is None else tuple(accepts)


async def with_attachments(history: Sequence[Entry], accepts: Sequence[str]) -> list[Entry]:
    """Return a history with the files that the model accepts in place of all references."""
    return [await _with_attachments(entry, accepts) if FILES in entry else entry for entry in history]


async def _with_attachments(entry: Entry, accepts: Sequence[str]) -> Entry:
    made = in_words(entry)
    stored, attached = TURN.get().files, list[Attachment]()
    for file in files_in(entry):
        if stored is None or not any(fnmatchcase(file.type, pattern) for pattern in accepts):
            continue
        if (data := await stored.read(file.id)) is None:
            made["content"] += f"\n{GONE.format(MAIL.escape(file.name))}"
        else:
            attached.append(Attachment(file.name, file.type, data))
    return {**made, ATTACHED: attached} if attached else made


def without_attachments(entry: Entry) -> Entry:
    """Return an entry without its files, as it is traced."""
    return {key: value for key, value in entry.items() if key != ATTACHED}


def to_chat_entry(entry: Entry) -> Entry:
    """Return a message of Chat Completions with its files."""

    def part(file: Attachment) -> dict[str, Any]:
        if file.is_image:
            return {"type": "image_url", "image_url": {"url": file.url}}
        return {"type": "file", "file": {"filename": file.name, "file_data": file.url}}

    return _with_parts(entry, "text", part)


def to_responses_entry(entry: Entry) -> Entry:
    """Return an input item of Responses with its files."""

    def part(file: Attachment) -> dict[str, Any]:
        if file.is_image:
            return {"type": "input_image", "image_url": file.url, "detail": "auto"}
        return {"type": "input_file", "filename": file.name, "file_data": file.url}

    return _with_parts(entry, "input_text", part)


def converse_blocks(entry: Entry) -> list[Entry]:
    """Return the files of a message as blocks of Bedrock's Converse."""
    blocks: list[Entry] = []
    for n, file in enumerate(entry.get(ATTACHED, ()), 1):
        source = {"bytes": b64encode(file.data).decode()}
        kind = file.type.partition("/")[2]
        if file.is_image:
            blocks.append({"image": {"format": kind, "source": source}})
        else:  # a name may contain few characters, and must be another for each document of a message
            blocks.append({"document": {"format": kind, "name": f"document {n}", "source": source}})
    return blocks


def _with_parts(entry: Entry, text: str, part: Any) -> Entry:
    attached = entry.get(ATTACHED)
    if not attached:
        return entry
    content = [{"type": text, "text": entry["content"]}, *map(part, attached)]
    return {**without_attachments(entry), "content": content}
