"""The turn of the mailbox of calls: cancelled ones learn it, results are asked for, and guards judge what has come."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial

from mail.core.decisions.callbacks import (
    CallsRound,
    due_to_cancel,
    due_to_poll,
    has_result,
    in_order,
    is_cancelled,
    settle_calls,
)
from mail.core.decisions.guards import decided_on, later_case
from mail.core.decisions.waits import is_open
from mail.core.engine.commit import load_task
from mail.core.engine.files import TaskFiles
from mail.core.engine.guards import judge_later
from mail.core.engine.leased_turn import LeasedTurn
from mail.core.engine.live import LiveHub
from mail.core.engine.waits import stored_waits
from mail.core.engine.wiring import Wiring
from mail.core.task.callbacks import CallResult, LaterCall, Polled
from mail.core.task.change import TaskChange
from mail.core.task.extras import GuardExtra
from mail.core.task.files import NO_FILES, mentioned
from mail.core.task.leases import WebhookClaim
from mail.core.task.live import LiveEvent
from mail.core.task.swarm import ToolSource
from mail.core.task.task import Task
from mail.core.task.waits import MOST_ENDED, Wait
from mail.core.turns.context import TURN, CurrentCall, TurnContext, lend_time_limit
from mail.core.turns.usage import UsageMeter

CALLS_AT_ONCE = 20
"""How many calls are cancelled, and how many asked about, under one lease.

If the process ends meanwhile, their actions may hear of it again.
"""

CANCEL_SECONDS = 60.0
"""Seconds that `on_cancel`, or an answer of a server, may take."""

NO_ON_CANCEL = "the swarm no longer has it"

logger = logging.getLogger(__name__)


class CancelledCalls(LeasedTurn):
    """Tells the actions of cancelled calls that nobody waits for their results, at least once each.

    Calls of actions without `on_cancel`, and timers, that were cancelled with the task are deleted. After an attempt
    that has ended the process, the calls are cancelled one by one, so that only the one at fault is given up.

    It also asks servers for the results of calls that they work on, each at its time (`Polled`), and has guards judge
    results that come later: here, as guards are code of the swarm.
    """

    turn: WebhookClaim

    def __init__(self, turn: WebhookClaim, wiring: Wiring, live: LiveHub) -> None:
        super().__init__(turn, wiring.swarm, wiring.store, wiring.clock)
        self._live = live
        self._services = wiring.services
        self._files = wiring.caller_files.for_task(turn.task.key)
        self._tracer = wiring.tracer
        self._decisions: dict[str, Sequence[GuardExtra]] = {}
        self._spent: dict[str, UsageMeter] = {}

    async def run(self, seconds: float) -> TaskChange | None:
        """Cancel and ask about the calls that are due, within `seconds`; None if it is too early for any."""
        if self._is_early:
            return None
        calls = await self._read(self.turn.task)
        due, asked = self._due(calls, 1 if self.turn.lease.attempt > 1 else CALLS_AT_ONCE)
        limit = min(seconds, CANCEL_SECONDS)
        problems, answers = await asyncio.gather(
            asyncio.gather(*(self._cancel(call, limit) for call in due)),
            asyncio.gather(*(self._poll(call, limit) for call in asked)),
        )
        change = await self._settle(
            replace(
                calls,
                problems={call.digest: problem for call, problem in zip(due, problems, strict=True)},
                answers={call.digest: answer for call, answer in zip(asked, answers, strict=True)},
                decisions=self._decisions,
                spent={agent: (each.spent, each.models) for agent, each in self._spent.items()},
            )
        )
        await self._show(change, asked)
        return change

    async def fail(self, reason: str, upto: int, attempts: int) -> TaskChange | None:
        """Give up the call that would be cancelled next; None if there is none yet."""
        if self._is_early:
            return None
        calls = await self._read(self.turn.task)
        due, asked = self._due(calls, 1)
        problems = {call.digest: reason for call in due}
        answers = {call.digest: _given_up(call, reason) for call in asked}
        return await self._settle(replace(calls, problems=problems, answers=answers, is_final=True))

    async def abandon(self, reason: str, attempts: int) -> TaskChange | None:
        """Give up the call that would be cancelled next."""
        return await self.fail(reason, self.turn.task.seq, attempts)

    @property
    def _is_early(self) -> bool:
        at = self.turn.task.waits.see_at
        return at is None or at > self._clock.now().timestamp()

    async def _read(self, task: Task) -> CallsRound:
        """Return the first calls whose cancelling must be told, those to ask about, and some of what is cancelled."""
        calls, polled, rest = list[LaterCall](), list[LaterCall](), list[Wait]()
        async for wait in stored_waits(self._store, task.key):
            if isinstance(wait, LaterCall) and is_cancelled(task, wait):
                calls = in_order([*calls, wait])[: CALLS_AT_ONCE + 1]
            elif isinstance(wait, LaterCall) and has_result(task, wait):
                polled.append(wait)
            elif len(rest) <= MOST_ENDED and not is_open(task, wait):
                rest.append(wait)
        return CallsRound(cancelled=calls, polled=polled, rest=rest)

    def _due(self, calls: CallsRound, limit: int) -> tuple[list[LaterCall], list[LaterCall]]:
        """Return the calls to cancel now, `limit` at most, and those to ask about."""
        now = self._clock.now().timestamp()
        return due_to_cancel(calls.cancelled, now)[:limit], due_to_poll(calls.polled, now)[:CALLS_AT_ONCE]

    async def _settle(self, calls: CallsRound) -> TaskChange | None:
        async def reload() -> Task:
            nonlocal calls
            task = await load_task(self._store, self.turn.task.key)
            calls = replace(calls, polled=(await self._read(task)).polled)  # some may have ended
            return task

        return await self.commit(lambda draft: settle_calls(draft, self.turn, calls), reload=reload)

    async def _show(self, change: TaskChange | None, asked: Sequence[LaterCall]) -> None:
        """Show those who watch the task what servers have said of the progress of calls."""
        key, before = self.turn.task.key, {call.digest: call.progress for call in asked}
        if change is None or key not in self._live.watched:
            return
        for wait in change.waits:
            if (
                isinstance(wait, LaterCall)
                and wait.polled
                and wait.progress != before.get(wait.digest, wait.progress)
            ):
                self._live.publish(key, LiveEvent.of_call(wait))
        await self._live.flush(key)

    async def _poll(self, call: LaterCall, seconds: float) -> CallResult | Polled | str:
        """Return the result of a call, or what its server says of it, or why there is no answer."""
        answer = call.received or await self._ask(call, seconds)
        if not call.is_judged or not isinstance(answer, CallResult):
            return answer
        if not self._swarm.has(call.agent):  # and so its guards
            return NOT_JUDGED
        meter = self._spent.setdefault(call.agent, UsageMeter())
        self._lend(call, seconds)
        TURN.set(replace(TURN.get(), meter=meter))
        guards = self._swarm.guards_of(self._swarm.agent(call.agent))
        case = later_case(self.turn.task.key, call.agent, call.name, answer.text)
        text, verdicts = await judge_later(guards, case)
        for verdict in verdicts:
            self._tracer.verdict(verdict)
        self._decisions[call.digest] = [*decided_on(verdicts)]
        return answer if text == answer.text else replace(answer, text=text, files=NO_FILES)

    async def _ask(self, call: LaterCall, seconds: float) -> CallResult | Polled | str:
        """Ask a server about a call; return its answer, or why there is none."""
        source, polled = self._source(call), call.polled
        if source is None or polled is None:
            return CallResult("the swarm no longer has its tool", has_failed=True)
        self._lend(call, seconds, self._files)
        try:
            async with asyncio.timeout(seconds):
                answer = await source.poll(polled)
            if (
                isinstance(answer, CallResult)
                and self._files is not None
                and (refs := mentioned([answer.text]))
            ):
                files, added = await self._files.among(refs), self._files.added_by(call.digest)
                return replace(answer, files=files, stored_bytes=added)
            return answer
        except Exception as error:  # foreign code: it is asked again later
            logger.info("the result of %s can't be read: %s", call.name, type(error).__name__)
            logger.debug("the result of %s", call.name, exc_info=True)
            return str(error) or type(error).__name__

    def _source(self, call: LaterCall) -> ToolSource | None:
        return self._swarm.agent(call.agent).tool_source if self._swarm.has(call.agent) else None

    async def _cancel(self, call: LaterCall, seconds: float) -> str:
        """Tell the action of a call, or the server that works on it, that it is cancelled; return why it has failed."""
        action, source = self._swarm.actions.get(call.name), self._source(call)
        cancel: Callable[[], Awaitable[object]] | None = None
        if call.polled is not None and source is not None:
            cancel = partial(source.cancel, call.polled)
        elif call.polled is None and action is not None and action.on_cancel is not None:
            cancel = partial(action.on_cancel, deepcopy(dict(call.arguments)))
        if cancel is None:
            return NO_ON_CANCEL
        self._lend(call, seconds)
        try:
            async with asyncio.timeout(seconds) as limit:
                with lend_time_limit(limit):
                    await cancel()
        except Exception as error:  # foreign code: it is called again later
            logger.warning("on_cancel of action %s failed: %s", call.name, type(error).__name__)
            logger.debug("on_cancel of action %s", call.name, exc_info=True)  # it may quote messages
            return str(error) or type(error).__name__
        return ""

    def _lend(self, call: LaterCall, seconds: float, files: TaskFiles | None = None) -> None:
        """Lend the context of a call to the code that runs now."""
        key, end = self.turn.task.key, asyncio.get_running_loop().time() + seconds
        TURN.set(
            TurnContext(
                agent=call.agent,
                caller=key.instance,
                deadline=end,
                call=CurrentCall(id=call.call_id, place=call.digest, key=call.key),
                traceparent=self.turn.task.traceparent,
                services=self._services,
                files=files,
            )
        )


def _given_up(call: LaterCall, reason: str) -> CallResult | str:
    """Return the answer of a call that ends its process: guards that can't judge its result refuse it."""
    return reason if call.received is None else NOT_JUDGED


NOT_JUDGED = CallResult("its result could not be judged", has_failed=True)
