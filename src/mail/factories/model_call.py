"""Calling a model until it replies, fails permanently, or the turn runs out of time."""

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from mail.core.protocol.calls import TEXT_OUTPUT, AgentToolCall
from mail.core.task.costs import Usage
from mail.core.task.permits import PermitGate
from mail.core.turns.activity import ModelCall
from mail.core.turns.context import TURN, model_call
from mail.errors import LONGEST_PARK, ProviderBusy
from mail.factories.answer import AnswerReader
from mail.factories.chat import call_chat
from mail.factories.failures import CallFailed, classify
from mail.factories.items import MalformedReply, assemble
from mail.factories.models import ModelReply, ModelRequest, OnPiece, PieceKind, get_litellm, price
from mail.factories.providers import provider_of
from mail.factories.responses import call_responses
from mail.factories.retry import Cause, Failure, Retry, RetryPolicy, Stop, error_for

logger = logging.getLogger(__name__)

ATTEMPT_SECONDS = 600.0
"""Timeout of one attempt, so that a hanging connection doesn't use up the whole turn."""

RESERVE_SECONDS = 1.0
"""Seconds reserved at the end of a turn for reporting that the model did not reply; a tenth of short turns."""

SHORT_WAIT = 2.0
"""Seconds that a call waits in its turn; a turn that would wait longer is parked, so that no worker waits for it."""

SELF_EXPLAINED = frozenset({Cause.NO_KEY, Cause.ACCESS, Cause.FORBIDDEN, Cause.NO_PROVIDER})
"""Failures of which the provider's text says nothing more than the error, but may contain the key."""

Wire = Callable[[Any, ModelRequest, float | None, OnPiece, AnswerReader], Awaitable[ModelReply]]


async def call_model(
    request: ModelRequest, policy: RetryPolicy, on_piece: OnPiece
) -> tuple[str | None, list[AgentToolCall]]:
    """Call a model and return the text and the tool calls of its reply.

    Ends before the deadline of the turn, and reports the usage. Raises ModelError; and ProviderBusy if the next attempt
    is to be made later, and the turn can be parked. The turn that continues then knows how many have failed.
    """
    litellm = await get_litellm()
    wire = call_responses if request.uses_responses else call_chat
    until = _deadline()
    begin = asyncio.get_running_loop().time()
    may_park, turn = _may_park(), TURN.get()
    attempt, ticket, kinds = 1, 0, set[tuple[Cause, int | None]]()
    if may_park:
        policy = replace(policy, patience=LONGEST_PARK)
        if turn.parked is not None:
            attempt, ticket = attempt + turn.parked.attempts, turn.parked.ticket
    permits, provider = turn.permits, provider_of(litellm, request.llm) or request.llm
    gate = None if permits is None else permits.gate(request.llm)
    with model_call(request.llm) as call:
        if call.wants_deltas:
            request = replace(request, streams=True)

        def pass_on(kind: PieceKind, piece: str) -> None:
            on_piece(kind, piece)
            call.delta(kind, piece)

        while True:
            try:
                if gate is not None:
                    async with _permit(gate, call, provider, attempt, ticket, until, may_park=may_park):
                        return await _attempt(litellm, wire, request, _left(until), pass_on, call)
                return await _attempt(litellm, wire, request, _left(until), pass_on, call)
            except ProviderBusy:
                raise
            except Exception as error:
                if _is_ending():
                    raise asyncio.CancelledError from error
                failure = classify(litellm, error, request)
                if failure is None:
                    raise
                kinds.add((failure.cause, failure.status))
                waits_outside = (
                    may_park and failure.cause is not Cause.TIMEOUT
                )  # which may be that of the turn
                left = None if waits_outside else _left(until)
                decision = policy.decide(failure, attempt, left, random.random())  # noqa: S311
                _log(request, failure, error, attempt, policy, decision)
                if permits is not None and failure.cause is Cause.RATE_LIMIT and failure.status:
                    after = decision.after if isinstance(decision, Retry) and gate is not None else None
                    if (wait := failure.retry_after or after) is not None:
                        await permits.refuse(request.llm, failure.limits, wait)
                if not isinstance(decision, Retry):
                    seconds = asyncio.get_running_loop().time() - begin
                    raise error_for(
                        failure, request.llm, attempt, seconds, is_same=len(kinds) == 1
                    ) from error
            status = f" (HTTP {failure.status})" if failure.status else ""
            call.retry(f"{failure.cause}{status}", decision.after)
            if may_park and (
                decision.after > SHORT_WAIT or decision.after + policy.least > (_left(until) or 0.0)
            ):
                raise ProviderBusy(decision.after, provider, attempt)
            await asyncio.sleep(decision.after)
            attempt, ticket = attempt + 1, 0


async def _attempt(
    litellm: Any, wire: Wire, request: ModelRequest, left: float | None, on_piece: OnPiece, call: ModelCall
) -> tuple[str | None, list[AgentToolCall]]:
    longest = request.timeout or ATTEMPT_SECONDS
    seconds = longest if left is None else min(longest, left)
    answer = AnswerReader(call)
    async with asyncio.timeout(seconds):
        reply = await wire(litellm, request, seconds, on_piece, answer)
    answer.read()
    call.report(read_usage(request.llm, reply.usage))
    try:
        text, calls = assemble(reply.entries, request.tool_format)
    except MalformedReply as error:
        if reply.finish == "length":
            raise CallFailed(Cause.TRUNCATED) from error
        raise
    if reply.finish == "filter" and all(each.tool_name == TEXT_OUTPUT for each in calls):
        raise CallFailed(Cause.FILTERED)
    return text, calls


def read_usage(llm: str, usage: Any) -> Usage:
    """Convert litellm's `Usage` of one call, and add its price."""
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


@asynccontextmanager
async def _permit(
    gate: PermitGate,
    call: ModelCall,
    provider: str,
    attempt: int,
    ticket: int,
    until: float | None,
    *,
    may_park: bool,
) -> AsyncGenerator[None]:
    """Wait for a permit, and say what the call has taken. Raises ProviderBusy, or CallFailed if there is no time."""
    loop = asyncio.get_running_loop()
    while not (reply := await gate.take(TURN.get().caller, ticket)).may_begin:
        ticket = reply.ticket
        call.wait(provider, reply.wait)
        if may_park and reply.wait > SHORT_WAIT:
            raise ProviderBusy(reply.wait, provider, attempt - 1, ticket)
        if (left := _left(until)) is not None and reply.wait >= left:
            raise CallFailed(Cause.RATE_LIMIT)
        await asyncio.sleep(reply.wait)
    await asyncio.sleep(reply.wait)
    before, begin = call.tokens, loop.time()
    try:
        yield
    finally:
        await gate.end(call.tokens - before, loop.time() - begin)


def _may_park() -> bool:
    """Return whether the turn may be parked for the call: if it would repeat no other call, and no action."""
    turn = TURN.get()
    return turn.may_park and not turn.call_place and turn.meter is not None and not turn.meter.models


def _deadline() -> float | None:
    """Return the time of the event loop at which to stop; None outside a turn."""
    end = TURN.get().deadline
    if end is None:
        return None
    left = end - asyncio.get_running_loop().time()
    return end - min(RESERVE_SECONDS, left / 10)


def _left(until: float | None) -> float | None:
    return None if until is None else max(0.0, until - asyncio.get_running_loop().time())


def _is_ending() -> bool:
    """Return whether the process or its event loop is ending, so that no call can succeed."""
    try:
        asyncio.get_running_loop().run_in_executor(None, int).add_done_callback(asyncio.Future.result)
    except RuntimeError:
        return True
    return False


def _log(
    request: ModelRequest,
    failure: Failure,
    error: Exception,
    attempt: int,
    policy: RetryPolicy,
    decision: Retry | Stop,
) -> None:
    """Log a retry, or at the end what the provider said, which is nowhere else."""
    what = f"HTTP {failure.status}" if failure.status else failure.cause.value
    words = request.hide_secrets(str(error).partition("\n")[0])
    if isinstance(decision, Retry):
        tries = policy.attempts[failure.cause]
        logger.warning(
            "%s: %s, attempt %d of %d, next in %.1f s", request.llm, what, attempt, tries, decision.after
        )
        logger.debug("%s: %s", request.llm, words)
    elif failure.cause not in SELF_EXPLAINED:
        logger.warning("%s: %s on attempt %d: %s", request.llm, what, attempt, words)
