"""The turns of another swarm's mailboxes: they deliver its message or poll its tasks, and commit the result."""

import asyncio
import logging
from collections.abc import Iterable
from functools import partial
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
from mail.core.decisions.remote_tasks import MAX_REMOTE_TASKS, Answers, accepted, due, polled
from mail.core.engine.leased_turn import LeasedTurn, OutboundResult, conceal
from mail.core.engine.wiring import Wiring
from mail.core.protocol.mail_tools import DiscoverSwarms
from mail.core.task.change import TaskChange, Turn
from mail.core.task.files import File, FileRef, files_in
from mail.core.task.interswarm import RemoteState, RemoteStatus, RemoteTask
from mail.core.task.leases import WebhookClaim
from mail.core.task.mailboxes import peer_of, polled_by
from mail.core.task.members import member_of
from mail.core.task.ports import Peers
from mail.core.task.swarm import ActionCore
from mail.errors import MAILError, PeerError, PeerRefused, PeerUnavailable

logger = logging.getLogger(__name__)

EARLY_SECONDS = 0.5
"""Seconds before its time in which a poll may begin, as the clocks of queues differ."""

NO_CONNECTION = "this server has no connection to other swarms"
NO_MEMBERS = "this process serves no MAIL 2.0, by which members of the swarm are reached"


def discovery(peers: Peers) -> ActionCore:
    """Return the tool `discover_swarms` as an action, because it works outside of the task."""

    async def discover(arguments: dict[str, Any]) -> str:
        return await peers.discover(DiscoverSwarms.model_validate(arguments).discovery_urls)

    return ActionCore(name=DiscoverSwarms.tool_name, function=discover, idempotent=True, sequential=True)


class _OutboundTurn(LeasedTurn):
    """A turn with a peer, whose answers may have files."""

    def __init__(self, turn: Turn | WebhookClaim, wiring: Wiring) -> None:
        super().__init__(turn, wiring.swarm_of(turn.task), wiring.store, wiring.clock)
        self._peers = wiring.peers
        self._members = wiring.members
        self._files = wiring.caller_files

    async def _keep_files(self, states: Iterable[RemoteState | PeerError]) -> dict[str, list[FileRef]]:
        """Store the files of answers for the task, by the id of the remote task; log those that can't be stored."""
        found = {each.id: each.files for each in states if isinstance(each, RemoteState) and each.files}
        return {
            task_id: [ref for each in files if (ref := await self._keep_file(each))]
            for task_id, files in found.items()
        }

    async def _keep_file(self, file: File) -> FileRef | None:
        key = self.turn.task.key
        try:
            ref = await self._files.put(key.instance, file)
            await self._files.keep(key, [ref])
        except MAILError as error:
            logger.warning(
                "task %s: a file of %s can't be stored: %s", key.task_id, self.turn.mailbox, error.detail
            )
            return None
        return ref


class PeerTurn(_OutboundTurn):
    """The turn of a peer's mailbox.

    If the commit fails after the peer has accepted the message, the peer gets it again under the same `message_id`,
    and drops the duplicate.
    """

    turn: Turn

    def __init__(self, turn: Turn, wiring: Wiring) -> None:
        super().__init__(turn, wiring)
        self._unreachable_seconds = wiring.unreachable_seconds
        self._tracer = wiring.tracer

    async def run(self, seconds: float) -> TaskChange | None:
        """Deliver the message within `seconds`, return it to its sender, or postpone it."""
        peers, member = self._peers, member_of(peer_of(self.turn.mailbox) or "")
        if member is None and peers is None:
            return await self._return(NO_CONNECTION)
        if peers is not None and not peer_of(self.turn.mailbox):
            known = await peers.known()
            self._end = OutboundResult.FANNED_OUT
            return await self.commit(lambda draft: fan_out(draft, self.turn, known))
        if is_moot(self.turn.task, self.turn):
            return await self._return("it has no part in the task")
        try:
            async with asyncio.timeout(seconds):
                outcome = await self._deliver(peers, member)
                files = await self._keep_files([outcome] if isinstance(outcome, RemoteState) else [])
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
        if isinstance(outcome, RemoteState):
            return await self.commit(lambda draft: accepted(draft, self.turn, outcome, files))
        return await self.commit(lambda draft: delivered(draft, self.turn, outcome))

    async def fail(self, reason: str, upto: int, attempts: int) -> TaskChange | None:
        """Return the message to its sender; None if it is newer than `upto`."""
        return None if self.turn.entry.seq > upto else await self._return(reason, attempts)

    async def _deliver(self, peers: Peers | None, member: str | None) -> str | RemoteState | None:
        turn = self.turn
        if member is not None:
            if self._members is None or member not in self._swarm.members:
                raise PeerRefused(
                    NO_MEMBERS if self._members is None else f"the swarm has no member {member!r}"
                )
            address = self._swarm.members[member]
            await self._members.send(turn.task.key, member, address, turn.entry.message)
            return None
        assert peers is not None
        known = turn.task.peers.get(peer_of(turn.mailbox) or "")
        if known is not None and len(known.remote_tasks) >= MAX_REMOTE_TASKS and turn.task.is_running:
            raise PeerRefused(f"this task waits for {MAX_REMOTE_TASKS} answers of it already")
        with self._tracer.delivery(turn, peer_of(turn.mailbox) or ""):
            traceparent = self._tracer.position() or turn.task.traceparent
            now = self._clock.now().timestamp()
            files = files_in(turn.entry.message.message.routing_info)
            if files and self._files is not None:
                files = await self._files.link(turn.task.instance, files, self._swarm.name)
            message = wrap_entry(turn.task, self._swarm, turn.entry, now, traceparent, files)
            return await peers.deliver(
                message,
                back=goes_back(turn.task, message.target_swarm),
                known=known,
                read=partial(self._files.read, turn.task.instance),
            )

    async def _return(self, reason: str, attempts: int = 1) -> TaskChange | None:
        self._end = OutboundResult.RETURNED
        return await self.commit(lambda draft: undelivered(draft, self.turn, reason, attempts=attempts))

    async def _postpone(self, failure: PeerUnavailable) -> TaskChange | None:
        self._end = OutboundResult.DELAYED
        seconds = self._unreachable_seconds
        return await self.commit(
            lambda draft: delayed(draft, self.turn, failure, unreachable_seconds=seconds)
        )


class PollTurn(_OutboundTurn):
    """Polls the tasks at a peer that never calls this server, whose states are to be read now.

    Nothing but its commit changes a state, so that a task is polled again after a crash.
    """

    turn: WebhookClaim

    async def run(self, seconds: float) -> TaskChange | None:
        """Read the states within `seconds`."""
        peer, now = polled_by(self.turn.mailbox) or "", self._clock.now().timestamp() + EARLY_SECONDS
        found = {each.id: each for each in due(self.turn.task, peer, now)}
        read = await asyncio.gather(*(self._poll(peer, each, now, seconds) for each in found.values()))
        return await self._settle(dict(zip(found, read, strict=True)))

    async def fail(self, reason: str, upto: int, attempts: int) -> TaskChange | None:
        """Count a failure to read each state."""
        peer = polled_by(self.turn.mailbox) or ""
        waiting = due(self.turn.task, peer, self._clock.now().timestamp() + EARLY_SECONDS)
        return await self._settle({each.id: PeerUnavailable(reason) for each in waiting})

    async def abandon(self, reason: str, attempts: int) -> TaskChange | None:
        """Count a failure to read each state."""
        return await self.fail(reason, self.turn.task.seq, attempts)

    async def _settle(self, answers: Answers) -> TaskChange | None:
        files = await self._keep_files(answers.values())
        failed = any(isinstance(each, PeerError) for each in answers.values())
        self._end = OutboundResult.DELAYED if failed else OutboundResult.DELIVERED
        return await self.commit(lambda draft: polled(draft, self.turn, answers, files))

    async def _poll(
        self, peer: str, remote: RemoteTask, now: float, seconds: float
    ) -> RemoteState | PeerError:
        """Return the state of a task, or why it can't be read; one that takes too long is cancelled."""
        if self._peers is None:
            return PeerRefused(NO_CONNECTION)
        try:
            async with asyncio.timeout(seconds):
                state = await self._peers.poll(peer, remote.id)
                if state.status is RemoteStatus.WORKING and now >= remote.until:
                    await self._peers.cancel(peer, remote.id)
                return state
        except PeerError as error:
            return error
        except TimeoutError:
            return PeerUnavailable("it did not answer in time")
        except Exception as error:  # after any failure the mailbox has to wait before the retry
            logger.exception("task %s: %s", self.turn.task.task_id, self.turn.mailbox)
            return PeerUnavailable(conceal(error))
