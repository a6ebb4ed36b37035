"""Budgets: what a task may use up before its supervisor has to finish it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from mail.core.task.limits import LAST_TURN_SECONDS, NO_BUDGET, Budget, Limits
from mail.core.task.task import TaskStatus
from mail.core.task.usage import Usage, report_usage
from mail.errors import Subject
from mail.testing.agents import Call, View, build_swarm, call, complete, request, respond, wait
from mail.testing.clock import FakeClock
from mail.testing.rig import Outcome, Rig, ask_once

SPENDING = Usage(calls=1, input_tokens=60, output_tokens=40, cost=0.25)


def endless(view: View) -> Sequence[Call]:
    """Calls its action again and again, and finishes at the system's request."""
    report_usage(SPENDING)
    if view.mail.subject == Subject.MAXIMUM_STEPS_REACHED:
        return [complete(view.mail.body.partition(".")[0])]
    return [call("tick")]


async def tick(_arguments: dict[str, Any]) -> str:
    return "tick"


SWARM = build_swarm({"supervisor": endless}, actions={"tick": tick})


async def ask(budget: Budget, *, ceiling: Budget = NO_BUDGET, clock: FakeClock | None = None) -> Outcome:
    async with Rig(SWARM, clock=clock) as rig:
        return await rig.ask(budget=budget, ceiling=ceiling, task_id="t")


@pytest.mark.parametrize(
    ("budget", "turns", "what"),
    [
        (Budget(turns=3), 3, "budget of 3 turns"),
        (Budget(tokens=500), 5, "budget of 500 tokens"),
        (Budget(tokens=401), 5, "budget of 401 tokens"),
        (Budget(cost=1.0), 4, "budget of $1"),
        (Budget(tokens=1), 1, "budget of 1 tokens"),
        (Budget(turns=9, tokens=300, cost=9.0), 3, "budget of 300 tokens"),
    ],
)
async def test_at_the_limit_the_supervisor_gets_one_turn_to_finish(
    budget: Budget, turns: int, what: str
) -> None:
    outcome = await ask(budget)
    assert outcome.answer == f"This task has used up its {what}"
    assert (
        outcome.task.generation.turns == turns + 2
    )  # it reads what its last action brought before it reads the notice
    assert outcome.task.status is TaskStatus.COMPLETED


async def test_a_task_that_is_not_finished_then_ends_with_an_error() -> None:
    def stubborn(_view: View) -> Sequence[Call]:
        report_usage(SPENDING)
        return [call("tick")]

    outcome = await ask_once(
        build_swarm({"supervisor": stubborn}, actions={"tick": tick}), budget=Budget(tokens=200)
    )
    assert outcome.task.status is TaskStatus.FAILED
    assert outcome.answer == "The task used up its budget of 200 tokens and was not finished."


async def test_wall_time() -> None:
    clock = FakeClock()

    async def sleep(_arguments: dict[str, Any]) -> str:
        clock.advance(10)
        return "slept"

    async with Rig(build_swarm({"supervisor": endless}, actions={"tick": sleep}), clock=clock) as rig:
        outcome = await rig.ask(budget=Budget(seconds=25))
        assert outcome.answer == "This task has used up its budget of 25 seconds"
        assert outcome.task.limits.deadline is None
        assert outcome.task.limits.ends_at == (outcome.task.limits.finish_by or 0) + LAST_TURN_SECONDS


def test_a_deadline_that_is_named_and_the_end_of_a_budget_hold_together() -> None:
    limits = Limits(steps=1, turns=20, deadline=9e9).within(Budget(seconds=60), 0.0)
    assert limits.ends_at == 60 + LAST_TURN_SECONDS
    assert limits.within(Budget(seconds=36_000), 0.0).ends_at == 36_000 + LAST_TURN_SECONDS
    assert replace(limits, deadline=10.0).ends_at == 10.0
    assert limits.within(NO_BUDGET, 0.0).ends_at == 9e9


async def test_the_callers_ceiling_holds_whatever_is_asked_for() -> None:
    outcome = await ask(Budget(tokens=5000, turns=100), ceiling=Budget(tokens=300, cost=10))
    assert outcome.answer == "This task has used up its budget of 300 tokens"
    assert outcome.task.limits.budget == Budget(tokens=300, turns=100, cost=10)


async def test_a_new_generation_has_a_budget_of_its_own() -> None:
    async with Rig(SWARM) as rig:
        first = await rig.ask(budget=Budget(tokens=200), task_id="t")
        second = await rig.ask(budget=Budget(tokens=300), task_id="t")
    assert (first.task.generation.spent.tokens, second.task.generation.spent.tokens) == (400, 500)
    assert (
        second.task.usage["supervisor"].tokens == 400 + 2 * 500
    )  # it runs once more, for mail that it never reads
    assert second.task.generation.number == 3


async def test_what_other_agents_spend_counts_too() -> None:
    def chief(view: View) -> Sequence[Call]:
        if view.mail.subject == Subject.MAXIMUM_STEPS_REACHED:
            return [complete("over")]
        return [request("clerk"), wait()]

    def clerk(_view: View) -> Sequence[Call]:
        report_usage(SPENDING)
        return [respond("chief")]

    outcome = await ask_once(
        build_swarm({"chief": chief, "clerk": clerk}), budget=Budget(cost=0.5), steps=100
    )
    assert outcome.answer == "over"
    assert outcome.task.generation.spent.cost == pytest.approx(0.5)


def test_the_smaller_of_two() -> None:
    one, other = Budget(turns=1, tokens=10), Budget(turns=2, cost=1.5, tokens=5)
    assert one.tightened(other) == other.tightened(one) == Budget(turns=1, tokens=5, cost=1.5)
    assert one.tightened(NO_BUDGET) == one


def test_what_is_left_is_never_nothing() -> None:
    budget = Budget(turns=2, tokens=10, cost=1, seconds=5)
    assert budget.left(1, 4, 0.25, 2.5) == Budget(turns=1, tokens=6, cost=0.75, seconds=2.5)
    spent = budget.left(9, 99, 9.0, -1.0)
    assert (spent.turns, spent.tokens, spent.seconds) == (1, 1, 1.0)
    assert NO_BUDGET.left(1, 1, 1.0, None) == NO_BUDGET
