"""Admission: what callers, admins and other swarms begin or change in a task from outside of its turns.

submit, receive, fork ── decide ──► commit, within the limits of callers ──► wake-ups
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import cast

from mail.core.decisions.break_glass import open_task
from mail.core.decisions.cancel import cancel
from mail.core.decisions.delete import check_deletable, has_outside_mail, may_be_leased, may_be_named
from mail.core.decisions.fork import fork
from mail.core.decisions.members import MemberMail, hear
from mail.core.decisions.receive import begin, may_reach, possible_keys, receive, runner_of
from mail.core.decisions.submit import Submission, admit, check_time
from mail.core.decisions.webhooks import add_push, attach, remove
from mail.core.engine.caller_limits import LimitGuard
from mail.core.engine.commit import Committer, load_task
from mail.core.engine.live import LiveHub
from mail.core.engine.wake_ups import looks, publish
from mail.core.engine.watch import Submitted, read_waiting
from mail.core.engine.webhooks import NO_WEBHOOKS
from mail.core.engine.wiring import Wiring
from mail.core.protocol.address import Principal, parse_agent_address
from mail.core.protocol.interswarm import MAILInterswarmMessage
from mail.core.protocol.traceparent import same_trace, traceparent_in
from mail.core.protocol.values import fill, value
from mail.core.task.change import Inheritance, TaskChange
from mail.core.task.deletion import LegalHold, name_of
from mail.core.task.extras import ForkExtra
from mail.core.task.files import FileRef, files_in, with_files
from mail.core.task.idempotency import IdempotencyKey, Remembered, find, remember
from mail.core.task.leases import held
from mail.core.task.limits import FORKED_MAIL_BYTES, NO_BUDGET, Budget
from mail.core.task.ports import wake_ups
from mail.core.task.swarm import SwarmCore
from mail.core.task.task import ForkActions, Share, Task, TaskKey
from mail.core.task.webhooks import Push, Webhook
from mail.core.turns.context import CURRENT_TASK
from mail.errors import (
    BadRequest,
    Forbidden,
    MAILError,
    PayloadTooLarge,
    StoreUnavailable,
    SwarmNotFound,
    TaskNotFound,
    VersionConflict,
)

logger = logging.getLogger(__name__)


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


class Admission:
    """Admits what comes from outside to the tasks of a swarm; live events are announced on `live`."""

    def __init__(self, wiring: Wiring, live: LiveHub) -> None:
        self._wiring = wiring
        self._live = live
        self._committer = Committer(wiring.store)
        self._limit_guard = LimitGuard(wiring.store)

    async def submit(
        self, caller: Principal, submission: Submission, hooks: Sequence[Webhook] = ()
    ) -> Submitted:
        """Accept a caller's message; when this returns, it is stored and will be processed.

        `hooks` are webhooks of the server's own, which the task gets and which need no check.

        A submission that was accepted before under the same key (`Submission.idempotency_key`) changes nothing; its
        first result is returned. Raises BadRequest, TaskNotFound, PreconditionFailed, IdempotencyConflict, TaskFull
        or RateLimited if it can't be accepted; then nothing is stored.
        """
        wiring = self._wiring
        check_time(submission, wiring.now())
        if submission.task_id is None and submission.resume_from is not None:
            raise BadRequest("task_id is missing: say which task to resume")
        is_new = submission.task_id is None
        if is_new:
            submission = submission.as_new(wiring.clock.new_id())
        key = TaskKey(str(caller), submission.task_id or "")
        CURRENT_TASK.set(key.task_id)
        webhooks = (*await self._webhooks_of(submission), *hooks)
        files = await wiring.caller_files.given(key.instance, submission.files) if submission.files else []
        if files:
            submission = submission.evolve(routing_info=with_files(submission.routing_info or {}, files))
        task = None if is_new else await wiring.store.load(key)
        known = await wiring.caller_files.of_task(key) if files and task is not None else {}
        new_bytes = sum(each.size for each in files if each.id not in known)
        registered: Sequence[Webhook] = ()
        if task is None and wiring.webhooks is not None:
            registered = await wiring.webhooks.registered(key.instance)
        unknown = await self._unknown_swarm(submission.targets) if submission.targets else None
        await self._keep_version()
        submitted: Submitted

        def result(task: Task, generation: int, after: int, seq: int) -> Submitted:
            return Submitted(key, generation, after, seq, task.generation.output_schema is not None)

        def decide(task: Task | None) -> TaskChange | None:
            nonlocal submitted
            idempotency = submission.idempotency_key
            if task is not None and idempotency is not None:
                earlier = find(task.submitted, idempotency, wiring.now())
                if earlier is not None:
                    submitted = result(task, earlier.generation, earlier.after, earlier.seq)
                    return None
            change = admit(task, wiring.swarm_of(task), caller, submission, wiring.clock)
            if unknown is not None:
                raise SwarmNotFound(f"swarm {unknown!r} is not registered here")
            if hooks := webhooks if task is not None else (*webhooks, *registered):
                change = attach(task, change, hooks)
            change = self._traced(change)
            change = _charged(change, new_bytes)
            waits_for_next = bool(change.timers) and not change.task.is_running
            number = change.task.generation.number + waits_for_next
            submitted = result(change.task, number, task.seq if task else 0, change.task.seq)
            return change if idempotency is None else self._remembering(change, idempotency, submitted)

        async def announce(change: TaskChange) -> None:
            """Announce the watch before the first turn begins."""
            await self._live.expect(change.key, deltas=submission.deltas)

        await self.adopt(task, decide, before_wake_ups=announce if submission.live else None, files=files)
        return submitted

    async def _keep_version(self, swarm: SwarmCore | None = None) -> None:
        """Keep the version of the swarm, on which runs begin."""
        versions, swarm = self._wiring.versions, swarm or self._wiring.swarm
        if versions is not None and versions.needs(swarm):
            await versions.keep(swarm)

    async def _unknown_swarm(self, targets: Sequence[str]) -> str | None:
        """Return the first swarm of `agent@swarm` targets that is not known here; None if all are."""
        peers = self._wiring.peers
        for swarm in dict.fromkeys(parse_agent_address(target)[1] for target in targets):
            if swarm is None or peers is None or await peers.caller_ids(swarm):
                continue
            if swarm not in await peers.known():  # else it is called by another protocol, and never calls
                return swarm
        return None

    async def _webhooks_of(self, submission: Submission) -> tuple[Webhook, ...]:
        """Return the webhook of a submission. Raises BadRequest if it can't be called."""
        wiring = self._wiring
        if submission.webhook is None:
            return ()
        if wiring.webhooks is None:
            raise BadRequest(NO_WEBHOOKS)
        await wiring.webhooks.check(submission.webhook)
        return (submission.webhook,)

    async def receive(self, caller_id: str, message: MAILInterswarmMessage, *, back: bool) -> Received:
        """Accept a message of another swarm; when this returns, it is stored and will be processed.

        `caller_id` is the id of the API key that it came with; `back` says that it belongs to a task that exists
        here. Raises BadRequest, Forbidden, TaskNotFound or RateLimited if it can't be accepted; then nothing is
        stored.
        """
        wiring = self._wiring
        keys = possible_keys(message, wiring.swarm, caller_id, back=back)
        CURRENT_TASK.set(message.payload.task_id)
        source = message.source_swarm
        is_known = await self._check_source(source, caller_id, back=back)
        message = await self._with_origins(message)
        await self._keep_version()

        async def load() -> Task | None:
            """Load the first task that the message may belong to; None to begin one."""
            for key in keys:
                task = await wiring.store.load(key)
                if task is not None and may_reach(
                    task, wiring.swarm, message, caller_id=caller_id, is_known=is_known
                ):
                    return task
            if back or await wiring.store.load(keys[-1]) is not None:
                raise TaskNotFound(f"swarm {source!r} has no task {message.payload.task_id!r} here")
            if Principal.parse(message.task_owner).swarm == wiring.swarm.name:
                begun = await wiring.store.load(TaskKey(message.task_owner, message.payload.task_id))
                if begun is None or not begun.peers:  # else other swarms took part, and it has come back
                    raise Forbidden(f"no task of {message.task_owner} has left this swarm under this id")
            return None

        traceparent = traceparent_in(message.payload.routing_info)

        def decide(task: Task | None) -> TaskChange | None:
            if task is None:
                first = begin(
                    wiring.swarm,
                    keys[-1],
                    message,
                    wiring.clock,
                    hop_limit=wiring.hop_limit,
                    entrypoints_only=wiring.entrypoints_only,
                )
                return self._traced(first, traceparent)
            change = receive(wiring.draft(task), message, entrypoints_only=wiring.entrypoints_only)
            return None if change is None else self._traced(change, traceparent)

        task = await load()
        change = await self.adopt(task, decide, reload=load)
        key = change.key if change is not None else keys[-1] if task is None else task.key
        return Received(key, runner_of(caller_id, wiring.swarm))

    async def hear(self, key: TaskKey, mail: MemberMail) -> None:
        """Accept mail of a member (`mail.core.decisions.members`). Raises TaskNotFound, Conflict and RateLimited."""
        wiring = self._wiring
        CURRENT_TASK.set(key.task_id)
        task = await load_task(wiring.store, key)
        await self.adopt(task, lambda task: hear(wiring.draft(task), mail))

    async def _with_origins(self, message: MAILInterswarmMessage) -> MAILInterswarmMessage:
        """Return a message whose files say where they are fetched: a turn may not be able to read the registry."""
        peers, info = self._wiring.peers, message.payload.routing_info or {}
        files = files_in(info)
        if peers is None or not any(file.link for file in files):
            return message
        origins = {swarm: await peers.origin_of(swarm) for swarm in {file.swarm for file in files}}
        located = [
            replace(file, origin=origin, region=region)
            for file in files
            for origin, region in [origins[file.swarm]]
        ]
        payload = message.payload.routed(with_files(info, located))
        return MAILInterswarmMessage(**{**message, "payload": payload})

    async def _check_source(self, source: str, caller_id: str, *, back: bool) -> bool:
        """Return whether the swarm that sends a message is known. Raises Forbidden for the token of another swarm.

        A message that may ask something is refused, too, if its answer could not be sent.
        """
        wiring = self._wiring
        if wiring.peers is None:
            known_ids: Sequence[str] = (source,)
        else:
            known_ids = await wiring.peers.caller_ids(source)
        ids = known_ids or ((source,) if back else ())
        if ids and caller_id not in ids:
            logger.warning(
                "a message of swarm %s was refused: it came with the token of %r instead of %r. If that is its token, "
                "register the swarm with this id as caller_id",
                *(source, caller_id, ids[0]),
            )
            raise Forbidden(
                f"the token of this request has the id {caller_id!r}, and swarm {wiring.swarm.name!r} expects "
                f"{ids[0]!r} of swarm {source!r}: use a token with that id, or ask the operator of "
                f"{wiring.swarm.name!r} to register {source!r} with the caller_id {caller_id!r}"
            )
        if not back and wiring.peers is not None and (obstacle := await wiring.peers.obstacle(source)):
            logger.warning(
                "a message of swarm %s was refused: it could not be answered: %s", source, obstacle
            )
            raise Forbidden(f"swarm {wiring.swarm.name!r} could not answer swarm {source!r}: {obstacle}")
        return bool(known_ids)

    async def cancel(self, caller: Principal, key: TaskKey, reason: str) -> Task:
        """Cancel a task, and return it as it is then; see `Runtime.cancel`."""
        wiring = self._wiring
        CURRENT_TASK.set(key.task_id)
        before = await load_task(wiring.store, key)
        change = await self.adopt(before, lambda task: cancel(wiring.draft(task), caller, reason))
        return await load_task(wiring.store, key) if change is None else change.task

    async def delete(
        self, key: TaskKey, task: Task | None = None, holds: Mapping[str, LegalHold] | None = None
    ) -> Task:
        """Delete a task, and return it as it was; see `Runtime.delete`.

        The task may have been read just before, and so may all holds, by their names.
        """
        wiring = self._wiring
        CURRENT_TASK.set(key.task_id)
        while True:
            try:
                task = task or await load_task(wiring.store, key)
            except TaskNotFound:
                await self._drop_files(key)  # in case that a process died between these two deletions
                raise
            if holds is not None:
                hold = holds.get(key.instance) or holds.get(name_of(key))
            else:
                hold = None if wiring.documents is None else await wiring.documents.hold_on(key)
            leased: Collection[str] = ()
            if may_be_leased(task, wiring.now(), wiring.turn_seconds + wiring.lease_seconds):
                leased = held(await wiring.store.read_leases(key, now=wiring.now()))
            check_deletable(task, leased, hold)
            if wiring.documents is not None and may_be_named(task, wiring.now()):
                await wiring.documents.remember_deleted(key, now=wiring.now())
            with suppress(VersionConflict):
                await wiring.store.delete(task)
                await self._drop_files(key)
                if wiring.forget is not None and has_outside_mail(task):
                    await wiring.forget(key)
                self._limit_guard.freed(key.instance)
                return task
            task = holds = None

    async def add_push(self, task: Task, hook_id: str, url: str, push: Push) -> None:
        """Add a webhook that follows a run of a task. Raises BadRequest for a URL that may not be called."""
        wiring = self._wiring
        CURRENT_TASK.set(task.task_id)
        if wiring.webhooks is None:
            raise BadRequest(NO_WEBHOOKS)
        await wiring.webhooks.check(Webhook(url=url))
        await self.adopt(task, lambda task: add_push(wiring.draft(task), hook_id, url, push))

    async def remove_webhook(self, caller: Principal, task: Task, webhook_id: str) -> bool:
        """Remove a webhook from a task; return whether the task had it."""
        CURRENT_TASK.set(task.task_id)
        return None is not await self.adopt(
            task, lambda task: remove(self._wiring.draft(task), webhook_id, caller)
        )

    async def open_task(self, by: Principal, task: Task, reason: str) -> None:
        """Say in a task that an admin, who isn't its owner, reads it."""
        await self.adopt(task, lambda task: open_task(self._wiring.draft(task), by, reason))

    async def share(self, by: Principal, task: Task, given: Share) -> None:
        """Add a link to a task. Raises BadRequest for too many."""
        from mail.core.decisions.shares import share  # rare, with all that it shows

        await self.adopt(task, lambda task: share(self._wiring.draft(task), given, by))

    async def revoke_share(self, by: Principal, task: Task, number: str) -> None:
        """Remove a link from a task. Raises ShareNotFound."""
        from mail.core.decisions.shares import revoke

        await self.adopt(task, lambda task: revoke(self._wiring.draft(task), number, by))

    async def fork(
        self,
        caller: Principal,
        task_id: str,
        *,
        at: int | None = None,
        run: bool = False,
        actions: ForkActions | None = None,
        draft: SwarmCore | None = None,
        ceiling: Budget = NO_BUDGET,
        new_id: str | None = None,
        hold: Callable[[int], None] | None = None,
    ) -> Forked:
        """Fork a caller's task as it was at an event, by default its last (`mail.core.decisions.fork`).

        `actions` says whether its actions run, and defaults to what the first task has. The fork stays on a `draft`.
        `new_id` is the id of the fork; if there is such a task, it is the fork that the same request has made before.
        Before waiting mail is read, `hold` is called with an upper limit of its bytes, and may refuse it. Raises
        TaskNotFound, BadRequest, SnapshotExpired, TooManyTasks, or PayloadTooLarge for more than `FORKED_MAIL_BYTES` of
        waiting mail; then there is no new task.
        """
        wiring = self._wiring
        key = TaskKey(str(caller), task_id)
        CURRENT_TASK.set(task_id)
        made = None if new_id is None else TaskKey(str(caller), new_id)
        if made is not None and await wiring.store.load(made) is not None:
            return await self._read_fork(made)
        present = await load_task(wiring.store, key)
        snapshot = await wiring.store.read_snapshot(key, present.seq if at is None else at)
        swarm = draft or await self._version_of_fork(snapshot.task)
        portions = {agent: n for agent, n in snapshot.task.histories.items() if n and swarm.has(agent)}
        inherited = Inheritance(key, portions, snapshot.task.history_bytes)
        if snapshot.waiting and hold is not None:
            hold(snapshot.task.stored_bytes - snapshot.task.history_bytes)
        mail, size = [], 0
        async for entry in read_waiting(wiring.store, snapshot):
            if (size := size + entry.size) > FORKED_MAIL_BYTES:
                raise PayloadTooLarge(
                    f"more than {FORKED_MAIL_BYTES} bytes of mail waited in task {task_id!r} at {snapshot.task.seq}; "
                    "fork it at an event when less mail waited"
                )
            mail.append(entry.without_texts())
            await wiring.pacer.pause(entry.size)
        await self._keep_version(swarm)

        def decide(existing: Task | None) -> TaskChange | None:
            if existing is not None and existing.key == made:
                return None
            fork_id, clock = new_id or wiring.clock.new_id(), wiring.clock
            to_whom = (swarm, caller, fork_id, clock)
            change = fork(snapshot, mail, inherited, *to_whom, run=run, actions=actions, ceiling=ceiling)
            return self._traced(_charged(change, sum(file.size for file in files)))

        files = [*(await wiring.caller_files.of_task(key)).values()]
        change = await self.adopt(None, decide, files=files)
        if change is None:
            assert made is not None
            return await self._read_fork(made)
        return Forked(change.task, snapshot.task.seq)

    async def _version_of_fork(self, task: Task) -> SwarmCore:
        """Return the version on which a fork of a task begins: the present one, or the draft that the task tries."""
        versions, present = self._wiring.versions, self._wiring.swarm
        if versions is None or not task.generation.tries_draft:
            return present
        return await versions.to_run(task, present)

    async def _read_fork(self, key: TaskKey) -> Forked:
        """Return a fork as it was when it was made. Raises TaskNotFound."""
        wiring = self._wiring
        [event] = await wiring.store.read_events(key, limit=1)
        assert isinstance(event.extra, ForkExtra)
        return Forked((await wiring.store.read_commit(key, 1)).task, event.extra.at)

    async def adopt[T: Task | None, C: TaskChange | None](
        self,
        task: T,
        decide: Callable[[T | Task], C],
        *,
        reload: Callable[[], Awaitable[T]] | None = None,
        before_wake_ups: Callable[[TaskChange], Awaitable[None]] | None = None,
        files: Sequence[FileRef] = (),
    ) -> C:
        """Commit a decision on a task from outside of its turns, and wake the mailboxes with mail.

        Works as `Committer.commit`. The task refers to `files` before it is committed. Raises RateLimited for a full
        mailbox or too many running tasks.
        """
        wiring = self._wiring
        if task is not None and (versions := wiring.versions_of(task)) is not None:
            await versions.prepare(task, wiring.swarm)
            reload = self._preparing(
                reload or cast("Callable[[], Awaitable[T]]", partial(load_task, wiring.store, task.key))
            )

        @asynccontextmanager
        async def guard(before: Task | None, change: TaskChange) -> AsyncIterator[None]:
            limits = self._limit_guard.enforce(wiring.caller_limits, before, change)
            async with limits, self._kept(change.key, files, is_new=before is None):
                yield

        change = await self._committer.commit(
            decide,
            task,
            reload=reload,
            guard=guard if files else partial(self._limit_guard.enforce, wiring.caller_limits),
        )
        if change is not None:
            wiring.observe(change)
            if before_wake_ups is not None:
                await before_wake_ups(change)
            woken = wake_ups(change.task)
            if change.waits:
                woken += looks(change.task, wiring.now())
            await publish(wiring.queue, woken)
        return change

    @asynccontextmanager
    async def _kept(self, key: TaskKey, files: Sequence[FileRef], *, is_new: bool) -> AsyncIterator[None]:
        """Have a task refer to files before it is committed; a new one that is refused leaves none.

        One whose id was that of a task that is just being deleted refers to them again after that, as it may have lost
        them.
        """
        kept = self._wiring.caller_files
        try:
            await kept.keep(key, files)
            yield
        except StoreUnavailable:  # it may be committed
            raise
        except MAILError:
            if is_new:
                await self._drop_files(key)
            raise
        if is_new:
            known = await kept.of_task(key)
            await kept.keep(key, [file for file in files if file.id not in known])

    async def _drop_files(self, key: TaskKey) -> None:
        """Forget the files of a task that is deleted or was never committed, unless there is a new one of its id."""
        wiring = self._wiring
        if await wiring.caller_files.of_task(key) and await wiring.store.load(key) is None:
            await wiring.caller_files.drop(key)

    def _preparing[T: Task | None](self, load: Callable[[], Awaitable[T]]) -> Callable[[], Awaitable[T]]:
        """Return what loads a task and then reads the version on which it finishes its run."""

        async def prepared() -> T:
            task = await load()
            await self._wiring.prepare(task)
            return task

        return prepared

    def _traced(self, change: TaskChange, given: str = "") -> TaskChange:
        """Add the task to the trace of its first request, unless it belongs to a trace already.

        `given` is the trace that another swarm's message names; the request that delivered it may not know it.
        """
        wiring = self._wiring
        known = change.task.traceparent
        if known:
            wiring.tracer.joins(known)
            return change
        here = wiring.tracer.position()
        if given and not same_trace(given, here):
            here = given
        here = here or wiring.tracer.beginning()
        if not here:
            return change
        return replace(change, task=replace(change.task, traceparent=here))

    def _remembering(self, change: TaskChange, key: IdempotencyKey, submitted: Submitted) -> TaskChange:
        """Store the submission's key and result with the task."""
        new = Remembered(**fill(Remembered, submitted, key=key.key, digest=key.digest, until=key.until))
        remembered = remember(change.task.submitted, new, self._wiring.now())
        return replace(change, task=replace(change.task, submitted=remembered))


def _charged(change: TaskChange, size: int) -> TaskChange:
    """Count the bytes of files that a task refers to from now on."""
    task = change.task
    return replace(change, task=replace(task, stored_bytes=task.stored_bytes + size)) if size else change
