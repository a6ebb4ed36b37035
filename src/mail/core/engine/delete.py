"""Deletions that take a while: of everything of a caller, and of tasks that are older than the retention.

begin ──► the deletion is stored ──► steps, of any process ──► its end is stored

What is deleted stays deleted, so a step that breaks off is just taken again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from math import inf

from mail.core.decisions.delete import check_deletable, drop_past, is_outdated
from mail.core.engine.admission import Admission
from mail.core.engine.commit import Committer, load_task
from mail.core.engine.documents import ServerDocuments
from mail.core.engine.schedules import Schedules
from mail.core.engine.turns import Turns
from mail.core.engine.wiring import Wiring
from mail.core.protocol.address import Principal
from mail.core.protocol.clock import format_time
from mail.core.task.change import TaskChange
from mail.core.task.deletion import CallerDeletion, LegalHold, name_of
from mail.core.task.leases import held
from mail.core.task.task import ENDED, Task, TaskKey
from mail.errors import (
    CallerHeld,
    Conflict,
    HoldNotFound,
    NotCancellable,
    ScheduleDeclared,
    ScheduleNotFound,
    TaskNotFound,
)

AT_ONCE = 100
"""Tasks that are deleted in a step."""

BESIDE = 19
"""While agents take turns here, a pause after each step takes so many times as long as it: it gets 5 % of the time."""

LOOK_SECONDS = 5.0
"""Seconds between two looks for deletions of callers that other processes have begun."""

CLAIM_SECONDS = 60.0
"""Seconds after its last step from which on another process continues the deletion of a caller."""

PASS_SECONDS = 86_400.0
"""Seconds between two searches for tasks that are older than the retention."""

REASON = "its caller is deleted"
"""Why a task is cancelled."""

logger = logging.getLogger(__name__)


class Deletions:
    """Deletes callers and old tasks, and keeps what is on hold from it."""

    def __init__(self, wiring: Wiring, admission: Admission, turns: Turns, schedules: Schedules) -> None:
        self._wiring = wiring
        self._admission = admission
        self._turns = turns
        self._schedules = schedules
        self._committer = Committer(wiring.store)
        self._look_at = self._pass_at = -inf
        self._cursor: str | None = None

    @property
    def _documents(self) -> ServerDocuments:
        assert self._wiring.documents is not None
        return self._wiring.documents

    # ----------------------------------------------------------------------------------------------- holds

    async def hold(self, caller: str, task_id: str | None, reason: str, by: str) -> LegalHold:
        """Keep a task, or everything of a caller, from being deleted. Raises TaskNotFound.

        When this returns, no deletion of the task succeeds any more.
        """
        since = format_time(self._wiring.now())
        hold = LegalHold(caller=caller, task_id=task_id, reason=reason, by=by, since=since)
        await self._documents.set_hold(hold)
        if task_id is not None:
            try:  # a deletion that has not seen the hold is for a version that is the last one no more
                task = await load_task(self._wiring.store, TaskKey(caller, task_id))
                await self._committer.commit(lambda task: self._wiring.draft(task).seal(), task)
            except TaskNotFound:
                await self._documents.lift_hold(hold.name)
                raise
        return hold

    async def lift(self, caller: str, task_id: str | None) -> None:
        """Lift a hold. Raises HoldNotFound."""
        name = caller if task_id is None else name_of(TaskKey(caller, task_id))
        if not await self._documents.lift_hold(name):
            raise HoldNotFound

    # ----------------------------------------------------------------------------------------- deletions of callers

    async def begin(self, caller: str, by: str) -> CallerDeletion:
        """Begin to delete everything of a caller, tokens first; return the deletion.

        Nothing happens if one is under way. Raises CallerHeld and ScheduleDeclared.
        """
        now, documents = self._wiring.now(), self._documents
        known = await documents.caller_deletion(caller)
        if known is not None and known.ended is None:
            return known
        if held := [hold for hold in await documents.holds() if hold.caller == caller]:
            names = ", ".join(hold.task_id or "everything" for hold in held[:3])
            raise CallerHeld(f"holds keep this of {caller}: {names}{' …' * (len(held) > 3)}; lift them first")
        for schedule in await self._schedules.all():
            if schedule.spec.caller == caller and schedule.declared:
                raise ScheduleDeclared(
                    f"schedule {schedule.spec.name!r} of mail.toml begins tasks of {caller}; remove it first"
                )
        deletion = CallerDeletion(caller=caller, by=by, begun=format_time(now))
        await documents.set_caller_deletion(deletion, now=now)
        self._look_at = -inf
        return deletion

    async def _delete_caller(self, deletion: CallerDeletion, end: float) -> None:
        """Delete what is stored about a caller until the loop's time `end`, unless another process does so."""
        wiring, caller = self._wiring, deletion.caller
        claimed = await self._note(deletion, left=0, problem="")
        if claimed is not None:
            await self._documents.forget(caller)
        for schedule in await self._schedules.all() if claimed else ():
            if schedule.spec.caller == caller:
                with suppress(ScheduleNotFound, ScheduleDeclared):
                    await self._schedules.delete(schedule.spec.name)
        cursor: str | None = None
        while claimed is not None and self._time() < end:
            is_first = cursor is None
            page = await wiring.store.list_tasks(caller, limit=AT_ONCE, cursor=cursor)
            if is_first and not page.tasks:
                if wiring.forget is not None and not await wiring.forget(TaskKey(caller, "")):
                    break
                await wiring.caller_files.drop_unused(caller)
                await self._documents.forget(caller)
                await self._note(claimed, ended=format_time(wiring.now()), claimed=0.0)
                logger.info("everything of %s is deleted: %d tasks", caller, claimed.tasks)
                return
            by = Principal.parse(deletion.by)
            deleted, problems = await self._paced(self._delete(page.tasks, cancelled_by=by))
            claimed = await self._note(
                claimed,
                tasks=claimed.tasks + deleted,
                left=claimed.left + len(problems),
                problem=problems[0] if problems else claimed.problem,
            )
            cursor = page.cursor
            if cursor is None and claimed is not None and claimed.left:
                break
        if claimed is not None:
            await self._note(claimed, claimed=0.0)

    async def _note(self, deletion: CallerDeletion, **changes: object) -> CallerDeletion | None:
        """Store the progress of a deletion, which this process works on; None if another one does."""
        now = self._wiring.now()
        changed = deletion.now(**{"claimed": now + CLAIM_SECONDS, **changes})
        is_mine = await self._documents.set_caller_deletion(changed, now=now, instead_of=deletion)
        return changed if is_mine else None

    # ------------------------------------------------------------------------------------------------- retention

    async def _delete_old(self, retention: float, end: float) -> None:
        """Delete tasks in which nothing has happened for so many seconds, or their past, until the time `end`."""
        wiring = self._wiring
        before = (wiring.clock.now() - timedelta(seconds=retention)).isoformat()
        while self._time() < end:
            self._cursor, is_end = await self._paced(self._delete_page(before))
            if is_end:
                self._pass_at = wiring.now() + PASS_SECONDS
                return

    async def _delete_page(self, before: str) -> tuple[str | None, bool]:
        """Delete the old ones among the next tasks; return where others follow, and whether none of these is old."""
        page = await self._wiring.store.list_oldest(limit=AT_ONCE, cursor=self._cursor)
        served = [task for task in page.tasks if self._wiring.serves(task.key)]
        outdated = [task for task in served if is_outdated(task, before)]
        if self._wiring.keeps_latest:
            for task in outdated:
                with suppress(Conflict, TaskNotFound):
                    await self._drop_past(task, before)
        else:
            await self._delete(outdated)
        is_end = page.cursor is None or page.tasks[-1:] == [] or page.tasks[-1].started >= before
        return (None, True) if is_end else (page.cursor, False)

    async def _drop_past(self, task: Task, before: str) -> None:
        """Drop the past of a task in which nothing has happened since `before`. Raises as its deletion would."""
        wiring, hold = self._wiring, None
        if wiring.documents is not None:
            hold = await wiring.documents.hold_on(task.key)
        check_deletable(task, held(await wiring.store.read_leases(task.key, now=wiring.now())), hold)

        def decide(task: Task) -> TaskChange | None:
            return drop_past(wiring.draft(task)) if is_outdated(task, before) else None

        await self._committer.commit(decide, task)

    # ------------------------------------------------------------------------------------------------- both

    async def delete(self, key: TaskKey) -> Task:
        """Delete a task; see `Runtime.delete`."""
        task = await self._admission.delete(key)
        await self._wiring.store.scrub(is_quiet=False)
        return task

    async def work(self, *, seconds: float = inf) -> None:
        """Continue the deletions that are under way or due, for about so many seconds."""
        wiring, now, end = self._wiring, self._wiring.now(), self._time() + seconds
        if wiring.documents is not None and now >= self._look_at:
            self._look_at = now + LOOK_SECONDS
            for deletion in await wiring.documents.caller_deletions():
                is_free = deletion.ended is None and deletion.claimed <= now
                if is_free and wiring.serves(TaskKey(deletion.caller, "")):
                    await self._delete_caller(deletion, end)
        if wiring.retention is not None and now >= self._pass_at:
            await self._delete_old(wiring.retention, end)
        while await self._paced(wiring.store.scrub(is_quiet=self._turns.is_quiet())):
            if self._time() > end or self._look_at < now:  # a deletion has begun
                break

    async def _delete(
        self, tasks: Sequence[Task], *, cancelled_by: Principal | None = None
    ) -> tuple[int, list[str]]:
        """Delete tasks; return how many, and why others could not be deleted. Those that run can be cancelled first."""
        documents = self._wiring.documents
        holds = {} if documents is None else {hold.name: hold for hold in await documents.holds()}
        deletions = [self._delete_one(task, cancelled_by, holds) for task in tasks]
        outcomes = await asyncio.gather(*deletions, return_exceptions=True)
        problems: list[str] = []
        for outcome in outcomes:
            if isinstance(outcome, Conflict):
                problems.append(outcome.detail)
            elif isinstance(outcome, BaseException) and not isinstance(outcome, TaskNotFound):
                raise outcome
        return outcomes.count(None), problems

    async def _delete_one(
        self, task: Task, cancelled_by: Principal | None, holds: Mapping[str, LegalHold]
    ) -> None:
        if cancelled_by is not None and task.status not in ENDED:
            with suppress(NotCancellable):
                task = await self._admission.cancel(cancelled_by, task.key, REASON)
                self._turns.interrupt(task)
        await self._admission.delete(task.key, task, holds)

    async def _paced[T](self, step: Awaitable[T]) -> T:
        """Take a step, and rest after it while agents take turns here."""
        begun, leases = self._time(), self._turns.leases
        result = await step
        if leases != self._turns.leases or not self._turns.is_quiet():
            await asyncio.sleep(BESIDE * (self._time() - begun))
        return result

    @staticmethod
    def _time() -> float:
        return asyncio.get_running_loop().time()
