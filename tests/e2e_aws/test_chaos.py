"""Workers are killed at random moments, and every message of a queue comes twice: nobody who asks notices.

TEST_AWS_CHAOS_TASKS says how many tasks there are ("full" for 200).
"""

from collections import Counter
from pathlib import Path

import pytest
from aws_client import Crowd, answer
from aws_swarm import RecordedSwarm
from support.processes.local_aws import full_size, needs_ministack
from support.processes.timelines import in_any_order, read_record

from mail.core.engine.actions import UNKNOWN_OUTCOME
from mail.local_aws.event_sources import Faults
from mail.local_aws.functions import Invocation, Outcome
from mail.local_aws.system import LocalAws, Tempo

TASKS = full_size("TEST_AWS_CHAOS_TASKS", small=12, full=200)
KILLED = 0.2

TURN_SECONDS = 6
TEMPO = Tempo(timeouts={"TurnFunction": TURN_SECONDS}, visibility=TURN_SECONDS + 4, schedule=3)
"""A killed turn's lease lives for two seconds more than its worker could have, and then its message comes again."""
QUIET_SECONDS = TURN_SECONDS + 4
TIMEOUT = 240 + 6 * TASKS

pytestmark = [pytest.mark.soak, needs_ministack, pytest.mark.timeout(TIMEOUT + 120)]


def expression(n: int) -> str:
    """Each is another one, and each is 84."""
    return f"{n}-{n}+84"


def question(n: int) -> str:
    return f"weather in Tokyo and {expression(n)}"


def right_answer(n: int) -> str:
    return f"task_complete: The weather in Tokyo today: rainy, 6 °C. {expression(n)} = 84."


def honest_answer(n: int) -> str:
    """Of an agent that can't know whether its action was carried out."""
    weather = "task_complete: The weather in Tokyo today: rainy, 6 °C."
    return f"{weather} {expression(n)} can't be calculated: {UNKNOWN_OUTCOME}."


class Chaos:
    """A deployed swarm in which things go wrong, all the time."""

    def __init__(self, folder: Path, *, idempotent: bool, seed: int) -> None:
        self.swarm = RecordedSwarm(folder, idempotent=idempotent, quiet_seconds=QUIET_SECONDS)
        self.invocations: list[Invocation] = []
        self.system = LocalAws(
            self.swarm.template,
            environment=self.swarm.environment,
            faults=Faults(kill=KILLED, duplicate=1.0, delay=0.2, seed=seed),
            tempo=TEMPO,
            watch=lambda _, done: self.invocations.append(done),
        )

    @property
    def killed(self) -> int:
        """How many turns have died."""
        return sum(done.outcome is Outcome.KILLED for done in self.invocations)

    async def run(self, tasks: int) -> dict[int, dict[str, object]]:
        """Ask all questions at once; returns the records of the tasks, by question."""
        async with self.system, Crowd(self.system) as crowd:
            names = {n: f"task {n}" for n in range(1, tasks + 1)}
            for n, name in names.items():
                await crowd.submit(name, question(n))
            records = await crowd.finish(names.values(), seconds=TIMEOUT)
        assert self.killed > 0.75 * KILLED * len(self.invocations), "too few were killed to tell"
        return dict(zip(names, records, strict=True))


async def undisturbed_timeline(folder: Path) -> list[list[str]]:
    """The timeline of a question without any faults, as `in_any_order` has it, of question 1."""
    swarm = RecordedSwarm(folder, idempotent=True, quiet_seconds=QUIET_SECONDS)
    async with LocalAws(swarm.template, environment=swarm.environment) as system, Crowd(system) as crowd:
        await crowd.submit("task 1", question(1))
        (record,) = await crowd.finish(["task 1"], seconds=60)
    return in_any_order(read_record(record))


def of_question_1(text: str, n: int) -> str:
    """What a line of the timeline of question `n` would be in that of question 1."""
    return text.replace(expression(n), expression(1)).replace(f'"task {n}"', '"task 1"')


async def test_every_task_ends_as_if_nothing_had_happened(tmp_path: Path) -> None:
    """The example swarm: right answers, and timelines without an event too few or too many."""
    (tmp_path / "calm").mkdir()
    (tmp_path / "chaos").mkdir()
    expected = await undisturbed_timeline(tmp_path / "calm")
    chaos = Chaos(tmp_path / "chaos", idempotent=True, seed=1)
    records = await chaos.run(TASKS)
    assert {n: answer(record) for n, record in records.items()} == {n: right_answer(n) for n in records}
    for n, record in records.items():
        turns = in_any_order(read_record(record))
        assert sorted([of_question_1(line, n) for line in turn] for turn in turns) == expected, n
    runs = chaos.swarm.runs()
    assert set(runs) == {expression(n) for n in records}
    repeated = runs.total() - len(runs)
    assert repeated <= chaos.killed, "only what died while it ran is repeated, as the action allows"


async def test_an_action_that_may_not_be_repeated_never_is(tmp_path: Path) -> None:
    """With the same faults: where the outcome of an action is unknown, its agent says so and continues."""
    chaos = Chaos(tmp_path, idempotent=False, seed=2)
    records = await chaos.run(TASKS // 2)
    runs = chaos.swarm.runs()
    assert max(runs.values()) == 1
    for n, record in records.items():
        assert answer(record) in (right_answer(n), honest_answer(n))
        assert Counter(kind for kind, _ in read_record(record))["task_complete"] == 1
