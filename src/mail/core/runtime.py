"""The engine: the only place that performs what the pure functions decide.

submit ── admit() ──► commit ──► publish          a person's message enters a task
run_turn ─ open ─► agent, actions ─ settle() ─► commit ──► publish
wait, stream ◄── read_events, read_response       whoever asked watches
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from importlib import import_module
from itertools import count
from typing import Any

from mail.core.actions import ActionCore
from mail.core.address import Principal
from mail.core.agents import SwarmCore
from mail.core.cancelling import StillRunning, cancel, still_running
from mail.core.change import Claim, Lease, TaskChange, Turn
from mail.core.context import CURRENT_AGENT, CURRENT_MESSAGE, CURRENT_TASK
from mail.core.delivery import Delivery
from mail.core.execution import Execution
from mail.core.forking import fork
from mail.core.histories import HistoryCache
from mail.core.hooks import Webhook
from mail.core.inbound import begin, may_reach, places, receive, runner_of
from mail.core.intake import Submission, admit
from mail.core.interswarm import MAILInterswarmMessage
from mail.core.mail_tools import DiscoverSwarms
from mail.core.observing import Observers, is_remarkable
from mail.core.once import REMEMBERED_SECONDS, Once, Remembered, find, remember
from mail.core.peers import Peers, hook_mailbox, hook_of, peer_of
from mail.core.ports import Idle, Leased, Store, Token, TurnQueue, wake_ups
from mail.core.quotas import NO_QUOTAS, Quotas
from mail.core.stamp import Stamp
from mail.core.tasks import Task, TaskKey
from mail.core.tracing import NO_TRACER, Tracer, same_trace, traceparent_in
from mail.core.turn import expire
from mail.core.turn_work import TurnReport, TurnWork
from mail.core.watching import Submitted, Watching
from mail.core.webhook_delivery import NO_WEBHOOKS, WebhookDelivery
from mail.core.webhooks import Webhooks, attach, called_by
from mail.errors import (
    BadRequest,
    Forbidden,
    LeaseLost,
    MAILError,
    StoreUnavailable,
    TaskNotFound,
    TooManyTasks,
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

HOP_LIMIT = 8


@dataclass(frozen=True, slots=True)
class Received:
    """What became of a message of another swarm.

    Attributes:
        key: the task that it is for, as it is kept here.
        runner: the principal under which the tasks of its sender are kept here.
    """

    key: TaskKey
    runner: str


@dataclass(frozen=True, slots=True)
class Forked:
    """A task that was made out of another one, as it was `at` one of its events."""

    task: Task
    at: int


class Runtime(Watching):
    """Runs one swarm's tasks on a store and a queue.

    Attributes:
        turn_seconds: bounds one turn of an agent with its actions; past it the agent counts as failed.
        peers: how mail reaches other swarms; without it, such mail comes back to its sender.
        hop_limit: through how many swarms a task may have come that another one asks for.
        quotas: what callers may keep busy at once.
        observers: whoever measures what happens.
        tracer: follows tasks.
        webhooks: how events reach webhooks; without it, no task has any.
    """

    def __init__(
        self,
        swarm: SwarmCore,
        store: Store,
        queue: TurnQueue,
        stamp: Stamp,
        *,
        turn_seconds: float = 840.0,
        peers: Peers | None = None,
        hop_limit: int = HOP_LIMIT,
        quotas: Quotas = NO_QUOTAS,
        observers: Observers = (),
        tracer: Tracer = NO_TRACER,
        webhooks: Webhooks | None = None,
    ) -> None:
        super().__init__(store, stamp)
        self.swarm = swarm
        self._queue = queue
        self.turn_seconds = turn_seconds
        self.peers = peers
        self.hop_limit = hop_limit
        self.quotas = quotas
        self.observers = observers
        self.tracer = tracer
        self.webhooks = webhooks
        self.histories = HistoryCache()
        self._name = stamp.new_id()
        self._leases = count()
        self._at_work: defaultdict[TaskKey, set[TurnWork]] = defaultdict(set)
        self._beginning: defaultdict[str, list[object]] = defaultdict(list)

    @property
    def peers(self) -> Peers | None:
        """How mail reaches other swarms; without it, such mail comes back to its sender."""
        return self._peers

    @peers.setter
    def peers(self, peers: Peers | None) -> None:
        self._peers = peers
        self._builtins = {} if peers is None else {DiscoverSwarms.tool_name: _discovery(peers)}

    async def submit(self, caller: Principal, submission: Submission) -> Submitted:
        """Accept a person's message; when this returns, it is stored and will be worked on.

        One that was accepted before, under the same key (`Submission.once`), changes nothing; what became of it then
        is returned. Raises BadRequest, TaskNotFound, PreconditionFailed, IdempotencyConflict or RateLimited when it
        can't be accepted; then nothing is stored.
        """
        if submission.task_id is None and submission.resume_from is not None:
            raise BadRequest("task_id is missing: say which task to resume")
        if submission.task_id is None:
            submission = submission.model_copy(update={"task_id": self.stamp.new_id()})
        key = TaskKey(str(caller), submission.task_id or "")
        CURRENT_TASK.set(key.task_id)
        webhooks = await self._webhooks_of(submission)
        registered: Sequence[Webhook] | None = None
        while True:
            task = await self.store.load(key)
            if task is not None and submission.once is not None:
                earlier = find(task.submitted, submission.once, self._now())
                if earlier is not None:
                    return Submitted(key, earlier.generation, earlier.after, earlier.seq)
            change = admit(task, self.swarm, caller, submission, self.stamp)
            self.quotas.check_depth(task, change)
            if task is None and self.webhooks is not None:
                if registered is None:
                    registered = await self.webhooks.registered(key.instance)
                change = attach(task, change, (*webhooks, *registered))
            elif webhooks:
                change = attach(task, change, webhooks)
            change = self._traced(change)
            submitted = Submitted(key, change.task.generation, task.seq if task else 0, change.task.seq)
            if submission.once is not None:
                change = self._remembering(change, submission.once, submitted)
            try:
                async with self._beginning_few(task, change):
                    await self.store.commit(change)
            except VersionConflict:
                continue
            break
        self._tell(change)
        await self._publish_ready(change.task)
        return submitted

    async def _webhooks_of(self, submission: Submission) -> tuple[Webhook, ...]:
        """The webhook that comes with a submission. Raises BadRequest for one that can't be called."""
        if submission.webhook is None:
            return ()
        if self.webhooks is None:
            raise BadRequest(NO_WEBHOOKS)
        await self.webhooks.check(submission.webhook)
        return (submission.webhook,)

    def _traced(self, change: TaskChange, given: str = "") -> TaskChange:
        """The change, of a task that belongs to the trace of what has brought it, unless it is in one already.

        `given` is what a message of another swarm says of its trace; the request that has brought it may not know.
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
        return replace(change, task=change.task.model_copy(update={"traceparent": here}))

    def _tell(self, change: TaskChange) -> None:
        """Tell the observers what was committed."""
        if self.observers and is_remarkable(change):
            for observer in self.observers:
                observer.task_changed(change)

    def _remembering(self, change: TaskChange, once: Once, submitted: Submitted) -> TaskChange:
        """The change, of which the task remembers that it was made for this submission."""
        now = self._now()
        new = Remembered(
            key=once.key,
            digest=once.digest,
            until=now + REMEMBERED_SECONDS,
            generation=submitted.generation,
            after=submitted.after,
            seq=submitted.seq,
        )
        remembered = remember(change.task.submitted, new, now)
        return replace(change, task=change.task.model_copy(update={"submitted": remembered}))

    @asynccontextmanager
    async def _beginning_few(self, task: Task | None, change: TaskChange) -> AsyncIterator[None]:
        """Raises TooManyTasks where the change would have a task more run than its instance may.

        Changes that are about to be committed in this process count as well; other processes may overstep the limit
        by as many as they begin at the same moment.
        """
        limit, instance = self.quotas.running_tasks, change.key.instance
        if limit is None or not change.task.is_running or (task is not None and task.is_running):
            yield
            return
        ticket = object()
        tickets = self._beginning[instance]
        tickets.append(ticket)
        try:
            running = await self.store.count_running(instance, upto=limit)
            if running + tickets.index(ticket) >= limit:
                raise TooManyTasks(
                    f"{limit} of your tasks are running, as many as may; wait until one has ended"
                )
            yield
        finally:
            tickets.remove(ticket)
            if not tickets:
                self._beginning.pop(instance, None)

    async def cancel(self, caller: Principal, task_id: str, reason: str = "") -> Task:
        """Cancel a task of the caller's (`mail.core.cancelling`); one that is cancelled already stays so.

        When this returns, no turn begins any more. Raises TaskNotFound, NotCancellable.
        """
        key = TaskKey(str(caller), task_id)
        CURRENT_TASK.set(task_id)
        while True:
            task = await self._load(key)
            change = cancel(task, self.swarm, caller, reason, self.stamp)
            if change is None:
                return task
            try:
                await self.store.commit(change)
            except VersionConflict:
                continue
            break
        self._tell(change)
        for work in self._at_work.get(key, ()):
            work.interrupt()
        await self._publish_ready(change.task)
        return change.task

    async def fork(
        self, caller: Principal, task_id: str, *, at: int | None = None, run: bool = False
    ) -> Forked:
        """Make a new task of the caller's out of a moment of another one (`mail.core.forking`), by default its last.

        Raises TaskNotFound, BadRequest, MomentNotKept, TooManyTasks; then there is no new task.
        """
        key = TaskKey(str(caller), task_id)
        CURRENT_TASK.set(task_id)
        present = await self._load(key)
        snapshot = await self.store.read_snapshot(key, present.seq if at is None else at)
        histories = {
            agent: await self.store.read_history(key, agent, upto=n)
            for agent, n in snapshot.task.histories.items()
            if agent in self.swarm.agents
        }
        new_id = self.stamp.new_id()
        change = fork(snapshot, histories, self.swarm, caller, new_id, self.stamp, run=run)
        change = self._traced(change)
        async with self._beginning_few(None, change):
            await self.store.commit(change)
        self._tell(change)
        await self._publish_ready(change.task)
        return Forked(change.task, snapshot.task.seq)

    async def still_running(self, task: Task) -> StillRunning:
        """What a cancelled task waits for."""
        return still_running(task, await self.store.read_leases(task.key, now=self._now()))

    async def receive(self, caller_id: str, message: MAILInterswarmMessage, *, back: bool) -> Received:
        """Accept a message of another swarm; when this returns, it is stored and will be worked on.

        `caller_id` is the id of the token that it came with; `back` is whether it was said to belong to a task
        that is known here. Raises BadRequest, Forbidden, TaskNotFound or RateLimited when it can't be accepted; then
        nothing is stored.
        """
        keys = places(message, self.swarm, caller_id, back=back)
        CURRENT_TASK.set(message.payload.task_id)
        source = message.source_swarm
        expected = source if self.peers is None else await self.peers.caller_id(source)
        if expected is not None and expected != caller_id:
            logger.warning(
                "a message of swarm %s was refused: it came with the token of %r, and not of %r. If that is its token, "
                "register the swarm with this id as caller_id",
                source,
                caller_id,
                expected,
            )
            raise Forbidden(f"this token is not known to be of swarm {source!r}, as whose it is shown")
        is_known = expected is not None
        while True:
            task = await self._find(keys, message, caller_id, is_known)
            if task is not None:
                change = receive(task, self.swarm, message, self.stamp)
            elif back or await self.store.load(keys[-1]) is not None:
                raise TaskNotFound(f"swarm {source!r} has no task {message.payload.task_id!r} here")
            else:
                change = begin(self.swarm, keys[-1], message, self.stamp, hop_limit=self.hop_limit)
            try:
                if change is not None:
                    self.quotas.check_depth(task, change)
                    change = self._traced(change, traceparent_in(message.payload.routing_info))
                    async with self._beginning_few(task, change):
                        await self.store.commit(change)
            except VersionConflict:
                continue
            break
        if change is not None:
            self._tell(change)
            await self._publish_ready(change.task)
        return Received(keys[-1] if task is None else task.key, runner_of(caller_id, self.swarm))

    async def _find(
        self, keys: Sequence[TaskKey], message: MAILInterswarmMessage, caller_id: str, is_known: bool
    ) -> Task | None:
        """The first of these tasks that the message may belong to."""
        for key in keys:
            task = await self.store.load(key)
            if task is not None and may_reach(
                task, self.swarm, message, caller_id=caller_id, is_known=is_known
            ):
                return task
        return None

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
        return await self.carry_out(opened, opened.run(limit))

    async def give_up(
        self, key: TaskKey, mailbox: str, reason: str, *, upto: int, seconds: float, attempts: int = 1
    ) -> TurnReport:
        """End the next turn of a mailbox as failed, without running it: whatever ran it has died again and again.

        Whoever wrote the message is told the `reason`, or the task ends (SPEC, section 5), and it is a dead letter. A
        message with a seq past `upto`, which came after the token that is given up, is left to be worked on.
        """
        opened = await self._open(key, mailbox, seconds + SKEW)
        if isinstance(opened, TurnReport.Outcome):
            return TurnReport(opened)
        return await self.carry_out(opened, opened.fail(reason, upto, attempts))

    async def _open(self, key: TaskKey, mailbox: str, life: float) -> TurnWork | TurnReport.Outcome:
        """Lease a mailbox for `life` seconds, where the engine decides when its agent takes a turn."""
        if hook_of(mailbox) is not None:
            held = await self._leased(
                key, mailbox, self.store.claim(key, mailbox, self._lease(life), now=self._now())
            )
            if isinstance(held, TurnReport.Outcome):
                return held
            return WebhookDelivery(held, self.swarm, self.store, self.stamp, self.webhooks)
        opened = await self.lease(key, mailbox, life)
        if isinstance(opened, TurnReport.Outcome):
            return opened
        turn, known = opened
        if peer_of(mailbox) is not None:
            return Delivery(turn, self.swarm, self.store, self.stamp, self.peers, self.tracer)
        if turn.task.manual:
            await self.store.release(turn)
            return TurnReport.Outcome.IDLE
        return Execution(
            turn, known, self.swarm, self.store, self.stamp, self.histories, self._builtins, self.tracer
        )

    async def lease(self, key: TaskKey, mailbox: str, life: float) -> tuple[Turn, int] | TurnReport.Outcome:
        """Lease a mailbox for `life` seconds; returns its turn, and how many history records are at hand."""
        known = self.histories.count(key, mailbox)
        lease, now = self._lease(life), self._now()
        opening = self.store.open_turn(key, mailbox, lease, now=now, history_after=known)
        turn = await self._leased(key, mailbox, opening)
        return turn if isinstance(turn, TurnReport.Outcome) else (turn, known)

    def _unless_at_once(self, token: Token, mailbox: str) -> Token:
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

    async def carry_out(
        self, execution: TurnWork, work: Coroutine[None, None, TaskChange | None]
    ) -> TurnReport:
        """Do the work of an open turn, and wake whom it gave mail."""
        turn = execution.turn
        CURRENT_AGENT.set(turn.mailbox)
        CURRENT_MESSAGE.set(turn.entry.message.id if isinstance(turn, Turn) else "")
        if self.tracer is NO_TRACER and not self.observers:
            return await self._carry_out(execution, work)
        with self.tracer.turn(turn) as span:
            report = await self._observed(execution, work)
            span.note("mail.turn.outcome", report.outcome)
        return report

    async def _observed(
        self, execution: TurnWork, work: Coroutine[None, None, TaskChange | None]
    ) -> TurnReport:
        clock = asyncio.get_running_loop().time
        begin = clock()
        try:
            report = await self._carry_out(execution, work)
        except BaseException as error:
            for observer in self.observers:
                observer.turn_failed(execution.turn, error)
            raise
        for observer in self.observers:
            observer.turn_ended(execution.turn, report, clock() - begin)
        return report

    async def _carry_out(
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
        may_run = task.exhausted is None or turn.mailbox == self.swarm.finisher(task.entrypoint)
        if tier is not None and (hook_of(turn.mailbox) is not None or (task.is_running and may_run)):
            rests = task.rests_until(turn.mailbox)
            token = Token(task.key, turn.mailbox, tier, turn.lease.token, task.updated, task.seq, rests)
            await self._wake([token])

    async def adopt(self, task: Task, change: TaskChange) -> None:
        """Commit what was decided on a task outside of its turns, and wake whom it gave mail.

        Raises VersionConflict, or RateLimited where callers may keep less busy.
        """
        self.quotas.check_depth(task, change)
        async with self._beginning_few(task, change):
            await self.store.commit(change)
        self._tell(change)
        await self._publish_ready(change.task)

    async def recover(self, *, quiet_for: float = 0.0) -> int:
        """Publish a token for all mail that waits: after a restart, or when tokens may have been lost.

        Only of tasks in which nothing has happened for `quiet_for` seconds: in others, mail is being worked on.
        Where mail waits because there is much of it, its token is not lost, and more of them would only be in
        the way: so each wait has to be twice as long as the last one. Returns how many tokens there were.
        """
        now = self.stamp.now()
        quiet_since = (now - timedelta(seconds=quiet_for)).isoformat() if quiet_for else None
        ready = await self.store.list_ready(quiet_since=quiet_since)
        tokens = [_again(token, now, quiet_for) for token in ready if self._serves(token.key)]
        await self._queue.publish(tokens)
        return len(tokens)

    async def expire_overdue(self) -> None:
        """End the running tasks whose deadline has passed."""
        for key in filter(self._serves, await self.store.list_overdue(self._now())):
            CURRENT_TASK.set(key.task_id)
            try:
                await self._expire(key)
            except MAILError:  # one task's trouble must not keep the others running
                logger.exception("task %s is overdue and could not be ended", key.task_id)

    async def _expire(self, key: TaskKey) -> None:
        task = await self._load(key)
        while (change := expire(task, self.swarm, None, self.stamp)) is not None:
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

    async def _publish_ready(self, task: Task) -> None:
        await self._wake(wake_ups(task))

    async def _wake(self, tokens: Sequence[Token]) -> None:
        """Publish tokens of mail that is stored. Where that fails the mail is late, but nothing has gone wrong."""
        try:
            await self._queue.publish(tokens)
        except StoreUnavailable:
            logger.exception("tokens could not be published; the next sweep wakes their mailboxes")

    def _serves(self, key: TaskKey) -> bool:
        """Whether the task is of this swarm; a store may hold those of others."""
        return Principal.parse(key.instance).swarm == self.swarm.name


def _discovery(peers: Peers) -> ActionCore:
    """The tool `discover_swarms`, whose work is done outside of the task, as an action."""

    async def discover(arguments: dict[str, Any]) -> str:
        return await peers.discover(DiscoverSwarms.model_validate(arguments).discovery_urls)

    return ActionCore(name=DiscoverSwarms.tool_name, function=discover, idempotent=True)


def _again(token: Token, now: datetime, quiet_for: float) -> Token:
    """A token that may have been published before: with a cause of its own for each doubling of its wait."""
    if not quiet_for:
        return token
    waits = (now - datetime.fromisoformat(token.since)).total_seconds() / quiet_for
    return replace(token, cause=f"{token.cause}~{int(waits).bit_length()}")


def __getattr__(name: str) -> Any:
    """`MAILRuntime` is documented to be here; it is built on top of this module, which therefore can't import it."""
    if name == "MAILRuntime":
        return import_module("mail.api.runtime").MAILRuntime
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
