"""Parked turns: who waits outside of the process, what ends the wait, and what is done again after it."""

from pathlib import Path
from typing import Any

import pytest

from mail.core.decisions.park import may_park, park
from mail.core.protocol.message import Tier
from mail.core.task.change import Turn
from mail.core.task.leases import Lease, Park
from mail.core.task.swarm import AgentCore, History, SwarmCore
from mail.core.task.task import Task, TaskKey, TaskStatus
from mail.core.turns.context import TURN, idempotency_key
from mail.errors import ProviderBusy, RetryLater
from mail.testing.agents import Call, View, build_swarm, call, complete, output
from mail.testing.changes import ANN, NOW, Mail, Maker
from mail.testing.clock import FakeClock
from mail.testing.rig import Rig

DAY = 86_400


class Weather:
    """An action that can't be done the first times."""

    def __init__(self, *delays: float) -> None:
        self.keys: list[str] = []
        self._delays = list(delays)

    async def __call__(self, arguments: dict[str, Any]) -> str:
        self.keys.append(idempotency_key())
        if self._delays:
            raise RetryLater(self._delays.pop(0))
        return "sunny"


class BusyModel:
    """An agent function whose provider is busy the first times."""

    def __init__(self, *delays: float) -> None:
        self.attempts: list[int] = []
        self._delays = list(delays)

    async def __call__(self, history: History, choice: object) -> Any:
        parked = TURN.get().parked
        self.attempts.append(0 if parked is None else parked.attempts)
        if self._delays:
            raise ProviderBusy(self._delays.pop(0), "anthropic", self.attempts[-1] + 1)
        return None, output([complete("done")])


def forecast(weather: Weather, *others: str) -> SwarmCore:
    """Return a swarm whose supervisor calls the action and others, and completes with their results."""

    def supervisor(view: View) -> list[Call]:
        if len(view.messages) == 1:
            return [call("weather"), *map(call, others)]
        return [complete(view.mail.body)]

    async def other(arguments: dict[str, Any]) -> str:
        return "the other"

    return build_swarm(
        {"supervisor": supervisor}, actions={"weather": weather, **dict.fromkeys(others, other)}
    )


def with_model(function: Any) -> SwarmCore:
    """Return a swarm of one agent, whose function it is."""
    return build_swarm({"supervisor": AgentCore(function, enable_entrypoint=True, can_complete_tasks=True)})


async def stored(rig: Rig, key: TaskKey) -> Task:
    task = await rig.store.load(key)
    assert task is not None
    return task


def turn_of_alpha(replaced: Lease | None = None) -> Turn:
    begun = Maker().begin(TaskKey(ANN, "task-1"), Mail("alpha", Tier.PERSON), Mail("alpha"))
    return Turn(begun.task, begun.deliveries[0], Lease("me/1/0", NOW + 60), [], None, replaced=replaced)


class TestDecision:
    """What a turn leaves, and when it may wait no longer."""

    def test_an_action_waits_for_its_time_or_for_mail(self) -> None:
        left = park(turn_of_alpha(), RetryLater(30), "weather", 2, FakeClock())
        assert left == Lease("me/1/0/parked", NOW + 30, 2, 1, Park(on="weather", since=NOW, urgent=1))

    def test_a_provider_is_waited_for_whatever_comes(self) -> None:
        left = park(turn_of_alpha(), ProviderBusy(30, "anthropic", 3), "alpha", 0, FakeClock())
        assert left.park == Park(on="anthropic", since=NOW, attempts=3)

    def test_all_waits_of_a_turn_count_together(self) -> None:
        clock = FakeClock()
        earlier = park(turn_of_alpha(), RetryLater(DAY), "weather", 0, clock)
        clock.advance(DAY - 10)
        again = turn_of_alpha(replaced=earlier)
        assert may_park(again, clock)
        assert park(again, RetryLater(60), "weather", 0, clock).expires == NOW + DAY
        clock.advance(10)
        assert not may_park(again, clock)

    def test_the_wait_of_another_message_does_not_count(self) -> None:
        clock = FakeClock()
        earlier = park(turn_of_alpha(), RetryLater(DAY), "weather", 0, clock)
        clock.advance(DAY)
        assert may_park(turn_of_alpha(replaced=earlier.ended(0, 7)), clock)

    @pytest.mark.parametrize("seconds", [-1, DAY + 1, float("nan")])
    def test_a_time_that_makes_no_sense_is_refused(self, seconds: float) -> None:
        with pytest.raises(ValueError, match="takes 0 to 86400 seconds"):
            RetryLater(seconds)


class TestAction:
    """An action that raises RetryLater."""

    async def test_its_call_is_made_again_at_its_time_and_no_other_is(self) -> None:
        weather = Weather(30, 40)
        async with Rig(forecast(weather, "other")) as rig:
            submitted = await rig.submit()
            lease = await rig.parked(submitted.key, "supervisor")
            assert (lease.expires, lease.park) == (NOW + 30, Park(on="weather", since=NOW, urgent=1))
            (working,) = await rig.runtime.working(await stored(rig, submitted.key))
            assert [(work.kind, work.name) for work in working.on] == [("wait", "weather")]
            await rig.pass_time(29)
            assert len(weather.keys) == 1
            await rig.pass_time(1)
            assert (await rig.parked(submitted.key, "supervisor")).expires == NOW + 70
            await rig.pass_time(40)
            outcome = await rig.outcome(submitted)
        assert "sunny" in outcome.answer
        assert "the other" in outcome.answer
        assert (len(weather.keys), len(set(weather.keys))) == (3, 1)
        kinds = sorted(kind for kind in outcome.kinds if kind.startswith("action"))
        assert kinds == ["action_call", "action_call", "action_complete", "action_complete"]

    async def test_a_person_who_writes_meanwhile_ends_the_wait(self) -> None:
        weather = Weather(300)
        async with Rig(forecast(weather)) as rig:
            submitted = await rig.submit()
            await rig.parked(submitted.key, "supervisor")
            await rig.submit("do you know more?", task_id=submitted.key.task_id)
            assert "sunny" in (await rig.outcome(submitted)).answer
        assert len(weather.keys) == 2

    async def test_after_a_day_the_agent_reads_an_error(self) -> None:
        weather = Weather(DAY, 30)
        async with Rig(forecast(weather)) as rig:
            submitted = await rig.submit()
            await rig.parked(submitted.key, "supervisor")
            await rig.pass_time(DAY)
            outcome = await rig.outcome(submitted)
        assert "try again in 30 s" in outcome.answer
        assert "action_error" in outcome.kinds

    async def test_a_restart_changes_nothing(self, tmp_path: Path) -> None:
        weather = Weather(300)
        async with Rig(forecast(weather, "other"), path=tmp_path / "mail.db") as rig:
            submitted = await rig.submit()
            before = await rig.parked(submitted.key, "supervisor")
            await rig.restart()
            assert await rig.parked(submitted.key, "supervisor") == before
            await rig.pass_time(299)
            assert len(weather.keys) == 1
            await rig.pass_time(1)
            outcome = await rig.outcome(submitted)
        assert "sunny" in outcome.answer
        assert (len(weather.keys), len(set(weather.keys))) == (2, 1)

    async def test_a_task_that_is_cancelled_stops_at_once(self) -> None:
        weather = Weather(300)
        async with Rig(forecast(weather)) as rig:
            submitted = await rig.submit()
            await rig.parked(submitted.key, "supervisor")
            task = await rig.runtime.cancel(rig.user, submitted.key.task_id)
            assert (await rig.runtime.still_running(task)).is_stopped
            await rig.pass_time(300)
            assert (await stored(rig, submitted.key)).status is TaskStatus.CANCELLED
            assert len(weather.keys) == 1
            await rig.runtime.delete(*submitted.key)


class TestProvider:
    """An agent whose model's provider is busy."""

    async def test_it_continues_at_its_time_whoever_writes_and_knows_its_attempts(self) -> None:
        model = BusyModel(30, 30)
        async with Rig(with_model(model)) as rig:
            submitted = await rig.submit()
            assert (await rig.parked(submitted.key, "supervisor")).park == Park(
                on="anthropic", since=NOW, attempts=1
            )
            await rig.submit("are you there?", task_id=submitted.key.task_id)
            await rig.pass_time(29)
            assert model.attempts == [0]
            await rig.pass_time(1)
            await rig.parked(submitted.key, "supervisor")
            await rig.pass_time(30)
            await rig.outcome(submitted)
        assert model.attempts[:3] == [0, 1, 2]

    async def test_after_a_day_the_task_fails_with_its_words(self) -> None:
        async with Rig(with_model(BusyModel(DAY, 30))) as rig:
            submitted = await rig.submit()
            await rig.parked(submitted.key, "supervisor")
            await rig.pass_time(DAY)
            outcome = await rig.outcome(submitted)
        assert outcome.task.status is TaskStatus.FAILED
        assert "anthropic takes no call now" in outcome.answer
