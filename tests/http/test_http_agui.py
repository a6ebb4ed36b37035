"""AG-UI 1.0, read with the types of the official package, against a running server."""

import base64
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import httpx2
import pytest
from ag_ui.core import (
    AssistantMessage,
    Context,
    DataSource,
    Event,
    EventType,
    ImagePart,
    MessagesSnapshotEvent,
    ResumeEntry,
    RunAgentInput,
    RunErrorEvent,
    RunFinishedEvent,
    RunStartedEvent,
    TextPart,
    Tool,
    ToolMessage,
    UrlSource,
    UserMessage,
)
from desk_swarm import PNG, desk_swarm, typed_swarm
from pydantic import TypeAdapter
from support.faults.gates import Gate
from support.processes.http_server import HTTPServer, eventually

from mail.core.decisions.items import Turn
from mail.core.task.activity import model_call
from mail.core.task.costs import Usage
from mail.core.task.live import LiveEvent, LiveKind
from mail.core.task.swarm import ActionCore
from mail.core.turns.context import report_usage
from mail.http.agui.turns import Turns
from mail.http.service import RESPONSE_MARGIN
from mail.testing.agents import Call, View, build_agent, build_swarm, call, complete, request, respond, wait

EVENT: TypeAdapter[Any] = TypeAdapter(Event)

PAIRS = {
    "TEXT_MESSAGE": ("message_id", "TEXT_MESSAGE_CONTENT"),
    "TOOL_CALL": ("tool_call_id", "TOOL_CALL_ARGS"),
}


@pytest.fixture
def server(desk: HTTPServer) -> HTTPServer:
    return desk


class Front:
    """A front end: it keeps the messages of a thread as the protocol prescribes, and refuses what that forbids."""

    def __init__(self, server: HTTPServer, thread: str = "t", path: str = "/ag-ui") -> None:
        self.server = server
        self.thread = thread
        self.path = path
        self.messages: list[Any] = []
        self._runs = 0

    def say(self, text: Any, message_id: str | None = None) -> None:
        self.messages.append(UserMessage(id=message_id or f"u{len(self.messages)}", content=text))

    def answer(self, call_id: str, text: str) -> None:
        self.messages.append(ToolMessage(id=f"r{len(self.messages)}", tool_call_id=call_id, content=text))

    def body(self, **given: Any) -> dict[str, Any]:
        self._runs += 1
        run = RunAgentInput(
            thread_id=self.thread, run_id=f"run-{self._runs}", messages=self.messages, **given
        )
        return run.model_dump(by_alias=True, mode="json")

    @asynccontextmanager
    async def stream(self, **given: Any) -> AsyncIterator[AsyncIterator[Any]]:
        async with self.server.client.stream("POST", self.path, json=self.body(**given)) as response:
            assert response.status_code == 200, await response.aread()
            assert response.headers["content-type"].startswith("text/event-stream")
            yield self._read(response)

    async def run(self, text: Any = None, **given: Any) -> list[Any]:
        """All events of a run."""
        if text is not None:
            self.say(text)
        async with self.stream(**given) as events:
            return [event async for event in events]

    async def refused(self, status: int, **given: Any) -> str:
        answer = await self.server.client.post(self.path, json=self.body(**given))
        assert answer.status_code == status, answer.text
        detail: str = answer.json()["detail"]
        return detail

    async def _read(self, response: httpx2.Response) -> AsyncIterator[Any]:
        rules, buffered = Rules(self), ""
        async for text in response.aiter_text():
            assert "\r" not in text
            buffered += text
            while "\n\n" in buffered:
                frame, _, buffered = buffered.partition("\n\n")
                if frame.startswith(":"):
                    continue
                event = EVENT.validate_json(frame.removeprefix("data: "))
                assert not event.model_extra
                rules.read(event)
                yield event
        assert not buffered
        assert rules.has_ended

    def texts(self) -> list[str]:
        """What the agents said."""
        return [each.content for each in self.messages if each.role == "assistant" and each.content]


class Rules:
    """The order of events that the protocol prescribes."""

    def __init__(self, front: Front) -> None:
        self.front = front
        self.has_begun = self.has_ended = False
        self.open: dict[tuple[str, str], Any] = {}
        self.subagents: dict[str, bool] = {}
        self.calls: list[str] = []

    def read(self, event: Any) -> None:
        assert not self.has_ended
        kind = event.type.value
        if not self.has_begun:
            assert kind == "RUN_STARTED"
        self.has_begun = True
        if (invocation := getattr(event, "subagent_run_id", None)) and not kind.startswith("SUBAGENT"):
            assert self.subagents[invocation]
        match kind:
            case "RUN_STARTED":
                assert (event.thread_id, event.protocol_version) == (self.front.thread, "1.0")
            case "TEXT_MESSAGE_START":
                self._open(
                    ("message", event.message_id),
                    {"role": event.role or "assistant", "name": event.name, "text": ""},
                )
            case "TEXT_MESSAGE_CONTENT":
                assert event.delta
                self.open["message", event.message_id]["text"] += event.delta
            case "TEXT_MESSAGE_END":
                begun = self.open.pop(("message", event.message_id))
                kind_of = UserMessage if begun["role"] == "user" else AssistantMessage
                self.front.messages.append(
                    kind_of(id=event.message_id, name=begun["name"], content=begun["text"])
                )
            case "TOOL_CALL_START":
                self._open(("call", event.tool_call_id), [event, ""])
                self.calls.append(event.tool_call_id)
            case "TOOL_CALL_ARGS":
                self.open["call", event.tool_call_id][1] += event.delta
            case "TOOL_CALL_END":
                begun, arguments = self.open.pop(("call", event.tool_call_id))
                function = {"name": begun.tool_call_name, "arguments": arguments}
                json.loads(arguments)
                self.front.messages.append(
                    AssistantMessage(
                        id=begun.parent_message_id,
                        tool_calls=[{"id": event.tool_call_id, "function": function}],
                    )
                )
            case "TOOL_CALL_RESULT":
                held = [each for each in self.front.messages if each.role == "assistant"]
                assert event.tool_call_id in [call.id for each in held for call in each.tool_calls or ()]
                self.front.messages.append(
                    ToolMessage(id=event.message_id, tool_call_id=event.tool_call_id, content=event.content)
                )
                if event.tool_call_id in self.calls:
                    self.calls.remove(event.tool_call_id)
            case "STEP_STARTED":
                self._open(("step", event.step_name), event)
            case "STEP_FINISHED":
                del self.open["step", event.step_name]
            case "SUBAGENT_STARTED":
                assert event.subagent_run_id not in self.subagents
                self.subagents[event.subagent_run_id] = True
            case "SUBAGENT_FINISHED" | "SUBAGENT_ERROR":
                assert self.subagents[event.subagent_run_id]
                self.subagents[event.subagent_run_id] = False
            case "MESSAGES_SNAPSHOT":
                self._reconcile(event)
            case "RUN_FINISHED":
                assert not self.open
                assert not any(self.subagents.values())
                if event.outcome.type == "success":
                    assert (event.outcome.pending_tool_call_ids or []) == self.calls
                self.has_ended = True
            case "RUN_ERROR":
                self.has_ended = True
            case _:
                raise AssertionError(f"an event of another kind: {event}")

    def _open(self, key: tuple[str, str], value: Any) -> None:
        assert key not in self.open
        self.open[key] = value

    def _reconcile(self, event: MessagesSnapshotEvent) -> None:
        new = {each.id: each for each in event.messages}
        held = [new.pop(each.id) for each in self.front.messages if each.id in new]
        self.front.messages = [*held, *new.values()]


def kinds(events: Sequence[Any]) -> list[str]:
    return [event.type.value for event in events]


def of(events: Sequence[Any], *types: EventType) -> list[Any]:
    return [event for event in events if event.type in types]


async def sent(server: HTTPServer) -> list[str]:
    """What people wrote in the thread, by its record."""
    record = (await server.client.get("/task", params={"task_id": "t", "items": True})).json()
    return [each["text"] for each in record["items"] if each["kind"] == "message"]


async def test_a_message_is_answered(server: HTTPServer) -> None:
    front = Front(server)
    events = await front.run("hello")
    assert kinds(events) == [
        "RUN_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "RUN_FINISHED",
    ]
    begun, end = events[0], events[-1]
    assert isinstance(begun, RunStartedEvent)
    assert isinstance(end, RunFinishedEvent)
    assert begun.run_id == end.run_id == "run-1"
    assert end.outcome.type == "success"
    assert end.result is None
    assert front.texts() == ["you said: hello"]
    await front.run("more")
    assert front.texts() == ["you said: hello", "you said: more"]
    assert await sent(server) == ["hello", "more"]


async def test_agents_read_only_what_is_new(server: HTTPServer) -> None:
    front = Front(server)
    front.messages = [
        UserMessage(id="a", content="one"),
        AssistantMessage(id="b", content="two"),
        UserMessage(id="c", content="three"),
    ]
    await front.run()
    assert front.texts()[-1] == "you said: [user]\none\n\n[assistant]\ntwo\n\n[user]\nthree"
    await front.run("four")
    assert front.texts()[-1] == "you said: four"


async def test_the_context_is_told_when_it_changes(server: HTTPServer) -> None:
    front, context = Front(server), [Context(description="The page", value="invoices")]
    told = "[system]\nThe page: invoices\n\n[user]\n"
    await front.run("a", context=context)
    await front.run("b", context=context)
    await front.run("c", context=[], state={"step": 2})
    assert front.texts() == [
        f"you said: {told}a",
        "you said: b",
        'you said: [system]\nThe state of the application: {"step":2}\n\n[user]\nc',
    ]


async def test_tools_of_the_swarm_have_results(server: HTTPServer, gate: Gate) -> None:
    gate.opened.set()
    front = Front(server)
    events = await front.run("dig")
    [begun] = of(events, EventType.TOOL_CALL_START)
    [result] = of(events, EventType.TOOL_CALL_RESULT)
    assert (begun.tool_call_name, result.content) == ("dig", "dug")
    assert begun.tool_call_id == result.tool_call_id
    assert front.texts() == ["SUCCESS: dug"]


async def test_a_question_is_an_interrupt(server: HTTPServer) -> None:
    front = Front(server)
    events = await front.run("ask")
    [interrupt] = events[-1].outcome.interrupts
    assert (interrupt.reason, interrupt.message) == ("input_required", "Which city?")
    assert interrupt.tool_call_id == of(events, EventType.TOOL_CALL_START)[0].tool_call_id
    again = await front.run()  # without an answer it is asked again
    assert again[-1].outcome == events[-1].outcome
    resume = [ResumeEntry(interrupt_id=interrupt.id, status="resolved", payload="Berne")]
    events = await front.run(resume=resume)
    assert [each.content for each in of(events, EventType.TOOL_CALL_RESULT)] == ["Berne"]
    assert front.texts() == ["Berne"]
    events = await front.run(resume=resume)  # an answer may be sent twice
    assert events[-1].outcome.type == "success"
    assert front.texts() == ["Berne"]


async def test_a_text_answers_the_only_question(server: HTTPServer) -> None:
    front = Front(server)
    await front.run("ask")
    context = [Context(description="a", value="b")]
    await front.run("Berne", context=context)
    assert front.texts() == ["Berne"]
    await front.run("and now?", context=context)  # which nobody has read yet
    assert front.texts()[-1] == "you said: [system]\na: b\n\n[user]\nand now?"


@pytest.mark.parametrize(
    ("status", "payload", "result", "answer"),
    [
        ("resolved", {"approved": True}, "paid 5", "SUCCESS: paid 5"),
        ("resolved", True, "paid 5", "SUCCESS: paid 5"),
        ("resolved", {"approved": True, "editedArgs": {"amount": 7}}, "paid 7", "paid 7"),
        ("resolved", {"approved": False, "reason": "too much"}, "rejected: too much", "too much"),
        ("cancelled", None, "rejected: The user gave no answer.", "The user gave no answer."),
    ],
)
async def test_a_call_waits_for_approval(
    server: HTTPServer, status: Any, payload: Any, result: str, answer: str
) -> None:
    front = Front(server)
    [interrupt] = (await front.run("pay"))[-1].outcome.interrupts
    assert interrupt.reason == "tool_call"
    assert interrupt.response_schema["required"] == ["approved"]
    front.say("do it")
    assert interrupt.id in await front.refused(409)
    front.messages.pop()
    entry = ResumeEntry(interrupt_id=interrupt.id, status="resolved", payload="yes")
    assert "approved" in await front.refused(400, resume=[entry])
    other = ResumeEntry(interrupt_id="call-0.0", status="resolved", payload=True)  # ignored
    entry = ResumeEntry(interrupt_id=interrupt.id, status=status, payload=payload)
    events = await front.run(resume=[other, entry])
    [given] = of(events, EventType.TOOL_CALL_RESULT)
    assert (given.tool_call_id, given.content) == (interrupt.tool_call_id, result)
    assert not of(events, EventType.TOOL_CALL_START)
    assert answer in front.texts()[-1]


def lent(view: View) -> list[Call]:
    """Call the application's tools for each word, then answer with their results."""
    if view.mail.body.startswith("show"):
        return [call(name, what=name) for name in view.mail.body.split()[1:]]
    return [complete(" | ".join(view.results[-2:]))]


async def test_the_application_has_tools() -> None:
    tools = [
        Tool(name="chart", description="Draws.", parameters={"type": "object", "properties": {}}),
        Tool(name="send_request", description="Has the name of a tool of MAIL."),
    ]
    async with HTTPServer(build_swarm({"desk": lent})) as server:
        front = Front(server)
        events = await front.run("show chart caller__send_request", tools=tools)
        begun = of(events, EventType.TOOL_CALL_START)
        assert [each.tool_call_name for each in begun] == ["chart", "send_request"]
        ids = [each.tool_call_id for each in begun]
        assert events[-1].outcome.pending_tool_call_ids == ids
        front.answer(ids[0], "drawn")
        assert ids[1] in await front.refused(409, tools=tools)
        front.messages.append(ToolMessage(id="r", tool_call_id=ids[1], content="", error="no network"))
        events = await front.run(tools=tools)
        assert not of(events, EventType.TOOL_CALL_RESULT)
        assert front.texts() == ["drawn | ERROR: no network"]
        await front.run("show chart", tools=tools)  # it draws, and the user writes on
        await front.run("thanks", tools=tools)
        assert "gave no result" in front.texts()[-1]
        front.say("more")
        assert "parameters" in await front.refused(
            400, tools=[Tool(name="x", description="", parameters={"type": "string"})]
        )


async def test_other_agents_are_subagents(gate: Gate) -> None:
    def lead(view: View) -> list[Call]:
        if view.mail.sender_type == "user":
            return [request("helper", body="look it up"), wait()]
        return [complete(f"found: {view.mail.body}")]

    def helper(view: View) -> list[Call]:
        return [respond("lead", "a book")] if view.results else [call("look")]

    async def look(_arguments: dict[str, Any]) -> str:
        gate.begun.set()
        await gate.opened.wait()
        return "seen"

    swarm = build_swarm({"lead": lead, "helper": helper}, actions={"look": look})
    async with HTTPServer(swarm) as server:
        front = Front(server)
        front.say("go")
        async with front.stream() as stream:
            events = []
            async for event in stream:
                events.append(event)
                if event.type is EventType.STEP_STARTED:  # while the action runs
                    assert event.step_name == "helper: look"
                    assert of(events, EventType.SUBAGENT_STARTED)[0].name == "helper"
                    gate.opened.set()
        first, second = of(events, EventType.SUBAGENT_STARTED)
        assert (first.name, second.name) == ("helper", "helper")
        [begun] = of(events, EventType.TOOL_CALL_START)
        assert begun.subagent_run_id == first.subagent_run_id
        ended = of(events, EventType.SUBAGENT_FINISHED)
        assert [each.result for each in ended] == [None, "a book"]
        assert [each.subagent_run_id for each in ended] == [first.subagent_run_id, second.subagent_run_id]
        assert front.texts() == ["found: a book"]


async def test_a_subagent_that_asks_is_suspended() -> None:
    def lead(view: View) -> list[Call]:
        if view.mail.sender_type == "user":
            return [request("helper", body="pay it"), wait()]
        return [complete(view.mail.body)]

    def helper(view: View) -> list[Call]:
        return [respond("lead", view.results[-1])] if view.results else [call("pay")]

    async def pay(_arguments: dict[str, Any]) -> str:
        return "paid"

    swarm = build_swarm(
        {"lead": lead, "helper": helper}, actions={"pay": ActionCore("pay", pay, needs_approval=True)}
    )
    async with HTTPServer(swarm) as server:
        front = Front(server)
        events = await front.run("go")
        [interrupt] = events[-1].outcome.interrupts
        [ended] = of(events, EventType.SUBAGENT_FINISHED)
        assert (ended.outcome.type, ended.outcome.interrupt_ids) == ("suspended", [interrupt.id])
        events = await front.run(
            resume=[ResumeEntry(interrupt_id=interrupt.id, status="resolved", payload=True)]
        )
        assert events[-1].outcome.type == "success"
        assert "paid" in front.texts()[-1]


def test_the_turns_of_an_agent_are_its_subagents_in_their_order() -> None:
    def live(kind: LiveKind, turn: str, second: int, **extra: Any) -> LiveEvent:
        time = f"2026-11-29T00:00:{second:02}.000+00:00"
        return LiveEvent(kind, turn, 1, time, "it was interrupted", {"agent": "helper", **extra})

    def recorded(turn: str, second: int, state: Any = "ok") -> Turn:
        return Turn(
            id=turn,
            seq=1,
            version=1,
            time=f"2026-11-29T00:00:{second:02}+00:00",
            agent="helper",
            seconds=1.0,
            is_timed=True,
            last=1,
            did="makes an error",
            state=state,
        )

    seen: list[Any] = []
    turns = Turns("lead", seen.append)
    turns.live(live(LiveKind.TURN_STARTED, "a", 0))
    turns.live(live(LiveKind.TURN_ENDED, "a", 1, outcome="taken_over"))
    turns.live(live(LiveKind.TURN_STARTED, "b", 2))
    turns.live(live(LiveKind.TURN_STARTED, "c", 4))  # before the record of the one before
    turns.read(recorded("1.0", 2))
    assert turns.subagent_of("helper") == "b"
    turns.read(recorded("5.0", 4, "failed"))
    assert turns.subagent_of("helper") == "c"
    turns.live(live(LiveKind.TURN_STARTED, "late", 5))  # after its record, in the millisecond of its end
    turns.read(recorded("9.0", 6))  # of which there was no live event
    turns.end()
    assert [(each.type.value, each.subagent_run_id) for each in seen] == [
        ("SUBAGENT_STARTED", "a"),
        ("SUBAGENT_ERROR", "a"),
        ("SUBAGENT_STARTED", "b"),
        ("SUBAGENT_STARTED", "c"),
        ("SUBAGENT_FINISHED", "b"),
        ("SUBAGENT_ERROR", "c"),
        ("SUBAGENT_STARTED", "9.0"),
        ("SUBAGENT_FINISHED", "9.0"),
    ]


async def writer(servers: Sequence[HTTPServer], view: View) -> list[Call]:
    """Answer with a text that is written word by word once somebody reads it, and retried if it says so."""

    with model_call("house/model") as reply:
        assert reply.wants_deltas
        await eventually(
            lambda: any(each.here for each in servers[0].rig.runtime.turns.live.watched.values())
        )
        report_usage(Usage(calls=1, input_tokens=7, output_tokens=5))
        if view.mail.body == "stumble":
            reply.delta("answer", "I am wr")
            reply.retry("overloaded", 0.0)
        for word in ("all ", "is ", "well"):
            reply.delta("answer", word)
    return [complete("all is well." if view.mail.body != "turn" else "no")]


@pytest.mark.parametrize(
    ("said", "deltas", "snapshots"),
    [
        ("hello", ["all ", "is ", "well", "."], 0),
        ("stumble", ["I am wr", "all ", "is ", "well", "."], 1),
    ],
)
async def test_text_comes_as_it_is_written(said: str, deltas: list[str], snapshots: int) -> None:
    servers: list[HTTPServer] = []
    agent = build_agent(partial(writer, servers), supervises=True)
    async with HTTPServer(build_swarm({"desk": agent})) as server:
        servers.append(server)
        front = Front(server)
        events = await front.run(said)
        written = [each.delta for each in of(events, EventType.TEXT_MESSAGE_CONTENT)]
        assert "".join(written) == "".join(deltas)
        assert len(of(events, EventType.MESSAGES_SNAPSHOT)) == snapshots
        assert front.texts() == ["all is well."]
        ids, more = (
            {each.message_id for each in of(seen, EventType.TEXT_MESSAGE_START)}
            for seen in (events, await front.run("hello"))
        )
        assert ids.isdisjoint(more), "clients add to a message that has the same id"
        [usage] = events[-1].usage
        assert (usage.provider, usage.model, usage.total_tokens) == ("house", "model", 12)
        assert usage.reasoning_tokens is None


async def test_a_task_fails(server: HTTPServer) -> None:
    events = await Front(server).run("fail")
    assert isinstance(events[-1], RunErrorEvent)
    assert events[-1].code == "task_failed"
    assert events[-1].message
    assert "out of order" not in events[-1].message


async def test_a_task_is_cancelled(server: HTTPServer, gate: Gate) -> None:
    front = Front(server)
    front.say("dig")
    async with front.stream() as stream:
        await anext(stream)
        await gate.begun.wait()
        await server.client.post("/task/cancel", json={"task_id": "t"})
        events = [event async for event in stream]
    assert events[-1].outcome.type == "cancelled"


async def test_a_typed_answer_is_the_result() -> None:
    async with HTTPServer(typed_swarm()) as server:
        events = await Front(server).run("hello")
        assert events[-1].result == {"n": 5}


async def test_files_go_both_ways(server: HTTPServer) -> None:
    front = Front(server)
    source = DataSource(value=base64.b64encode(PNG).decode(), mime_type="image/png")
    image = ImagePart(source=source, metadata={"filename": "cat.png"})
    elsewhere = ImagePart(source=UrlSource(value="http://127.0.0.1:1/x.png"))
    await front.run([TextPart(text="look"), image, elsewhere])
    [said] = front.texts()
    assert said.startswith("you said: look\n\n[image: http://127.0.0.1:1/x.png] file:")
    url = said.partition("![cat.png](")[2].removesuffix(")")
    async with httpx2.AsyncClient() as stranger:
        assert (await stranger.get(url)).content == PNG
    broken = ImagePart(source=DataSource(value="??", mime_type="image/png"))
    front.say([broken])
    assert "base64" in await front.refused(400)


async def test_a_lost_stream_is_followed_again(server: HTTPServer, gate: Gate) -> None:
    front = Front(server)
    front.say("dig")
    async with front.stream() as stream:
        await anext(stream)
        await gate.begun.wait()
    front.messages.append(AssistantMessage(id="half", content="a text that was"))  # lost in the middle
    async with front.stream() as stream:
        await anext(stream)
        gate.opened.set()
        events = [event async for event in stream]
    assert events[-1].outcome.type == "success"
    assert [each.id for each in front.messages if each.role == "user"] == ["u0"]
    assert front.texts() == ["SUCCESS: dug"]
    before = front.messages.copy()
    await front.run()  # it has ended, and comes as a snapshot
    assert front.messages == before
    assert len(await sent(server)) == 1


async def test_a_page_that_is_opened_again_gets_the_thread(server: HTTPServer, gate: Gate) -> None:
    gate.opened.set()
    front = Front(server)
    await front.run("dig")
    await front.run("ask")
    fresh = Front(server)
    events = await fresh.run()
    assert [each.role for each in fresh.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
        "assistant",
    ]
    assert fresh.messages[2].content == "dug"
    [interrupt] = events[-1].outcome.interrupts
    await fresh.run(
        resume=[ResumeEntry(interrupt_id=interrupt.id, status="resolved", payload={"city": "Oslo"})]
    )
    assert fresh.texts()[-1] == '{"city":"Oslo"}'
    again = Front(server)
    await again.run()
    assert [(each.role, each.id) for each in again.messages] == [
        (each.role, each.id) for each in fresh.messages
    ]


async def test_a_message_joins_an_open_run(server: HTTPServer, gate: Gate) -> None:
    front, other = Front(server), Front(server)
    front.say("dig")
    async with front.stream() as stream:
        await anext(stream)
        await gate.begun.wait()
        other.messages = front.messages.copy()
        other.say("and more", "second")
        async with other.stream() as joined:
            await anext(joined)
            gate.opened.set()
            seen = [event async for event in stream]
            await anext(joined, None)
            async for _ in joined:
                pass
    assert seen[-1].outcome.type == "success"
    assert front.texts()[-1] == other.texts()[-1] == "you said: and more"
    assert [each.content for each in front.messages if each.role == "user"] == ["dig", "and more"]


async def test_a_message_is_accepted_once(server: HTTPServer) -> None:
    front = Front(server)
    front.say("hello", "m")
    await front.run()
    front.messages = [UserMessage(id="m", content="hello")]
    await front.run()
    assert front.texts() == ["you said: hello"]
    assert len(await sent(server)) == 1
    front.messages = [UserMessage(id="m", content="something else")]
    assert "was used for another request" in await front.refused(422)


async def test_an_entrypoint_is_chosen(server: HTTPServer) -> None:
    await Front(server, path="/ag-ui?entrypoint=task").run("hello")
    assert (await server.task("t"))["entrypoint"] == "task"
    wrong = Front(server, "other", path="/ag-ui?entrypoint=nobody")
    wrong.say("hello")
    assert "task" in await wrong.refused(400)


async def test_owners_see_only_their_own(server: HTTPServer) -> None:
    await Front(server).run("hello")
    body = Front(server).body()
    answer = await server.client.post("/ag-ui", json=body, headers=server.headers("admin"))
    assert answer.status_code == 400


async def test_what_is_wrong_is_refused_before_the_stream(server: HTTPServer) -> None:
    front = Front(server)
    assert "messages" in await front.refused(400)
    front.say("")
    assert "empty" in await front.refused(400)
    front.messages = [UserMessage(id="a", content="hello")]
    front.thread = "a#b"
    assert "task_id" in await front.refused(400)
    answer = await server.client.post("/ag-ui", json={"threadId": "t"})
    assert answer.status_code == 400
    assert "messages" in answer.json()["detail"]
    for headers, status in (({"Authorization": ""}, 401), (server.headers("agent"), 403)):
        assert (await server.client.post("/ag-ui", json={}, headers=headers)).status_code == status


async def test_a_request_whose_time_is_up_says_how_to_continue(gate: Gate) -> None:
    async with HTTPServer(desk_swarm(gate), time_left=lambda _request: RESPONSE_MARGIN) as server:
        events = await Front(server).run("dig")
        assert (events[-1].type, events[-1].code) == (EventType.RUN_ERROR, "unfinished")
        gate.opened.set()


async def test_a_silent_stream_is_kept_alive(gate: Gate) -> None:
    async with HTTPServer(desk_swarm(gate), heartbeat=0.02) as server:
        front = Front(server)
        front.say("dig")
        async with server.client.stream("POST", "/ag-ui", json=front.body()) as response:
            async for line in response.aiter_lines():
                if line.startswith(": ping"):
                    gate.opened.set()
                    break
            else:
                raise AssertionError("there was no ping")


async def test_a_server_without_the_package_says_so(
    server: HTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mail.http.service.find_spec", lambda _name: None)
    answer = await server.client.post("/ag-ui", json={})
    assert answer.status_code == 501
    assert "pip install 'mail-serverless[agui]'" in answer.json()["detail"]
