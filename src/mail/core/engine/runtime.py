"""The engine: the only place that performs what the pure functions decide.

submit ── admit() ──► commit ──► publish          a caller's message enters a task
run_turn ─ open ─► agent, actions ─ settle() ─► commit ──► publish
wait, watch ◄── read_events, read_response        callers follow a task
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import count
from math import inf
from typing import Any, Literal, overload

from mail.core.decisions.cancel import StillRunning, cancel, is_discarded, still_running
from mail.core.decisions.fork import fork
from mail.core.decisions.quotas import NO_QUOTAS, Quotas
from mail.core.decisions.receive import begin, may_reach, possible_keys, receive, runner_of
from mail.core.decisions.submit import Submission, admit
from mail.core.decisions.turn import expire
from mail.core.decisions.webhooks import attach, called_by, remove
from mail.core.engine.attempts import Attempts
from mail.core.engine.commit import Committer, load_task
from mail.core.engine.heartbeat import LEASE_SECONDS, SKEW, Heartbeat, OnRenewal
from mail.core.engine.histories import HistoryCache
from mail.core.engine.interswarm import PeerTurn
from mail.core.engine.leased_turn import LeasedTurn, TurnReport
from mail.core.engine.live import LiveHub
from mail.core.engine.pacing import Pacer
from mail.core.engine.quotas import QuotaGuard
from mail.core.engine.telemetry import NO_TRACER, Observers, Tracer, is_remarkable
from mail.core.engine.turn import AUTOMATIC, AgentTurn
from mail.core.engine.watch import Submitted, Watch
from mail.core.engine.webhooks import NO_WEBHOOKS, WebhookTurn
from mail.core.protocol.address import Principal, parse_agent_address
from mail.core.protocol.clock import Clock
from mail.core.protocol.interswarm import MAILInterswarmMessage
from mail.core.protocol.mail_tools import DiscoverSwarms
from mail.core.protocol.message import MAILMessage
from mail.core.protocol.traceparent import same_trace, traceparent_in
from mail.core.protocol.values import value
from mail.core.task.activity import TurnActivity, Working, describe
from mail.core.task.change import TaskChange, Turn
from mail.core.task.context import CURRENT_AGENT, CURRENT_MESSAGE, CURRENT_TASK
from mail.core.task.events import Event
from mail.core.task.idempotency import IdempotencyKey, Remembered, find, remember
from mail.core.task.leases import Claim, ExpiredLease, Lease, WebhookClaim
from mail.core.task.limits import NO_BUDGET, UNREACHABLE_SECONDS, Budget
from mail.core.task.live import LiveEvent
from mail.core.task.mailboxes import goes_out, hook_mailbox, hook_of
from mail.core.task.ports import Busy, Idle, LiveLink, Peers, Store, TurnQueue, WakeUp, Webhooks, wake_ups
from mail.core.task.swarm import ActionCore, SwarmCore
from mail.core.task.task import Task, TaskKey
from mail.core.task.webhooks import Webhook
from mail.errors import (
    BadRequest,
    Forbidden,
    LeaseLost,
    MAILError,
    StoreUnavailable,
    SwarmNotFound,
    TaskNotFound,
)

logger = logging.getLogger(__name__)

HOP_LIMIT = 8
"""How many swarms a task may pass through."""

LEASE_MARGIN = 30.0
"""Seconds past the time limit of a turn during which its lease is still renewed, for its commit."""

COMMIT_SECONDS = 10.0
"""Seconds of a worker's life reserved for the commit; half of its life if that is shorter than twice as long."""

NAMED = 10
"""How many turns of a dead worker its line in the log names."""

IDLE_SECONDS = 1.0
"""Seconds before the next wake-up of a mailbox that was found empty although its task counts mail there."""


@value
class Received:
    """An accepted message of another swarm.

    Attributes:
        key: its task here.
        runner: the principal that the tasks of its sender have here.
    """

    key: TaskKey
    runner: str


@value
class Forked:
    """A new task, forked from another one as it was `at` one of its events."""

    task: Task
    at: int


class Runtime:
    """Runs one swarm's tasks on a store and a queue.

    Attributes:
        turn_seconds: the time limit for an agent's turn with its actions; after it the agent counts as failed.
        lease_seconds: seconds after which other workers run the turn of a worker that is dead, frozen or cut off.
        hop_limit: how many swarms a task may have passed through that another swarm asks for.
        unreachable_seconds: how long mail is retried if its swarm can't be connected to, and has not answered for an hour.
        quotas: the limits on what callers keep busy.
        observers: observe what happens.
        tracer: traces tasks.
        webhooks: deliver events; without them, no task has webhooks.
        histories: caches the histories of agents that took a turn here recently.
        pacer: spaces out the work on large messages.
        live: passes live events to those who watch a task.
    """

    @property
    def peers(self) -> Peers | None:
        """The connection to other swarms; without it, mail for them returns to its sender."""
        return self._peers

    @peers.setter
    def peers(self, peers: Peers | None) -> None:
        self._peers = peers
        self._builtins = {} if peers is None else {DiscoverSwarms.tool_name: _discovery(peers)}

    def __init__(
        self,
        swarm: SwarmCore,
        store: Store,
        queue: TurnQueue,
        clock: Clock,
        *,
        turn_seconds: float = 840.0,
        lease_seconds: float = LEASE_SECONDS,
        peers: Peers | None = None,
        hop_limit: int = HOP_LIMIT,
        unreachable_seconds: float = UNREACHABLE_SECONDS,
        quotas: Quotas = NO_QUOTAS,
        observers: Observers = (),
        tracer: Tracer = NO_TRACER,
        webhooks: Webhooks | None = None,
        live_link: LiveLink | None = None,
    ) -> None:
        self.swarm = swarm
        self.store = store
        self.clock = clock
        self.turn_seconds = turn_seconds
        self.lease_seconds = lease_seconds
        self.peers = peers
        self.hop_limit = hop_limit
        self.unreachable_seconds = unreachable_seconds
        self.quotas = quotas
        self.observers = observers
        self.tracer = tracer
        self.webhooks = webhooks
        self.histories = HistoryCache()
        self.pacer = Pacer()
        self._queue = queue
        self._committer = Committer(store)
        self._attempts = Attempts()
        self._quota_guard = QuotaGuard(store)
        self.live = LiveHub(self.activities, live_link)
        self._watch = Watch(store, clock, self.pacer, self.live)
        self._name = clock.new_id()
        self._leases = count()
        self._heartbeat = Heartbeat(store, clock, lease_seconds)
        self._running_turns: defaultdict[TaskKey, set[LeasedTurn]] = defaultdict(set)

    def rename(self) -> None:
        """Take another name for leases, which copies of a process must not share."""
        self._name = self.clock.new_id()

    def serves(self, key: TaskKey) -> bool:
        """Return whether the task belongs to this swarm; a store may contain tasks of other swarms."""
        return Principal.parse(key.instance).swarm == self.swarm.name

    async def submit(self, caller: Principal, submission: Submission) -> Submitted:
        """Accept a caller's message; when this returns, it is stored and will be processed.

        A submission that was accepted before under the same key (`Submission.idempotency_key`) changes nothing; its first result
        is returned. Raises BadRequest, TaskNotFound, PreconditionFailed, IdempotencyConflict, TaskFull or RateLimited
        if it can't be accepted; then nothing is stored.
        """
        if submission.task_id is None and submission.resume_from is not None:
            raise BadRequest("task_id is missing: say which task to resume")
        is_new = submission.task_id is None
        if is_new:
            submission = submission.as_new(self.clock.new_id())
        key = TaskKey(str(caller), submission.task_id or "")
        CURRENT_TASK.set(key.task_id)
        webhooks = await self._webhooks_of(submission)
        task = None if is_new else await self.store.load(key)
        registered: Sequence[Webhook] = ()
        if task is None and self.webhooks is not None:
            registered = await self.webhooks.registered(key.instance)
        unknown = await self._unknown_swarm(submission.targets) if submission.targets else None
        submitted: Submitted

        def decide(task: Task | None) -> TaskChange | None:
            nonlocal submitted
            idempotency = submission.idempotency_key
            if task is not None and idempotency is not None:
                earlier = find(task.submitted, idempotency, self._now())
                if earlier is not None:
                    submitted = Submitted(
                        key,
                        earlier.generation,
                        earlier.after,
                        earlier.seq,
                        task.generation.output_schema is not None,
                    )
                    return None
            change = admit(task, self.swarm, caller, submission, self.clock)
            if unknown is not None:
                raise SwarmNotFound(f"swarm {unknown!r} is not registered here")
            if hooks := webhooks if task is not None else (*webhooks, *registered):
                change = attach(task, change, hooks)
            change = self._traced(change)
            submitted = Submitted(
                key,
                change.task.generation.number,
                task.seq if task else 0,
                change.task.seq,
                change.task.generation.output_schema is not None,
            )
            return change if idempotency is None else self._remembering(change, idempotency, submitted)

        async def announce(change: TaskChange) -> None:
            """Announce the watch before the first turn begins."""
            await self.live.announce(change.key, deltas=submission.deltas)

        await self.adopt(task, decide, before_wake_ups=announce if submission.live else None)
        return submitted

    async def _unknown_swarm(self, targets: Sequence[str]) -> str | None:
        """Return the first swarm of `agent@swarm` targets that is not known here; None if all are."""
        for swarm in dict.fromkeys(parse_agent_address(target)[1] for target in targets):
            if swarm is not None and self.peers is not None and not await self.peers.caller_ids(swarm):
                return swarm
        return None

    async def _webhooks_of(self, submission: Submission) -> tuple[Webhook, ...]:
        """Return the webhook of a submission. Raises BadRequest if it can't be called."""
        if submission.webhook is None:
            return ()
        if self.webhooks is None:
            raise BadRequest(NO_WEBHOOKS)
        await self.webhooks.check(submission.webhook)
        return (submission.webhook,)

    async def receive(self, caller_id: str, message: MAILInterswarmMessage, *, back: bool) -> Received:
        """Accept a message of another swarm; when this returns, it is stored and will be processed.

        `caller_id` is the id of the API key that it came with; `back` says that it belongs to a task that exists
        here. Raises BadRequest, Forbidden, TaskNotFound or RateLimited if it can't be accepted; then nothing is
        stored.
        """
        keys = possible_keys(message, self.swarm, caller_id, back=back)
        CURRENT_TASK.set(message.payload.task_id)
        source = message.source_swarm
        is_known = await self._check_source(source, caller_id, back=back)

        async def load() -> Task | None:
            """Load the first task that the message may belong to; None to begin one."""
            for key in keys:
                task = await self.store.load(key)
                if task is not None and may_reach(
                    task, self.swarm, message, caller_id=caller_id, is_known=is_known
                ):
                    return task
            if back or await self.store.load(keys[-1]) is not None:
                raise TaskNotFound(f"swarm {source!r} has no task {message.payload.task_id!r} here")
            if Principal.parse(message.task_owner).swarm == self.swarm.name:
                begun = await self.store.load(TaskKey(message.task_owner, message.payload.task_id))
                if begun is None or not begun.peers:  # else other swarms took part, and it has come back
                    raise Forbidden(f"no task of {message.task_owner} has left this swarm under this id")
            return None

        traceparent = traceparent_in(message.payload.routing_info)

        def decide(task: Task | None) -> TaskChange | None:
            if task is None:
                first = begin(self.swarm, keys[-1], message, self.clock, hop_limit=self.hop_limit)
                return self._traced(first, traceparent)
            change = receive(task, self.swarm, message, self.clock)
            return None if change is None else self._traced(change, traceparent)

        task = await load()
        change = await self.adopt(task, decide, reload=load)
        key = change.key if change is not None else keys[-1] if task is None else task.key
        return Received(key, runner_of(caller_id, self.swarm))

    async def _check_source(self, source: str, caller_id: str, *, back: bool) -> bool:
        """Return whether the swarm that sends a message is known. Raises Forbidden for the token of another swarm.

        A message that may ask something is refused, too, if its answer could not be sent.
        """
        if self.peers is None:
            known_ids: Sequence[str] = (source,)
        else:
            known_ids = await self.peers.caller_ids(source)
        ids = known_ids or ((source,) if back else ())
        if ids and caller_id not in ids:
            logger.warning(
                "a message of swarm %s was refused: it came with the token of %r instead of %r. If that is its token, "
                "register the swarm with this id as caller_id",
                *(source, caller_id, ids[0]),
            )
            raise Forbidden(
                f"the token of this request has the id {caller_id!r}, and swarm {self.swarm.name!r} expects {ids[0]!r} of swarm {source!r}: "
                f"use a token with that id, or ask the operator of {self.swarm.name!r} to register {source!r} with "
                f"the caller_id {caller_id!r}"
            )
        if not back and self.peers is not None and (obstacle := await self.peers.obstacle(source)):
            logger.warning(
                "a message of swarm %s was refused: it could not be answered: %s", source, obstacle
            )
            raise Forbidden(f"swarm {self.swarm.name!r} could not answer swarm {source!r}: {obstacle}")
        return bool(known_ids)

    async def cancel(
        self, caller: Principal, task_id: str, reason: str = "", *, instance: str | None = None
    ) -> Task:
        """Cancel a caller's task (`mail.core.decisions.cancel`), or one of another `instance`.

        A cancelled task stays as it is. When this returns, no turn begins any more, and agents that take one here are
        no longer waited for. Raises TaskNotFound, NotCancellable.
        """
        key = TaskKey(instance or str(caller), task_id)
        CURRENT_TASK.set(task_id)
        before = await load_task(self.store, key)
        change = await self.adopt(before, lambda task: cancel(task, self.swarm, caller, reason, self.clock))
        task = await load_task(self.store, key) if change is None else change.task
        for leased in self._running_turns.get(key, ()):
            if is_discarded(task, leased.turn):
                leased.interrupt()
        return task

    async def remove_webhook(self, caller: Principal, task: Task, webhook_id: str) -> bool:
        """Remove a webhook from a task; return whether the task had it."""
        CURRENT_TASK.set(task.task_id)
        return None is not await self.adopt(
            task, lambda task: remove(task, self.swarm, webhook_id, caller, self.clock)
        )

    async def still_running(self, task: Task) -> StillRunning:
        """Return the agents and swarms of a cancelled task that have not stopped yet."""
        return still_running(task, await self.store.read_leases(task.key, now=self._now()))

    async def fork(
        self,
        caller: Principal,
        task_id: str,
        *,
        at: int | None = None,
        run: bool = False,
        ceiling: Budget = NO_BUDGET,
        new_id: str | None = None,
    ) -> Forked:
        """Fork a caller's task as it was at an event, by default its last (`mail.core.decisions.fork`).

        `new_id` is the id of the fork; if there is such a task, it is the fork that the same request has made before. Raises
        TaskNotFound, BadRequest, SnapshotExpired, TooManyTasks; then there is no new task.
        """
        key = TaskKey(str(caller), task_id)
        CURRENT_TASK.set(task_id)
        made = None if new_id is None else TaskKey(str(caller), new_id)
        if made is not None and await self.store.load(made) is not None:
            return await self._read_fork(made)
        present = await load_task(self.store, key)
        snapshot = await self.store.read_snapshot(key, present.seq if at is None else at)
        histories = {
            agent: await self.store.read_history(key, agent, upto=n)
            for agent, n in snapshot.task.histories.items()
            if agent in self.swarm.agents
        }

        def decide(existing: Task | None) -> TaskChange | None:
            if existing is not None and existing.key == made:
                return None
            fork_id, clock = new_id or self.clock.new_id(), self.clock
            return self._traced(
                fork(snapshot, histories, self.swarm, caller, fork_id, clock, run=run, ceiling=ceiling)
            )

        change = await self.adopt(None, decide)
        if change is None:
            assert made is not None
            return await self._read_fork(made)
        return Forked(change.task, snapshot.task.seq)

    async def _read_fork(self, key: TaskKey) -> Forked:
        """Return a fork as it was when it was made. Raises TaskNotFound."""
        [event] = await self.store.read_events(key, limit=1)
        return Forked((await self.store.read_commit(key, 1)).task, event.extra["at"])

    async def adopt[T: Task | None, C: TaskChange | None](
        self,
        task: T,
        decide: Callable[[T | Task], C],
        *,
        reload: Callable[[], Awaitable[T]] | None = None,
        before_wake_ups: Callable[[TaskChange], Awaitable[None]] | None = None,
    ) -> C:
        """Commit a decision on a task from outside of its turns, and wake the mailboxes with mail.

        Works as `Committer.commit`. Raises RateLimited for a full mailbox or too many running tasks.
        """
        change = await self._committer.commit(
            decide,
            task,
            reload=reload,
            guard=lambda before, change: self._quota_guard.enforce(self.quotas, before, change),
        )
        if change is not None:
            if self.observers:
                self._observe(change)
            if before_wake_ups is not None:
                await before_wake_ups(change)
            await self._wake(wake_ups(change.task))
        return change

    def _traced(self, change: TaskChange, given: str = "") -> TaskChange:
        """Add the task to the trace of its first request, unless it belongs to a trace already.

        `given` is the trace that another swarm's message names; the request that delivered it may not know it.
        """
        known = change.task.traceparent
        if known:
            self.tracer.joins(known)
            return change
        here = self.tracer.position()
        if given and not same_trace(given, here):
            here = given
        here = here or self.tracer.beginning()
        if not here:
            return change
        return replace(change, task=replace(change.task, traceparent=here))

    def _remembering(self, change: TaskChange, key: IdempotencyKey, submitted: Submitted) -> TaskChange:
        """Store the submission's key and result with the task."""
        new = Remembered(
            key=key.key,
            digest=key.digest,
            until=key.until,
            generation=submitted.generation,
            after=submitted.after,
            seq=submitted.seq,
        )
        remembered = remember(change.task.submitted, new, self._now())
        return replace(change, task=replace(change.task, submitted=remembered))

    async def find(self, key: TaskKey, message_id: str) -> Submitted | None:
        """Return where a submitted message entered a task, whichever process accepted it; None if none did."""
        return await self._watch.find(key, message_id)

    async def wait(self, submitted: Submitted, seconds: float | None = None) -> MAILMessage | None:
        """Return the finishing message that answers a submission; None after `seconds` without one."""
        return await self._watch.wait(submitted, seconds)

    @overload
    def watch(
        self,
        key: TaskKey,
        *,
        after: int = 0,
        answer_to: int | None = None,
        heartbeat: float = 15.0,
        live: Literal[False] = False,
        deltas: Literal[False] = False,
    ) -> AsyncGenerator[list[Event]]: ...

    @overload
    def watch(
        self,
        key: TaskKey,
        *,
        after: int = 0,
        answer_to: int | None = None,
        heartbeat: float = 15.0,
        live: bool,
        deltas: bool = False,
    ) -> AsyncGenerator[list[Event] | list[LiveEvent]]: ...

    def watch(
        self,
        key: TaskKey,
        *,
        after: int = 0,
        answer_to: int | None = None,
        heartbeat: float = 15.0,
        live: bool = False,
        deltas: bool = False,
    ) -> AsyncGenerator[list[Event]] | AsyncGenerator[list[Event] | list[LiveEvent]]:
        """Yield the task's events past `after` in batches, and an empty batch after `heartbeat` quiet seconds.

        Ends with the event that answers the message with the seq `answer_to`; without one, after the last event of
        a stopped task. Raises TaskNotFound.

        Args:
            live: whether to yield live events, too, in batches of their own: what running turns do, at once. They may
                be lost, and a turn that is killed leaves some without an end.
            deltas: whether they include the pieces of models' replies; lets models stream their replies.
        """
        events = self._watch.watch(key, after=after, answer_to=answer_to, heartbeat=heartbeat)
        return self._watch.with_live(key, events, deltas=deltas) if live else events

    async def working(self, task: Task) -> list[Working]:
        """Return which agents take a turn in a task, since when, and on what, as far as this process knows."""
        if not task.is_running:
            return []
        leases = await self.store.read_leases(task.key, now=self._now())
        here = {activity.agent: activity for activity in self.activities(task.key)}
        return [
            describe(mailbox, lease, here.get(mailbox))
            for mailbox, lease in sorted(leases.items())
            if not goes_out(mailbox)
        ]

    def activities(self, key: TaskKey) -> list[TurnActivity]:
        """Return what the turns of a task do that run in this process."""
        running = self._running_turns.get(key, ())
        return [leased.activity for leased in running if leased.activity is not None]

    async def run_turn(
        self,
        key: TaskKey,
        mailbox: str,
        *,
        seconds: float | None = None,
        attempt: int = 1,
        on_renewal: OnRenewal | None = None,
    ) -> TurnReport:
        """Run the next turn of a mailbox, if there is one. Safe to call at any time, any number of times.

        Args:
            seconds: how long the caller will live, if that is limited: the turn is stopped in time for its commit.
            attempt: how many workers have begun the turn, as far as the caller knows, this one included.
            on_renewal: called after each renewal of the turn's lease, which a quick turn doesn't need.
        """
        limit, lease_seconds = self.turn_seconds, self.lease_seconds
        if seconds is not None:
            limit = min(limit, max(seconds - COMMIT_SECONDS, seconds / 2))
            lease_seconds = min(lease_seconds, seconds + SKEW)
        opened = await self._open(key, mailbox, lease_seconds, attempt)
        if isinstance(opened, TurnReport.Outcome):
            for observer in self.observers:
                observer.woken_for_nothing(mailbox)
            return TurnReport(opened)
        return await self.execute(opened, opened.run(limit), seconds, on_renewal)

    async def dead_letter_turn(
        self, key: TaskKey, mailbox: str, reason: str, *, upto: int, attempts: int = 1
    ) -> TurnReport:
        """End the next turn of a mailbox as failed, without running it, after its workers have crashed repeatedly.

        Its message becomes a dead letter, and the sender gets the `reason`, or the task ends (SPEC, section 5). A
        message with a seq past `upto` came after the failed wake-up, and stays for a turn of its own. A turn that no
        worker has begun, because the wake-up never reached one, is not at fault: its mailbox is woken again.
        """
        opened = await self._open(key, mailbox, self.lease_seconds)
        if isinstance(opened, TurnReport.Outcome):
            return TurnReport(opened)
        match opened.turn:
            case Turn(replaced=None, checkpoint=None) | WebhookClaim(replaced=None):
                return await self.execute(opened, _nothing())
        return await self.execute(opened, opened.fail(reason, upto, attempts))

    async def _open(
        self, key: TaskKey, mailbox: str, lease_seconds: float, attempt: int = 1
    ) -> LeasedTurn | TurnReport.Outcome:
        """Lease a mailbox, if the engine decides when its agent takes a turn."""
        is_outbound = goes_out(mailbox)
        if is_outbound and hook_of(mailbox) is not None:
            return await self._claim(key, mailbox, lease_seconds, attempt)
        opened = await self.lease(key, mailbox, lease_seconds, attempt)
        if isinstance(opened, TurnReport.Outcome):
            return opened
        turn, known = opened
        if is_outbound:
            return PeerTurn(
                turn, self.swarm, self.store, self.clock, self.peers, self.tracer, self.unreachable_seconds
            )
        if turn.task.manual:
            await self.store.release(turn)
            return TurnReport.Outcome.IDLE
        return AgentTurn(
            turn,
            known,
            self.swarm,
            self.store,
            self.clock,
            self.histories,
            AUTOMATIC,
            self._builtins,
            self.tracer,
            self.quotas.task_bytes,
            self.pacer,
            live=self.live,
        )

    async def _claim(
        self, key: TaskKey, mailbox: str, seconds: float, attempt: int
    ) -> WebhookTurn | TurnReport.Outcome:
        """Lease the mailbox of a webhook."""
        now = self._now()
        CURRENT_TASK.set(key.task_id)
        if self._is_late(key, mailbox):
            return TurnReport.Outcome.BUSY
        claim = await self.store.claim(key, mailbox, self._lease(now, seconds, attempt), now=now)
        if not isinstance(claim, WebhookClaim):
            return await self._not_leased(mailbox, claim)
        if claim.replaced is not None:
            self._note_replaced(claim, claim.replaced)
        return WebhookTurn(claim, self.swarm, self.store, self.clock, self.webhooks)

    async def lease(
        self, key: TaskKey, mailbox: str, seconds: float, attempt: int = 1
    ) -> tuple[Turn, int] | TurnReport.Outcome:
        """Lease a mailbox for `seconds`, without a renewal; return its turn, and the number of cached history chunks."""
        known = self.histories.count(key, mailbox)
        now = self.clock.now().timestamp()
        lease = self._lease(now, seconds, attempt)
        CURRENT_TASK.set(key.task_id)
        if key in self._running_turns and self._is_late(key, mailbox):
            return TurnReport.Outcome.BUSY
        turn = await self.store.open_turn(key, mailbox, lease, now=now, history_after=known)
        if not isinstance(turn, Turn):
            return await self._not_leased(mailbox, turn)
        if turn.replaced is not None:
            self._note_replaced(turn, turn.replaced)
        return turn, known

    def new_lease(self) -> Lease:
        """Return a lease for a turn that begins now in this process, to be renewed after `lease_seconds`."""
        return self._lease(self._now(), self.lease_seconds, 1)

    def _lease(self, now: float, seconds: float, attempt: int) -> Lease:
        return Lease(f"{self._name}/{next(self._leases)}/{now:.3f}", now + seconds, attempt)

    async def _not_leased(self, mailbox: str, opened: Busy | Idle) -> TurnReport.Outcome:
        """Return why there is no claim on a mailbox; wake the other mailboxes of an idle task."""
        match opened:
            case Busy():
                return TurnReport.Outcome.BUSY
            case Idle(task):
                if task is not None:
                    await self._wake([self._delayed(wake_up, mailbox) for wake_up in wake_ups(task)])
                return TurnReport.Outcome.IDLE

    def _note_replaced(self, claim: Turn | WebhookClaim, replaced: Lease) -> None:
        """Note the worker whose lease a claim has replaced, if it was not known to be gone."""
        if replaced.expires:
            self._note([ExpiredLease(claim.task, claim.mailbox, replaced)])

    def _is_late(self, key: TaskKey, mailbox: str) -> bool:
        """Return whether this process runs the mailbox's turn, but its event loop was too busy to renew the lease."""
        running = self._running_turns.get(key)
        return running is not None and any(
            leased.turn.mailbox == mailbox and self._heartbeat.is_late(leased) for leased in running
        )

    async def take_over(self, *, max_attempts: int | None = None, reason: str = "") -> int:
        """Wake the mailboxes whose workers are dead, frozen or cut off; return the number of their turns.

        A turn that has been attempted `max_attempts` times becomes a dead letter, for that reason.
        """
        found = await self.store.take_expired(self.swarm.name, now=self._now())
        expired = [each for each in found if each.lease.token not in self._heartbeat]
        self._note(expired)
        hopeless = [
            each for each in expired if max_attempts is not None and each.lease.attempt >= max_attempts
        ]
        await self._wake(
            [
                replace(wake_up, cause=each.lease.token, attempt=each.lease.attempt + 1, overtakes=True)
                for each in expired
                if each not in hopeless
                for wake_up in wake_ups(each.task)
                if wake_up.mailbox == each.mailbox
            ]
        )
        for task, mailbox, attempts in [(each.task, each.mailbox, each.lease.attempt) for each in hopeless]:
            CURRENT_TASK.set(task.task_id)
            try:
                await self.dead_letter_turn(task.key, mailbox, reason, upto=task.seq, attempts=attempts)
            except MAILError:  # a sweep tries it again
                logger.exception("task %s: the turn of %s can't be dead-lettered", task.task_id, mailbox)
        return len(expired)

    def _note(self, expired: Sequence[ExpiredLease]) -> None:
        """Log workers that are dead, frozen or cut off, each once, and count their turns."""
        by_worker: defaultdict[str, list[ExpiredLease]] = defaultdict(list)
        for each in expired:
            by_worker[each.lease.worker].append(each)
            for observer in self.observers:
                observer.turn_taken_over(each.mailbox)
        for worker, turns in by_worker.items():
            logger.warning(
                "worker %s has not renewed its leases and counts as dead; taken over from it: %s",
                worker,
                ", ".join(f"{each.mailbox} of task {each.task.task_id}" for each in turns[:NAMED])
                + (f" and {len(turns) - NAMED} more" if len(turns) > NAMED else ""),
            )

    def _delayed(self, wake_up: WakeUp, empty: str) -> WakeUp:
        """Delay the wake-up if it is for the mailbox that was found empty, which would otherwise spin."""
        if wake_up.mailbox != empty:
            return wake_up
        return replace(wake_up, not_before=max(wake_up.not_before, self._now() + IDLE_SECONDS))

    def execute(
        self,
        leased: LeasedTurn,
        work: Coroutine[None, None, TaskChange | None],
        seconds: float | None = None,
        on_renewal: OnRenewal | None = None,
    ) -> Coroutine[None, None, TurnReport]:
        """Do the work of a leased turn, and wake the mailboxes that it gave mail; see `run_turn`."""
        turn = leased.turn
        CURRENT_AGENT.set(turn.mailbox)
        CURRENT_MESSAGE.set(turn.entry.message.id if isinstance(turn, Turn) else "")
        if self.tracer is NO_TRACER and not self.observers:
            return self._execute(leased, work, seconds, on_renewal)
        return self._observe_execution(leased, work, seconds, on_renewal)

    async def _observe_execution(
        self,
        leased: LeasedTurn,
        work: Coroutine[None, None, TaskChange | None],
        seconds: float | None,
        on_renewal: OnRenewal | None,
    ) -> TurnReport:
        monotonic = asyncio.get_running_loop().time
        start = monotonic()
        with self.tracer.turn(leased.turn) as span:
            try:
                report = await self._execute(leased, work, seconds, on_renewal)
            except BaseException as error:
                for observer in self.observers:
                    observer.turn_failed(leased.turn, error)
                raise
            if report.problem:  # a program that embeds the swarm raises it, and has no observers
                logger.warning(
                    "task %s: agent %s: %s", leased.turn.task.task_id, leased.turn.mailbox, report.problem
                )
            for observer in self.observers:
                observer.turn_ended(leased.turn, report, monotonic() - start)
            span.note("mail.turn.outcome", report.outcome)
        return report

    async def _execute(
        self,
        leased: LeasedTurn,
        work: Coroutine[None, None, TaskChange | None],
        seconds: float | None,
        on_renewal: OnRenewal | None,
    ) -> TurnReport:
        turn = leased.turn
        key = turn.task.key
        running = self._running_turns[key]
        running.add(leased)
        self._heartbeat.begin(leased, self.turn_seconds + LEASE_MARGIN, seconds, on_renewal)
        watched = self.live.watched
        if watched and key in watched and leased.activity is not None:
            if (replaced := getattr(turn, "replaced", None)) is not None:
                leased.activity.replace(replaced.token)
            leased.activity.start()
        outcome = "failed"
        try:
            change = await work
            outcome = "committed" if change is not None else "handed_back"
        except LeaseLost:
            outcome = "lost"
            logger.warning(
                "task %s: the lease of %s was lost; its turn is discarded", turn.task.task_id, turn.mailbox
            )
            return leased.report(TurnReport.Outcome.LOST)
        except BaseException as error:
            change = await self._attempts.end(leased, error)
            if change is None:
                with suppress(StoreUnavailable):  # the first error says more, and the lease expires anyway
                    await self.store.release(turn, failed=True)
                raise
            outcome = "committed"
        finally:
            self._heartbeat.end(leased)
            running.discard(leased)
            if not running:
                del self._running_turns[key]
            if watched and key in watched and leased.activity is not None:
                leased.activity.end(outcome)
                await self.live.flush(key)
        if change is None:
            await self._release(turn)
            return leased.report(TurnReport.Outcome.HANDED_BACK)
        if self.observers:
            self._observe(change)
        await self._wake(_wake_ups_after(change))
        return leased.report(TurnReport.Outcome.COMMITTED)

    async def _release(self, turn: Claim) -> None:
        """Release a turn that may not run, and wake its mailbox again: the lease has suppressed other wake-ups."""
        await self.store.release(turn)
        task = await load_task(self.store, turn.task.key)
        tier = task.head_tier(turn.mailbox)
        may_run = task.generation.limit_notice is None or turn.mailbox == self.swarm.closing_agent(
            task.entrypoint
        )
        if tier is not None and (hook_of(turn.mailbox) is not None or (task.is_running and may_run)):
            not_before = task.not_before(turn.mailbox)
            await self._wake(
                [WakeUp(task.key, turn.mailbox, tier, turn.lease.token, task.updated, task.seq, not_before)]
            )

    async def recover(self, *, quiet_for: float = 0.0) -> int:
        """Wake all mailboxes with mail: after a restart, or when wake-ups may have been lost.

        Only in tasks without a change for `quiet_for` seconds; the mail of the rest is being processed. Mail that
        waits in a long queue has a wake-up already, and more of them would fill the queue: so each wait has to be
        twice as long as the one before. Returns the number of wake-ups.
        """
        now = self.clock.now()
        quiet_since = (now - timedelta(seconds=quiet_for)).isoformat() if quiet_for else None
        ready = await self.store.list_ready(
            quiet_since=quiet_since, now=now.timestamp() if quiet_for else inf
        )
        again = [_again(wake_up, now, quiet_for) for wake_up in ready if self.serves(wake_up.key)]
        await self._queue.publish(again)
        return len(again)

    async def expire_overdue(self) -> None:
        """End the running tasks whose deadline has passed."""
        for key in filter(self.serves, await self.store.list_overdue(self._now())):
            CURRENT_TASK.set(key.task_id)
            try:
                await self._expire(key)
            except MAILError:  # the failure of one task must not prevent that of the rest
                logger.exception("task %s is overdue and could not be ended", key.task_id)

    async def _expire(self, key: TaskKey) -> None:
        change = await self._committer.commit(
            lambda task: expire(task, self.swarm, None, self.clock), await load_task(self.store, key)
        )
        if change is not None:
            if self.observers:
                self._observe(change)
            await self._wake(wake_ups(change.task))  # all, as the task may have resumed

    def _observe(self, change: TaskChange) -> None:
        """Pass a committed change to the observers."""
        if is_remarkable(change):
            for observer in self.observers:
                observer.task_changed(change)

    async def _wake(self, wake_ups: Sequence[WakeUp]) -> None:
        """Publish wake-ups for stored mail; if that fails, the mail is late but not lost."""
        if not wake_ups:
            return
        try:
            await self._queue.publish(wake_ups)
        except StoreUnavailable:
            logger.exception("wake-ups could not be published; the next sweep wakes their mailboxes")

    def _now(self) -> float:
        return self.clock.now().timestamp()


def _wake_ups_after(change: TaskChange) -> list[WakeUp]:
    """Return wake-ups for the turn's own mailbox if it has more mail, which is older, and for those that got some."""
    if change.response is not None:  # the task may have started its next generation, with all of its mail
        return wake_ups(change.task)
    touched = {entry.mailbox: None for entry in change.deliveries}
    if change.turn is not None:
        touched = {change.turn.mailbox: None, **touched}
    if change.task.webhooks:
        touched |= dict.fromkeys(map(hook_mailbox, called_by(change)))
    return wake_ups(change.task, touched)


async def _nothing() -> None:
    """Do nothing in a turn: it is handed back."""


def _discovery(peers: Peers) -> ActionCore:
    """Return the tool `discover_swarms` as an action, because it works outside of the task."""

    async def discover(arguments: dict[str, Any]) -> str:
        return await peers.discover(DiscoverSwarms.model_validate(arguments).discovery_urls)

    return ActionCore(name=DiscoverSwarms.tool_name, function=discover, idempotent=True, sequential=True)


def _again(wake_up: WakeUp, now: datetime, quiet_for: float) -> WakeUp:
    """Return a wake-up that may have been published before, with a new cause for each doubling of its wait."""
    if not quiet_for:
        return wake_up
    waits = (now - datetime.fromisoformat(wake_up.since)).total_seconds() / quiet_for
    return replace(wake_up, cause=f"{wake_up.cause}~{int(waits).bit_length()}", overtakes=True)
