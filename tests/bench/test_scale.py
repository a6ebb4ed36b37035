"""The plan and the simulation of many cells."""

import pytest
from support.engines.lambda_runtime import ROOT

from bench.scale import LARGEST, Cell, Load, plan, simulate
from mail.local_aws.deployment import read_template

LOAD = Load(turns=10_000, seconds=3.1, units=9, reads=2, memory=1)


def test_the_largest_cell_is_the_template_s() -> None:
    shares = read_template(ROOT / "template.yaml")["Mappings"]["TurnShares"][str(LARGEST.concurrency)]
    tiers = [share for name, share in shares.items() if name.startswith("Tier")]
    assert max(tiers) == 1000


def test_more_cells_for_more_turns() -> None:
    def cells(load: Load) -> int:
        return int(plan(load, LARGEST)[0][1])

    assert cells(LOAD) == 13
    assert cells(Load(turns=800, seconds=3.1, units=9, reads=2, memory=1)) == 1
    assert cells(Load(turns=10_000, seconds=31, units=9, reads=2, memory=1)) == 124
    assert LARGEST.turns(Load(turns=1, seconds=0.01, units=9, reads=2, memory=1)) == pytest.approx(40_000 / 9)


def test_no_turn_is_lost_in_the_simulation() -> None:
    load = Load(turns=700, seconds=3.1, units=9, reads=2, memory=1)
    minutes = list(simulate(load, LARGEST, 5))
    assert sum(each.arrived for each in minutes) == sum(each.run for each in minutes) + minutes[-1].waiting
    assert all(each.running <= LARGEST.concurrency for each in minutes)
    assert minutes[0].limited_by == "event sources"


def test_a_warm_table_runs_more() -> None:
    load = Load(turns=700, seconds=3.1, units=9, reads=2, memory=1)
    cold, warm = (list(simulate(load, Cell(2500, units), 5))[-1] for units in (4000, 8000))
    assert (cold.limited_by, warm.waiting < cold.waiting) == ("the table", True)
