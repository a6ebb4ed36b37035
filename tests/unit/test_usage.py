"""Usage by model: nothing is lost or counted twice, whatever becomes of a turn."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mail.core.task.stored import task_from, write_task
from mail.core.task.task import Task
from mail.core.task.usage import (
    MANY_MODELS,
    NO_USAGE,
    OTHER_MODELS,
    Usage,
    UsageMeter,
    add_models,
    report_usage,
)
from mail.testing.agents import Call, View, build_swarm, call, complete
from mail.testing.rig import Rig

ONE = Usage(calls=1, input_tokens=60, output_tokens=40, cost=0.25)


def in_all(task: Task) -> Usage:
    return sum(task.usage.values(), NO_USAGE)


def test_models_add_up() -> None:
    assert add_models({"a": ONE}, {"a": ONE, "b": ONE}) == {"a": ONE + ONE, "b": ONE}
    assert add_models({}, {"": ONE}) == {OTHER_MODELS: ONE}
    assert add_models({"a": ONE}, {}) == {"a": ONE}


def test_only_so_many_models_are_told_apart() -> None:
    many = {f"m{n}": ONE for n in range(MANY_MODELS + 10)}
    kept = add_models({}, many)
    assert list(kept) == [*(f"m{n}" for n in range(MANY_MODELS)), OTHER_MODELS]
    assert kept[OTHER_MODELS].calls == 10
    again = add_models(kept, {"m3": ONE, "new": ONE})
    assert (again["m3"].calls, again[OTHER_MODELS].calls) == (2, 11)
    assert sum(again.values(), NO_USAGE).calls == MANY_MODELS + 12


def test_a_meter_goes_on_from_earlier_runs() -> None:
    meter = UsageMeter(ONE + ONE, {"a": ONE, "b": ONE})
    meter.add(ONE, "a")
    assert meter.models == {"a": ONE}, "what this run has cost: metrics count the rest already"
    assert meter.spent_by_model == {"a": ONE + ONE, "b": ONE}
    assert meter.spent == sum(meter.spent_by_model.values(), NO_USAGE)


def test_a_task_without_models_stores_nothing_of_them() -> None:
    swarm_task = task_from(
        {
            "instance": "user:ann@example", "task_id": "t", "status": "running", "owner": "user:ann@example",
            "contributors": ["user:ann@example"], "entrypoint": "a", "started": "2026-01-01T00:00:00+00:00",
            "limits": {"steps": 1, "turns": 1},
        }
    )  # fmt: skip
    assert "models" not in write_task(swarm_task)


async def test_a_turn_that_is_taken_up_again_is_counted_once(tmp_path: Path) -> None:
    """The process dies while an action runs, whose own model was paid already; it runs again, and is paid again."""
    began = asyncio.Event()

    async def work(_arguments: dict[str, Any]) -> str:
        report_usage(ONE, "of-the-action")
        if not began.is_set():
            began.set()
            await asyncio.sleep(60)
        return "done"

    def supervise(view: View) -> Sequence[Call]:
        report_usage(ONE, "of-the-agent")
        return [complete()] if view.mail.subject == "::action_complete::" else [call("first"), call("work")]

    async def first(_arguments: dict[str, Any]) -> str:
        report_usage(ONE, "of-the-first")
        return "fine"

    swarm = build_swarm({"supervisor": supervise}, actions={"first": first, "work": work})
    swarm = replace(
        swarm,
        actions={
            name: replace(each, idempotent=True, sequential=True) for name, each in swarm.actions.items()
        },
    )
    async with Rig(swarm, path=tmp_path / "mail.db") as rig:
        submitted = await rig.submit()
        await began.wait()
        await rig.restart()
        outcome = await rig.outcome(submitted)
    assert {name: usage.calls for name, usage in outcome.task.models.items()} == {
        "of-the-agent": 2,
        "of-the-first": 1,
        "of-the-action": 1,  # what its first run had cost died with the process
    }
    assert sum(outcome.task.models.values(), NO_USAGE) == in_all(outcome.task)


async def test_a_turn_that_failed_counts() -> None:
    def supervise(_view: View) -> Sequence[Call]:
        report_usage(ONE, "a")
        raise RuntimeError

    async with Rig(build_swarm({"supervisor": supervise})) as rig:
        outcome = await rig.ask()
    assert outcome.task.models == {"a": in_all(outcome.task)}
    assert outcome.task.models["a"].calls >= 1


async def test_a_turn_that_is_discarded_and_taken_up_again_is_counted_once() -> None:
    """Both times that it is cancelled, and in the end."""
    gate = asyncio.Event()
    holds = iter([60, 60, 0])

    async def hold(_arguments: dict[str, Any]) -> str:
        report_usage(ONE, "of-the-action")
        gate.set()
        await asyncio.sleep(next(holds))
        return "held"

    def supervise(view: View) -> Sequence[Call]:
        report_usage(ONE, "of-the-agent")
        return [complete()] if view.mail.subject != "hello" else [call("hold")]

    swarm = build_swarm({"supervisor": supervise}, actions={"hold": hold})
    swarm = replace(swarm, actions={"hold": replace(swarm.actions["hold"], idempotent=True)})
    async with Rig(swarm) as rig:
        submitted = await rig.submit(subject="hello", task_id="t")
        for n in (1, 2):
            await gate.wait()
            gate.clear()
            task = await rig.runtime.cancel(rig.user, "t", "")
            while await rig.store.read_leases(task.key, now=rig.clock.now().timestamp()):  # noqa: ASYNC110
                await asyncio.sleep(0)
            task = await rig.store.load(task.key) or task
            assert {name: usage.calls for name, usage in task.models.items()} == {
                "of-the-agent": 1,
                "of-the-action": n,
            }
            submitted = await rig.submit("go on", task_id="t")
        await rig.outcome(submitted)
        ended = await rig.store.load(task.key)
    assert ended is not None
    assert ended.models["of-the-action"].calls == 3
    assert ended.prepaid == {}
    assert sum(ended.models.values(), NO_USAGE) == in_all(ended)
