"""Calls that finish later and are cancelled: `on_cancel` of their actions learns it, whatever has ended the task."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from mail import LATER, ActionContext, action
from mail.actions.functions import as_cancel_function
from mail.api.actions import MAILAction
from mail.core.engine.cancelled_calls import CALLS_AT_ONCE
from mail.core.engine.leased_turn import TurnReport
from mail.core.task.callbacks import MAX_ARGUMENTS, CallResult, CallState, digest_of
from mail.core.task.events import EventKind
from mail.core.task.leases import Lease
from mail.core.task.mailboxes import CANCELLED_CALLS
from mail.core.task.swarm import ActionCore, SwarmCore
from mail.core.task.task import TaskKey, TaskStatus
from mail.core.task.webhooks import RETRY_SECONDS
from mail.core.turns.context import current_context
from mail.errors import CallbackClosed, CallNotFound, ConfigurationError
from mail.swarms_json.build import build_action
from mail.swarms_json.references import resolver
from mail.swarms_json.specs import ActionSpec
from mail.testing.agents import Call, View, build_swarm, call, complete, request, wait
from mail.testing.rig import Rig

DAY = 86_400.0
DONE = CallResult("the film")


@dataclass
class Farm:
    """Renders films later, and notes what it begins and cancels, by the keys of the calls."""

    begun: list[ActionContext[Any]] = field(default_factory=list)
    cancelled: list[tuple[ActionContext[Any], dict[str, Any]]] = field(default_factory=list)
    failures: int = 0
    hold: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.hold.set()

    async def render(self, _arguments: dict[str, Any]) -> Any:
        self.begun.append(current_context())
        await self.hold.wait()
        return LATER

    async def cancel(self, arguments: dict[str, Any]) -> None:
        if self.failures:
            self.failures -= 1
            raise ConnectionError("the farm is down")
        self.cancelled.append((current_context(), arguments))

    def action(self, **settings: Any) -> ActionCore:
        return ActionCore(
            "render", self.render, **{"finish_within": 3 * DAY, "on_cancel": self.cancel, **settings}
        )

    @property
    def keys(self) -> list[str]:
        return [context.idempotency_key for context in self.begun]

    @property
    def cancelled_keys(self) -> list[str]:
        return [context.idempotency_key for context, _ in self.cancelled]


def director(view: View) -> Sequence[Call]:
    """Render a film for each word of the user, and wait for all."""
    if view.mail.sender_type == "user" and view.mail.body != "stop":
        return [call("render", title=word) for word in view.mail.body.split()]
    return [complete("done")] if view.mail.body == "stop" else [wait("films")]


def swarm_of(farm: Farm, rule: Any = director, **settings: Any) -> SwarmCore:
    return build_swarm({"director": rule}, actions={"render": farm.action(**settings)})


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not is_so():  # noqa: ASYNC110 - of foreign code
            await asyncio.sleep(0.001)


async def until_asleep(rig: Rig, key: TaskKey, calls: int = 1) -> None:
    async with asyncio.timeout(60):
        while (task := await rig.task(key)).waits.open_calls < calls or not task.is_asleep:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def until_told(rig: Rig, key: TaskKey) -> None:
    """Wait until the actions of all cancelled calls know that, or are to hear of it later."""
    async with asyncio.timeout(60):
        while (await rig.task(key)).waits.cancel_at == 0.0:  # noqa: ASYNC110 - of a store
            await asyncio.sleep(0.001)


async def begin(rig: Rig, body: str = "waves") -> TaskKey:
    key = (await rig.submit(body)).key
    await until_asleep(rig, key, len(body.split()))
    return key


async def texts_of(rig: Rig, key: TaskKey, kind: EventKind) -> list[str]:
    return [event.text for event in await rig.store.read_events(key) if event.kind is kind]


class TestEndOfTheTask:
    async def test_cancelling_it_tells_each_action_with_the_context_of_its_call(self) -> None:
        farm = Farm()
        async with Rig(swarm_of(farm)) as rig:
            key = await begin(rig, "waves dunes")
            await rig.runtime.cancel(rig.user, key.task_id)
            await until_told(rig, key)
            task = await rig.task(key)
            assert task.status is TaskStatus.CANCELLED
            assert task.waits.cancel_at is None
            assert not task.has_outbound_mail
            assert await rig.store.list_waits(key, limit=9) == []
            kept = await texts_of(rig, key, EventKind.ACTION_CANCELLED)
        assert sorted(farm.cancelled_keys) == sorted(farm.keys)
        told = {context.call_id: (context, arguments) for context, arguments in farm.cancelled}
        for context in farm.begun:
            found, arguments = told[context.call_id]
            assert (found.task_id, found.agent, found.caller) == (key.task_id, "director", key.instance)
            assert found.callback.token == ""
            assert arguments["title"] in ("waves", "dunes")
        assert kept == ["action cancelled (caller = director):\nrender"] * 2

    async def test_completing_it_tells_the_actions_of_calls_that_it_drops(self) -> None:
        farm = Farm()

        def hasty(view: View) -> Sequence[Call]:
            return [call("render", title="waves")] if len(view.messages) == 1 else [complete("no film")]

        async with Rig(swarm_of(farm, hasty)) as rig:
            key = await begin(rig)
            await rig.submit("stop", task_id=key.task_id)
            await rig.outcome(await rig.submit("stop", task_id=key.task_id))
            await until_told(rig, key)
        assert farm.cancelled_keys == farm.keys

    async def test_a_failure_tells_them_too(self) -> None:
        farm = Farm()
        async with Rig(swarm_of(farm)) as rig:
            submitted = await rig.submit("waves", timeout=60.0)
            await until_asleep(rig, submitted.key)
            await rig.pass_time(61)
            await rig.outcome(submitted)
            await until_told(rig, submitted.key)
            assert (await rig.task(submitted.key)).status is TaskStatus.FAILED
        assert farm.cancelled_keys == farm.keys

    async def test_cancelling_a_paused_task_tells_them(self) -> None:
        farm = Farm()
        rule = lambda view: [call("render", title="a"), call("ask")]  # noqa: E731
        swarm = build_swarm(
            {"director": rule},
            actions={"render": farm.action(), "ask": farm.action()},
            breakpoint_tools=frozenset({"ask"}),
        )
        async with Rig(swarm) as rig:
            paused = await rig.ask("begin")
            assert paused.task.status is TaskStatus.PAUSED
            await rig.runtime.cancel(rig.user, paused.key.task_id)
            await until_told(rig, paused.key)
        assert farm.cancelled_keys == farm.keys

    async def test_a_person_cancels_one_call(self) -> None:
        farm = Farm()
        async with Rig(swarm_of(farm)) as rig:
            key = await begin(rig, "waves dunes")
            waves, dunes = (context.callback.token for context in farm.begun)
            await rig.runtime.cancel_wait.call(rig.user, key, digest_of(waves))
            await until_told(rig, key)
            assert farm.cancelled_keys == farm.keys[:1]
            await until_asleep(rig, key)
            assert [wait.id for wait in await rig.store.list_waits(key, limit=9)] == [digest_of(dunes)]
            errors = await texts_of(rig, key, EventKind.ACTION_ERROR)
            assert errors == ["action error (caller = director):\nann has cancelled it"]
            with pytest.raises(CallbackClosed, match="no longer waits for render"):
                await rig.runtime.callbacks.finish(waves, DONE)
            await rig.runtime.callbacks.finish(dunes, DONE)
            for ended in (waves, dunes):
                with pytest.raises(CallNotFound, match="it may have ended"):
                    await rig.runtime.cancel_wait.call(rig.user, key, digest_of(ended))
            await until(lambda: len(farm.cancelled_keys) == 1)

    async def test_a_call_that_has_ended_is_not_cancelled(self) -> None:
        farm = Farm()
        async with Rig(swarm_of(farm)) as rig:
            key = await begin(rig, "waves dunes")
            await rig.runtime.callbacks.finish(farm.begun[0].callback.token, DONE)
            await until_asleep(rig, key)
            await rig.runtime.cancel(rig.user, key.task_id)
            await until_told(rig, key)
        assert farm.cancelled_keys == farm.keys[1:]

    async def test_without_on_cancel_its_records_no_longer_wait(self) -> None:
        farm = Farm()
        async with Rig(swarm_of(farm, on_cancel=None)) as rig:
            key = await begin(rig, " ".join(map(str, range(30))))
            await rig.submit(" ".join(map(str, range(30))), task_id=key.task_id)
            await until_asleep(rig, key, 60)
            await rig.runtime.cancel(rig.user, key.task_id)
            await until_told(rig, key)
            task = await rig.task(key)
            assert (task.waits.cancel_at, task.ready()) == (None, [])
            assert await rig.store.list_waits(key, limit=9) == []
            with pytest.raises(CallbackClosed):
                await rig.runtime.callbacks.finish(farm.begun[0].callback.token, DONE)

    async def test_many_calls_are_cancelled_in_several_turns(self) -> None:
        farm = Farm()
        body = " ".join(map(str, range(CALLS_AT_ONCE + 5)))
        async with Rig(swarm_of(farm)) as rig:
            key = await begin(rig, body)
            await rig.runtime.cancel(rig.user, key.task_id)
            await until_told(rig, key)
        assert sorted(farm.cancelled_keys) == sorted(farm.keys)
        assert len(farm.keys) == CALLS_AT_ONCE + 5


class TestTurnThatRuns:
    async def test_a_call_of_a_discarded_turn_is_cancelled_and_its_agent_reads_that(self) -> None:
        farm = Farm()
        farm.hold.clear()
        async with Rig(swarm_of(farm)) as rig:
            submitted = await rig.submit("waves")
            await until(lambda: farm.begun)
            await rig.runtime.cancel(rig.user, submitted.key.task_id)
            await until(lambda: farm.cancelled)
            farm.hold.set()
            await until_told(rig, submitted.key)
            outcome = await rig.ask("stop", task_id=submitted.key.task_id)
            results = [
                entry["content"]
                for entry in await rig.history("director", submitted.key)
                if entry["role"] == "tool"
            ]
            assert outcome.task.waits.open_calls == 0
            with pytest.raises(CallbackClosed):
                await rig.runtime.callbacks.finish(farm.begun[0].callback.token, DONE)
        assert set(farm.cancelled_keys) == set(farm.keys)
        assert results[0].startswith("ERROR: the task ended before this call could wait")

    async def test_one_whose_result_came_before_the_cancellation_stays_finished(self) -> None:
        farm = Farm()
        farm.hold.clear()
        async with Rig(swarm_of(farm)) as rig:
            submitted = await rig.submit("waves")
            await until(lambda: farm.begun)
            token = farm.begun[0].callback.token
            await rig.runtime.callbacks.finish(token, DONE)
            await rig.runtime.cancel(rig.user, submitted.key.task_id)
            farm.hold.set()
            await rig.ask("stop", task_id=submitted.key.task_id)
            again = await rig.runtime.callbacks.finish(token, DONE)
        assert again.state is CallState.FINISHED
        assert farm.cancelled == []

    async def test_the_end_of_the_task_during_the_turn_cancels_its_call(self) -> None:
        farm = Farm()
        farm.hold.clear()

        def maker(view: View) -> Sequence[Call]:
            return [call("render", title="waves")]

        def chief(view: View) -> Sequence[Call]:
            return [request("maker", "go")] if view.mail.body == "waves" else [complete("no film")]

        swarm = build_swarm({"chief": chief, "maker": maker}, actions={"render": farm.action()})
        async with Rig(swarm) as rig:
            submitted = await rig.submit("waves")
            await until(lambda: farm.begun)
            await rig.ask("stop", task_id=submitted.key.task_id)
            farm.hold.set()
            await until(lambda: farm.cancelled)
            await until_told(rig, submitted.key)
        assert farm.cancelled_keys == farm.keys


class TestFailure:
    async def test_it_is_called_again_with_growing_pauses(self) -> None:
        farm = Farm(failures=2)
        async with Rig(swarm_of(farm)) as rig:
            key = await begin(rig)
            await rig.runtime.cancel(rig.user, key.task_id)
            await until_told(rig, key)
            for pause in RETRY_SECONDS[:2]:
                task, now = await rig.task(key), rig.runtime.now()
                assert task.not_before(CANCELLED_CALLS) == now + pause
                assert (await rig.runtime.run_turn(key, CANCELLED_CALLS)).outcome is (
                    TurnReport.Outcome.HANDED_BACK
                )
                await rig.pass_time(pause)
                await rig.runtime.run_turn(key, CANCELLED_CALLS)
            assert (await rig.task(key)).waits.cancel_at is None
            assert await texts_of(rig, key, EventKind.ACTION_ERROR) == []
        assert farm.cancelled_keys == farm.keys

    async def test_others_need_not_wait_for_one_that_fails(self) -> None:
        farm = Farm(failures=1)
        async with Rig(swarm_of(farm)) as rig:
            key = await begin(rig, "waves dunes")
            await rig.runtime.cancel(rig.user, key.task_id)
            await until_told(rig, key)
            assert len(farm.cancelled) == 1
            (left,) = await rig.store.list_waits(key, limit=9)
            assert left.attempts == 1

    async def test_those_that_fail_hold_up_no_timer(self) -> None:
        farm = Farm(failures=1000)

        def chief(view: View) -> Sequence[Call]:
            if view.mail.sender_type == "user" and view.mail.body == "note":
                return [call("remind_me", note="the note", **{"in": 120})]
            return director(view) if view.mail.body != "the note" else [complete("the note")]

        async with Rig(swarm_of(farm, chief, finish_within=60.0)) as rig:
            key = await begin(rig, " ".join(map(str, range(30))))
            await rig.submit(" ".join(map(str, range(30))), task_id=key.task_id)
            await until_asleep(rig, key, 60)
            await rig.runtime.cancel(rig.user, key.task_id)
            submitted = await rig.submit("note", task_id=key.task_id)
            await until_asleep(rig, key, 0)
            await rig.pass_time(121)
            assert (await rig.outcome(submitted)).answer == "the note"

    async def test_after_the_last_attempt_an_event_says_so(self) -> None:
        farm = Farm(failures=1000)
        async with Rig(swarm_of(farm)) as rig:
            key = await begin(rig)
            await rig.runtime.cancel(rig.user, key.task_id)
            await until_told(rig, key)
            for pause in RETRY_SECONDS:
                await rig.pass_time(pause)
                await rig.runtime.run_turn(key, CANCELLED_CALLS)
            assert (await rig.task(key)).waits.cancel_at is None
            assert await texts_of(rig, key, EventKind.ACTION_ERROR) == [
                "action error (caller = director):\n"
                f"on_cancel of render has failed {len(RETRY_SECONDS) + 1} times, and is given up: the farm is down"
            ]

    async def test_one_that_ends_the_process_is_given_up_alone(self) -> None:
        farm = Farm()
        async with Rig(swarm_of(farm), concurrency=0) as rig:
            key = (await rig.submit("waves dunes")).key
            await rig.step()
            await rig.runtime.cancel(rig.user, key.task_id)
            dead = Lease("dead/1/0", rig.runtime.now() + 1, 5)
            await rig.store.claim(key, CANCELLED_CALLS, dead, now=rig.runtime.now())
            rig.clock.advance(2)  # type: ignore[attr-defined]
            await rig.runtime.run_turn(key, CANCELLED_CALLS)
            (error,) = await texts_of(rig, key, EventKind.ACTION_ERROR)
            assert "on_cancel of render has failed once, and is given up: the process ended" in error
            await rig.runtime.run_turn(key, CANCELLED_CALLS)
            assert len(farm.cancelled) == 1
            assert (await rig.task(key)).waits.cancel_at is None

    async def test_a_swarm_that_has_lost_the_action_tries_until_it_is_back(self) -> None:
        farm = Farm()
        async with Rig(swarm_of(farm)) as rig:
            key = await begin(rig)
            await rig.workers.stop(grace=0)
            await rig.runtime.cancel(rig.user, key.task_id)
            swarm, rig.runtime.swarm = rig.runtime.swarm, swarm_of(farm, on_cancel=None)
            await rig.runtime.run_turn(key, CANCELLED_CALLS)
            assert farm.cancelled == []
            rig.runtime.swarm = swarm
            await rig.pass_time(1)
            await rig.runtime.run_turn(key, CANCELLED_CALLS)
            await rig.workers.start()
        assert farm.cancelled_keys == farm.keys

    async def test_more_calls_that_are_cancelled_meanwhile_are_told_too(self) -> None:
        farm = Farm()
        seen = asyncio.Event()
        go = asyncio.Event()

        async def cancel(arguments: dict[str, Any]) -> None:
            seen.set()
            await go.wait()
            await farm.cancel(arguments)

        async with Rig(swarm_of(farm, on_cancel=cancel)) as rig:
            key = await begin(rig)
            await rig.runtime.cancel(rig.user, key.task_id)
            await seen.wait()
            await rig.submit("dunes", task_id=key.task_id)
            await until_asleep(rig, key)
            await rig.runtime.cancel(rig.user, key.task_id)
            go.set()
            await until_told(rig, key)
        assert sorted(farm.cancelled_keys) == sorted(farm.keys)
        assert len(farm.keys) == 2


class Order(BaseModel):
    title: str
    minutes: int = 3


def stop_rendering(context: ActionContext[Any], title: str) -> None:
    """For swarms.json."""


class TestFunction:
    @pytest.mark.parametrize("with_context", [False, True])
    async def test_it_takes_what_it_names(self, with_context: bool) -> None:
        got: list[Any] = []

        async def of_title(title: str) -> None:
            got.append(title)

        def of_all(arguments: dict[str, Any]) -> None:
            got.append(arguments)

        def of_order(order: Order) -> object:
            got.append(order.minutes)
            return object()

        def of_others(title: str, **others: Any) -> None:
            got.append((title, others))

        def of_context(context: ActionContext[Any], arguments: Mapping[str, Any]) -> None:
            got.append((context.agent, arguments))

        def of_nothing() -> None:
            got.append(None)

        parameters = {"type": "object", "properties": {"title": {}, "minutes": {}}}
        functions: list[Any] = [of_title, of_all, of_order, of_others, of_context, of_nothing]
        for function in functions:
            await as_cancel_function("render", function, parameters)({"title": "waves", "minutes": 4})
        given = {"title": "waves", "minutes": 4}
        assert got == ["waves", given, 4, ("waves", {"minutes": 4}), ("", given), None]

    async def test_it_is_an_option_of_all_forms_of_actions(self) -> None:
        cancelled: list[tuple[str, str, object]] = []

        async def stop(ctx: ActionContext[Any], title: str) -> None:
            cancelled.append((ctx.agent, title, ctx.deps))

        @action(finishes="later", timeout="3d", on_cancel=stop)
        async def render(title: str) -> object:
            """Render a film."""
            return LATER

        model = MAILAction.from_pydantic_model(
            Order, lambda order: LATER, "render", "Render.", finishes="later", timeout=5, on_cancel=stop
        )
        for made in (render, model):
            core = made.with_deps("the deps").to_core()
            assert core.on_cancel is not None
            await core.on_cancel({"title": "waves"})
        assert cancelled == [("", "waves", "the deps")] * 2
        assert MAILAction.from_core(render.to_core()).to_core().on_cancel is render.on_cancel

    @pytest.mark.parametrize(
        ("function", "says"),
        [
            (lambda title, minutes: None, "'render: on_cancel': annotate its argument 'title'"),
            (stop_rendering.__name__, "is not a function"),
        ],
    )
    def test_one_that_makes_no_sense_is_refused(self, function: Any, says: str) -> None:
        with pytest.raises(ConfigurationError, match=says):
            as_cancel_function("render", function, {"properties": {}})

    def test_one_that_asks_for_other_arguments_is_refused(self) -> None:
        def stop(name: str) -> None:
            pass

        with pytest.raises(ConfigurationError, match="on_cancel takes 'name', which is no argument of it"):
            as_cancel_function("render", stop, {"properties": {"title": {}}})

    def test_an_action_that_finishes_now_has_none(self) -> None:
        with pytest.raises(ConfigurationError, match="on_cancel is only for actions with finishes='later'"):
            action(on_cancel=stop_rendering)(stop_rendering)

    def test_swarms_json_names_it(self) -> None:
        here = f"python::{__name__}"
        entry = ActionSpec(
            name="render",
            function=f"{here}:stop_rendering",
            finishes="later",
            timeout="3d",
            on_cancel=f"{here}:stop_rendering",
        )
        assert build_action(entry, resolver(None)).on_cancel is not None
        assert "on_cancel" not in ActionSpec(name="render").model_dump()

    async def test_arguments_that_are_too_large_to_be_stored_are_refused(self) -> None:
        farm = Farm()

        def large(view: View) -> Sequence[Call]:
            if view.mail.sender_type == "user":
                return [call("render", title="x" * (MAX_ARGUMENTS + 1))]
            return [complete(view.mail.body)]

        async with Rig(swarm_of(farm, large)) as rig:
            answer = (await rig.ask()).answer
        assert "it was not run: its arguments have" in answer
        assert f"and may have {MAX_ARGUMENTS}" in answer
        assert farm.begun == []


async def test_it_outlives_the_server(tmp_path: Path) -> None:
    farm = Farm()
    async with Rig(swarm_of(farm), path=tmp_path / "mail.db") as rig:
        key = await begin(rig)
        await rig.workers.stop(grace=0)
        await rig.runtime.cancel(rig.user, key.task_id)
        assert farm.cancelled == []
        await rig.workers.start()
        await rig.restart()
        await rig.runtime.recover()
        await until_told(rig, key)
    assert farm.cancelled_keys == farm.keys
