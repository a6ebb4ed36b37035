"""`MAILSwarm`: what is submitted is worked on by the one engine, and comes back in the documented shapes."""

import asyncio
import gc
import json
import weakref
from pathlib import Path
from typing import Any

import pytest
from sse_starlette import EventSourceResponse, ServerSentEvent
from support.services.templates import agent, template

from mail import MAILAction, MAILMessage, MAILSwarm
from mail.adapters.sqlite.database import SQLiteDatabase
from mail.adapters.sqlite.store import SQLiteStore
from mail.api import MAILRuntime
from mail.core.runtime import MAILRuntime as RuntimeByItsDocumentedName
from mail.core.task.swarm import AgentCore
from mail.core.task.task import TaskKey
from mail.errors import BadRequest, ConfigurationError, MAILError, StoreUnavailable, TaskNotFound
from mail.testing.agents import View, call, complete, request, respond, turns, wait


def echo(view: View) -> list[Any]:
    return [complete(f"you said: {view.mail.body}")]


def solo(**fields: Any) -> MAILSwarm:
    return template(agent("boss", echo, supervises=True), **fields).instantiate({}, user_id="ann")


def duo(**fields: Any) -> MAILSwarm:
    boss = agent(
        "boss",
        turns([request("worker", "work"), wait()], [complete("done")]),
        supervises=True,
        targets=["worker"],
    )
    worker = agent("worker", lambda view: [respond("boss", "worked")], targets=["boss"])
    return template(boss, worker, **fields).instantiate({}, user_id="ann")


def waiting_for(gate: asyncio.Event) -> MAILSwarm:
    """A swarm whose boss answers once the gate is open."""

    async def boss(_view: View) -> list[Any]:
        await gate.wait()
        return [complete("at last")]

    return template(agent("boss", boss, supervises=True)).instantiate({})


class TestPosting:
    async def test_one_shot(self) -> None:
        swarm = solo()
        response, events = await swarm.post_message_and_run(body="Hello!", subject="Greeting")
        assert response["message"]["body"] == "you said: Hello!"
        assert isinstance(response, MAILMessage)
        assert events == []
        again, _ = await swarm.post_message_and_run("again")
        assert again.message.body == "you said: again"

    async def test_nobody_works_after_one_shot(self) -> None:
        swarm = solo()
        await swarm.post_message_and_run("a")
        await swarm.submit_message_nowait(swarm.build_message("s", "b", ["boss"]))
        await asyncio.sleep(0.05)
        assert not swarm._runtime._open().is_working

    async def test_events(self) -> None:
        swarm = duo()
        _, events = await swarm.post_message("hi", show_events=True)
        assert all(isinstance(event, ServerSentEvent) for event in events)
        kinds = [event.event for event in events]
        assert kinds[0] == "new_message"
        assert kinds[-2:] == ["new_message", "task_complete"]
        assert json.loads(events[-1].data)["response"] == "done"

    async def test_continuous(self) -> None:
        swarm = solo()
        running = asyncio.create_task(swarm.run_continuous())
        answers = await asyncio.gather(*(swarm.post_message(str(n)) for n in range(5)))
        assert [answer.message.body for answer, _ in answers] == [f"you said: {n}" for n in range(5)]
        await swarm.shutdown()
        await running

    async def test_a_task_goes_on(self) -> None:
        swarm = solo()
        await swarm.post_message("one", task_id="t")
        response, events = await swarm.post_message("two", task_id="t", show_events=True)
        assert response["message"]["body"] == "you said: two"
        assert [event.event for event in events].count("task_complete") == 1
        assert len([e for e in swarm._runtime.get_events_by_task_id("t") if e.event == "task_complete"]) == 2

    async def test_entrypoint_subject_type_and_steps(self) -> None:
        seen: list[View] = []

        def boss(view: View) -> list[Any]:
            seen.append(view)
            return [complete("ok")]

        other = agent("other", boss, enable_entrypoint=True, can_complete_tasks=True)
        swarm = template(agent("boss", boss, supervises=True), other).instantiate({})
        await swarm.post_message("hi", "Subject", "interrupt", "other")
        assert (seen[0].mail.subject, seen[0].mail.recipients) == ("Subject", (("agent", "other"),))
        await swarm.post_message("hi", max_steps=3, task_id="t")
        task = await swarm._runtime.engine.store.load(TaskKey("user:default@team", "t"))
        assert task is not None
        assert task.limits.steps == 3

    async def test_bad_requests(self) -> None:
        swarm = solo()
        with pytest.raises(BadRequest, match="body must not be empty"):
            await swarm.post_message("")
        with pytest.raises(BadRequest, match="msg_type"):
            await swarm.post_message("x", msg_type="shout")  # type: ignore[arg-type]
        with pytest.raises(TaskNotFound):
            await swarm.post_message("x", task_id="nope", resume_from="user_response")
        with pytest.raises(BadRequest, match=r"^max_steps: Input should be greater than or equal to 1$"):
            await swarm.post_message("x", max_steps=0)
        with pytest.raises(BadRequest, match=r"^max_steps: "):
            await swarm.submit_message_nowait(swarm.build_message("s", "b", ["boss"]), max_steps="many")
        with pytest.raises(BadRequest, match="resume_from"):
            await swarm.post_message("x", task_id="nope", resume_from="yesterday")

    async def test_timeout(self) -> None:
        swarm = waiting_for(asyncio.Event())
        with pytest.raises(TimeoutError, match=r"task '.*' gave no answer within 0.05 seconds"):
            await swarm.post_message("x", timeout=0.05)
        assert swarm.get_pending_requests() == {}
        await swarm._runtime._open().stop(grace=0)

    async def test_pending_requests(self) -> None:
        gate = asyncio.Event()
        swarm = waiting_for(gate)
        asking = asyncio.create_task(swarm.post_message("x", task_id="t"))
        while not swarm.get_pending_requests():  # noqa: ASYNC110
            await asyncio.sleep(0)
        future = swarm.get_pending_requests()["t"]
        gate.set()
        assert (await future).message.body == "at last"
        await asking
        assert list(swarm._runtime.response_queue) == [("t", await future)]


class TestStreams:
    async def test_post_message_stream(self) -> None:
        swarm = duo()
        stream = await swarm.post_message_stream(body="Hello")
        assert isinstance(stream, EventSourceResponse)
        kinds = [event.event async for event in stream.body_iterator]
        assert kinds[0] == "new_message"
        assert kinds[-1] == "task_complete"

    async def test_submit_message_stream(self) -> None:
        swarm = solo()
        stream = await swarm.submit_message_stream(swarm.build_message("s", "b", ["boss"]))
        events = [event async for event in stream.body_iterator]
        assert json.loads(events[-1].data)["response"] == "you said: b"

    async def test_timeout(self) -> None:
        swarm = waiting_for(asyncio.Event())
        stream = await swarm.post_message_stream("x", timeout=2)
        assert [event.event async for event in stream.body_iterator] == ["new_message"]
        await swarm._runtime._open().stop(grace=0)

    async def test_pings(self) -> None:
        gate = asyncio.Event()
        swarm = waiting_for(gate)
        message = swarm.build_message("s", "b", ["boss"])
        stream = await swarm.submit_message_stream(message, ping_interval=0.01)
        kinds = []
        async for event in stream.body_iterator:
            kinds.append(event.event)
            if event.event == "ping":
                gate.set()
        assert "ping" in kinds
        assert kinds[-1] == "task_complete"


class TestMessages:
    async def test_build_message(self) -> None:
        swarm = duo()
        message = swarm.build_message("s", "b", ["all"], sender_type="user", type="broadcast", task_id="t")
        assert (message.msg_type, message.task_id, message.sender.address) == ("broadcast", "t", "ann")
        assert message["message"]["recipients"][0]["address"] == "all"
        assert swarm.build_message("s", "b", ["worker"], "agent", sender="boss").sender.address == "boss"
        assert swarm.build_message("s", "b", ["worker"], "admin").sender.address_type == "admin"
        assert swarm.build_message("s", "b", ["worker", "boss"], type="interrupt").msg_type == "interrupt"
        first, second = (swarm.build_message("s", "b", ["boss"]) for _ in range(2))
        assert first.task_id != second.task_id

    @pytest.mark.parametrize(
        ("fields", "complaint"),
        [
            ({"targets": []}, "exactly one recipient, not to 0"),
            ({"targets": ["a", "b"], "type": "response"}, "exactly one recipient, not to 2"),
            ({"targets": [], "type": "broadcast"}, "recipients: "),
            ({"targets": ["a"], "type": "shout"}, "unknown message type 'shout'"),
            (
                {"targets": ["boss"], "sender_type": "agent", "sender": "bos"},
                "sender 'bos' is not an agent of swarm 'team'. Did you mean 'boss'",
            ),
            (
                {"targets": ["boss"], "sender_type": "agent", "sender": "zz@team"},
                "sender 'zz@team' is not an agent",
            ),
            (
                {"targets": ["a"], "type": "broadcast_complete", "sender_type": "system"},
                "sender_type must be",
            ),
        ],
    )
    def test_wrong_messages(self, fields: dict[str, Any], complaint: str) -> None:
        with pytest.raises(BadRequest, match=complaint):
            solo().build_message(**{"subject": "s", "body": "b", **fields})

    async def test_submit_message(self) -> None:
        swarm = solo()
        message = swarm.build_message("s", "b", ["boss"], task_id="t")
        response, events = await swarm.submit_message(message, show_events=True)
        assert response["message"]["body"] == "you said: b"
        first = json.loads(events[0].data)["extra_data"]["full_message"]
        assert first == message.as_json()

    async def test_messages_to_agents_that_are_no_entrypoint(self) -> None:
        swarm = duo()
        message = swarm.build_message("s", "hi", ["worker"], "agent", sender="boss", task_id="t")
        await swarm.submit_message_nowait(message)
        await swarm.await_queue_empty()
        texts = [event.data for event in swarm._runtime.get_events_by_task_id("t")]
        assert any("worked" in text for text in texts)

    async def test_what_is_refused(self) -> None:
        swarm = solo()
        with pytest.raises(BadRequest, match=r"'bos' is not an agent of swarm 'team'. Did you mean 'boss'"):
            await swarm.submit_message_nowait(swarm.build_message("s", "b", ["bos"]))
        with pytest.raises(BadRequest, match="'boss@elsewhere' is not an agent"):
            await swarm.submit_message_nowait(swarm.build_message("s", "b", ["boss@elsewhere"]))
        await swarm.submit_message_nowait(swarm.build_message("s", "b", ["boss@team"]))
        forged = swarm.build_message("s", "b", ["boss"]).model_dump()
        forged["message"]["sender"] = {"address_type": "system", "address": "team"}
        with pytest.raises(BadRequest, match="only the runtime"):
            await swarm.submit_message_nowait(MAILMessage.model_validate(forged))

    async def test_handle_interswarm_response(self) -> None:
        swarm = solo()
        message = swarm.build_message("s", "from afar", ["boss"], "agent", sender="x@far", task_id="t")
        await swarm.handle_interswarm_response(message)
        await swarm.await_queue_empty()
        assert swarm._runtime.get_events_by_task_id("t")[-1].event == "task_complete"


class TestBreakpoints:
    async def test_pause_and_resume(self) -> None:
        ask = MAILAction("human_review", "Ask a human.", {"type": "object"}, lambda _: "never")
        boss = agent(
            "boss",
            turns([call("human_review", question="may I?")], [complete("approved, so done")]),
            supervises=True,
            actions=[ask],
        )
        swarm = template(boss, actions=[ask], breakpoint_tools=["human_review"]).instantiate({})
        response, _ = await swarm.post_message_and_run(body="Please", task_id="t")
        assert response.get("message", {}).get("subject") == "::breakpoint_tool_call::"
        (paused,) = json.loads(response["message"]["body"])
        assert (paused["name"], json.loads(paused["arguments"])) == ("human_review", {"question": "may I?"})
        response, _ = await swarm.post_message_and_run(
            body="",
            task_id="t",
            resume_from="breakpoint_tool_call",
            breakpoint_tool_call_result={"content": "approved"},
        )
        assert response["message"]["body"] == "approved, so done"

    def test_mail_tools_can_be_breakpoints_and_others_must_exist(self) -> None:
        solo(breakpoint_tools=["task_complete"])
        with pytest.raises(ConfigurationError, match="breakpoint tool 'human_review' is not an action"):
            solo(breakpoint_tools=["human_review"])


class TestActionOverride:
    async def test_in_place_of_the_action(self) -> None:
        ran: list[str] = []

        async def really(_arguments: dict[str, Any]) -> str:
            ran.append("really")
            return "real"

        tools = [MAILAction(name, "d", {"type": "object"}, really) for name in ("one", "two")]
        boss = agent(
            "boss",
            lambda view: [complete(view.mail.body)] if view.results else [call("one", n=1), call("two")],
            supervises=True,
            actions=tools,
        )
        swarm = template(boss).instantiate({})

        async def override(name: str, arguments: dict[str, Any]) -> str | None:
            return f"instead of {name} with {arguments}" if name == "one" else None

        response, _ = await swarm.post_message_and_run("x", action_override=override)
        assert response["message"]["body"] == "one: instead of one with {'n': 1}\ntwo: real"
        assert ran == ["really"]
        response, _ = await swarm.post_message_and_run("x")
        assert response["message"]["body"] == "one: real\ntwo: real"
        await swarm._runtime.submit(swarm.build_message("s", "b", ["boss"]))
        answer = await swarm._runtime.run(override)
        assert answer is not None
        assert answer.message.body.startswith("one: instead")
        response, _ = await swarm.post_message_and_run("x")
        assert response["message"]["body"] == "one: real\ntwo: real"
        running = asyncio.create_task(swarm.run_continuous(lambda name, _: f"not {name}"))
        response, _ = await swarm.post_message("x")
        assert response["message"]["body"] == "one: not one\ntwo: not two"
        await swarm.shutdown()
        await running

    async def test_of_calls_that_overlap_the_last_one_holds_until_its_end(self) -> None:
        swarm = solo()
        workers = swarm._runtime
        first, second = (lambda name, _: f"first {name}"), (lambda name, _: f"second {name}")
        with workers.overriding(first):
            both = workers.overriding(second)
            both.__enter__()
        assert workers._overrides == [second]
        both.__exit__(None, None, None)
        assert workers._overrides == []

    async def test_a_failure_ends_it_too(self) -> None:
        swarm = waiting_for(asyncio.Event())
        asking = asyncio.create_task(swarm.post_message_and_run("x", action_override=lambda *_: "x"))
        while not swarm._runtime._overrides:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await swarm._runtime._open().stop(grace=0)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        assert swarm._runtime._overrides == []


class TestLifecycle:
    async def test_after_shutdown(self) -> None:
        swarm = solo()
        await swarm.shutdown()
        await swarm.shutdown()
        with pytest.raises(MAILError, match="was shut down"):
            await swarm.post_message("x")
        with pytest.raises(MAILError, match="was shut down"):
            swarm.run_continuous()  # type: ignore[unused-coroutine]

    async def test_shutdown_before_the_loop_has_begun(self) -> None:
        swarm = solo()
        running = asyncio.create_task(swarm.run_continuous())
        await swarm.shutdown()
        await running

    async def test_only_one_loop(self) -> None:
        swarm = solo()
        running = asyncio.create_task(swarm.run_continuous())
        await asyncio.sleep(0)
        with pytest.raises(MAILError, match="running already"):
            swarm.run_continuous()  # type: ignore[unused-coroutine]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        response, _ = await swarm.post_message("still usable")
        assert response["message"]["body"] == "you said: still usable"

    async def test_two_that_begin_together(self) -> None:
        swarm = solo()
        first = swarm.run_continuous(mode="manual")
        with pytest.raises(MAILError, match="running already"):
            swarm.run_continuous()  # type: ignore[unused-coroutine]
        assert swarm._runtime.mode == "manual"
        running = asyncio.create_task(first)
        await asyncio.sleep(0)
        await swarm.shutdown()
        async with asyncio.timeout(60):
            await running

    async def test_one_that_is_never_run_stands_in_nobodys_way(self) -> None:
        swarm = solo()
        swarm.run_continuous().close()
        swarm.run_continuous().close()

    def test_on_several_event_loops(self) -> None:
        swarm = duo()
        for _ in range(2):
            response, _events = asyncio.run(swarm.post_message_and_run("x"))
            assert response["message"]["body"] == "done"
        asyncio.run(swarm.shutdown())

    def test_nothing_is_left_without_shutdown(self) -> None:
        swarm = solo()
        asyncio.run(swarm.post_message_and_run("x"))
        system = weakref.ref(swarm._runtime._open())
        del swarm
        gc.collect()
        assert system() is None

    def test_wrong_mode(self) -> None:
        with pytest.raises(BadRequest, match="mode must be"):
            solo().run_continuous(mode="turbo")  # type: ignore[arg-type, unused-coroutine]

    async def test_runtime_run(self) -> None:
        swarm = solo()
        runtime = swarm._runtime
        assert await runtime.run() is None
        for text in ("one", "two"):
            await runtime.submit(swarm.build_message("s", text, ["boss"]))
        answer = await runtime.run()
        assert answer is not None
        assert answer.message.body == "you said: two"

    async def test_a_turn_that_could_not_be_stored_is_awaited(self, monkeypatch: pytest.MonkeyPatch) -> None:
        swarm = solo()
        engine = swarm._runtime.engine
        monkeypatch.setattr("mail.adapters.local.workers.RETRY_SECONDS", 0.01)
        await swarm.submit_message_nowait(swarm.build_message("s", "b", ["boss"], task_id="t"))
        open_turn, failures = engine.store.open_turn, iter([StoreUnavailable()])

        async def fail_once(*args: Any, **fields: Any) -> Any:
            for error in failures:
                raise error
            return await open_turn(*args, **fields)

        monkeypatch.setattr(engine.store, "open_turn", fail_once)
        await swarm.await_queue_empty()
        assert swarm._runtime.get_events_by_task_id("t")[-1].event == "task_complete"


class TestStores:
    async def test_a_file(self, tmp_path: Path) -> None:
        path = str(tmp_path / "mail.db")
        blueprint = template(agent("boss", echo, supervises=True))
        first = blueprint.instantiate({}, "ann", database=path)
        await first.submit_message_nowait(first.build_message("s", "kept", ["boss"], task_id="t"))
        with pytest.raises(ConfigurationError, match="another server or program"):
            await blueprint.instantiate({}, "bob", database=path).post_message("x")
        await first.shutdown()
        second = blueprint.instantiate({}, "ann", database=path)
        await second.await_queue_empty()
        assert second._runtime.get_events_by_task_id("t")[-1].event == "task_complete"
        await second.shutdown()

    async def test_a_given_store_is_shared_and_stays_open(self) -> None:
        with SQLiteDatabase(":memory:") as database:
            store = SQLiteStore(database)
            blueprint = template(agent("boss", echo, supervises=True))
            for user in ("ann", "bob"):
                swarm = blueprint.instantiate({}, user, database=store)
                await swarm.post_message("x", task_id="t")
                await swarm.shutdown()
            assert await store.count_active_instances() == 0
            for user in ("ann", "bob"):
                assert await store.load(TaskKey(f"user:{user}@team", "t")) is not None

    async def test_a_store_that_must_be_awaited(self) -> None:
        class Distant(SQLiteStore):
            async def load(self, key: TaskKey) -> Any:
                await asyncio.sleep(0)
                return await super().load(key)

        with SQLiteDatabase(":memory:") as database:
            swarm = template(agent("boss", echo, supervises=True)).instantiate({}, database=Distant(database))
            await swarm.post_message("x", task_id="t")
            with pytest.raises(MAILError, match="await read_events"):
                swarm._runtime.get_events_by_task_id("t")
            assert (await swarm._runtime.read_events("t"))[-1].event == "task_complete"


class TestUsers:
    async def test_roles(self) -> None:
        blueprint = template(agent("boss", echo, supervises=True))
        for role, instance in (
            ("user", "user:ann@team"),
            ("admin", "admin:ann@team"),
            ("agent", "swarm:ann@team"),
        ):
            swarm = blueprint.instantiate({}, "ann", role)  # type: ignore[arg-type]
            await swarm.post_message("x", task_id="t")
            assert await swarm._runtime.engine.store.load(TaskKey(instance, "t")) is not None

    @pytest.mark.parametrize(
        ("user", "role"), [("a:b", "user"), ("a@b", "user"), ("", "user"), ("a", "boss")]
    )
    def test_wrong(self, user: str, role: Any) -> None:
        with pytest.raises(ConfigurationError, match="an id must not contain"):
            template(agent("boss", echo, supervises=True)).instantiate({}, user, role)


class TestRuntimeByItself:
    def test_home(self) -> None:
        assert RuntimeByItsDocumentedName is MAILRuntime

    async def test_from_cores(self) -> None:
        tool = MAILAction("shout", "d", {"type": "object"}, lambda _: "LOUD")
        boss = agent(
            "boss",
            lambda view: [complete(view.mail.body)] if view.results else [call("shout")],
            supervises=True,
            actions=[tool],
        )
        core = boss.instantiate({}).to_core()
        assert isinstance(core, AgentCore)
        runtime = MAILRuntime(
            agents={"boss": core},
            actions={"shout": tool.to_core()},
            user_id="ann",
            user_role="user",
            swarm_name="s",
            entrypoint="boss",
            exclude_tools=["help"],
            breakpoint_tools=None,
            task_message_limit=4,
        )
        assert runtime.swarm.agents["boss"].exclude_tools == {"help"}
        assert runtime.swarm.task_message_limit == 4
        message = solo().build_message("s", "b", ["boss"], task_id="t")
        answer = await runtime.submit_and_wait(message, timeout=10)
        assert answer.message.body == "shout: LOUD"
        assert list(runtime.events) == ["t"]
        assert runtime.events["t"][-1].event == "task_complete"
        assert runtime.get_events_by_task_id("nope") == []
        assert not runtime.is_interswarm_running()
        await runtime.stop_interswarm()
        with pytest.raises(ConfigurationError, match="set enable_interswarm"):
            await runtime.start_interswarm()
        with pytest.raises(MAILError, match="start_interswarm"):
            await runtime.route_interswarm_message(message)
        await runtime.shutdown()

    def test_streams_are_silenced_through_wrappers(self) -> None:
        class Talks:
            print_llm_streams = True

            async def __call__(self, history: Any, choice: Any) -> Any:
                return None, []

        class Wrapper:
            def __init__(self, inner: Any) -> None:
                self.supervisor_fn = inner

            async def __call__(self, history: Any, choice: Any) -> Any:
                return await self.supervisor_fn(history, choice)

        inner = Talks()
        wrapped = AgentCore(function=Wrapper(inner), enable_entrypoint=True, can_complete_tasks=True)
        for wanted in (True, False):
            runtime = MAILRuntime({"boss": wrapped}, {}, "ann", "user", "s", "boss", print_llm_streams=wanted)
            function: Any = runtime.engine.swarm.agents["boss"].function
            assert function.supervisor_fn.print_llm_streams is wanted
        assert inner.print_llm_streams
