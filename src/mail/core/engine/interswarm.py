"""The turn of another swarm's mailbox: its message is delivered, and the result is committed."""

import asyncio
import logging
from typing import Any

from mail.core.decisions.interswarm import (
    delayed,
    delivered,
    fan_out,
    goes_back,
    is_moot,
    undelivered,
    wrap_entry,
)
from mail.core.engine.leased_turn import LeasedTurn, OutboundResult, conceal
from mail.core.engine.wiring import Wiring
from mail.core.protocol.mail_tools import DiscoverSwarms
from mail.core.task.change import TaskChange, Turn
from mail.core.task.files import files_in
from mail.core.task.mailboxes import peer_of
from mail.core.task.ports import Peers
from mail.core.task.swarm import ActionCore
from mail.errors import PeerRefused, PeerUnavailable

logger = logging.getLogger(__name__)

NO_CONNECTION = "this server has no connection to other swarms"


def discovery(peers: Peers) -> ActionCore:
    """Return the tool `discover_swarms` as an action, because it works outside of the task."""

    async def discover(arguments: dict[str, Any]) -> str:
        return await peers.discover(DiscoverSwarms.model_validate(arguments).discovery_urls)

    return ActionCore(name=DiscoverSwarms.tool_name, function=discover, idempotent=True, sequential=True)


class PeerTurn(LeasedTurn):
    """The turn of a peer's mailbox.

    If the commit fails after the peer has accepted the message, the peer gets it again under the same `message_id`,
    and drops the duplicate.
    """

    turn: Turn

    def __init__(self, turn: Turn, wiring: Wiring) -> None:
        super().__init__(turn, wiring.swarm_of(turn.task), wiring.store, wiring.clock)
        self._unreachable_seconds = wiring.unreachable_seconds
        self._peers = wiring.peers
        self._tracer = wiring.tracer
        self._files = wiring.caller_files

    async def run(self, seconds: float) -> TaskChange | None:
        """Deliver the message within `seconds`, return it to its sender, or postpone it."""
        if self._peers is None:
            return await self._return(NO_CONNECTION)
        if not peer_of(self.turn.mailbox):
            known = await self._peers.known()
            self._end = OutboundResult.FANNED_OUT
            return await self.commit(lambda task: fan_out(task, self._swarm, self.turn, known, self._clock))
        if is_moot(self.turn.task, self.turn):
            return await self._return("it has no part in the task")
        try:
            async with asyncio.timeout(seconds):
                runner = await self._deliver(self._peers)
        except PeerRefused as refusal:
            return await self._return(refusal.detail)
        except PeerUnavailable as failure:
            return await self._postpone(failure)
        except TimeoutError:
            return await self._postpone(PeerUnavailable("it did not answer in time"))
        except Exception as error:  # the message must return to its sender in any case
            logger.exception("task %s: %s", self.turn.task.task_id, self.turn.mailbox)
            return await self._return(conceal(error))
        self._end = OutboundResult.DELIVERED
        return await self.commit(lambda task: delivered(task, self._swarm, self.turn, runner, self._clock))

    async def fail(self, reason: str, upto: int, attempts: int) -> TaskChange | None:
        """Return the message to its sender; None if it is newer than `upto`."""
        return None if self.turn.entry.seq > upto else await self._return(reason, attempts)

    async def _deliver(self, peers: Peers) -> str | None:
        turn = self.turn
        with self._tracer.delivery(turn, peer_of(turn.mailbox) or ""):
            traceparent = self._tracer.position() or turn.task.traceparent
            now = self._clock.now().timestamp()
            files = files_in(turn.entry.message.message.routing_info)
            if files and self._files is not None:
                files = await self._files.link(turn.task.instance, files, self._swarm.name)
            message = wrap_entry(turn.task, self._swarm, turn.entry, now, traceparent, files)
            return await peers.deliver(message, back=goes_back(turn.task, message.target_swarm))

    async def _return(self, reason: str, attempts: int = 1) -> TaskChange | None:
        self._end = OutboundResult.RETURNED
        return await self.commit(
            lambda task: undelivered(task, self._swarm, self.turn, reason, self._clock, attempts=attempts)
        )

    async def _postpone(self, failure: PeerUnavailable) -> TaskChange | None:
        self._end = OutboundResult.DELAYED
        seconds = self._unreachable_seconds
        return await self.commit(
            lambda task: delayed(
                task, self._swarm, self.turn, failure, self._clock, unreachable_seconds=seconds
            )
        )
