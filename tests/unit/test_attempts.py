"""Attempts at turns: deaths of the process are counted, and suspects run beside fewer and fewer others."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mail.core.engine import attempts
from mail.core.engine.attempts import ENDED, FEW, Suspects
from mail.core.engine.leased_turn import TurnReport
from mail.core.engine.watch import Submitted
from mail.core.task.extras import DeadLetterExtra
from mail.core.task.swarm import ActionCore, SwarmCore
from mail.testing.agents import View, build_agent, build_swarm, call, complete, request, respond, turns, wait
from mail.testing.rig import Rig


@pytest.fixture(autouse=True)
def calm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let turns run alone as soon as a process begins."""
    monkeypatch.setattr(attempts, "CALM_SECONDS", 0.0)


async def until(condition: Callable[[], object]) -> None:
    """Wait until it is so."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0)


async def cancel(begun: asyncio.Task[TurnReport]) -> None:
    """Cancel a turn, and wait for its end."""
    begun.cancel()
    await asyncio.gather(begun, return_exceptions=True)


class Dying(Rig):
    """A rig whose process can end in the middle of a turn."""

    def __init__(self, swarm: SwarmCore, path: Path) -> None:
        super().__init__(swarm, path=path, concurrency=0)

    async def die(self) -> None:
        """Start again, after the process has ended without closing anything."""
        self.database.close()
        await self.start()

    async def begin(self, submitted: Submitted, agent: str = "supervisor") -> asyncio.Task[TurnReport]:
        """Begin a turn."""
        begun = asyncio.create_task(self.runtime.run_turn(submitted.key, agent))
        await until(lambda: self.runtime.turns.activities(submitted.key))
        return begun

    async def die_in_turn(self, submitted: Submitted, agent: str = "supervisor", times: int = 1) -> None:
        """Let the process end during a turn, so many times."""
        for _ in range(times):
            begun = await self.begin(submitted, agent)
            await self.die()
            await cancel(begun)


class Agent:
    """An agent that waits until it may answer."""

    def __init__(self) -> None:
        self.answers = asyncio.Event()

    async def __call__(self, view: View) -> list[Any]:
        await self.answers.wait()
        return [complete("done")]


@asynccontextmanager
async def dying(path: Path) -> AsyncIterator[tuple[Dying, Agent]]:
    agent = Agent()
    async with Dying(build_swarm({"supervisor": agent}), path / "mail.db") as rig:
        yield rig, agent


async def test_a_turn_that_ends_its_process_five_times_is_set_aside_and_a_redrive_begins_a_new_count(
    tmp_path: Path,
) -> None:
    async with dying(tmp_path) as (rig, agent):
        submitted = await rig.submit()
        await rig.die_in_turn(submitted, times=5)
        await rig.runtime.run_turn(submitted.key, "supervisor")
        outcome = await rig.outcome(submitted)
        assert outcome.answer == f"agent 'supervisor' has failed: {ENDED}"
        (dead,) = [event.extra for event in outcome.events if isinstance(event.extra, DeadLetterExtra)]
        assert (dead.reason, dead.attempts) == (ENDED, 5)
        await rig.runtime.dead_letters.redrive(rig.user, submitted.key)
        await rig.die_in_turn(submitted, times=4)
        agent.answers.set()
        report = await rig.runtime.run_turn(submitted.key, "supervisor")
        assert report.outcome is TurnReport.Outcome.COMMITTED
        task = await rig.task(submitted.key)
        assert not task.dead_letters


async def test_a_turn_that_ends_a_busy_server_is_set_aside_and_those_beside_it_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another turn runs all the time, so that this one never runs alone."""
    monkeypatch.setattr(attempts, "PATIENCE_SECONDS", 0.01)
    async with dying(tmp_path) as (rig, agent):
        submitted, *others = [await rig.submit(f"{n}") for n in range(6)]
        for other in others:
            begun = await rig.begin(other)
            await rig.die_in_turn(submitted)
            await cancel(begun)
        await rig.runtime.run_turn(submitted.key, "supervisor")
        assert ENDED in (await rig.outcome(submitted)).answer
        agent.answers.set()
        for other in others:
            await rig.runtime.run_turn(other.key, "supervisor")
            assert (await rig.outcome(other)).answer == "done"


async def test_a_shutdown_does_not_count(tmp_path: Path) -> None:
    async with dying(tmp_path) as (rig, agent):
        submitted = await rig.submit()
        await rig.die_in_turn(submitted)
        for _ in range(6):
            await cancel(await rig.begin(submitted))
            await rig.restart()
        for _ in range(6):  # and a program that closes its file while turns run
            begun = await rig.begin(submitted)
            await rig.restart()
            await cancel(begun)
        agent.answers.set()
        await rig.runtime.run_turn(submitted.key, "supervisor")
        assert (await rig.outcome(submitted)).answer == "done"


async def test_a_turn_whose_actions_end_one_after_the_other_is_not_set_aside(tmp_path: Path) -> None:
    """Each death finds one more of them done. An idempotent action that never ends is no progress."""
    done = 0
    is_stuck = False

    async def work(_args: Any) -> str:
        nonlocal done
        done += 1
        if is_stuck or done % 2 == 0:
            await asyncio.Event().wait()
        return "done"

    calls = [call("work", n=n) for n in range(12)]
    agent = build_agent(lambda view: calls, supervises=True, actions=["work"], sequential=True)
    action = ActionCore("work", work, idempotent=True)
    swarm = build_swarm({"supervisor": agent}, actions={"work": action})
    async with Dying(swarm, tmp_path / "mail.db") as rig:
        submitted = await rig.submit()
        for _ in range(8):
            before = done
            begun = asyncio.create_task(rig.runtime.run_turn(submitted.key, "supervisor"))
            await until(lambda: done == before + 2)  # noqa: B023  # it is awaited here
            await rig.die()
            await cancel(begun)
        is_stuck = True
        await rig.die_in_turn(submitted, times=4)
        task = await rig.task(submitted.key)
        assert not task.dead_letters
        await rig.die_in_turn(submitted)
        await rig.runtime.run_turn(submitted.key, "supervisor")
        assert ENDED in (await rig.outcome(submitted)).answer


async def test_the_count_belongs_to_one_message(tmp_path: Path) -> None:
    """A person's message that overtakes a suspect is none itself."""
    is_held = True

    async def helper(view: View) -> list[Any]:
        if is_held:
            await asyncio.Event().wait()
        return [respond("supervisor", f"read {view.mail.body}")]

    agents = {
        "supervisor": build_agent(
            turns([request("helper", "slow"), wait()], [wait()], [wait()]),
            supervises=True,
            targets=["helper"],
        ),
        "helper": build_agent(helper, targets=["supervisor"], enable_entrypoint=True),
    }
    async with Dying(build_swarm(agents), tmp_path / "mail.db") as rig:
        submitted = await rig.submit()
        await rig.step()
        await rig.die_in_turn(submitted, "helper", times=5)
        await rig.submit("urgent", task_id=submitted.key.task_id, entrypoint="helper")
        is_held = False
        await rig.runtime.run_turn(submitted.key, "helper")
        assert await rig.history("helper", submitted.key)
        task = await rig.task(submitted.key)
        assert not task.dead_letters


class Admitted:
    """Turns that ask to run, and end when the test says so."""

    def __init__(self) -> None:
        self.is_quiet = True
        self.suspects = Suspects(lambda: self.is_quiet)
        self.running: dict[str, bool] = {}
        self._ends: dict[str, asyncio.Event] = {}

    async def begin(self, *names: str, failed: int, since: float = 0.0) -> None:
        for name in names:
            self._ends[name] = asyncio.Event()
            self._tasks = [*getattr(self, "_tasks", []), asyncio.create_task(self._run(name, failed, since))]
        await self.settle()

    async def end(self, name: str) -> None:
        self._ends[name].set()
        await self.settle()

    async def settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    async def _run(self, name: str, failed: int, since: float) -> None:
        async with self.suspects.admit(failed, since) as counts:
            self.running[name] = counts
            await self._ends[name].wait()
            del self.running[name]


NAMES = [f"turn {n}" for n in range(FEW + 2)]


async def test_turns_that_have_failed_once_run_as_usual() -> None:
    suspects = Admitted()
    await suspects.begin(*NAMES, failed=1)
    assert suspects.running == dict.fromkeys(NAMES, True)


async def test_those_that_have_failed_twice_run_eight_at_a_time() -> None:
    suspects = Admitted()
    suspects.is_quiet = False
    await suspects.begin(*NAMES, failed=2)
    assert suspects.running == dict.fromkeys(NAMES[:FEW], True)
    await suspects.end(NAMES[0])
    assert suspects.running == dict.fromkeys(NAMES[1 : FEW + 1], True)


async def test_from_three_failures_on_a_turn_runs_alone_and_the_last_to_begin_is_first() -> None:
    suspects = Admitted()
    suspects.is_quiet = False
    await suspects.begin("early", failed=3, since=1.0)
    await suspects.begin("late", failed=4, since=2.0)
    assert not suspects.running
    suspects.is_quiet = True
    suspects.suspects.note_end()
    await suspects.settle()
    assert suspects.running == {"late": True}
    await suspects.end("late")
    assert suspects.running == {"early": True}


async def test_a_process_must_have_lived_for_a_while_before_a_turn_runs_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So a turn is not blamed for a process that is killed every few seconds."""
    monkeypatch.setattr(attempts, "CALM_SECONDS", 0.2)
    loop = asyncio.get_running_loop()
    suspects = Admitted()
    begin = loop.time()
    await suspects.begin("four", failed=4)
    await suspects.begin("three", failed=3)
    assert not suspects.running
    await until(lambda: suspects.running)
    assert suspects.running == {"three": True}
    assert loop.time() >= begin + 0.2
    await suspects.end("three")
    await until(lambda: suspects.running)
    assert loop.time() >= begin + 0.4


async def test_nobody_waits_longer_than_that_but_who_runs_beside_others_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attempts, "PATIENCE_SECONDS", 0.01)
    suspects = Admitted()
    suspects.is_quiet = False
    await suspects.begin(*NAMES, failed=2)
    await suspects.begin("alone", "alone, too", failed=3)
    await until(lambda: len(suspects.running) == len(NAMES) + 2)
    assert [suspects.running[name] for name in NAMES] == [True] * FEW + [False] * 2
    assert [suspects.running["alone"], suspects.running["alone, too"]] == [True, False]
    for name in [*suspects.running]:
        await suspects.end(name)
    await suspects.begin("next", failed=2)
    assert suspects.running == {"next": True}


async def test_on_a_server_that_is_never_quiet_one_after_the_other_takes_the_place_and_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attempts, "PATIENCE_SECONDS", 2.0)
    suspects = Admitted()
    suspects.is_quiet = False
    await suspects.begin(*NAMES, failed=3)
    assert not suspects.running
    for _ in NAMES:
        await until(lambda: suspects.running)
        ((name, counts),) = suspects.running.items()
        assert counts
        await suspects.end(name)


async def test_a_turn_that_is_cancelled_while_it_waits_leaves_its_place() -> None:
    suspects = Admitted()
    await suspects.begin("first", "second", "third", failed=3)
    _, second, _ = suspects._tasks
    second.cancel()
    await suspects.settle()
    await suspects.end("first")
    assert suspects.running == {"third": True}
