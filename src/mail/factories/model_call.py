"""Calling a model until it replies, fails permanently, or the turn runs out of time."""

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from mail.core.protocol.calls import TEXT_OUTPUT, AgentToolCall
from mail.core.task.costs import Usage
from mail.core.task.permits import PermitGate, PermitSource
from mail.core.turns.activity import Exchange, ModelCall
from mail.core.turns.context import TURN, model_call
from mail.errors import LONGEST_PARK, ProviderBusy
from mail.factories.answer import AnswerReader
from mail.factories.caching import Prefixes, describe
from mail.factories.failures import CallFailed
from mail.factories.fallback import SwitchingPolicy
from mail.factories.files import without_attachments
from mail.factories.history import WRITTEN_BY, read_history, to_chat
from mail.factories.items import Entry, MalformedReply, assemble
from mail.factories.models import ModelRequest, OnPiece, PieceKind, price
from mail.factories.ports import Port, port_for
from mail.factories.providers import provider_of
from mail.factories.rates import closed_for, limits_told
from mail.factories.retry import SHORT_WAIT, Cause, Failure, Retry, RetryPolicy, Stop, error_for
from mail.factories.table import Tokens

logger = logging.getLogger(__name__)

ATTEMPT_SECONDS = 600.0
"""Timeout of one attempt, so that a hanging connection doesn't use up the whole turn."""

RESERVE_SECONDS = 1.0
"""Seconds reserved at the end of a turn for reporting that the model did not reply; a tenth of short turns."""

SELF_EXPLAINED = frozenset({Cause.BUSY, Cause.NO_KEY, Cause.ACCESS, Cause.FORBIDDEN, Cause.NO_PROVIDER})
"""Failures of which the provider's text says nothing more than the error, but may contain the key."""

_FINISH = {"filter": "content_filter"}

_prefixes = Prefixes()


async def call_model(
    request: ModelRequest, policy: RetryPolicy | SwitchingPolicy, on_piece: OnPiece
) -> tuple[str | None, list[AgentToolCall]]:
    """Call a model and return the text and the tool calls of its reply.

    Ends before the deadline of the turn, and reports the usage. Raises ModelError; and ProviderBusy if the next attempt
    is to be made later, and the turn can be parked. The turn that continues then knows how many have failed.
    """
    port = port_for(request.llm, is_proxy=request.api_base is not None)
    await port.open()
    until = _deadline()
    begin = asyncio.get_running_loop().time()
    may_park, turn = _may_park(), TURN.get()
    attempt, ticket, kinds = 1, 0, set[tuple[Cause, int | None]]()
    if may_park:
        policy = policy.with_patience(LONGEST_PARK)
        if turn.parked is not None:
            attempt, ticket = attempt + turn.parked.attempts, turn.parked.ticket
    permits, provider = turn.services.permits, provider_of(request.llm) or request.llm
    gate = None if permits is None else permits.gate(request.llm)
    if permits is not None and gate is None:  # the model may be refusing the calls of other processes
        await permits.learn_breakers(request.llm, once=turn.parked is None)
        gate = permits.gate(request.llm)
    with model_call(request.llm) as call:
        if call.wants_deltas:
            request = replace(request, streams=True)
        if call.is_traced:
            call.exchange = _exchange(request)

        def pass_on(kind: PieceKind, piece: str) -> None:
            on_piece(kind, piece)
            call.note_chunk()
            call.delta(kind, piece)

        while True:
            try:
                if gate is None:
                    return await _attempt(port, request, _left(until), pass_on, call, permits)
                waits = policy.waits or ticket > 0
                async with _permit(
                    gate, call, provider, attempt, ticket, until, may_park=may_park, waits=waits
                ):
                    return await _attempt(port, request, _left(until), pass_on, call, permits)
            except ProviderBusy:
                raise
            except Exception as error:
                if _is_ending():
                    raise asyncio.CancelledError from error
                failure = port.classify(error, request)
                if failure is None:
                    raise
                kinds.add((failure.cause, failure.status))
                # a timeout may be that of the turn
                waits_outside = may_park and failure.cause is not Cause.TIMEOUT
                left = None if waits_outside else _left(until)
                decision = policy.decide(failure, attempt, left, random.random())  # noqa: S311
                _log(request, failure, error, attempt, policy, decision)
                if permits is not None and failure.cause is Cause.RATE_LIMIT and failure.status:
                    after = decision.after if isinstance(decision, Retry) and gate is not None else None
                    if (wait := failure.retry_after or after) is not None:
                        await permits.refuse(request.llm, limits_told(failure.headers), wait)
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
    port: Port,
    request: ModelRequest,
    left: float | None,
    on_piece: OnPiece,
    call: ModelCall,
    permits: PermitSource | None,
) -> tuple[str | None, list[AgentToolCall]]:
    longest = request.timeout or ATTEMPT_SECONDS
    seconds = longest if left is None else min(longest, left)
    answer = AnswerReader(call)
    sent = describe(request) if request.cache_key is not None and TURN.get().agent else None
    async with asyncio.timeout(seconds):
        reply = await port.call(request, seconds, on_piece, answer)
    answer.read()
    usage = read_usage(request.llm, reply.usage)
    call.report(usage)
    if permits is not None and reply.headers and (closed := closed_for(reply.headers, datetime.now(UTC))):
        await permits.refuse(request.llm, limits_told(reply.headers), closed)
    if sent is not None and request.cache_key is not None:
        now = asyncio.get_running_loop().time()
        history = f"{request.cache_key} {TURN.get().agent}"  # copies of an agent share a key
        _report_break(request, usage, _prefixes.note(history, sent, usage, now), call)
    if call.is_traced:
        call.reply = partial(_reply_as_chat, reply.entries)
    call.finish, call.replied = _FINISH.get(reply.finish, reply.finish), reply.model
    try:
        text, calls = assemble(_signed(reply.entries, request.signature), request.tool_format)
    except MalformedReply as error:
        if reply.finish == "length":
            raise CallFailed(Cause.TRUNCATED) from error
        raise
    if reply.finish == "filter" and all(each.tool_name == TEXT_OUTPUT for each in calls):
        raise CallFailed(Cause.FILTERED)
    if call.finish == "stop" and any(each.tool_name != TEXT_OUTPUT for each in calls):
        call.finish = "tool_call"
    return text, calls


def _exchange(request: ModelRequest) -> Exchange:
    streams = request.streams or request.traits.claude
    return Exchange(
        parameters={**request.options, "max_tokens": request.max_tokens, "stream": streams},
        system=request.system,
        tools=request.tools,
        messages=partial(_as_chat, request.history),
    )


def _as_chat(entries: Sequence[Entry]) -> list[Entry]:
    return to_chat(read_history(list(map(without_attachments, entries))), claude=False)


def _reply_as_chat(entries: Sequence[Entry]) -> list[Entry]:
    """Return the messages of a reply, without the results that its calls don't have yet."""
    return [message for message in _as_chat(entries) if message["role"] == "assistant"]


def _signed(entries: list[Entry], signature: str) -> list[Entry]:
    return [{**entry, WRITTEN_BY: signature} for entry in entries] if signature else entries


def _report_break(request: ModelRequest, usage: Usage, changes: Sequence[str], call: ModelCall) -> None:
    """Report what kept the call from reading the prefix that the previous one had cached, if anything."""
    if changes:
        call.broken_prefix = tuple(changes)
        logger.warning(
            "%s: the cached prompt of agent %s was not read, since its %s changed: %d of %d input tokens are cached",
            request.llm,
            TURN.get().agent,
            " and ".join(changes),
            usage.cached_tokens,
            usage.input_tokens,
        )


def read_usage(llm: str, tokens: Tokens | None) -> Usage:
    """Return the usage of one call, with its price."""
    if tokens is None:
        return Usage(calls=1, unpriced_calls=1)
    cost = price(llm, tokens)
    return Usage(
        calls=1,
        input_tokens=tokens.input,
        cached_tokens=tokens.cached,
        cache_write_tokens=tokens.written,
        output_tokens=tokens.output,
        reasoning_tokens=tokens.reasoning,
        cost=cost or 0.0,
        unpriced_calls=int(cost is None),
    )


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
    waits: bool,
) -> AsyncGenerator[None]:
    """Wait for a permit, and say what the call has taken.

    Raises ProviderBusy, or CallFailed if there is no time, or if there is no permit for a call that doesn't wait.
    """
    loop = asyncio.get_running_loop()
    while not (reply := await gate.take(TURN.get().caller, ticket, waits=waits)).may_begin:
        if not waits:
            raise CallFailed(Cause.BUSY)
        ticket = reply.ticket
        call.wait(provider, reply.wait)
        if may_park and reply.wait > SHORT_WAIT:
            raise ProviderBusy(reply.wait, provider, attempt - 1, ticket)
        if (left := _left(until)) is not None and reply.wait >= left:
            raise CallFailed(Cause.RATE_LIMIT)
        await asyncio.sleep(reply.wait)
    before, begin = call.tokens, loop.time() + reply.wait
    try:
        await asyncio.sleep(reply.wait)
        yield
    finally:
        await gate.end(call.tokens - before, max(0.0, loop.time() - begin))


def _may_park() -> bool:
    """Return whether the turn may be parked for the call: if it would repeat no other call, and no action."""
    turn = TURN.get()
    return turn.may_park and not turn.call.place and turn.meter is not None and not turn.meter.models


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
    policy: RetryPolicy | SwitchingPolicy,
    decision: Retry | Stop,
) -> None:
    """Log a retry, or at the end what the provider said, which is nowhere else."""
    what = f"HTTP {failure.status}" if failure.status else failure.cause.value
    words = request.hide_secrets(str(error).partition("\n")[0])
    if isinstance(decision, Retry):
        tries = policy.attempts_after(failure.cause)
        logger.warning(
            "%s: %s, attempt %d of %d, next in %.1f s", request.llm, what, attempt, tries, decision.after
        )
        logger.debug("%s: %s", request.llm, words)
    elif failure.cause not in SELF_EXPLAINED:
        logger.warning("%s: %s on attempt %d: %s", request.llm, what, attempt, words)
