"""The plan and the simulation of many cells."""

from dataclasses import replace

import pytest
from support.engines.lambda_runtime import ROOT

from bench.scale import LARGEST, WORKER_LOAD, Cell, Load, Workers, plan, simulate
from mail.local_aws.deployment import read_template

LOAD = Load(turns=10_000, seconds=3.1, units=9, reads=2, memory=1)


@pytest.mark.parametrize("concurrency", [50, 100, 1000, 2500])
def test_the_shares_of_a_cell_are_the_template_s(concurrency: int) -> None:
    shares = read_template(ROOT / "template.yaml")["Mappings"]["TurnShares"][str(concurrency)]
    assert Cell(concurrency).shares == {"people": shares["Tier2"], "agents": shares["Tier5"]}


def test_more_cells_for_more_turns_and_for_more_chatter() -> None:
    def cells(**load: float) -> int:
        return int(plan(replace(LOAD, **load), LARGEST)[0][1])

    assert cells() == 31
    assert cells(people=0.5) < cells() < cells(people=0.1)
    assert cells(turns=300) == 1
    assert cells(seconds=31) == 310
    assert LARGEST.turns(replace(LOAD, turns=1, seconds=0.01)) == pytest.approx(40_000 / 9)


@pytest.mark.parametrize("people", [0.0, 0.2, 1.0])
def test_no_turn_is_lost_in_the_simulation(people: float) -> None:
    minutes = list(simulate(replace(LOAD, turns=400, people=people), LARGEST, 5))
    assert sum(each.arrived for each in minutes) == sum(each.run for each in minutes) + minutes[-1].waiting
    assert all(each.running <= sum(LARGEST.shares.values()) for each in minutes)
    assert minutes[0].limited_by == "event sources"


def test_chatter_keeps_no_people_waiting() -> None:
    last = list(simulate(replace(LOAD, turns=800), LARGEST, 5))[-1]
    assert (last.longest_wait > 60, last.people_wait) == (True, 0)


def test_a_warm_table_runs_more() -> None:
    load = replace(LOAD, turns=800, people=0.6)
    cold, warm = (list(simulate(load, Cell(2500, units), 6)) for units in (4000, 8000))
    assert ("the table" in {each.limited_by for each in cold}, warm[-1].waiting < cold[-1].waiting) == (
        True,
        True,
    )


def test_cells_with_workers_are_limited_by_their_tables() -> None:
    found = dict(plan(LOAD, LARGEST, Workers()))
    assert found["cells (accounts, or regions of one)"] == "3"
    assert found["workers of each (MaxWorkers)"] == "67", "by their processors"
    long_turns = dict(plan(replace(LOAD, seconds=31), LARGEST, Workers()))
    assert long_turns["cells (accounts, or regions of one)"] == "3"
    assert long_turns["workers of each (MaxWorkers)"] == "173", "by their slots"
    assert float(found["dollars an hour, without models"]) < 300


def test_workers_are_started_for_the_load_and_no_turn_is_lost() -> None:
    workers = Workers(most=7)
    minutes = list(simulate(replace(LOAD, turns=300), LARGEST, 8, workers))
    assert sum(each.arrived for each in minutes) == sum(each.run for each in minutes) + minutes[-1].waiting
    assert minutes[0].limited_by == "processors", "of the only one"
    assert minutes[-1].waiting == 0
    assert all(each.running <= 7 * workers.concurrency for each in minutes)


def test_workers_are_scaled_as_their_template_does() -> None:
    template = read_template(ROOT / "worker.yaml")
    assert template["Parameters"]["Concurrency"]["Default"] == Workers().concurrency
    assert template["Parameters"]["TargetLoad"]["Default"] == WORKER_LOAD * 100
    by_processor = template["Resources"]["ScaleByProcessor"]["Properties"]
    assert by_processor["TargetTrackingScalingPolicyConfiguration"]["TargetValue"] == WORKER_LOAD * 100
