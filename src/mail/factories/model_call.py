"""Calling a model until it answers, gives a final refusal, or time is up."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any

from mail.core.protocol.calls import TEXT_OUTPUT, AgentToolCall
from mail.core.task.context import TURN_DEADLINE
from mail.core.task.usage import Usage, report_usage
from mail.factories.assembly import MalformedReply, assemble
from mail.factories.chat import call_chat
from mail.factories.failures import Troubled, read_trouble
from mail.factories.models import get_litellm, price
from mail.factories.request import Heard, ModelReply, ModelRequest
from mail.factories.responses import call_responses
from mail.factories.retry import Cause, Retry, RetryPolicy, Trouble, error_for

logger = logging.getLogger(__name__)

ATTEMPT_SECONDS = 600.0
"""How long one attempt may take; a connection that hangs must not use up all the time there is."""

RESERVE_SECONDS = 1.0
"""What is kept of a turn's time to tell that the model did not answer; a tenth of short turns."""

Wire = Callable[[Any, ModelRequest, float | None, Heard], Awaitable[ModelReply]]


async def call_model(
    request: ModelRequest, policy: RetryPolicy, heard: Heard
) -> tuple[str | None, list[AgentToolCall]]:
    """The text and the tool calls of a model's reply.

    Never takes longer than the turn that it is called in, and reports what it costs. Raises ModelError.
    """
    litellm = await get_litellm()
    wire = call_responses if uses_responses(request) else call_chat
    until = _deadline()
    attempt = 1
    while True:
        try:
            return await _attempt(litellm, wire, request, _left(until), heard)
        except Exception as error:
            trouble = read_trouble(litellm, error)
            if trouble is None:
                raise
            decision = policy.decide(trouble, attempt, _left(until), random.random())  # noqa: S311
            _log(request, trouble, error, attempt, decision)
            if not isinstance(decision, Retry):
                raise error_for(trouble, request.llm, attempt) from error
        await asyncio.sleep(decision.after)
        attempt += 1


def uses_responses(request: ModelRequest) -> bool:
    """Whether a request goes to the Responses API. Claude's don't: what litellm makes of them loses signatures."""
    return request.tool_format == "responses" and not request.traits.claude


async def _attempt(
    litellm: Any, wire: Wire, request: ModelRequest, left: float | None, heard: Heard
) -> tuple[str | None, list[AgentToolCall]]:
    seconds = ATTEMPT_SECONDS if left is None else min(ATTEMPT_SECONDS, left)
    async with asyncio.timeout(seconds):
        reply = await wire(litellm, request, seconds, heard)
    report_usage(read_usage(request.llm, reply.usage), request.llm)
    try:
        text, calls = assemble(reply.said, request.tool_format)
    except MalformedReply as error:
        if reply.finish == "length":
            raise Troubled(Cause.TRUNCATED) from error
        raise
    if reply.finish == "filter" and all(call.tool_name == TEXT_OUTPUT for call in calls):
        raise Troubled(Cause.FILTERED)
    return text, calls


def read_usage(llm: str, usage: Any) -> Usage:
    """Litellm's `Usage` of one call as a record, with its price."""
    if usage is None:
        return Usage(calls=1, unpriced_calls=1)
    cost = price(llm, usage)
    return Usage(
        calls=1,
        input_tokens=usage.prompt_tokens or 0,
        cached_tokens=_detail(usage, "prompt_tokens_details", "cached_tokens"),
        output_tokens=usage.completion_tokens or 0,
        reasoning_tokens=_detail(usage, "completion_tokens_details", "reasoning_tokens"),
        cost=cost or 0.0,
        unpriced_calls=int(cost is None),
    )


def _detail(usage: Any, group: str, name: str) -> int:
    return getattr(getattr(usage, group, None), name, None) or 0


def _deadline() -> float | None:
    """When to give up, by the loop's clock; None where no turn sets a limit."""
    end = TURN_DEADLINE.get()
    if end is None:
        return None
    left = end - asyncio.get_running_loop().time()
    return end - min(RESERVE_SECONDS, left / 10)


def _left(until: float | None) -> float | None:
    return None if until is None else max(0.0, until - asyncio.get_running_loop().time())


def _log(request: ModelRequest, trouble: Trouble, error: Exception, attempt: int, decision: object) -> None:
    """Say in the log what went wrong; not in the provider's words where they may quote the API key."""
    words = "" if trouble.cause is Cause.ACCESS else f": {str(error).partition('\n')[0]}"
    logger.warning("%s, attempt %d: %s%s; %s", request.llm, attempt, trouble.cause, words, decision)
