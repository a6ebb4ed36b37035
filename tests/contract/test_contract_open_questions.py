"""A message into a task with very many open questions costs what it costs with few: rows, bytes and decisions."""

from dataclasses import replace
from typing import Any

import pytest
from support.engines.adapters import count_rows
from support.plugins.tiers import sized

from mail.adapters.local.queue import LocalQueue
from mail.core.decisions.submit import Submission
from mail.core.engine import admission
from mail.core.engine.runtime import Runtime
from mail.core.protocol.address import Principal
from mail.core.task.change import TaskChange
from mail.core.task.interswarm import UnreadQuestion
from mail.core.task.ports import Store
from mail.core.task.stored import read_task, write_task
from mail.core.task.task import TaskKey
from mail.testing.agents import NAME, build_swarm, complete, turns
from mail.testing.changes import ANN, Mail, Maker
from mail.testing.clock import FakeClock
from mail.testing.contracts import committed

PERSON = Principal(role="user", id="ann", swarm=NAME)
FEW, MANY = 100, sized(fast=1500, full=1500, soak=5000)


def open_questions(*positions: tuple[str, int]) -> tuple[UnreadQuestion, ...]:
    return tuple(UnreadQuestion(mailbox=mailbox, seq=seq) for mailbox, seq in positions)


@pytest.mark.soak(on="dynamodb")
async def test_a_message_costs_the_same(store: Store, make: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = Runtime(build_swarm({"alpha": turns([complete()])}), store, LocalQueue(), FakeClock())
    decisions, changes = list[int](), list[TaskChange]()
    admit, commit = admission.admit, store.commit

    def deciding(*arguments: Any) -> TaskChange:
        decisions.append(1)
        return admit(*arguments)

    async def committing(change: TaskChange) -> None:
        changes.append(change)
        await commit(change)

    monkeypatch.setattr(admission, "admit", deciding)
    monkeypatch.setattr(store, "commit", committing)
    rows, costs = count_rows(store, monkeypatch), []
    for count in (FEW, MANY):
        begun = make.begin(TaskKey(ANN, f"task-{count:04}"), *(Mail("alpha") for _ in range(count)))
        questions = open_questions(*(("alpha", entry.seq) for entry in begun.deliveries[1:]))
        begun = await committed(store, replace(begun, task=replace(begun.task, unread_questions=questions)))
        await runtime.submit(PERSON, Submission(body="first", task_id=begun.task.task_id))
        for noted in (decisions, changes, rows):
            noted.clear()
        await runtime.submit(PERSON, Submission(body="hello", task_id=begun.task.task_id))
        (change,) = changes
        assert len(change.task.unread_questions) == count + 1
        written = len(write_task(change.task)) + len(change.encoded_events)
        costs.append((len(decisions), len(change.deliveries), len(change.events), len(rows), written))
    few, many = costs
    assert many[:3] == few[:3] == (1, 1, 1)
    assert 0 < many[3] <= few[3]
    assert many[4] < few[4] + 20


@pytest.mark.parametrize(
    "positions",
    [
        [],
        [("alpha", 1)],
        [("alpha", 1), ("alpha", 2)],
        [("alpha", 1), ("alpha", 2), ("alpha", 3), ("beta", 4), ("alpha", 5), ("alpha", 7), ("alpha", 6)],
        [("beta", n) for n in range(3, 90)],
    ],
)
def test_they_are_read_as_they_were(positions: list[tuple[str, int]]) -> None:
    begun = Maker().begin(TaskKey(ANN, "t")).task
    task = replace(begun, unread_questions=open_questions(*positions))
    text = write_task(task)
    assert read_task(text) == task
    assert len(text) < 900
