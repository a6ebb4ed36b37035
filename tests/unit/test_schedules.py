"""Schedules: what is decided when a time has come, and what the engine makes of it."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from mail.core.decisions.caller_limits import CallerLimits
from mail.core.decisions.schedules import LATE_SECONDS, advance, run_now, save, started
from mail.core.engine.schedules import DECLARED_BY, OVERLAPS
from mail.core.task.draft import Draft
from mail.core.task.events import EventKind
from mail.core.task.limits import Budget
from mail.core.task.schedules import (
    FAILING,
    HISTORY,
    MAX_REASON,
    MAX_WAITING,
    Missed,
    Overlap,
    RunState,
    Schedule,
    ScheduledRun,
    ScheduleState,
)
from mail.core.task.task import Task, TaskKey, TaskStatus
from mail.errors import BadRequest, ScheduleDeclared, ScheduleNotFound, ScheduleTaken, UnknownEntrypoint
from mail.testing.agents import NAME, Call, View, build_swarm, call, complete
from mail.testing.changes import ANN, SWARM
from mail.testing.clock import EPOCH, FakeClock
from mail.testing.rig import Rig

HOUR = 3600.0
EIGHT = EPOCH.timestamp()
"""The clock of tests begins at 8:00, UTC."""


def spec(**given: Any) -> Schedule:
    return Schedule.model_validate(
        {"name": "hourly", "cron": "0 * * * *", "body": "look", "caller": ANN, **given}
    )


def state_of(task: Task) -> ScheduleState:
    assert task.schedule is not None
    return task.schedule


class Plan:
    """A schedule without an engine: its decisions, one after the other."""

    def __init__(self, **given: Any) -> None:
        self.clock = FakeClock()
        change = save(None, SWARM, spec(**given), "admin:ops", self.clock)
        assert change is not None
        self.task = change.task

    @property
    def state(self) -> ScheduleState:
        return state_of(self.task)

    @property
    def runs(self) -> list[tuple[float, str]]:
        """The runs, by the hours since eight o'clock."""
        return [((run.at - EIGHT) / HOUR, run.state.value) for run in self.state.runs]

    def at(self, hours: float, *ended: tuple[float, RunState]) -> list[tuple[float, str]]:
        """Let it be so many hours after eight o'clock, and runs have ended; return all runs."""
        self.clock.advance(EIGHT + hours * HOUR - self.clock.now().timestamp())
        runs = [ScheduledRun(EIGHT + at * HOUR, state) for at, state in ended]
        change = advance(Draft(self.task, SWARM, self.clock), runs)
        if change is not None:
            assert change.task.version == self.task.version + 1
            self.task = change.task
        return self.runs

    def begin(self) -> None:
        """Let the runs that are starting run."""
        for run in self.state.of(RunState.STARTING):
            change = started(Draft(self.task, SWARM, self.clock), run.now(RunState.RUNNING))
            assert change is not None
            self.task = change.task


def test_a_run_begins_at_its_time_and_not_before() -> None:
    plan = Plan()
    assert plan.state.next == plan.task.deadline == EIGHT + HOUR
    assert plan.at(0.99) == []
    assert plan.at(1) == [(1, "starting")]
    assert plan.task.deadline == EIGHT + HOUR  # until its task has begun, it is due
    plan.begin()
    assert plan.runs == [(1, "running")]
    assert plan.task.deadline == EIGHT + HOUR + 60  # when its run is looked at


def test_a_schedule_neither_runs_nor_grows() -> None:
    """Its commits have no events, so that stores amend the last one; and it is listed as asleep."""
    plan = Plan()
    assert plan.task.is_asleep
    seq, stored = plan.task.seq, plan.task.stored_bytes
    for hour in range(1, 100):
        plan.at(hour, (hour - 1, RunState.COMPLETED))
        plan.begin()
    assert (plan.task.seq, plan.task.is_asleep) == (seq, True)
    assert plan.task.stored_bytes - stored < 1000
    assert len(plan.state.runs) == HISTORY + 1


def test_the_id_of_a_run_is_its_schedule_and_its_time() -> None:
    at = datetime(2026, 3, 29, 1, 0, tzinfo=UTC).timestamp()
    assert ScheduledRun(at, RunState.WAITING).task_id("daily") == "daily@2026-03-29T01:00Z"
    assert ScheduledRun(at + 7, RunState.WAITING).task_id("daily") == "daily@2026-03-29T01:00:07Z"


@pytest.mark.parametrize(
    ("overlap", "expected"),
    [
        (Overlap.SKIP, [(1, "running"), (2, "skipped")]),
        (Overlap.QUEUE, [(1, "running"), (2, "waiting")]),
        (Overlap.CANCEL, [(1, "running"), (2, "starting")]),
    ],
)
def test_the_last_run_still_runs(overlap: Overlap, expected: list[tuple[float, str]]) -> None:
    plan = Plan(overlap=overlap)
    plan.at(1)
    plan.begin()
    assert plan.at(2) == expected


def test_a_run_that_waits_begins_when_the_last_one_is_seen_to_have_ended() -> None:
    plan = Plan(overlap=Overlap.QUEUE)
    plan.at(1)
    plan.begin()
    plan.at(2)
    plan.at(3)
    look = state_of(plan.task).look
    assert look == plan.clock.now().timestamp() + 2 * HOUR / 10  # a tenth of the time that the run has taken
    assert plan.at(3.3, (1, RunState.COMPLETED)) == [(1, "completed"), (2, "starting"), (3, "waiting")]
    plan.begin()
    assert plan.at(3.5, (2, RunState.CANCELLED)) == [(1, "completed"), (2, "cancelled"), (3, "starting")]


def test_no_more_runs_wait_than_fit() -> None:
    plan = Plan(overlap=Overlap.QUEUE)
    plan.at(1)
    plan.begin()
    for hour in range(2, MAX_WAITING + 4):
        plan.at(hour)
    states = [state for _, state in plan.runs]
    assert states == ["running", *["waiting"] * MAX_WAITING, *["skipped"] * 2]


def test_a_run_that_goes_on_is_remembered_however_many_are_skipped() -> None:
    plan = Plan(overlap=Overlap.SKIP)
    plan.at(1)
    plan.begin()
    for hour in range(2, 40):
        plan.at(hour)
    assert plan.runs[0] == (1, "running")
    assert len(plan.runs) == HISTORY + 1


@pytest.mark.parametrize(
    ("missed", "overlap", "expected"),
    [
        (Missed.ONCE, Overlap.SKIP, [(5, "starting")]),
        (Missed.SKIP, Overlap.SKIP, [(5, "skipped")]),
        (
            Missed.ALL,
            Overlap.QUEUE,
            [(1, "starting"), (2, "waiting"), (3, "waiting"), (4, "waiting"), (5, "waiting")],
        ),
    ],
)
def test_nobody_was_there_at_some_times(
    missed: Missed, overlap: Overlap, expected: list[tuple[float, str]]
) -> None:
    plan = Plan(missed=missed, overlap=overlap)
    assert plan.at(5.5) == expected
    assert plan.state.next == EIGHT + 6 * HOUR


def test_a_time_that_has_just_come_is_not_missed() -> None:
    plan = Plan(missed=Missed.SKIP)
    assert plan.at(5 + LATE_SECONDS / HOUR) == [(5, "starting")]


def test_only_some_of_very_many_missed_runs_are_made_up_for() -> None:
    plan = Plan(cron="* * * * *", missed=Missed.ALL, overlap=Overlap.QUEUE)
    runs = plan.at(24 * 365)
    assert len(runs) == MAX_WAITING
    assert runs[-1] == (24 * 365, "waiting")


def test_failures_are_counted_until_a_run_is_completed() -> None:
    plan = Plan()
    for hour in range(1, FAILING + 1):
        plan.at(hour, (hour - 1, RunState.FAILED))
        plan.begin()
    assert plan.state.failures == FAILING - 1
    change = advance(
        Draft(plan.task, SWARM, FakeClock(start=datetime.fromtimestamp(EIGHT + 4 * HOUR, UTC))),
        [ScheduledRun(EIGHT + FAILING * HOUR, RunState.FAILED, "no model")],
    )
    assert change is not None
    [event] = change.events
    assert event.kind is EventKind.SCHEDULE_ERROR
    assert event.text.endswith("11:00:00+00:00 failed, 3 in a row: no model")
    assert event.extra.as_json() == {"run": "hourly@2026-01-31T11:00Z", "caller": ANN, "failures": 3}
    plan.at(4, (3, RunState.CANCELLED))
    assert plan.state.failures == FAILING - 1
    plan.begin()
    plan.at(5, (4, RunState.COMPLETED))
    assert plan.state.failures == 0


def test_a_schedule_that_keeps_failing_reports_it_twice() -> None:
    plan = Plan()
    reported = []
    for hour in range(1, 2 * FAILING):
        plan.at(hour)
        [run] = state_of(plan.task).of(RunState.STARTING)
        change = started(Draft(plan.task, SWARM, plan.clock), run.now(RunState.FAILED, "no model"))
        assert change is not None
        plan.task = change.task
        reported += [event.extra.as_json()["failures"] for event in change.events]
    assert reported == [1, FAILING]


def test_a_refused_run_has_failed_with_the_reason_and_only_once() -> None:
    plan = Plan()
    plan.at(1)
    [run] = plan.state.runs
    refused = run.now(RunState.FAILED, "x" * 1000)
    change = started(Draft(plan.task, SWARM, plan.clock), refused)
    assert change is not None
    assert state_of(change.task).runs == (ScheduledRun(run.at, RunState.FAILED, "x" * MAX_REASON),)
    assert state_of(change.task).failures == 1
    assert started(Draft(change.task, SWARM, plan.clock), refused) is None


def test_a_change_of_times_begins_from_now_and_drops_what_waits() -> None:
    plan = Plan(overlap=Overlap.QUEUE)
    plan.at(1)
    plan.begin()
    plan.at(2)
    same = save(plan.task, SWARM, spec(overlap=Overlap.QUEUE), "admin:ops", plan.clock)
    assert same is None
    other = save(plan.task, SWARM, spec(overlap=Overlap.QUEUE, body="other"), "admin:ops", plan.clock)
    assert other is not None
    assert [run.state for run in state_of(other.task).runs] == [RunState.RUNNING, RunState.WAITING]
    off = save(other.task, SWARM, spec(overlap=Overlap.QUEUE, enabled=False), "user:ann", plan.clock)
    assert off is not None
    assert [run.state for run in state_of(off.task).runs] == [RunState.RUNNING, RunState.SKIPPED]
    assert (state_of(off.task).next, state_of(off.task).by) == (None, "user:ann")
    plan.clock.advance(10 * HOUR)
    on = save(off.task, SWARM, spec(), "user:ann", plan.clock)
    assert on is not None
    assert state_of(on.task).next == EIGHT + 13 * HOUR  # what it has missed meanwhile is past
    assert [event.kind for event in on.events] == [EventKind.SCHEDULE_CHANGED]


def test_two_runs_by_hand_in_one_second_are_one() -> None:
    plan = Plan()
    plan.clock.advance(7.5)
    first = run_now(Draft(plan.task, SWARM, plan.clock))
    assert first is not None
    assert state_of(first.task).runs == (ScheduledRun(EIGHT + 7, RunState.STARTING),)
    plan.clock.advance(0.4)
    assert run_now(Draft(first.task, SWARM, plan.clock)) is None


# -------------------------------------------------------------------------------------------- with an engine


def answering(view: View) -> Sequence[Call]:
    return [complete(f"I have looked, {view.mail.subject}")]


def studio(rule: Any = answering) -> Rig:
    return Rig(build_swarm({"supervisor": rule}))


async def test_a_run_is_a_task_of_its_caller() -> None:
    async with studio() as rig:
        schedules = rig.runtime.schedules
        await schedules.save(spec(caller="user:ann"), "admin:ops", is_new=True)
        await rig.pass_time(HOUR - 1)
        assert (await rig.store.list_tasks(ANN)).tasks == []
        await rig.pass_time(1)
        await rig.workers.idle()
        [task] = (await rig.store.list_tasks(ANN)).tasks
        assert (task.task_id, task.status) == ("hourly@2026-01-31T09:00Z", TaskStatus.COMPLETED)
        response = await rig.store.read_response(task.key, 1)
        assert response is not None
        assert response.message.body == "I have looked, hourly"
        assert [run.state for run in (await schedules.read("hourly")).runs] == [RunState.COMPLETED]
        await rig.pass_time(60)
        [stored] = await schedules.all()
        assert [run.state for run in stored.runs] == [RunState.COMPLETED]
        assert stored.look is None


async def test_a_run_has_the_budget_of_its_caller_and_is_refused_by_limits() -> None:
    async with studio(lambda _view: [call("nothing")]) as rig:
        runtime = rig.runtime
        runtime.budgets = {"user:ann": Budget(tokens=1000)}
        runtime.caller_limits = CallerLimits(running_tasks=1)
        await rig.workers.stop(grace=0)
        await runtime.schedules.save(spec(), "admin:ops", is_new=True)
        await rig.pass_time(HOUR)
        task = await rig.task(TaskKey(ANN, "hourly@2026-01-31T09:00Z"))
        assert task.limits.budget.tokens == 1000
        await runtime.schedules.save(spec(overlap=Overlap.CANCEL), "admin:ops", is_new=False)
        await runtime.schedules.save(spec(name="other"), "admin:ops", is_new=True)
        await rig.pass_time(HOUR)
        other = await runtime.schedules.read("other")
        assert (other.runs[-1].state, other.failures) == (RunState.FAILED, 1)
        assert "1 of your tasks are running" in other.runs[-1].reason
        await rig.workers.start()


async def test_the_last_run_is_cancelled_before_the_next_begins() -> None:
    async with studio() as rig:
        await rig.workers.stop(grace=0)
        await rig.runtime.schedules.save(spec(overlap=Overlap.CANCEL), "admin:ops", is_new=True)
        await rig.pass_time(HOUR)
        await rig.pass_time(HOUR)
        first, second = reversed((await rig.store.list_tasks(ANN)).tasks)
        assert (first.status, second.status) == (TaskStatus.CANCELLED, TaskStatus.RUNNING)
        assert first.cancellation is not None
        assert first.cancellation.reason == OVERLAPS
        runs = (await rig.runtime.schedules.read("hourly")).runs
        assert [run.state for run in runs] == [RunState.CANCELLED, RunState.RUNNING]
        await rig.workers.start()


async def test_a_task_that_a_caller_has_under_this_id_is_left_alone() -> None:
    async with studio() as rig:
        mine = await rig.ask("mine", task_id="hourly@2026-01-31T09:00Z")
        await rig.runtime.schedules.save(spec(), "admin:ops", is_new=True)
        await rig.pass_time(HOUR)
        task = await rig.task(mine.key)
        assert (task.version, task.generation.number) == (mine.task.version, 1)


async def test_a_deleted_run_has_ended() -> None:
    async with studio() as rig:
        await rig.runtime.schedules.save(spec(), "admin:ops", is_new=True)
        await rig.pass_time(HOUR)
        await rig.workers.idle()
        await rig.runtime.delete(ANN, "hourly@2026-01-31T09:00Z")
        await rig.pass_time(60)
        [run] = (await rig.runtime.schedules.read("hourly")).runs
        assert (run.state, run.reason) == (RunState.CANCELLED, "its task was deleted")


async def test_a_run_by_hand_takes_place_even_if_the_schedule_is_disabled() -> None:
    async with studio() as rig:
        schedules = rig.runtime.schedules
        await schedules.save(spec(enabled=False), "admin:ops", is_new=True)
        state, run = await schedules.run_now("hourly")
        assert (run.task_id("hourly"), run.state) == ("hourly@2026-01-31T08:00Z", RunState.RUNNING)
        assert state.next is None
        assert await schedules.run_now("hourly") == (state, run)
        await rig.pass_time(5 * HOUR)
        assert len((await rig.store.list_tasks(ANN)).tasks) == 1


async def test_declared_schedules_follow_their_file() -> None:
    async with studio() as rig:
        schedules = rig.runtime.schedules
        await schedules.save(spec(name="mine"), "user:ann", is_new=True)
        await schedules.declare([spec(name="a"), spec(name="b")])
        before = await schedules.read("a")
        assert (before.declared, before.by) == (True, DECLARED_BY)
        with pytest.raises(ScheduleDeclared):
            await schedules.save(spec(name="a", body="other"), "admin:ops", is_new=False)
        with pytest.raises(ScheduleDeclared):
            await schedules.delete("a")
        await rig.pass_time(HOUR)
        await schedules.declare([spec(name="a"), spec(name="c", body="new")])
        assert [state.spec.name for state in await schedules.all()] == ["a", "c", "mine"]
        assert len((await schedules.read("a")).runs) == 1  # it is the same one
        await schedules.declare([spec(name="mine", body="from the file")])
        assert [(state.spec.body, state.declared) for state in await schedules.all()] == [
            ("from the file", True)
        ]


async def test_what_is_refused() -> None:
    async with studio() as rig:
        schedules = rig.runtime.schedules
        await schedules.save(spec(), "admin:ops", is_new=True)
        for wrong, error, problem in (
            ({"name": "hourly"}, ScheduleTaken, "choose another name"),
            ({"entrypoint": "supervisr"}, UnknownEntrypoint, "Did you mean 'supervisor'?"),
            ({"caller": "swarm:other"}, BadRequest, "caller must be a user or an admin"),
            ({"caller": "user:ann@other"}, BadRequest, f"a user or an admin of {NAME!r}"),
            ({"caller": "ann"}, BadRequest, "write role:id@swarm"),
            ({"missed": "all"}, BadRequest, 'set overlap = "queue"'),
            ({"cron": "0 0 30 2 *"}, BadRequest, "bad day-of-month"),
        ):
            with pytest.raises(error, match=re.escape(problem)):
                await schedules.save(spec(**{"name": "new", **wrong}), "admin:ops", is_new=True)
        for act in (schedules.read("no"), schedules.delete("no"), schedules.run_now("no")):
            with pytest.raises(ScheduleNotFound):
                await act
        await schedules.delete("hourly")
        assert await schedules.all() == []
