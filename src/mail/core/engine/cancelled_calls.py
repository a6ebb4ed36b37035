"""The turn of the mailbox of cancelled calls: `on_cancel` of their actions is called, and the rest is deleted."""

import asyncio
import logging
from collections.abc import Sequence
from copy import deepcopy

from mail.core.decisions.callbacks import due_to_cancel, in_order, is_cancelled, settle_cancelled
from mail.core.decisions.waits import is_open
from mail.core.engine.leased_turn import LeasedTurn
from mail.core.engine.waits import stored_waits
from mail.core.engine.wiring import Wiring
from mail.core.task.callbacks import LaterCall
from mail.core.task.change import TaskChange
from mail.core.task.leases import WebhookClaim
from mail.core.task.waits import MOST_ENDED, Wait
from mail.core.turns.context import TURN, TurnContext, lend_time_limit

CALLS_AT_ONCE = 20
"""How many calls are cancelled under one lease; if the process ends meanwhile, their actions may hear of it again."""

CANCEL_SECONDS = 60.0
"""Seconds that `on_cancel` may take."""

NO_ON_CANCEL = "the swarm no longer has it"

logger = logging.getLogger(__name__)


class CancelledCalls(LeasedTurn):
    """Tells the actions of cancelled calls that nobody waits for their results, at least once each.

    Calls of actions without `on_cancel`, and timers, that were cancelled with the task are deleted. After an attempt
    that has ended the process, the calls are cancelled one by one, so that only the one at fault is given up.
    """

    turn: WebhookClaim

    def __init__(self, turn: WebhookClaim, wiring: Wiring) -> None:
        super().__init__(turn, wiring.swarm, wiring.store, wiring.clock)

    async def run(self, seconds: float) -> TaskChange | None:
        """Call `on_cancel` of the calls that are due, within `seconds`; None if it is too early for a retry."""
        if self._is_early:
            return None
        calls, rest = await self._read()
        due = self._due(calls, 1 if self.turn.lease.attempt > 1 else CALLS_AT_ONCE)
        limit = min(seconds, CANCEL_SECONDS)
        problems = await asyncio.gather(*(self._cancel(call, limit) for call in due))
        return await self._settle(calls, due, problems, rest)

    async def fail(self, reason: str, upto: int, attempts: int) -> TaskChange | None:
        """Give up the call that would be cancelled next; None if there is none yet."""
        if self._is_early:
            return None
        calls, rest = await self._read()
        due = self._due(calls, 1)
        return await self._settle(calls, due, [reason] * len(due), rest, is_final=True)

    async def abandon(self, reason: str, attempts: int) -> TaskChange | None:
        """Give up the call that would be cancelled next."""
        return await self.fail(reason, self.turn.task.seq, attempts)

    @property
    def _is_early(self) -> bool:
        at = self.turn.task.waits.cancel_at
        return at is None or at > self._clock.now().timestamp()

    async def _read(self) -> tuple[list[LaterCall], list[Wait]]:
        """Return the first cancelled calls whose actions have `on_cancel`, and some of what else is cancelled."""
        task, calls, rest = self.turn.task, list[LaterCall](), list[Wait]()
        async for wait in stored_waits(self._store, task.key):
            if isinstance(wait, LaterCall) and is_cancelled(task, wait):
                calls = in_order([*calls, wait])[: CALLS_AT_ONCE + 1]
            elif len(rest) <= MOST_ENDED and not is_open(task, wait):
                rest.append(wait)
        return calls, rest

    def _due(self, calls: Sequence[LaterCall], limit: int) -> list[LaterCall]:
        return due_to_cancel(calls, self._clock.now().timestamp())[:limit]

    async def _settle(
        self,
        calls: Sequence[LaterCall],
        due: Sequence[LaterCall],
        problems: Sequence[str],
        rest: Sequence[Wait],
        *,
        is_final: bool = False,
    ) -> TaskChange | None:
        found = {call.digest: problem for call, problem in zip(due, problems, strict=True)}
        return await self.commit(
            lambda task: settle_cancelled(
                task, self._swarm, self.turn, calls, found, rest, self._clock, is_final=is_final
            )
        )

    async def _cancel(self, call: LaterCall, seconds: float) -> str:
        """Call `on_cancel` of an action, with the context of the call; return why it has failed, if it has."""
        key, action = self.turn.task.key, self._swarm.actions.get(call.name)
        if action is None or action.on_cancel is None:
            return NO_ON_CANCEL
        end = asyncio.get_running_loop().time() + seconds
        TURN.set(
            TurnContext(
                agent=call.agent,
                caller=key.instance,
                deadline=end,
                call_id=call.call_id,
                call_key=call.key,
                traceparent=self.turn.task.traceparent,
            )
        )
        try:
            async with asyncio.timeout(seconds) as limit:
                with lend_time_limit(limit):
                    await action.on_cancel(deepcopy(dict(call.arguments)))
        except Exception as error:  # foreign code: it is called again later
            logger.warning("on_cancel of action %s failed: %s", call.name, type(error).__name__)
            logger.debug("on_cancel of action %s", call.name, exc_info=True)  # it may quote messages
            return str(error) or type(error).__name__
        return ""
