"""Making a long history shorter before an agent takes a step: its beginning is replaced by a summary.

`dynamic_ctx_ratio` is the part of the model's context window that the agent's history may fill. Past that, the
model itself summarizes what is oldest; the newest turns, up to half of what is allowed, stay as they are. What is
too long to be read at once, as where a game was played without limits so far, is summarized piece by piece.
"""

import asyncio
import json
import logging
from collections.abc import Sequence

from mail.api.overrides import CallsModel, silent
from mail.core.engine.manual import Shorten
from mail.core.protocol.xml import build_body_xml
from mail.core.task.swarm import AgentFunction, History
from mail.errors import BadRequest

logger = logging.getLogger(__name__)

DEFAULT_WINDOW = 128_000
"""Tokens that a model can read, where litellm's table doesn't know it."""

KEPT = 0.5
"""How much of what is allowed stays, so that not every step is followed by another summary."""

LEAST = 0.125
"""What part of the window a history gets at least, however much its agent's instructions and tools take."""

REPLY = 4096
"""Tokens that are kept for the model's reply where the agent has no `max_tokens`; at most a quarter of its window."""

SUMMARIZE = (
    "You are the memory of an agent that works with others by mail. Summarize what the transcript holds, from the "
    "agent's own point of view: facts, what was agreed, who said what and in confidence to whom, open questions, "
    "and the results of its tools. Leave nothing out that it may need later. Answer with the summary alone."
)


def shortener(function: AgentFunction, ratio: float) -> Shorten | None:
    """What makes the histories of this agent function shorter; None where nothing has to.

    That is where `ratio` is 0, and where the function calls no model and so has no window. Raises BadRequest for a
    ratio that is none.
    """
    if not isinstance(ratio, int | float) or not 0.0 <= ratio <= 1.0:
        raise BadRequest(f"dynamic_ctx_ratio must be a number between 0.0 and 1.0, not {ratio!r}")
    if not ratio or not isinstance(function, CallsModel):
        return None
    model: CallsModel = function

    async def shorten(seen: History, prompts: History) -> tuple[int, str] | None:
        texts = [_as_text(entry) for entry in (*seen, *prompts)]
        window = await context_window(model.llm)
        if _size(texts) <= min(int(window * ratio), window - _reply(model, window) - _size(_fixed(model))):
            return None
        counts = await count_tokens(model.llm, texts)
        fixed = sum(await count_tokens(model.llm, _fixed(model)))
        room = max(window - _reply(model, window) - fixed, int(window * LEAST))
        budget = min(int(window * ratio), room)
        if sum(counts) <= budget:
            return None
        cut = _cut(seen, counts, int(budget * KEPT))
        summary = await _Summary(model, room).of(texts[:cut]) if cut else None
        return None if summary is None else (cut, build_body_xml({"summary_of_earlier_events": summary}))

    return shorten


def _as_text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _size(texts: Sequence[str]) -> int:
    """The most tokens that the texts can be: no tokenizer makes more of them than there are bytes."""
    return sum(len(text.encode()) for text in texts)


def _fixed(model: CallsModel) -> list[str]:
    """What the model is told with every call, besides the history."""
    return [str(getattr(model, "system", "")), _as_text(getattr(model, "tools", []))]


def _reply(model: CallsModel, window: int) -> int:
    """How many tokens the model needs for its reply."""
    return min(getattr(model, "max_tokens", None) or REPLY, window // 4)


def _cut(seen: History, counts: Sequence[int], allowed: int) -> int:
    """How many of the oldest entries go: only whole turns, as a tool call and its result belong together."""
    cut, left = len(seen), allowed
    for index in reversed(range(len(seen))):
        left -= counts[index]
        if left < 0:
            break
        if seen[index].get("role") == "user":
            cut = index
    return cut


class _Summary:
    """A summary by the agent's own model, which can read so many tokens at once besides its instructions."""

    def __init__(self, model: CallsModel, room: int) -> None:
        self._llm = model.llm
        self._ask = silent(model.but(system=SUMMARIZE))
        self._room = room

    async def of(self, texts: Sequence[str]) -> str | None:
        """What the texts hold; None where the model gives no summary, which must not keep the agent from its step.

        Where they are too much for one call, each next one reads the summary so far, and more of them.
        """
        summary: str | None = None
        for portion in await self._portions(texts):
            told = [] if summary is None else [build_body_xml({"summary_so_far": summary})]
            summary = await self._summarize("\n".join([*told, *portion]))
            if summary is None:
                break
        return summary

    async def _portions(self, texts: Sequence[str]) -> list[list[str]]:
        """The texts in portions that can be read at once; half of the room is for the summary so far."""
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
        """The text, cut to pieces of a quarter of the room where it is longer than that."""
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
        told = [str(call.tool_args["content"]) for call in calls if "content" in call.tool_args]
        return said or "\n\n".join(told) or None


async def context_window(llm: str) -> int:
    """How many tokens the model can read."""
    from mail.factories import models

    await models.get_litellm()
    return models.context_window(llm) or DEFAULT_WINDOW


async def count_tokens(llm: str, texts: Sequence[str]) -> list[int]:
    """How many tokens each text is to the model, nearly. That takes its time, so others may go on meanwhile."""
    from mail.factories import models

    await models.get_litellm()

    def count() -> list[int]:
        return [models.count_tokens(llm, [{"role": "user", "content": text}]) for text in texts]

    return await asyncio.to_thread(count)
