"""The effect loop: waiting, watching, waking up, stopping, and starting again."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from mail.adapters.local.workers import LocalWorkers
from mail.adapters.sqlite.task_cache import CachedTask
from mail.core.decisions.submit import Submission
from mail.core.engine.leased_turn import TurnReport
from mail.core.engine.runtime import Runtime
from mail.core.engine.wake_ups import IDLE_SECONDS, of_idle
from mail.core.engine.watch import READ_AT_ONCE
from mail.core.protocol.clock import SYSTEM_CLOCK
from mail.core.protocol.message import Tier
from mail.core.task.change import TaskChange
from mail.core.task.events import Event
from mail.core.task.leases import AHEAD_SECONDS
from mail.core.task.ports import WakeUp
from mail.core.task.task import TaskKey
from mail.errors import StoreUnavailable, TaskNotFound
from mail.testing.agents import View, build_swarm, call, complete, request, respond, turns, wait
from mail.testing.changes import ANN, NOW, Mail, Maker
from mail.testing.clock import EPOCH, FakeClock
from mail.testing.rig import Rig

SOON = 5.0
MINUTE = timedelta(minutes=1)


def pair() -> dict[str, Any]:
    return {
        "supervisor": turns([request("worker"), wait()], [complete()]),
        "worker": lambda view: [respond("supervisor")],
    }


async def collect(rig: Rig, key: TaskKey, **options: Any) -> list[list[Event]]:
    batches = []
    async with asyncio.timeout(SOON):
        async for batch in rig.runtime.watch(key, **options):
            batches.append([event for event in batch if isinstance(event, Event)])  # noqa: PERF401  # the time limit is for all of it
    return batches


class TestWait:
    async def test_an_answer_that_is_there_needs_no_time(self) -> None:
        async with Rig(build_swarm(pair())) as rig:
            outcome = await rig.ask()
            assert await rig.runtime.wait(outcome.submitted, 0) == outcome.response

    async def test_it_gives_up_while_the_task_goes_on(self) -> None:
        """Events that come meanwhile must not make it wait for longer than it was told to."""

        async def supervisor(view: View) -> Any:
            await asyncio.sleep(0.001)
            return [call("help")]

        swarm = build_swarm({"supervisor": supervisor}, task_message_limit=10_000)
        async with Rig(swarm, clock=SYSTEM_CLOCK) as rig:
            submitted = await rig.submit()
            async with asyncio.timeout(SOON):
                assert await rig.runtime.wait(submitted, 0.3) is None
            task = await rig.task(submitted.key)
        assert task.is_running
        assert task.generation.turns > 1

    async def test_who_goes_away_cancels_nothing(self) -> None:
        go = asyncio.Event()

        async def supervisor(view: View) -> Any:
            await go.wait()
            return [complete()]

        async with Rig(build_swarm({"supervisor": supervisor})) as rig:
            submitted = await rig.submit()
            waiting = asyncio.create_task(rig.runtime.wait(submitted))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            go.set()
            assert (await rig.outcome(submitted)).answer == "done"


class TestWatch:
    async def test_it_gives_every_event_once_as_it_happens(self) -> None:
        async with Rig(build_swarm(pair())) as rig:
            await rig.workers.stop()
            submitted = await rig.submit()
            watching = asyncio.create_task(collect(rig, submitted.key))
            await asyncio.sleep(0)
            rig.workers = LocalWorkers(rig.runtime, rig.queue)
            await rig.workers.start()
            batches = await watching
            outcome = await rig.outcome(submitted)
        assert [event for batch in batches for event in batch] == outcome.events
        assert len(batches) > 1

    @pytest.mark.parametrize("after", range(12))
    async def test_it_joins_anywhere(self, after: int) -> None:
        async with Rig(build_swarm(pair())) as rig:
            outcome = await rig.ask()
            batches = await collect(rig, outcome.key, after=after)
        assert [event for batch in batches for event in batch] == outcome.events[after:]

    async def test_few_streams_of_a_caller_read_at_the_same_time(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        reading, most = set[object](), 0

        async with Rig(build_swarm(pair())) as rig:
            outcome = await rig.ask()
            read = rig.runtime.store.read_events

            async def read_slowly(*args: Any, **options: Any) -> list[Event]:
                nonlocal most
                reading.add(asyncio.current_task())
                most = max(most, len(reading))
                await asyncio.sleep(0.01)
                reading.remove(asyncio.current_task())
                return await read(*args, **options)

            monkeypatch.setattr(rig.runtime.store, "read_events", read_slowly)
            streams = await asyncio.gather(*(collect(rig, outcome.key) for _ in range(3 * READ_AT_ONCE)))
        assert most == READ_AT_ONCE
        assert all([event for batch in each for event in batch] == outcome.events for each in streams)

    async def test_it_ends_with_the_answer_to_a_message(self) -> None:
        async with Rig(build_swarm({"supervisor": lambda view: [complete()]})) as rig:
            first = await rig.ask(task_id="t")
            second = await rig.ask(task_id="t")
            batches = await collect(rig, first.key, answer_to=first.submitted.seq)
            rest = await collect(rig, first.key, after=first.events[-1].seq, answer_to=second.submitted.seq)
        assert [event for batch in batches for event in batch] == first.events
        assert [event for batch in rest for event in batch] == second.events

    async def test_to_the_end_of_the_task_it_passes_over_earlier_ends(self) -> None:
        async with Rig(build_swarm({"supervisor": lambda view: [complete()]})) as rig:
            first = await rig.ask(task_id="t")
            second = await rig.ask(task_id="t")
            batches = await collect(rig, first.key)
        assert [event for batch in batches for event in batch] == first.events + second.events

    async def test_a_paused_stream_ends_at_once(self) -> None:
        swarm = build_swarm({"supervisor": turns([call("approve")])}, breakpoint_tools=frozenset({"approve"}))
        async with Rig(swarm) as rig:
            submitted = await rig.submit()
            batches = await collect(rig, submitted.key, heartbeat=60)
        assert batches[-1][-1].is_terminal

    async def test_silence_is_a_heartbeat(self) -> None:
        async with Rig(build_swarm(pair())) as rig:
            await rig.workers.stop()
            submitted = await rig.submit()
            watching = rig.runtime.watch(submitted.key, after=1, heartbeat=0.01)
            async with asyncio.timeout(SOON):
                assert [await anext(watching) for _ in range(3)] == [[], [], []]
            await watching.aclose()

    async def test_an_unknown_task(self) -> None:
        async with Rig(build_swarm(pair())) as rig:
            with pytest.raises(TaskNotFound):
                await collect(rig, TaskKey(str(rig.user), "unknown"))


class TestTokens:
    """A token is a hint: lost, doubled or wrong, it does no harm."""

    async def test_tokens_for_what_does_not_exist(self) -> None:
        async with Rig(build_swarm(pair())) as rig:
            outcome = await rig.ask()
            for key in (outcome.key, TaskKey(str(rig.user), "unknown"), TaskKey("nobody", "x")):
                for mailbox in ("supervisor", "worker", "nobody", ""):
                    await rig.runtime.run_turn(key, mailbox)
            assert await rig.store.load(outcome.key) == outcome.task

    async def test_doubled_tokens_run_nothing_twice(self) -> None:
        calls: list[str] = []

        async def supervisor(view: View) -> Any:
            calls.append(view.mail.body)
            await asyncio.sleep(0)
            return [complete()]

        async with Rig(build_swarm({"supervisor": supervisor})) as rig:
            submitted = await rig.submit()
            for _ in range(5):
                await rig.queue.publish([WakeUp(submitted.key, "supervisor", tier) for tier in Tier])
            await asyncio.gather(*(rig.runtime.run_turn(submitted.key, "supervisor") for _ in range(5)))
            await rig.outcome(submitted)
        assert calls == ["hello"]

    async def test_a_lost_token_is_made_up_for_by_any_other_of_the_task(self) -> None:
        """So says DESIGN: an idle turn publishes what waits in other mailboxes."""
        async with Rig(build_swarm(pair())) as rig:
            await rig.workers.stop()
            submitted = await rig.submit()
            while rig.queue:
                await rig.queue.take()
            await rig.runtime.run_turn(submitted.key, "worker")
            assert await rig.queue.take() == (submitted.key, "supervisor")

    def test_mailboxes_that_have_lost_mail_which_is_counted_do_not_wake_each_other(self) -> None:
        """A store that has lost mail must not keep a worker busy for ever."""
        task = Maker(FakeClock()).begin(TaskKey(ANN, "one"), Mail("alpha"), Mail("beta")).task
        for name in ("alpha", "beta"):
            woken = of_idle(task, name, NOW)
            assert [(each.mailbox, each.not_before) for each in woken] == [(name, NOW + IDLE_SECONDS)]
        assert [each.mailbox for each in of_idle(task, "gamma", NOW)] == ["alpha", "beta"]

    async def test_a_sweep_wakes_what_was_quiet_and_ever_more_seldom(self) -> None:
        """A token with an old cause may be dropped by its queue; one per sweep would clog it where mail is plenty."""
        published: list[WakeUp] = []

        class Recorder:
            async def publish(self, tokens: Sequence[WakeUp]) -> None:
                published.extend(tokens)

        clock = FakeClock()
        async with Rig(build_swarm(pair()), clock=clock) as rig:
            await rig.workers.stop()
            submitted = await rig.submit()
            runtime = Runtime(rig.swarm, rig.store, Recorder(), clock)
            assert await runtime.recover(quiet_for=60) == 0
            for _ in range(64):
                clock.advance(60)
                assert await runtime.recover(quiet_for=60) == (1 if clock.now() > EPOCH + MINUTE else 0)
        causes = [token.cause for token in published]
        assert {(token.key, token.mailbox) for token in published} == {(submitted.key, "supervisor")}
        assert "1" not in causes
        assert [causes.count(cause) for cause in dict.fromkeys(causes)] == [2, 4, 8, 16, 32, 1]

    async def test_recover_publishes_all_mail_that_waits(self) -> None:
        async with Rig(build_swarm(pair())) as rig:
            await rig.workers.stop()
            keys = [(await rig.submit(f"{n}")).key for n in range(3)]
            while rig.queue:
                await rig.queue.take()
            await rig.runtime.recover()
            assert [await rig.queue.take() for _ in keys] == [(key, "supervisor") for key in keys]


class TestStopping:
    async def test_a_turn_that_can_finish_in_time_does(self) -> None:
        entered = asyncio.Event()

        async def supervisor(view: View) -> Any:
            entered.set()
            await asyncio.sleep(0.02)
            return [complete()]

        async with Rig(build_swarm({"supervisor": supervisor})) as rig:
            submitted = await rig.submit()
            await entered.wait()
            await rig.workers.stop(grace=SOON)
            response = await rig.runtime.wait(submitted, 0)
        assert response is not None


class TestSwarmsThatChange:
    """A server may come back with other agents than its tasks know."""

    async def test_mail_for_an_agent_that_is_gone_does_not_hang_its_task(self, tmp_path: Any) -> None:
        path = tmp_path / "mail.db"
        first = build_swarm({"supervisor": turns([request("worker"), wait()]), "worker": lambda view: []})
        async with Rig(first, path=path) as rig:
            await rig.workers.stop()
            submitted = await rig.submit()
            await rig.runtime.run_turn(submitted.key, "supervisor")
        second = build_swarm(
            {"supervisor": lambda view: [complete(f"{view.mail.sender_type}: {view.mail.body}")]}
        )
        async with Rig(second, path=path) as rig:
            outcome = await rig.outcome(submitted)
        assert "worker" in outcome.answer

    async def test_an_entrypoint_that_is_gone(self, tmp_path: Any) -> None:
        path = tmp_path / "mail.db"
        async with Rig(build_swarm({"chief": lambda view: [complete()]}), path=path) as rig:
            await rig.workers.stop()
            submitted = await rig.submit()
        async with Rig(build_swarm({"supervisor": lambda view: [complete("taken over")]}), path=path) as rig:
            outcome = await rig.outcome(submitted)
            assert not outcome.task.is_running
            again = await rig.ask("hello again", task_id=submitted.key.task_id, entrypoint="supervisor")
        assert again.answer == "taken over"


class TestQueueOutOfReach:
    """What is stored is stored, whether or not anybody can be woken for it."""

    class Broken:
        async def publish(self, tokens: Sequence[WakeUp]) -> None:
            raise StoreUnavailable

    async def test_a_message_that_is_stored_is_accepted_and_worked_on_later(self) -> None:
        async with Rig(build_swarm({"supervisor": turns([complete("late")])})) as rig:
            broken = Runtime(rig.swarm, rig.store, self.Broken(), rig.clock)
            submitted = await broken.submit(rig.user, Submission(body="hello"))
            report = await broken.run_turn(submitted.key, "supervisor")
            assert report.outcome is TurnReport.Outcome.COMMITTED
            assert (await rig.outcome(submitted)).answer == "late"

    async def test_a_sweep_that_wakes_nobody_says_so(self) -> None:
        async with Rig(build_swarm(pair())) as rig:
            with pytest.raises(StoreUnavailable):
                await Runtime(rig.swarm, rig.store, self.Broken(), rig.clock).recover()


class TestGivingUp:
    async def test_whoever_wrote_is_told(self) -> None:
        def supervisor(view: View) -> Any:
            return [request("worker"), wait()] if view.mail.body == "hello" else [complete(view.mail.body)]

        async with Rig(build_swarm({"supervisor": supervisor, "worker": lambda view: [wait()]})) as rig:
            await rig.workers.stop()
            submitted = await rig.submit()
            await rig.runtime.run_turn(submitted.key, "supervisor")
            (entry,) = await rig.inbox(submitted.key)
            await rig.runtime.turns.lease(submitted.key, "worker", -1.0)  # its worker died
            report = await rig.runtime.dead_letter_turn(submitted.key, "worker", "it died", upto=entry.seq)
            assert report.outcome is TurnReport.Outcome.COMMITTED
            await rig.runtime.run_turn(submitted.key, "supervisor")
            assert "it died" in (await rig.outcome(submitted)).answer

    async def test_a_turn_that_no_worker_has_begun_is_woken_again(self) -> None:
        """Its wake-ups were throttled, and it is not at fault."""
        async with Rig(build_swarm({"supervisor": turns([complete("fine")])})) as rig:
            await rig.workers.stop()
            submitted = await rig.submit()
            while rig.queue:
                await rig.queue.take()
            report = await rig.runtime.dead_letter_turn(submitted.key, "supervisor", "it died", upto=9)
            assert report.outcome is TurnReport.Outcome.HANDED_BACK
            assert await rig.queue.take() == (submitted.key, "supervisor")
            await rig.runtime.run_turn(submitted.key, "supervisor")
            assert (await rig.outcome(submitted)).answer == "fine"

    async def test_mail_that_came_later_is_left_to_be_worked_on(self) -> None:
        async with Rig(build_swarm({"supervisor": turns([complete("fine")])})) as rig:
            await rig.workers.stop()
            submitted = await rig.submit()
            (entry,) = await rig.inbox(submitted.key)
            while rig.queue:
                await rig.queue.take()
            await rig.runtime.turns.lease(submitted.key, "supervisor", -1.0)  # its worker died
            report = await rig.runtime.dead_letter_turn(
                submitted.key, "supervisor", "it died", upto=entry.seq - 1
            )
            assert report.outcome is TurnReport.Outcome.HANDED_BACK
            assert await rig.queue.take() == (submitted.key, "supervisor")
            await rig.runtime.run_turn(submitted.key, "supervisor")
            assert (await rig.outcome(submitted)).answer == "fine"


async def test_one_task_that_cannot_be_ended_keeps_no_other_running(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = FakeClock()
    async with Rig(build_swarm(pair()), clock=clock) as rig:
        await rig.workers.stop()
        keys = [(await rig.submit(task_id=name, timeout=5)).key for name in ("bad", "good")]
        clock.advance(10)
        commit = rig.store.commit

        async def refuse(change: TaskChange) -> None:
            if change.key == keys[0]:
                raise StoreUnavailable
            await commit(change)

        rig.store.commit = refuse  # type: ignore[method-assign]
        await rig.runtime.sweep()
        assert [(await rig.store.load(key)).is_running for key in keys] == [True, False]  # type: ignore[union-attr]
    assert "could not be looked after" in caplog.text


async def test_a_sweep_has_a_task_looked_at_when_it_will_be_due() -> None:
    """Where sweeps come each minute, a queue that delays messages brings one in time."""
    async with Rig(build_swarm(pair()), clock=FakeClock()) as rig:
        await rig.workers.stop()
        submitted = await rig.submit(timeout=100)
        published: list[WakeUp] = []

        async def publish(wake_ups: Sequence[WakeUp]) -> None:
            published.extend(wake_ups)

        rig.queue.publish = publish  # type: ignore[method-assign]
        for ahead in (90.0, AHEAD_SECONDS):
            await rig.runtime.sweep(ahead=ahead)
        at = rig.clock.now().timestamp() + 100
        assert [(each.key, each.mailbox, each.not_before) for each in published] == [(submitted.key, "", at)]
        await rig.runtime.look_after(submitted.key)
        assert (await rig.task(submitted.key)).is_running
        rig.clock.advance(100)  # type: ignore[attr-defined]
        await rig.runtime.look_after(submitted.key)
        assert not (await rig.task(submitted.key)).is_running


class TestMiscounted:
    """A task that counts mail where there is none: its mailbox is not to be looked at all the time."""

    async def test_a_mailbox_in_which_nothing_is_found_rests(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with Rig(build_swarm(pair())) as rig:
            await rig.workers.stop()
            submitted = await rig.submit("hello")
            _, mailbox = await rig.queue.take()
            monkeypatch.setattr(CachedTask, "head", lambda *_: None)
            report = await rig.runtime.run_turn(submitted.key, mailbox)
            assert report.outcome is TurnReport.Outcome.IDLE
            assert (len(rig.queue.turns), len(rig.queue)) == (0, 1)
