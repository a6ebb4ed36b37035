"""How an agent's context is kept within the window of its model. Pure functions of sizes that are known.

It takes the mildest step that suffices: results of earlier turns are replaced by references, then the oldest whole
turns by a summary. The messages of people in this run stay, and so do pinned messages; references replace the longest
of them. The newest turn stays in any case, and a call is never parted from its result.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import ceil
from typing import Any

from pydantic_core import to_json

from mail.core.protocol.calls import is_tool_result
from mail.core.protocol.values import value
from mail.core.protocol.xml import render_elements
from mail.core.task.context import (
    BYTES_PER_TOKEN,
    PINNED,
    QUOTED,
    SUMMARIZES,
    AgentContext,
    Context,
    Cut,
    Portion,
    shorten,
    text_of,
)
from mail.core.task.size import json_size
from mail.core.task.swarm import History

SUMMARY = 1 / 16
"""The share of a window that a summary may take."""

PINS = 1 / 8
"""The share that messages which stay may take; the longest are references."""

MESSAGE = 1 / 8
"""The share from which a message is a reference if even the newest turn doesn't fit."""

NOTABLE = 1 / 4
"""The share from which on a context is stored with its agent."""

PIECE = 5 / 8
"""The share that a model reads of a transcript at once, to summarize it."""

HARDER = 0.5
"""The share of the usual size to which a context is cut after a refused call."""

REFUSED = 0.9
"""The share of a refused call, as it was estimated, that counts as the window from then on."""

SMALLEST_WINDOW = 1_024

_UNREADABLE = frozenset({"encrypted_content", "signature", "id", "status", "annotations", "logprobs"})
"""Keys of entries that say nothing to the model that summarizes them."""


@value
class Load:
    """What a model would read in the next call: its tokens, as far as they are known, and its bytes."""

    tokens: int
    size: int

    @property
    def tokens_per_byte(self) -> float:
        """The tokens that a byte of it takes."""
        return max(self.tokens, 1) / max(self.size, 1)


def characters(window: int, share: float) -> int:
    """Return how many characters take a share of a window."""
    return int(window * share) * BYTES_PER_TOKEN


def result_limit(settings: Context, window: int, calls: int) -> int:
    """Return how many characters an agent sees of each result of a turn with so many calls."""
    shared = characters(window, 1 / 4) // max(calls, 1)
    return max(QUOTED, min(settings.results, characters(window, 1 / 8), shared))


def estimate(context: AgentContext, portions: Sequence[Portion], more: int) -> int:
    """Return the tokens of a context with `more` bytes: those that a model has counted, and a guess for the rest."""
    for portion in reversed(portions):
        if portion.n <= context.counted:
            break
        more += portion.size
    return context.tokens + more // BYTES_PER_TOKEN


def learn(context: AgentContext, model: str, window: int, tokens: int) -> AgentContext:
    """Return a context that knows of a call of about so many tokens which the model has refused as too long."""
    return replace(context, window=max(SMALLEST_WINDOW, min(window, int(tokens * REFUSED))), model=model)


def decide_cut(
    before: Cut,
    portions: Sequence[Portion],
    load: Load,
    window: int,
    settings: Context,
    *,
    harder: bool = False,
) -> Cut | None:
    """Return where the next call must be cut, given the `portions` as the agent has seen them; None if it fits.

    With `harder`, the call was refused: it is cut to half of the usual size, however small it seems. None then means
    that nothing is left to cut.
    """
    most = settings.at * window
    if load.tokens <= most and not harder:
        return None
    rate = load.tokens_per_byte
    allowed = int(settings.keep * window / rate)
    if harder:
        allowed = int(min(allowed, load.size) * HARDER)
    last = portions[-1].n if portions else 0
    cut = replace(before, references=max(before.references, last - 1))
    sizes = [portion.seen(cut).size for portion in portions]
    size = load.size - sum(portion.size for portion in portions) + sum(sizes)
    if size > allowed:
        size += int(window * (SUMMARY + PINS) / rate)
        for index, portion in enumerate(portions[1:], 1):
            size -= sizes[index - 1]
            if not portion.entries or not is_tool_result(portion.entries[0]):  # of an earlier call
                cut = replace(cut, begin=portion.n, carries=last + 1)
                if size <= allowed:
                    break
        if size * rate > most or (harder and cut.begin == before.begin):
            cut = replace(cut, references=last + 1, long=characters(window, MESSAGE))
    return None if cut == before else cut


def carry(
    portions: Sequence[Portion], carried: History, begin: int, pinned: Iterable[int], window: int
) -> History:
    """Return the messages that stay although they stand before the portion `begin`.

    `carried` are those that an earlier cut has carried. The longest become references, until all take an eighth of
    the window.
    """
    stays = set(pinned)
    kept = [(f"{entry[PINNED]}.0", entry) for entry in carried if entry.get(PINNED) in stays]
    for portion in portions:
        if portion.n >= begin or portion.n not in stays:
            continue
        for index, entry in enumerate(portion.entries):
            if entry.get("role") != "user" or is_tool_result(entry):
                break
            kept.append((f"{portion.n}.{index}", {**entry, PINNED: portion.n}))
    room = characters(window, PINS)
    for n in sorted(range(len(kept)), key=lambda n: -json_size(kept[n][1])):
        ref, entry = kept[n]
        text = text_of(entry)
        if sum(json_size(each) for _, each in kept) <= room or text is None or len(text) <= 2 * QUOTED:
            break
        kept[n] = (ref, {**entry, "content": shorten(text, QUOTED, ref)})
    return [entry for _, entry in kept]


def write_summary(summary: str, begin: int) -> dict[str, Any]:
    """Return the entry that stands for all portions before `begin`; without a summary, it says what is missing."""
    if summary:
        content = render_elements({"summary_of_earlier_events": summary})
    else:
        note = f"Your {begin - 1} earliest turns no longer fit into your context, and there is no summary of them."
        content = render_elements({"earlier_events": note})
    return {"role": "user", "content": content, SUMMARIZES: begin}


def transcribe(entries: Iterable[dict[str, Any]]) -> str:
    """Return entries as text for the model that summarizes them, one a line."""
    return "\n".join(to_json(_readable(entry)).decode() for entry in entries)


def _readable(part: Any) -> Any:
    if isinstance(part, dict):
        return {key: _readable(item) for key, item in part.items() if key not in _UNREADABLE}
    return [_readable(item) for item in part] if isinstance(part, list) else part


def split(text: str, room: int) -> list[str]:
    """Split a text into as few pieces of `room` characters at most as it needs, all about equally long."""
    if not text:
        return []
    length = ceil(len(text) / ceil(len(text) / room))
    return [text[begin : begin + length] for begin in range(0, len(text), length)]


def is_notable(tokens: int, window: int) -> bool:
    """Return whether a context is stored with its agent, so that a worker that takes over need not guess its size."""
    return tokens >= window * NOTABLE
