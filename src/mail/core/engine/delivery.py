"""One turn of another swarm's mailbox being carried out: its message is handed over, and what came of it is committed."""

import asyncio
import logging

from mail.core.decisions.deliver import delayed, delivered, fan_out, goes_back, is_moot, undelivered, wrap
from mail.core.engine.telemetry import NO_TRACER, Tracer
from mail.core.engine.turn_work import DeliveryEnd, TurnReport, TurnWork
from mail.core.protocol.clock import Clock
from mail.core.task.change import TaskChange, Turn
from mail.core.task.interswarm import Peers
from mail.core.task.mailboxes import peer_of
from mail.core.task.ports import Store
from mail.core.task.swarm import SwarmCore
from mail.errors import PeerRefused, PeerUnavailable

logger = logging.getLogger(__name__)

NO_CONNECTION = "this server has no connection to other swarms"


class Delivery(TurnWork):
    """The turn of a peer's mailbox.

    A peer that has taken a message whose commit then failed gets it again, under the same `message_id`, by which it
    knows it.
    """

    turn: Turn

    def __init__(
        self,
        turn: Turn,
        swarm: SwarmCore,
        store: Store,
        clock: Clock,
        peers: Peers | None,
        tracer: Tracer = NO_TRACER,
    ) -> None:
        super().__init__(turn, swarm, store, clock)
        self._peers = peers
        self._tracer = tracer
        self._end: DeliveryEnd | None = None

    def report(self, outcome: TurnReport.Outcome) -> TurnReport:
        """What there is to measure."""
        return TurnReport(outcome, self._conflicts, delivery=self._end)

    async def run(self, seconds: float) -> TaskChange | None:
        """Hand the message over, within `seconds`, or put it off."""
        if self._peers is None:
            return await self._give_back(NO_CONNECTION)
        if not peer_of(self.turn.mailbox):
            known = await self._peers.known()
            self._end = DeliveryEnd.FANNED_OUT
            return await self._commit(lambda task: fan_out(task, self._swarm, self.turn, known, self._clock))
        if is_moot(self.turn.task, self.turn):
            return await self._give_back("it has no part in the task")
        try:
            async with asyncio.timeout(seconds):
                runner = await self._hand_over(self._peers)
        except PeerRefused as refusal:
            return await self._give_back(refusal.detail)
        except PeerUnavailable as trouble:
            return await self._put_off(trouble.detail)
        except TimeoutError:
            return await self._put_off("it did not answer in time")
        except Exception as error:  # the message must come back to its sender all the same
            logger.exception("task %s: %s", self.turn.task.task_id, self.turn.mailbox)
            return await self._give_back(f"{type(error).__name__}; the server's log says more")
        self._end = DeliveryEnd.DELIVERED
        return await self._commit(lambda task: delivered(task, self._swarm, self.turn, runner, self._clock))

    async def fail(self, reason: str, upto: int, attempts: int) -> TaskChange | None:
        """Give the message back to its sender; None where it is newer than `upto`."""
        return None if self.turn.entry.seq > upto else await self._give_back(reason, attempts)

    async def _hand_over(self, peers: Peers) -> str | None:
        turn = self.turn
        with self._tracer.delivery(turn, peer_of(turn.mailbox) or ""):
            traceparent = self._tracer.position() or turn.task.traceparent
            now = self._clock.now().timestamp()
            message = wrap(turn.task, self._swarm, turn.entry, now, traceparent)
            return await peers.deliver(message, back=goes_back(turn.task, message.target_swarm))

    async def _give_back(self, reason: str, attempts: int = 1) -> TaskChange | None:
        self._end = DeliveryEnd.RETURNED
        return await self._commit(
            lambda task: undelivered(task, self._swarm, self.turn, reason, self._clock, attempts=attempts)
        )

    async def _put_off(self, reason: str) -> TaskChange | None:
        self._end = DeliveryEnd.DELAYED
        return await self._commit(lambda task: delayed(task, self._swarm, self.turn, reason, self._clock))
