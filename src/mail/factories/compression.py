"""Compression of long histories: before an agent's step, the oldest turns are replaced by a summary.

`dynamic_ctx_ratio` is the share of the model's context window that the agent's history may fill. Above it, the model
itself summarizes the oldest turns; the newest ones, up to half of the allowed size, stay unchanged. A history that is
longer than the context window is summarized piece by piece.
"""

import asyncio
import json
import logging
from collections.abc import Sequence

from mail.core.engine.manual import Compress
from mail.core.protocol.xml import render_elements
from mail.core.task.swarm import AgentFunction, History
from mail.errors import BadRequest
from mail.factories import models
from mail.factories.variants import CallsModel, silent

logger = logging.getLogger(__name__)

DEFAULT_WINDOW = 128_000
"""Context window, in tokens, of a model that is not in the table."""

KEPT = 0.5
"""Share of the allowed size that stays, so that not every step needs another summary."""

LEAST = 0.125
"""Minimum share of the window for the history, however long the system prompt and the tools are."""

REPLY = 4096
"""Tokens reserved for the reply of an agent without `max_tokens`; at most a quarter of its window."""

SUMMARIZE = (
    "You are the memory of an agent that works with other agents by mail. Summarize the transcript from the "
    "agent's own point of view: facts, what was agreed, who said what and in confidence to whom, open questions, "
    "and the results of its tools. Leave nothing out that it may need later. Answer with the summary alone."
)


def compressor(function: AgentFunction, ratio: float) -> Compress | None:
    """Return a function that compresses this agent function's histories; None if none is needed.

    None is needed if `ratio` is 0, or if the function calls no model and so has no context window. Raises BadRequest
    for an invalid ratio.
    """
    if not isinstance(ratio, int | float) or not 0.0 <= ratio <= 1.0:
        raise BadRequest(f"dynamic_ctx_ratio must be a number between 0.0 and 1.0, not {ratio!r}")
    if not ratio or not isinstance(function, CallsModel):
        return None
    model: CallsModel = function

    async def compress(seen: History, prompts: History) -> tuple[int, str] | None:
        texts = [_as_text(entry) for entry in (*seen, *prompts)]
        window = await context_window(model.llm)
        if _size(texts) <= min(int(window * ratio), window - _reply(model, window) - _size(_fixed(model))):
            return None
        counts = await count_tokens(model.llm, texts)
        fixed = sum(await count_tokens(model.llm, _fixed(model)))
        room = max(window - _reply(model, window) - fixed, int(window * LEAST))
        allowed = min(int(window * ratio), room)
        if sum(counts) <= allowed:
            return None
        cut = _cut(seen, counts, int(allowed * KEPT))
        summary = await _Summary(model, room).of(texts[:cut]) if cut else None
        return None if summary is None else (cut, render_elements({"summary_of_earlier_events": summary}))

    return compress


def _as_text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _size(texts: Sequence[str]) -> int:
    """Return an upper bound of the texts' tokens: no tokenizer makes more tokens than there are bytes."""
    return sum(len(text.encode()) for text in texts)


def _fixed(model: CallsModel) -> list[str]:
    """Return the texts that the model gets in every call apart from the history."""
    return [str(getattr(model, "system", "")), _as_text(getattr(model, "tools", []))]


def _reply(model: CallsModel, window: int) -> int:
    """Return the number of tokens to reserve for the model's reply."""
    return min(getattr(model, "max_tokens", None) or REPLY, window // 4)


def _cut(seen: History, counts: Sequence[int], allowed: int) -> int:
    """Return how many of the oldest entries to remove: whole turns, as a tool call needs its result."""
    cut, left = len(seen), allowed
    for index in reversed(range(len(seen))):
        left -= counts[index]
        if left < 0:
            break
        if seen[index].get("role") == "user":
            cut = index
    return cut


class _Summary:
    """A summary by the agent's own model, which can read `room` tokens apart from its system prompt."""

    def __init__(self, model: CallsModel, room: int) -> None:
        self._llm = model.llm
        self._ask = silent(model.but(system=SUMMARIZE))
        self._room = room

    async def of(self, texts: Sequence[str]) -> str | None:
        """Summarize the texts; return None if the model gives no summary, so that the step can proceed without.

        If the texts are too long for one call, each further call reads the summary so far and the next portion.
        """
        summary: str | None = None
        for portion in await self._portions(texts):
            so_far = [] if summary is None else [render_elements({"summary_so_far": summary})]
            summary = await self._summarize("\n".join([*so_far, *portion]))
            if summary is None:
                break
        return summary

    async def _portions(self, texts: Sequence[str]) -> list[list[str]]:
        """Group the texts into portions for one call each; half of the room is left for the summary so far."""
        pieces = [piece for text in texts for piece in await self._pieces(text)]
        counts = await count_tokens(self._llm, pieces)
        limit = self._room if sum(counts) <= self._room else self._room // 2
        portions: list[list[str]] = [[]]
        filled = 0
        for piece, count in zip(pieces, counts, strict=True):
            if portions[-1] and filled + count > limit:
                portions.append([])
                filled = 0
            portions[-1].append(piece)
            filled += count
        return portions

    async def _pieces(self, text: str) -> list[str]:
        """Split a text that is longer than a quarter of the room."""
        limit = max(self._room // 4, 1)
        if _size([text]) <= limit or (await count_tokens(self._llm, [text]))[0] <= limit or len(text) < 2:
            return [text]
        middle = len(text) // 2
        return [*await self._pieces(text[:middle]), *await self._pieces(text[middle:])]

    async def _summarize(self, text: str) -> str | None:
        try:
            said, calls = await self._ask([{"role": "user", "content": text}], "none")
        except Exception:  # an agent function is foreign code
            logger.warning("an agent's history could not be summarized; it stays as it is", exc_info=True)
            return None
        texts = [str(call.tool_args["content"]) for call in calls if "content" in call.tool_args]
        return said or "\n\n".join(texts) or None


async def context_window(llm: str) -> int:
    """Return the size of the model's context window, in tokens."""
    return models.context_window(llm) or DEFAULT_WINDOW


async def count_tokens(llm: str, texts: Sequence[str]) -> list[int]:
    """Return the approximate number of tokens of each text. Counts in a thread, because it takes time."""

    def count() -> list[int]:
        return [models.count_tokens(llm, [{"role": "user", "content": text}]) for text in texts]

    return await asyncio.to_thread(count)
