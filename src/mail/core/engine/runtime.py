"""The engine: the only place that performs what the pure functions decide.

submit ── admit() ──► commit ──► publish          a person's message enters a task
run_turn ─ open ─► agent, actions ─ settle() ─► commit ──► publish
wait, stream ◄── read_events, read_response       whoever asked watches
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import count
from typing import Any

from mail.core.decisions.cancel import is_discarded
from mail.core.decisions.turn import expire
from mail.core.decisions.webhooks import Webhooks, called_by
from mail.core.engine.admission import HOP_LIMIT, Admission
from mail.core.engine.delivery import Delivery
from mail.core.engine.histories import HistoryCache
from mail.core.engine.quotas import NO_QUOTAS, Quotas
from mail.core.engine.telemetry import NO_TRACER, Observers, Tracer
from mail.core.engine.turn import Execution
from mail.core.engine.turn_work import TurnReport, TurnWork
from mail.core.engine.webhooks import WebhookDelivery
from mail.core.protocol.address import Principal
from mail.core.protocol.clock import Clock
from mail.core.protocol.mail_tools import DiscoverSwarms
from mail.core.task.change import Claim, Lease, TaskChange, Turn
from mail.core.task.context import CURRENT_AGENT, CURRENT_MESSAGE, CURRENT_TASK
from mail.core.task.interswarm import Peers
from mail.core.task.mailboxes import hook_mailbox, hook_of, peer_of
from mail.core.task.ports import Idle, Leased, Store, TurnQueue, WakeUp, wake_ups
from mail.core.task.swarm import ActionCore, SwarmCore
from mail.core.task.task import Task, TaskKey
from mail.errors import (
    LeaseLost,
    MAILError,
    StoreUnavailable,
    VersionConflict,
)

logger = logging.getLogger(__name__)

LEASE_MARGIN = 30.0
"""Seconds by which a lease outlives the longest turn, so that a live worker never loses its mailbox."""

COMMIT_SECONDS = 10.0
"""What is kept of a worker's life for storing what a turn did; half of it where it lives shorter than twice that."""

SKEW = 2.0
"""Seconds by which the clocks of two workers may differ."""


IDLE_SECONDS = 1.0
"""How long a mailbox rests in which a worker has found nothing, though its task counts mail there."""


class Runtime(Admission):
    """Runs one swarm's tasks on a store and a queue.

    Attributes:
        turn_seconds: bounds one turn of an agent with its actions; past it the agent counts as failed.
        histories: those of agents that have taken a turn here lately.
    """

    def __init__(
        self,
        swarm: SwarmCore,
        store: Store,
        queue: TurnQueue,
        clock: Clock,
        *,
        turn_seconds: float = 840.0,
        peers: Peers | None = None,
        hop_limit: int = HOP_LIMIT,
        quotas: Quotas = NO_QUOTAS,
        observers: Observers = (),
        tracer: Tracer = NO_TRACER,
        webhooks: Webhooks | None = None,
    ) -> None:
        super().__init__(store, clock)
        self.swarm = swarm
        self.turn_seconds = turn_seconds
        self.peers = peers
        self.hop_limit = hop_limit
        self.quotas = quotas
        self.observers = observers
        self.tracer = tracer
        self.webhooks = webhooks
        self.histories = HistoryCache()
        self._queue = queue
        self._name = clock.new_id()
        self._leases = count()
        self._at_work: defaultdict[TaskKey, set[TurnWork]] = defaultdict(set)
        self._beginning = defaultdict(list)

    @property
    def peers(self) -> Peers | None:
        """How mail reaches other swarms; without it, such mail comes back to its sender."""
        return self._peers

    @peers.setter
    def peers(self, peers: Peers | None) -> None:
        self._peers = peers
        self._builtins = {} if peers is None else {DiscoverSwarms.tool_name: _discovery(peers)}

    async def cancel(self, caller: Principal, task_id: str, reason: str = "") -> Task:
        """Cancel a task; agents that take a turn of it here are waited for no longer."""
        task = await super().cancel(caller, task_id, reason)
        for work in self._at_work.get(task.key, ()):
            if is_discarded(task, work.turn):
                work.interrupt()
        return task

    async def run_turn(self, key: TaskKey, mailbox: str, *, seconds: float | None = None) -> TurnReport:
        """Run the next turn of a mailbox, if there is one. Safe to call at any time, any number of times.

        `seconds` is how long the caller can live, where something will end it: the turn is cut off in time to be
        committed, and its lease ends soon after the caller.
        """
        if seconds is None:
            limit, life = self.turn_seconds, self.turn_seconds + LEASE_MARGIN
        else:
            limit, life = min(self.turn_seconds, max(seconds - COMMIT_SECONDS, seconds / 2)), seconds + SKEW
        opened = await self._open(key, mailbox, life)
        if isinstance(opened, TurnReport.Outcome):
            for observer in self.observers:
                observer.woken_for_nothing(mailbox)
            return TurnReport(opened)
        return await self.execute(opened, opened.run(limit))

    async def dead_letter_turn(
        self, key: TaskKey, mailbox: str, reason: str, *, upto: int, seconds: float, attempts: int = 1
    ) -> TurnReport:
        """End the next turn of a mailbox as failed, without running it: whatever ran it has died again and again.

        Whoever wrote the message is told the `reason`, or the task ends (SPEC, section 5), and it is a dead letter. A
        message with a seq past `upto`, which came after the token that is given up, is left to be worked on.
        """
        opened = await self._open(key, mailbox, seconds + SKEW)
        if isinstance(opened, TurnReport.Outcome):
            return TurnReport(opened)
        return await self.execute(opened, opened.fail(reason, upto, attempts))

    async def _open(self, key: TaskKey, mailbox: str, life: float) -> TurnWork | TurnReport.Outcome:
        """Lease a mailbox for `life` seconds, where the engine decides when its agent takes a turn."""
        if hook_of(mailbox) is not None:
            held = await self._leased(
                key, mailbox, self.store.claim(key, mailbox, self._lease(life), now=self._now())
            )
            if isinstance(held, TurnReport.Outcome):
                return held
            return WebhookDelivery(held, self.swarm, self.store, self.clock, self.webhooks)
        opened = await self.lease(key, mailbox, life)
        if isinstance(opened, TurnReport.Outcome):
            return opened
        turn, known = opened
        if peer_of(mailbox) is not None:
            return Delivery(turn, self.swarm, self.store, self.clock, self.peers, self.tracer)
        if turn.task.manual:
            await self.store.release(turn)
            return TurnReport.Outcome.IDLE
        return Execution(
            turn, known, self.swarm, self.store, self.clock, self.histories, self._builtins, self.tracer
        )

    async def lease(self, key: TaskKey, mailbox: str, life: float) -> tuple[Turn, int] | TurnReport.Outcome:
        """Lease a mailbox for `life` seconds; returns its turn, and how many history records are at hand."""
        known = self.histories.count(key, mailbox)
        lease, now = self._lease(life), self._now()
        opening = self.store.open_turn(key, mailbox, lease, now=now, history_after=known)
        turn = await self._leased(key, mailbox, opening)
        return turn if isinstance(turn, TurnReport.Outcome) else (turn, known)

    def _unless_at_once(self, token: WakeUp, mailbox: str) -> WakeUp:
        """The token; one of this mailbox, in which nothing was found although something is counted, has to rest."""
        if token.mailbox != mailbox:
            return token
        return replace(token, not_before=max(token.not_before, self._now() + IDLE_SECONDS))

    def _lease(self, life: float) -> Lease:
        return Lease(f"{self._name}/{next(self._leases)}", self._now() + life)

    async def _leased[T: Claim](
        self, key: TaskKey, mailbox: str, opening: Coroutine[None, None, T | Leased | Idle]
    ) -> T | TurnReport.Outcome:
        """What a mailbox was leased for, or why it was not."""
        CURRENT_TASK.set(key.task_id)
        opened = await opening
        match opened:
            case Leased():
                return TurnReport.Outcome.LEASED
            case Idle(task):
                if task is not None:
                    await self._wake([self._unless_at_once(token, mailbox) for token in wake_ups(task)])
                return TurnReport.Outcome.IDLE
        return opened

    async def execute(
        self, execution: TurnWork, work: Coroutine[None, None, TaskChange | None]
    ) -> TurnReport:
        """Do the work of an open turn, and wake whom it gave mail."""
        turn = execution.turn
        CURRENT_AGENT.set(turn.mailbox)
        CURRENT_MESSAGE.set(turn.entry.message.id if isinstance(turn, Turn) else "")
        if self.tracer is NO_TRACER and not self.observers:
            return await self._execute(execution, work)
        with self.tracer.turn(turn) as span:
            report = await self._observed(execution, work)
            span.note("mail.turn.outcome", report.outcome)
        return report

    async def _observed(
        self, execution: TurnWork, work: Coroutine[None, None, TaskChange | None]
    ) -> TurnReport:
        monotonic = asyncio.get_running_loop().time
        begin = monotonic()
        try:
            report = await self._execute(execution, work)
        except BaseException as error:
            for observer in self.observers:
                observer.turn_failed(execution.turn, error)
            raise
        for observer in self.observers:
            observer.turn_ended(execution.turn, report, monotonic() - begin)
        return report

    async def _execute(
        self, execution: TurnWork, work: Coroutine[None, None, TaskChange | None]
    ) -> TurnReport:
        turn = execution.turn
        key = turn.task.key
        self._at_work[key].add(execution)
        try:
            change = await work
        except LeaseLost:
            logger.warning(
                "task %s: the lease of %s was lost; its turn is thrown away", turn.task.task_id, turn.mailbox
            )
            return execution.report(TurnReport.Outcome.LOST)
        except BaseException:
            with suppress(StoreUnavailable):  # what has gone wrong is more telling; the lease ends by itself
                await self.store.release(turn)
            raise
        finally:
            self._at_work[key].discard(execution)
            if not self._at_work[key]:
                del self._at_work[key]
        if change is None:
            await self._hand_back(turn)
            return execution.report(TurnReport.Outcome.HANDED_BACK)
        self._tell(change)
        await self._publish(change)
        return execution.report(TurnReport.Outcome.COMMITTED)

    async def _hand_back(self, turn: Claim) -> None:
        """Release a turn that may not run; wake its mailbox again, as tokens of others were dropped meanwhile."""
        await self.store.release(turn)
        task = await self._load(turn.task.key)
        tier = task.head_tier(turn.mailbox)
        may_run = task.generation.limit_notice is None or turn.mailbox == self.swarm.closing_agent(
            task.entrypoint
        )
        if tier is not None and (hook_of(turn.mailbox) is not None or (task.is_running and may_run)):
            rests = task.rests_until(turn.mailbox)
            token = WakeUp(task.key, turn.mailbox, tier, turn.lease.token, task.updated, task.seq, rests)
            await self._wake([token])

    async def recover(self, *, quiet_for: float = 0.0) -> int:
        """Publish a token for all mail that waits: after a restart, or when tokens may have been lost.

        Only of tasks in which nothing has happened for `quiet_for` seconds: in others, mail is being worked on.
        Where mail waits because there is much of it, its token is not lost, and more of them would only be in
        the way: so each wait has to be twice as long as the last one. Returns how many tokens there were.
        """
        now = self.clock.now()
        quiet_since = (now - timedelta(seconds=quiet_for)).isoformat() if quiet_for else None
        ready = await self.store.list_ready(quiet_since=quiet_since)
        tokens = [_again(token, now, quiet_for) for token in ready if self.serves(token.key)]
        await self._queue.publish(tokens)
        return len(tokens)

    async def expire_overdue(self) -> None:
        """End the running tasks whose deadline has passed."""
        for key in filter(self.serves, await self.store.list_overdue(self._now())):
            CURRENT_TASK.set(key.task_id)
            try:
                await self._expire(key)
            except MAILError:  # one task's trouble must not keep the others running
                logger.exception("task %s is overdue and could not be ended", key.task_id)

    async def _expire(self, key: TaskKey) -> None:
        task = await self._load(key)
        while (change := expire(task, self.swarm, None, self.clock)) is not None:
            try:
                await self.store.commit(change)
            except VersionConflict as conflict:
                task = conflict.current or await self._load(key)
            else:
                self._tell(change)
                await self._publish(change)
                return

    async def _publish(self, change: TaskChange) -> None:
        """Wake the mailboxes that this commit gave mail, and the turn's own where it holds more."""
        if change.response is not None:  # the task goes on at once, and what was stashed with it
            await self._publish_ready(change.task)
            return
        touched = {entry.mailbox for entry in change.deliveries}
        touched |= {hook_mailbox(hook_id) for hook_id in called_by(change)}
        if change.turn is not None:
            touched.add(change.turn.mailbox)
        await self._wake([token for token in wake_ups(change.task) if token.mailbox in touched])

    def serves(self, key: TaskKey) -> bool:
        """Whether the task is of this swarm; a store may hold those of others."""
        return Principal.parse(key.instance).swarm == self.swarm.name


def _discovery(peers: Peers) -> ActionCore:
    """The tool `discover_swarms`, whose work is done outside of the task, as an action."""

    async def discover(arguments: dict[str, Any]) -> str:
        return await peers.discover(DiscoverSwarms.model_validate(arguments).discovery_urls)

    return ActionCore(name=DiscoverSwarms.tool_name, function=discover, idempotent=True)


def _again(token: WakeUp, now: datetime, quiet_for: float) -> WakeUp:
    """A token that may have been published before: with a cause of its own for each doubling of its wait."""
    if not quiet_for:
        return token
    waits = (now - datetime.fromisoformat(token.since)).total_seconds() / quiet_for
    return replace(token, cause=f"{token.cause}~{int(waits).bit_length()}")
