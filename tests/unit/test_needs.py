"""What a task needs its owner for."""

from dataclasses import replace

import pytest

from mail.core.decisions.needs import Need, need_of
from mail.core.task.approvals import Approval
from mail.core.task.task import Task, TaskKey, TaskStatus
from mail.core.task.turn_state import Breakpoint, PausedCall
from mail.testing.changes import ANN, Mail, Maker

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
