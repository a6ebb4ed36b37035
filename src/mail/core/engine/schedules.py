"""Schedules: what their owners change, and the runs that begin when they are due.

due ── advance() ──► commit: the run is starting ──► submit, as its caller ── started() ──► commit

Any number of processes may do this for one schedule at once. What happens at a time is decided by the commit that comes
first, and the id of the run's task lets only one of them begin it.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from mail.core.decisions.schedules import advance, check_schedule, note_end, outcome, run_now, save, started
from mail.core.decisions.submit import Submission
from mail.core.decisions.webhooks import attach
from mail.core.engine.admission import Admission
from mail.core.engine.commit import Committer
from mail.core.engine.wake_ups import publish
from mail.core.engine.wiring import Wiring
from mail.core.protocol.address import Principal
from mail.core.task.change import TaskChange
from mail.core.task.draft import Draft
from mail.core.task.ports import wake_ups
from mail.core.task.schedules import (
    MAX_SCHEDULES,
    Overlap,
    RunState,
    Schedule,
    ScheduledRun,
    ScheduleState,
    owner_of_schedules,
)
from mail.core.task.task import Task, TaskKey
from mail.core.task.webhooks import Webhook
from mail.errors import (
    BadRequest,
    MAILError,
    NotCancellable,
    PreconditionFailed,
    ScheduleDeclared,
    ScheduleNotFound,
    ScheduleTaken,
    StoreUnavailable,
    TaskNotFound,
    VersionConflict,
)

logger = logging.getLogger(__name__)

DECLARED_BY = "mail.toml"
"""Who changes schedules that are declared."""

OVERLAPS = "the next run of its schedule has begun"
"""Why a run is cancelled."""


class Schedules:
    """The schedules of a swarm."""

    def __init__(self, wiring: Wiring, admission: Admission) -> None:
        self._wiring = wiring
        self._admission = admission
        self._committer = Committer(wiring.store)

    # ------------------------------------------------------------------------------------------ what they are

    async def all(self) -> list[ScheduleState]:
        """Return all schedules, by name, with the runs that have ended meanwhile."""
        return [await self._seen(task) for task in await self._tasks()]

    async def read(self, name: str) -> ScheduleState:
        """Return a schedule, with the runs that have ended meanwhile. Raises ScheduleNotFound."""
        return await self._seen(await self._load(name))

    async def save(self, spec: Schedule, by: str, *, is_new: bool) -> ScheduleState:
        """Create a schedule, or change it; `by` says who does so, for its timeline.

        Raises BadRequest, ScheduleTaken, ScheduleNotFound, ScheduleDeclared.
        """
        spec = self._checked(spec)
        task = None if is_new else await self._load(spec.name)
        if is_new and sum(each.spec.caller == spec.caller for each in await self.all()) >= MAX_SCHEDULES:
            raise BadRequest(f"{spec.caller} has {MAX_SCHEDULES} schedules, the maximum; delete one first")
        return await self._save(task, spec, by, is_new=is_new)

    async def delete(self, name: str) -> ScheduleState:
        """Delete a schedule; its runs stay. Raises ScheduleNotFound, ScheduleDeclared."""
        self._refuse_declared(await self._load(name))
        return await self._delete(name)

    async def declare(self, specs: Sequence[Schedule]) -> None:
        """Let the declared schedules be these. One that the present swarm can't run is logged, and left as it was."""
        checked: dict[str, Schedule | None] = {}
        for spec in specs:
            try:
                checked[spec.name] = self._checked(spec)
            except BadRequest as error:
                logger.error("schedule %s of the configuration can't run: %s", spec.name, error.detail)
                checked[spec.name] = None
        known = {task.task_id: task for task in await self._tasks()}
        for name, task in known.items():
            if name not in checked and task.schedule is not None and task.schedule.declared:
                with suppress(ScheduleNotFound):  # another server was first
                    await self._delete(name)
        for name, declared in checked.items():
            if declared is not None and self._may_declare(declared, known.get(name)):
                await self._save(known.get(name), declared, DECLARED_BY, declared=True)

    @staticmethod
    def _may_declare(spec: Schedule, task: Task | None) -> bool:
        """Return whether no other caller has a schedule of this name; say what the declared one replaces, if any."""
        if task is None or task.schedule is None or task.schedule.declared:
            return True
        before = task.schedule
        if before.spec.caller == spec.caller:
            logger.warning("schedule %s of the configuration replaces that of %s", spec.name, before.by)
            return True
        logger.error(
            "schedule %s of the configuration does not run, as %s has one of this name: rename it, or delete theirs",
            *(spec.name, before.spec.caller),
        )
        return False

    async def run_now(self, name: str) -> tuple[ScheduleState, ScheduledRun]:
        """Begin a run now; return the schedule and the run, which may have been refused. Raises ScheduleNotFound."""
        await self._committer.commit(lambda task: run_now(self._draft(task)), await self._load(name))
        state = (await self._start(await self._load(name))).schedule
        assert state is not None
        return state, state.runs[-1]

    # --------------------------------------------------------------------------------------------- what is due

    async def advance(self, task: Task) -> Task:
        """Do what is due in a schedule, and return it as it is then."""
        ended = await self._ended(task)
        change = await self._commit(task, ended, lambda draft: advance(draft, ended))
        return await self._start(task if change is None else change.task)

    async def _start(self, task: Task) -> Task:
        """Begin the tasks of the runs that are starting."""
        state = task.schedule
        assert state is not None
        for run in state.of(RunState.STARTING):
            begun = await self._begin(state, run)
            change = await self._commit(task, [begun], partial(started, run=begun))
            task = task if change is None else change.task
        return task

    async def _begin(self, state: ScheduleState, run: ScheduledRun) -> ScheduledRun:
        """Begin the task of a run, unless somebody has done so already; return the run as it is then."""
        wiring, spec = self._wiring, state.spec
        caller = Principal.parse(spec.caller)
        if spec.overlap is Overlap.CANCEL:
            for other in state.of(RunState.RUNNING):
                with suppress(NotCancellable, TaskNotFound):
                    key = TaskKey(spec.caller, other.task_id(spec.name))
                    await self._admission.cancel(caller, key, OVERLAPS)
        submission = Submission(
            body=spec.body,
            subject=spec.subject or spec.name,
            entrypoint=spec.entrypoint,
            task_id=run.task_id(spec.name),
            ceiling=wiring.ceiling(caller),
            begins=True,
        )
        try:
            await self._admission.submit(caller, submission)
        except PreconditionFailed:  # there is one
            pass
        except StoreUnavailable:
            raise
        except MAILError as refusal:
            return run.now(RunState.FAILED, refusal.detail)
        return run.now(RunState.RUNNING)

    async def _ended(self, task: Task) -> list[ScheduledRun]:
        """Return the runs of a schedule that have ended since they were looked at."""
        store, state = self._wiring.store, task.schedule
        assert state is not None
        ended = []
        for run in state.of(RunState.RUNNING):
            key = TaskKey(state.spec.caller, run.task_id(state.spec.name))
            found, answer = await store.load(key), ""
            if found is not None and not found.is_running:
                response = await store.read_response(key, found.generation.number)
                answer = "" if response is None else response.message.body
            seen = outcome(run, found, answer)
            ended += [seen] if seen is not run else []
        return ended

    async def _seen(self, task: Task) -> ScheduleState:
        """Return a schedule with the runs that have ended, as `advance` will note them."""
        state = task.schedule
        assert state is not None
        for run in await self._ended(task):
            state = note_end(state, run)
        return state

    async def _commit(
        self, task: Task, runs: Sequence[ScheduledRun], decide: Callable[[Draft], TaskChange | None]
    ) -> TaskChange | None:
        """Commit a decision on runs; failures are logged, and sent to the webhooks that their caller has registered."""
        wiring = self._wiring
        assert task.schedule is not None
        hooks: Sequence[Webhook] = ()
        if wiring.webhooks is not None and any(run.state is RunState.FAILED for run in runs):
            hooks = await wiring.webhooks.registered(task.schedule.spec.caller)

        def with_hooks(task: Task) -> TaskChange | None:
            change = decide(self._draft(task))
            return change if change is None or not change.events else attach(task, change, hooks)

        change = await self._committer.commit(with_hooks, task)
        if change is not None:
            for event in change.events:
                logger.warning("%s", event.text)
            await publish(wiring.queue, wake_ups(change.task))
        return change

    # ----------------------------------------------------------------------------------------------- in stores

    def _draft(self, task: Task) -> Draft:
        return Draft(task, self._wiring.swarm, self._wiring.clock)

    async def _tasks(self) -> list[Task]:
        """Return the tasks that are schedules, by name."""
        store, owner = self._wiring.store, owner_of_schedules(self._wiring.swarm.name)
        tasks: list[Task] = []
        cursor: str | None = None
        while True:
            page = await store.list_tasks(owner, limit=1000, cursor=cursor)
            tasks += page.tasks
            if (cursor := page.cursor) is None:
                return sorted(tasks, key=lambda task: task.task_id)

    async def _load(self, name: str) -> Task:
        task = await self._wiring.store.load(TaskKey(owner_of_schedules(self._wiring.swarm.name), name))
        if task is None:
            raise ScheduleNotFound(f"there is no schedule {name[:64]!r}; GET /schedules lists them")
        return task

    async def _save(
        self, task: Task | None, spec: Schedule, by: str, *, is_new: bool = False, declared: bool = False
    ) -> ScheduleState:
        wiring = self._wiring

        def decide(task: Task | None) -> TaskChange | None:
            if is_new and task is not None:
                raise ScheduleTaken(f"there is a schedule {spec.name!r} already; choose another name")
            if task is not None and not declared:
                self._refuse_declared(task)
            return save(task, wiring.swarm, spec, by, wiring.clock, declared=declared)

        try:
            change = await self._committer.commit(decide, task)
        except TaskNotFound:
            raise ScheduleNotFound(f"schedule {spec.name!r} was deleted meanwhile") from None
        state = (change.task if change is not None else await self._load(spec.name)).schedule
        assert state is not None
        return state

    async def _delete(self, name: str) -> ScheduleState:
        while True:
            task = await self._load(name)
            with suppress(VersionConflict):
                await self._wiring.store.delete(task)
                assert task.schedule is not None
                return task.schedule

    def _checked(self, spec: Schedule) -> Schedule:
        """Return a schedule with the full name of its caller. Raises BadRequest."""
        caller = check_schedule(spec, self._wiring.swarm)
        return spec.of_caller(str(caller))

    def _refuse_declared(self, task: Task) -> None:
        if task.schedule is not None and task.schedule.declared:
            raise ScheduleDeclared(
                f"schedule {task.task_id!r} is declared in the server's mail.toml; change it there"
            )
