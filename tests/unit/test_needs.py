"""What a task needs its owner for."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from mail.core.decisions.needs import Need, need_of
from mail.core.decisions.submit import Submission
from mail.core.engine.needs import MOST, tasks_in_need
from mail.core.task.approvals import Approval
from mail.core.task.ports import TaskPage
from mail.core.task.search import Search
from mail.core.task.swarm import ActionCore
from mail.core.task.task import Task, TaskKey, TaskStatus
from mail.core.task.turn_state import Breakpoint, PausedCall
from mail.testing.agents import Call, View, build_swarm
from mail.testing.agents import call as calls
from mail.testing.changes import ANN, Mail, Maker
from mail.testing.clock import FakeClock
from mail.testing.rig import Rig

RUNNING = Maker().begin(TaskKey(ANN, "task"), Mail("alpha")).task


def paused(*calls: PausedCall) -> Task:
    at = Breakpoint(agent="alpha", tool_format="responses", calls=calls, id="0" * 12 + "-1")
    return replace(RUNNING, status=TaskStatus.PAUSED, generation=replace(RUNNING.generation, breakpoint=at))


def call(**facts: object) -> PausedCall:
    return PausedCall(call_id="c", name="pay", arguments={}, **facts)  # type: ignore[arg-type]


REVIEWERS = Approval(by=("admin",))


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        (RUNNING, None),
        (replace(RUNNING, status=TaskStatus.COMPLETED), None),
        (replace(RUNNING, status=TaskStatus.FAILED), Need.FAILURE),
        (replace(RUNNING, status=TaskStatus.FAILED, dead_letters=(3,)), Need.DEAD_LETTERS),
        (replace(RUNNING, dead_letters=(3,)), Need.DEAD_LETTERS),
        (paused(call()), Need.QUESTION),
        (paused(call(needs_approval=True)), None),
        (paused(call(needs_approval=True, reviewers=REVIEWERS)), Need.OTHERS),
        (paused(call(reviewers=REVIEWERS)), Need.OTHERS),
        (paused(call(needs_approval=True, reviewers=REVIEWERS), call()), Need.QUESTION),
        (replace(RUNNING, pending={}, waits=replace(RUNNING.waits, due=5.0)), Need.OTHERS),
        (replace(RUNNING, waits=replace(RUNNING.waits, due=5.0)), None),
    ],
)
def test_need(task: Task, expected: Need | None) -> None:
    assert need_of(task) == expected


async def test_a_question_behind_many_other_tasks_is_found() -> None:
    def work(view: View) -> list[Call]:
        return [calls("pay" if "pay" in view.mail.body else "ask", what=view.mail.body)]

    async def pay(_arguments: dict[str, Any]) -> str:
        return "paid"

    actions = {"pay": ActionCore("pay", pay, needs_approval=True), "ask": ActionCore("ask", pay)}
    swarm = build_swarm({"supervisor": work}, actions=actions, breakpoint_tools=frozenset({"ask"}))
    clock = FakeClock()
    async with Rig(swarm, clock=clock, concurrency=0) as rig:
        for n in range(MOST + 25):
            body = "which one?" if n < 2 else "pay"
            await rig.runtime.submit(rig.user, Submission(body=body, task_id=f"t-{n}"))
            await rig.runtime.run_turn(TaskKey(str(rig.user), f"t-{n}"), "supervisor")
            clock.advance(1)
        found = await rig.runtime.needs(str(rig.user))
    assert [(each.task.task_id, each.need) for each in found] == [
        ("t-1", Need.QUESTION),
        ("t-0", Need.QUESTION),
    ]


async def test_what_lies_behind_a_page_without_tasks_is_not_read() -> None:
    """DynamoDB filters by itself, so that such a page stands for many tasks that were read."""
    asked: list[TaskStatus | None] = []

    class Filtering:
        async def search(self, _instance: str, search: Search, **_rest: Any) -> TaskPage:
            asked.append(search.status)
            return TaskPage([], "more")

        async def list_dead(self, *_: object, **_rest: Any) -> TaskPage:
            return TaskPage([], None)

    wiring: Any = SimpleNamespace(store=Filtering(), clock=FakeClock())
    assert await tasks_in_need(wiring, ANN) == []
    assert asked == [TaskStatus.PAUSED, TaskStatus.FAILED, TaskStatus.RUNNING]
