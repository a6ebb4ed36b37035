"""Schedules: which runs begin, which wait or are skipped, and what their ends say. Pure functions.

A time that is due is committed as a run that is starting, before anyone begins its task: so all servers agree on what
happens at that time, and if one dies meanwhile, another one begins the task, under the same id.
"""

from collections.abc import Sequence
from dataclasses import replace

from mail.core.protocol.address import Principal
from mail.core.protocol.clock import Clock, format_time
from mail.core.protocol.cron import latest_times, next_time
from mail.core.protocol.error_text import did_you_mean
from mail.core.task.change import TaskChange
from mail.core.task.draft import Draft
from mail.core.task.events import EventKind
from mail.core.task.extras import ScheduleExtra
from mail.core.task.limits import Limits
from mail.core.task.schedules import (
    FAILING,
    MAX_WAITING,
    Missed,
    Overlap,
    RunState,
    Schedule,
    ScheduledRun,
    ScheduleState,
    owner_of_schedules,
)
from mail.core.task.swarm import SwarmCore
from mail.core.task.task import Task, TaskStatus
from mail.errors import BadRequest, UnknownEntrypoint

LATE_SECONDS = 300.0
"""Seconds after its time until which a run counts as on time, if no later one is due as well."""

LOOK_SECONDS, MAX_LOOK_SECONDS = 60.0, 900.0
"""Seconds after which an open run is looked at again: a tenth of the time since it began, within these bounds."""

NOT_ENDED = "the last run had not ended"
NOBODY_THERE = "it was missed: nobody was there to begin it"
FULL = f"{MAX_WAITING} runs wait already"
REMOVED = "its schedule has changed"


def check_schedule(spec: Schedule, swarm: SwarmCore) -> Principal:
    """Return the caller of a schedule. Raises BadRequest for one that no run of this swarm could have."""
    spec.check()
    if spec.entrypoint is not None and spec.entrypoint not in swarm.entrypoints:
        raise UnknownEntrypoint(
            f"entrypoint must be one of: {', '.join(swarm.entrypoints)}; not {spec.entrypoint!r}"
            f"{did_you_mean(spec.entrypoint, swarm.entrypoints)}"
        )
    caller = Principal.parse(spec.caller if "@" in spec.caller else f"{spec.caller}@{swarm.name}")
    if caller.role == "swarm" or caller.swarm != swarm.name:
        raise BadRequest(
            f"caller must be a user or an admin of {swarm.name!r}, such as user:ann; not {spec.caller!r}"
        )
    return caller


def save(
    task: Task | None, swarm: SwarmCore, spec: Schedule, by: str, clock: Clock, *, declared: bool = False
) -> TaskChange | None:
    """Create a schedule, or change it; None if it is so already. What it has missed while it was disabled is past."""
    owner, now = owner_of_schedules(swarm.name), clock.now()
    before = ScheduleState(spec=spec) if task is None else _state(task)
    if task is not None and (before.spec, before.declared) == (spec, declared):
        return None
    task_or_new = task or Task(
        instance=owner,
        task_id=spec.name,
        status=TaskStatus.RUNNING,
        owner=owner,
        contributors=(owner,),
        entrypoint="",
        title=spec.name,
        started=now.isoformat(),
        limits=Limits(steps=0, turns=0),
    )
    state = replace(before, spec=spec, declared=declared, by=by)
    if spec.caller != before.spec.caller:  # the runs of another caller go on without the schedule
        state = replace(state, runs=(), look=None)
    if task is None or _times(spec) != _times(before.spec):
        state = replace(
            state, next=next_time(spec.cron, spec.timezone, now.timestamp()) if spec.enabled else None
        )
        for run in state.of(RunState.WAITING):
            state = state.with_run(run.now(RunState.SKIPPED, REMOVED))
    draft = Draft(task_or_new, swarm, clock)
    draft.schedule = state
    draft.emit(EventKind.SCHEDULE_CHANGED, f"{by} {'created' if task is None else 'changed'} the schedule")
    return draft.seal()


def _times(spec: Schedule) -> tuple[object, ...]:
    return spec.cron, spec.timezone, spec.enabled


def run_now(draft: Draft) -> TaskChange | None:
    """Begin a run that belongs to no time; None if the schedule has one of this second already."""
    state, at = _state(draft.before), float(int(draft.time_in(0.0)))
    if any(run.at == at for run in state.runs):
        return None
    return _sealed(draft, _busy(state.with_run(ScheduledRun(at, RunState.STARTING)), at))


def advance(draft: Draft, ended: Sequence[ScheduledRun]) -> TaskChange | None:
    """Note the runs that have `ended`, and decide what happens at the times that have come.

    Return None if nothing is due.
    """
    state, now = _state(draft.before), draft.time_in(0.0)
    is_time = state.next is not None and state.next <= now
    if not is_time and not (state.look is not None and state.look <= now):
        return None
    running = {run.at for run in state.of(RunState.RUNNING)}
    noted = [run for run in ended if run.at in running]
    for run in noted:
        state = note_end(state, run)
    if is_time:
        state = _at_times(state, now)
    if not state.of(RunState.STARTING, RunState.RUNNING) and (waiting := state.of(RunState.WAITING)):
        state = state.with_run(waiting[0].now(RunState.STARTING))
    return _sealed(draft, _busy(state, now), noted)


def _at_times(state: ScheduleState, now: float) -> ScheduleState:
    """Decide what happens at the times of a schedule that have come."""
    spec, first = state.spec, state.next
    assert first is not None
    times = latest_times(spec.cron, spec.timezone, first - 1, now, MAX_WAITING)
    if spec.missed is not Missed.ALL:
        times = times[-1:]
    for at in times:
        is_busy = bool(state.of(RunState.STARTING, RunState.RUNNING))
        run = ScheduledRun(at, RunState.STARTING)
        if spec.missed is Missed.SKIP and now - at > LATE_SECONDS:
            run = run.now(RunState.SKIPPED, NOBODY_THERE)
        elif spec.overlap is Overlap.QUEUE and (is_busy or state.of(RunState.WAITING)):
            is_full = len(state.of(RunState.WAITING)) >= MAX_WAITING
            run = run.now(RunState.SKIPPED, FULL) if is_full else run.now(RunState.WAITING)
        elif spec.overlap is Overlap.SKIP and is_busy:
            run = run.now(RunState.SKIPPED, NOT_ENDED)
        state = state.with_run(run)
    return replace(state, next=next_time(spec.cron, spec.timezone, now))


def started(draft: Draft, run: ScheduledRun) -> TaskChange | None:
    """Note that a starting run runs, or was refused; None if somebody else has noted it."""
    state = _state(draft.before)
    if all((each.at, each.state) != (run.at, RunState.STARTING) for each in state.runs):
        return None
    return _sealed(draft, note_end(state, run), [run])


def outcome(run: ScheduledRun, task: Task | None, answer: str) -> ScheduledRun:
    """Return a run as its task says; one that waits for a person has not ended."""
    if task is None:
        return run.now(RunState.CANCELLED, "its task was deleted")
    match task.status:
        case TaskStatus.COMPLETED:
            return run.now(RunState.COMPLETED)
        case TaskStatus.FAILED:
            return run.now(RunState.FAILED, answer)
        case TaskStatus.CANCELLED:
            return run.now(RunState.CANCELLED, task.cancellation.reason if task.cancellation else "")
        case TaskStatus.RUNNING | TaskStatus.PAUSED:
            return run


def _state(task: Task) -> ScheduleState:
    assert task.schedule is not None
    return task.schedule


def note_end(state: ScheduleState, run: ScheduledRun) -> ScheduleState:
    """Note that a run has ended; a failed one counts until one is completed."""
    failures = state.failures
    if run.state is RunState.FAILED:
        failures += 1
    elif run.state is RunState.COMPLETED:
        failures = 0
    return replace(state.with_run(run), failures=failures)


def _busy(state: ScheduleState, now: float) -> ScheduleState:
    """Have the open runs of a schedule looked at again."""
    begun = [run.at for run in state.of(RunState.STARTING, RunState.RUNNING)]
    if not begun:
        return replace(state, look=None)
    patience = min(max((now - max(begun)) / 10, LOOK_SECONDS), MAX_LOOK_SECONDS)
    return replace(state, look=now + patience)


def _sealed(draft: Draft, state: ScheduleState, noted: Sequence[ScheduledRun] = ()) -> TaskChange:
    draft.schedule = state
    name, failed = state.spec.name, [run for run in noted if run.state is RunState.FAILED]
    if failed and _health(state) != _health(_state(draft.before)):
        draft.emit(
            EventKind.SCHEDULE_ERROR,
            f"schedule {name}: the run for {format_time(failed[-1].at)} failed, {state.failures} in a row: "
            f"{failed[-1].reason}",
            ScheduleExtra(run=failed[-1].task_id(name), caller=state.spec.caller, failures=state.failures),
        )
    return draft.seal()


def _health(state: ScheduleState) -> tuple[bool, bool]:
    """Return what is reported when it changes: whether runs fail, and whether the schedule counts as failing."""
    return state.failures > 0, state.failures >= FAILING
