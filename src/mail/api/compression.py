"""Making a long history shorter before an agent takes a step: its beginning is replaced by a summary.

`dynamic_ctx_ratio` is the part of the model's context window that the agent's history may fill. Past that, the
model itself summarizes what is oldest; the newest turns, up to half of what is allowed, stay as they are.
"""

import json
import logging
from collections.abc import Sequence

from mail.api.overrides import CallsModel, silent
from mail.core.agents import AgentFunction, History
from mail.core.prompt import build_body_xml
from mail.core.stepping import Shorten
from mail.errors import BadRequest

logger = logging.getLogger(__name__)

DEFAULT_WINDOW = 128_000
"""Tokens that a model can read, where litellm's table doesn't know it."""

KEPT = 0.5
"""How much of what is allowed stays, so that not every step is followed by another summary."""

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
    if not 0.0 <= ratio <= 1.0:
        raise BadRequest(f"dynamic_ctx_ratio must be between 0.0 and 1.0, not {ratio}")
    if not ratio or not isinstance(function, CallsModel):
        return None
    model: CallsModel = function

    async def shorten(seen: History, prompts: History) -> tuple[int, str] | None:
        texts = [json.dumps(entry, ensure_ascii=False, default=str) for entry in (*seen, *prompts)]
        budget = int(await context_window(model.llm) * ratio)
        if sum(len(text.encode()) for text in texts) <= budget:  # no tokenizer makes more tokens than bytes
            return None
        counts = [await count_tokens(model.llm, text) for text in texts]
        if sum(counts) <= budget:
            return None
        cut = _cut(seen, counts, int(budget * KEPT))
        summary = await _summarize(model, texts[:cut]) if cut else None
        return None if summary is None else (cut, build_body_xml({"summary_of_earlier_events": summary}))

    return shorten


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


async def _summarize(model: CallsModel, texts: Sequence[str]) -> str | None:
    """A summary by the agent's own model; None where it gives none, which must not keep the agent from its step."""
    ask = silent(model.but(system=SUMMARIZE))
    try:
        text, calls = await ask([{"role": "user", "content": "\n".join(texts)}], "none")
    except Exception:  # an agent function is foreign code
        logger.warning("an agent's history could not be summarized; it stays as it is", exc_info=True)
        return None
    told = [str(call.tool_args["content"]) for call in calls if "content" in call.tool_args]
    return text or "\n\n".join(told) or None


async def context_window(llm: str) -> int:
    """How many tokens the model can read."""
    from mail.factories import models

    await models.get_litellm()
    return models.context_window(llm) or DEFAULT_WINDOW


async def count_tokens(llm: str, text: str) -> int:
    """How many tokens a text is to the model, nearly."""
    from mail.factories import models

    await models.get_litellm()
    return models.count_tokens(llm, [{"role": "user", "content": text}])
