"""What comes to tasks from outside: messages of people and of other swarms, and words about whole tasks.

Each is a commit of its own. Where somebody else has committed meanwhile it is decided anew, on the task as it is then.
"""

import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from mail.core.decisions.cancel import StillRunning, cancel, still_running
from mail.core.decisions.fork import fork
from mail.core.decisions.receive import begin, may_reach, possible_keys, receive, runner_of
from mail.core.decisions.submit import Submission, admit
from mail.core.decisions.webhooks import Webhooks, attach
from mail.core.engine.quotas import Quotas
from mail.core.engine.telemetry import Observers, Tracer, is_remarkable
from mail.core.engine.watch import Submitted, Watching
from mail.core.engine.webhooks import NO_WEBHOOKS
from mail.core.protocol.address import Principal
from mail.core.protocol.interswarm import MAILInterswarmMessage
from mail.core.protocol.traceparent import same_trace, traceparent_in
from mail.core.task.change import TaskChange
from mail.core.task.context import CURRENT_TASK
from mail.core.task.idempotency import IdempotencyKey, Remembered, find, remember
from mail.core.task.interswarm import Peers
from mail.core.task.limits import NO_BUDGET, Budget
from mail.core.task.ports import TurnQueue, WakeUp, wake_ups
from mail.core.task.swarm import SwarmCore
from mail.core.task.task import Task, TaskKey
from mail.core.task.webhooks import Webhook
from mail.errors import BadRequest, Forbidden, StoreUnavailable, TaskNotFound, TooManyTasks, VersionConflict

logger = logging.getLogger(__name__)

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


class Admission(Watching):
    """The part of a `Runtime` that lets into tasks what comes from outside, and wakes whoever has got mail by it.

    Attributes:
        peers: how mail reaches other swarms; without it, such mail comes back to its sender.
        hop_limit: through how many swarms a task may have come that another one asks for.
        quotas: what callers may keep busy at once.
        observers: whoever measures what happens.
        tracer: follows tasks.
        webhooks: how events reach webhooks; without it, no task has any.
    """

    swarm: SwarmCore
    peers: Peers | None
    hop_limit: int
    quotas: Quotas
    observers: Observers
    tracer: Tracer
    webhooks: Webhooks | None
    _queue: TurnQueue
    _beginning: defaultdict[str, list[object]]

    async def submit(self, caller: Principal, submission: Submission) -> Submitted:
        """Accept a person's message; when this returns, it is stored and will be worked on.

        One that was accepted before, under the same key (`Submission.idempotency_key`), changes nothing; what became of it then
        is returned. Raises BadRequest, TaskNotFound, PreconditionFailed, IdempotencyConflict or RateLimited when it
        can't be accepted; then nothing is stored.
        """
        if submission.task_id is None and submission.resume_from is not None:
            raise BadRequest("task_id is missing: say which task to resume")
        if submission.task_id is None:
            submission = submission.evolve(task_id=self.clock.new_id())
        key = TaskKey(str(caller), submission.task_id or "")
        CURRENT_TASK.set(key.task_id)
        webhooks = await self._webhooks_of(submission)
        registered: Sequence[Webhook] | None = None
        while True:
            task = await self.store.load(key)
            if task is not None and submission.idempotency_key is not None:
                earlier = find(task.submitted, submission.idempotency_key, self._now())
                if earlier is not None:
                    return Submitted(key, earlier.generation, earlier.after, earlier.seq)
            change = admit(task, self.swarm, caller, submission, self.clock)
            self.quotas.check_depth(task, change)
            if task is None and self.webhooks is not None:
                if registered is None:
                    registered = await self.webhooks.registered(key.instance)
                change = attach(task, change, (*webhooks, *registered))
            elif webhooks:
                change = attach(task, change, webhooks)
            change = self._traced(change)
            submitted = Submitted(
                key, change.task.generation.number, task.seq if task else 0, change.task.seq
            )
            if submission.idempotency_key is not None:
                change = self._remembering(change, submission.idempotency_key, submitted)
            try:
                await self._enter(task, change)
            except VersionConflict:
                continue
            return submitted

    async def _webhooks_of(self, submission: Submission) -> tuple[Webhook, ...]:
        """The webhook that comes with a submission. Raises BadRequest for one that can't be called."""
        if submission.webhook is None:
            return ()
        if self.webhooks is None:
            raise BadRequest(NO_WEBHOOKS)
        await self.webhooks.check(submission.webhook)
        return (submission.webhook,)

    async def receive(self, caller_id: str, message: MAILInterswarmMessage, *, back: bool) -> Received:
        """Accept a message of another swarm; when this returns, it is stored and will be worked on.

        `caller_id` is the id of the token that it came with; `back` is whether it was said to belong to a task
        that is known here. Raises BadRequest, Forbidden, TaskNotFound or RateLimited when it can't be accepted; then
        nothing is stored.
        """
        keys = possible_keys(message, self.swarm, caller_id, back=back)
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
                change = receive(task, self.swarm, message, self.clock)
            elif back or await self.store.load(keys[-1]) is not None:
                raise TaskNotFound(f"swarm {source!r} has no task {message.payload.task_id!r} here")
            else:
                change = begin(self.swarm, keys[-1], message, self.clock, hop_limit=self.hop_limit)
            try:
                if change is not None:
                    self.quotas.check_depth(task, change)
                    change = self._traced(change, traceparent_in(message.payload.routing_info))
                    await self._enter(task, change)
            except VersionConflict:
                continue
            break
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

    async def cancel(self, caller: Principal, task_id: str, reason: str = "") -> Task:
        """Cancel a task of the caller's (`mail.core.decisions.cancel`); one that is cancelled already stays so.

        When this returns, no turn begins any more. Raises TaskNotFound, NotCancellable.
        """
        key = TaskKey(str(caller), task_id)
        CURRENT_TASK.set(task_id)
        while True:
            task = await self._load(key)
            change = cancel(task, self.swarm, caller, reason, self.clock)
            if change is None:
                return task
            try:
                await self._enter(task, change)
            except VersionConflict:
                continue
            return change.task

    async def still_running(self, task: Task) -> StillRunning:
        """What a cancelled task waits for."""
        return still_running(task, await self.store.read_leases(task.key, now=self._now()))

    async def fork(
        self,
        caller: Principal,
        task_id: str,
        *,
        at: int | None = None,
        run: bool = False,
        ceiling: Budget = NO_BUDGET,
    ) -> Forked:
        """Make a new task of the caller's out of a moment of another one (`mail.core.decisions.fork`), by default its last.

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
        new_id = self.clock.new_id()
        change = fork(snapshot, histories, self.swarm, caller, new_id, self.clock, run=run, ceiling=ceiling)
        change = self._traced(change)
        await self._enter(None, change)
        return Forked(change.task, snapshot.task.seq)

    async def adopt(self, task: Task, change: TaskChange) -> None:
        """Commit what was decided on a task outside of its turns, and wake whom it gave mail.

        Raises VersionConflict, or RateLimited where callers may keep less busy.
        """
        self.quotas.check_depth(task, change)
        await self._enter(task, change)

    async def _enter(self, before: Task | None, change: TaskChange) -> None:
        """Commit what comes from outside, and wake whom it gave mail. Raises VersionConflict, TooManyTasks."""
        async with self._beginning_few(before, change):
            await self.store.commit(change)
        self._tell(change)
        await self._publish_ready(change.task)

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
        return replace(change, task=replace(change.task, traceparent=here))

    def _remembering(self, change: TaskChange, key: IdempotencyKey, submitted: Submitted) -> TaskChange:
        """The change, of which the task remembers that it was made for this submission."""
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

    def _tell(self, change: TaskChange) -> None:
        """Tell the observers what was committed."""
        if self.observers and is_remarkable(change):
            for observer in self.observers:
                observer.task_changed(change)

    async def _publish_ready(self, task: Task) -> None:
        await self._wake(wake_ups(task))

    async def _wake(self, tokens: Sequence[WakeUp]) -> None:
        """Publish tokens of mail that is stored. Where that fails the mail is late, but nothing has gone wrong."""
        try:
            await self._queue.publish(tokens)
        except StoreUnavailable:
            logger.exception("tokens could not be published; the next sweep wakes their mailboxes")
