"""What a turn asks of AWS keeps its budget, as `python -m bench --only aws` counts it: there on ministack, here on
moto.
"""

import asyncio

import pytest
from support.engines.moto import MotoAws
from support.plugins.tiers import sized

from bench import aws
from bench.aws_deployment import Deployment
from bench.report import Row

pytestmark = pytest.mark.timeout(400)  # hundreds of turns

LATE = 20
HAS_FAN_OUTS = bool(sized(fast=0, full=0, soak=1))
"""Their hundreds of turns on moto take a quarter of a minute."""

Rows = dict[str, Row]


@pytest.fixture(scope="module")
def rows() -> Rows:
    """The counts of a run, by name."""

    async def run() -> Rows:
        async with Deployment(MotoAws()) as deployment:
            return {row.name: row for row in await aws.counts(deployment, late=LATE, fan_outs=HAS_FAN_OUTS)}

    return asyncio.run(run())


def test_every_budget_is_kept(rows: Rows) -> None:
    judged = [row for row in rows.values() if row.budget is not None]
    assert len(judged) >= (6 if HAS_FAN_OUTS else 4)
    assert [row for row in judged if not row.met] == []


@pytest.mark.parametrize("turn", [1, LATE])
def test_a_turn_is_three_calls_and_seven_write_units(rows: Rows, turn: int) -> None:
    calls, units = rows[f"turn {turn}: calls"], rows[f"turn {turn}: write units"]
    assert (calls.value, units.value) == (3, 7)
    assert calls.note == "UpdateItem 1, TransactWriteItems 1, SendMessageBatch 1"
    assert units.note == "events 2, history 2, lease 1, task 2"


def test_late_turns_write_and_read_no_more_than_early_ones(rows: Rows) -> None:
    for figure in ("write units", "read units"):
        assert rows[f"turn {LATE}: {figure}"].value <= rows[f"turn 1: {figure}"].value
    assert rows[f"bytes of turn {LATE} by those of turn 1"].value <= 1.1


def test_an_action_costs_two_more_calls(rows: Rows) -> None:
    assert rows["turn with an action: calls"].value == 5
    assert rows["turn with an action: write units"].value <= 13


def test_a_process_that_does_not_know_the_task_makes_no_more_calls(rows: Rows) -> None:
    """It reads the whole history, in the same query."""
    assert rows[f"turn {LATE} in a new process: calls"].value <= 4


@pytest.mark.soak
def test_a_fan_out_wakes_its_workers_in_batches(rows: Rows) -> None:
    assert rows["fan-out to 32 one by one, a turn: calls"].value < 4.1


@pytest.mark.soak
def test_a_fan_out_to_copies_of_an_agent_costs_no_more_than_one_to_as_many_agents(rows: Rows) -> None:
    for figure in ("calls", "write units", "read units", "bytes written"):
        copies = rows[f"fan-out to 32 copies one by one, a turn: {figure}"].value
        agents = rows[f"fan-out to 32 one by one, a turn: {figure}"].value
        assert copies <= 1.01 * agents, (
            figure
        )  # ids, which differ, decide how well an item of about 1 KB is compressed
