"""The context of an agent: what of its history, and of long texts, its model gets with each call.

A history only grows. What the model reads of it is a *cut*, which is stored with the agent: read from one portion on,
with the results up to another one as references. Between two moves of the cut the beginning of what the model reads
stays the same, byte for byte, so that providers find it in their caches.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from hashlib import sha256
from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from mail.core.protocol.calls import is_tool_result
from mail.core.protocol.values import Value, value
from mail.core.task.files import FILES, FileRef, files_in, in_words

DEFAULT_WINDOW = 128_000
"""Tokens of a context window that nobody knows, until a refused call teaches more."""

BYTES_PER_TOKEN = 3
"""Bytes of text that count as one token until a model has counted them. Most texts have more."""

IMAGE_BYTES = 1_600 * BYTES_PER_TOKEN
"""What an image counts, whatever its size: providers make large ones smaller."""

MOST_BYTES = 50_000 * BYTES_PER_TOKEN
"""What another file counts at most, until a model has counted its tokens."""

SMALL_CONTEXT = 2_000
"""Bytes of a context that fits into any window."""

QUOTED = 200
"""Characters of a text that its reference quotes."""

SHORT = 500
"""Characters of a tool's result that no reference replaces, as it would hardly be shorter."""

SUMMARIZES = "summarizes"
"""Key in a history entry that replaces all portions before this one. Models don't see the key."""

PINNED = "pinned"
"""Key in a history entry that repeats a message of this portion for a later cut. Models don't see the key."""

_Share = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False, strict=False)]


class Context(Value):
    """How an agent's context is kept within the window of its model."""

    model_config = ConfigDict(strict=True)

    at: _Share = Field(
        default=0.8,
        description="The share of the model's context window from which on the context is shortened.",
    )
    keep: _Share = Field(
        default=0.4, description="The share of the window that is left then; less than `at`."
    )
    model: str | None = Field(
        default=None, description="The model that summarizes old turns; null for the agent's own."
    )
    results: int = Field(
        default=20_000,
        ge=1_000,
        description="Characters that an agent sees of one result of an action: at most an eighth of the window, and "
        "all results of a turn together at most a quarter. It reads the rest with the tool `read_more`.",
    )

    @model_validator(mode="after")
    def _keeps_less(self) -> Self:
        if self.keep >= self.at:
            raise PydanticCustomError("context", "keep must be less than at")
        return self


@value
class Cut:
    """What of a history is read.

    Attributes:
        begin: the first portion.
        references: the last portion whose results are references.
        long: characters from which messages in these portions are references, too; 0 for none.
        carries: the portion with the summary of what is not read, and the messages that stay; 0 for none.
    """

    begin: int = 1
    references: int = 0
    long: int = 0
    carries: int = 0


WHOLE = Cut()
"""The cut of an agent whose whole history is read."""


@value
class AgentContext:
    """The context of an agent as its task stores it; none for one that is small.

    Attributes:
        tokens: the size of the context up to the portion `counted`, system prompt and tools included.
        window: the window of `model` that a refused call has taught, in tokens; 0 if none was refused.
    """

    cut: Cut = WHOLE
    tokens: int = 0
    counted: int = 0
    window: int = 0
    model: str = ""

    def after(self, n: int, size: int) -> "AgentContext":
        """Return the context after portion `n`, which has added so many bytes to what the model has counted."""
        if not self.tokens:
            return self
        return replace(self, tokens=self.tokens + max(0, size) // BYTES_PER_TOKEN, counted=n)

    def window_of(self, model: str, known: int | None) -> int:
        """Return the window of a model, whose table says what is `known` of it."""
        window = known or DEFAULT_WINDOW
        return min(window, self.window) if self.window and self.model == model else window


UNKNOWN = AgentContext()


@value
class Portion:
    """The `n`-th portion of a history; its size is that of its JSON, in bytes."""

    n: int
    entries: list[dict[str, Any]]
    size: int

    def seen(self, cut: Cut) -> "Portion":
        """Return the portion as its agent sees it under a cut, without what is carried to the beginning."""
        entries, size = list[dict[str, Any]](), self.size
        for index, entry in enumerate(self.entries):
            if is_carried(entry):
                size -= len(text_of(entry) or "")
                continue
            seen = refer(entry, self.n, index, cut.long) if self.n <= cut.references else entry
            if seen is not entry:
                size -= len(text_of(entry) or "") - len(text_of(seen) or "")
            entries.append(seen)
        return replace(self, entries=entries, size=max(size, 0))


@value(kw_only=True)
class Preparation:
    """What a turn does to its agent's context, with its model call and before it.

    Attributes:
        before: the cut that it moves.
        context: the context that the turn's commit stores.
        carried: the entries that it adds to the history, for the beginning of what is read from now on.
        summary: the summary so far, of the first `pieces` pieces of what is no longer read, of `room` characters each.
        is_called: whether the agent has been called since; else a repeated turn calls it.
    """

    before: Cut = WHOLE
    context: AgentContext = UNKNOWN
    carried: list[dict[str, Any]] = field(default_factory=list)
    summary: str = ""
    pieces: int = 0
    room: int = 0
    is_called: bool = True


def is_carried(entry: Mapping[str, Any]) -> bool:
    """Return whether an entry stands at the beginning of what is read, wherever it is stored."""
    return SUMMARIZES in entry or PINNED in entry


def view(portions: Sequence[Portion], cut: Cut) -> list[dict[str, Any]]:
    """Return what a model reads of these portions, which `Portion.seen` has not changed."""
    carried: list[dict[str, Any]] = []
    entries: list[dict[str, Any]] = []
    for portion in portions:
        if portion.n == cut.carries:
            carried = bare(portion.entries)
        if portion.n >= cut.begin:
            entries += portion.seen(cut).entries
    return carried + entries


def bare(entries: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the carried entries among these, without the keys that models don't see."""
    return [{"role": entry["role"], "content": entry["content"]} for entry in entries if is_carried(entry)]


def refer(entry: dict[str, Any], portion: int, index: int, long: int) -> dict[str, Any]:
    """Return an entry with a reference in place of a long result, or of a message of more than `long` characters.

    The model no longer gets its files, and reads their lines.
    """
    if FILES in entry:
        entry = in_words(entry)
    key = "output" if entry.get("type") == "function_call_output" else "content"
    text = entry.get(key)
    limit = SHORT if is_tool_result(entry) else long if entry.get("role") == "user" else 0
    if not limit or not isinstance(text, str) or len(text) <= limit:
        return entry
    return {**entry, key: shorten(text, QUOTED, f"{portion}.{index}")}


def shorten(text: str, quoted: int, ref: str) -> str:
    """Return the beginning of a text, and how to read on."""
    return f"{text[:quoted]}\n[{quoted} of {len(text)} characters; read_more(ref={ref!r}, offset={quoted}) shows more]"


def reference(text: str) -> str:
    """Return the reference of a text that is stored apart, which its content alone decides."""
    return sha256(text.encode(errors="surrogatepass")).hexdigest()[:32]


def size_of_files(entries: Sequence[Mapping[str, Any]]) -> int:
    """Return about how many bytes of text take as many tokens as the files of these entries."""
    return sum(_size_of(file) for entry in entries if FILES in entry for file in files_in(entry))


def _size_of(file: FileRef) -> int:
    return IMAGE_BYTES if file.type.startswith("image/") else min(file.size, MOST_BYTES)


def text_of(entry: dict[str, Any]) -> str | None:
    """Return the text of a message or a result; None for another entry."""
    text = entry.get("output" if entry.get("type") == "function_call_output" else "content")
    return text if isinstance(text, str) else None
