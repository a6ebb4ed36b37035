"""`POST /responses` as a stream, as the official SDK reads it."""

from typing import Any

import pytest
from responses_stage import WEATHER, Bridge, Slow, calls_of, result

from mail.core.protocol.calls import AgentToolCall
from mail.core.task.swarm import AgentCore, History, ToolChoice
from mail.http.openai.stream import CLOSING
from mail.testing.agents import Call, View, build_swarm, call, complete

BEGINNING = ["response.created", "response.in_progress"]
TEXT = [
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
]
CALL = [
    "response.output_item.added",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
    "response.output_item.done",
]


def use(view: View) -> list[Call]:
    """Call the caller's tool for every city that was named, then answer."""
    if view.results:
        return [complete(" | ".join(view.results))]
    cities = view.mail.body.removeprefix("weather in ").split()
    if cities != view.mail.body.split():
        return [call("get_weather", city=city) for city in cities]
    return [complete(f"you said: {view.mail.body}")]


async def test_an_answer() -> None:
    async with Bridge(use) as server:
        stream = await server.sdk().responses.create(model="m", input="hi", stream=True)
        events = [event async for event in stream]
        assert [event.type for event in events] == [*BEGINNING, *TEXT, "response.completed"]
        numbers = [event.sequence_number for event in events]
        assert numbers == [0, 1, 2, 3, 3 + len("you said: hi"), *range(CLOSING, CLOSING + 4)]
        created, completed = events[0], events[-1]
        assert created.type == "response.created"
        assert completed.type == "response.completed"
        assert (created.response.status, created.response.output) == ("in_progress", [])
        assert created.response.id == completed.response.id
        assert completed.response.output_text == "you said: hi"
        assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == (
            "you said: hi"
        )
        assert completed.response == await server.sdk().responses.retrieve(created.response.id)


async def test_the_helper_of_the_sdk() -> None:
    async with Bridge(use) as server:
        client = server.sdk()
        async with client.responses.stream(
            model="m", input="weather in Tokyo Oslo", tools=[WEATHER]
        ) as stream:
            kinds = [event.type async for event in stream]
            asked = await stream.get_final_response()
        assert kinds == [*BEGINNING, *CALL, *CALL, "response.completed"]
        calls: Any = calls_of(asked)
        assert [call.parsed_arguments for call in calls] == [{"city": "Tokyo"}, {"city": "Oslo"}]
        results = [result(call, "sunny") for call in calls]
        async with client.responses.stream(
            model="m", input=results, previous_response_id=asked.id, tools=[WEATHER]
        ) as stream:
            assert (await stream.get_final_response()).output_text == "sunny | sunny"


async def test_a_task_that_fails() -> None:
    async def fail(_history: History, _choice: ToolChoice) -> tuple[str | None, list[AgentToolCall]]:
        raise RuntimeError

    agent = AgentCore(fail, enable_entrypoint=True, can_complete_tasks=True)
    async with Bridge(build_swarm({"supervisor": agent})) as server:
        stream = await server.sdk().responses.create(model="m", input="hi", stream=True)
        events = [event async for event in stream]
        assert [event.type for event in events] == [*BEGINNING, "response.failed"]
        assert events[-1].type == "response.failed"
        assert events[-1].response.error is not None


async def test_refusals_come_before_the_stream() -> None:
    async with Bridge(use) as server:
        response = await server.respond(input="", stream=True)
        assert response.status_code == 400
        assert response.headers["content-type"] == "application/json"


async def test_bytes_and_headers() -> None:
    async with Bridge(use) as server:
        response = await server.respond(input="line\u2028end", stream=True)
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["cache-control"] == "no-cache"
        assert response.headers["x-task-id"]
        assert response.content.isascii()
        assert response.text.startswith("event: response.created\r\ndata: {")


async def test_a_silent_stream_is_kept_alive() -> None:
    slow = Slow()
    async with Bridge(slow, heartbeat=0.02) as server:
        body = {"input": "hi", "stream": True}
        async with server.client.stream("POST", "/responses", json=body) as response:
            lines = response.aiter_lines()
            assert any([line.startswith(": ping") async for line in _until_pings(lines, 3)])
            slow.gate.set()
            rest = [line async for line in lines]
        assert "event: response.completed" in rest


async def _until_pings(lines: Any, count: int) -> Any:
    async for line in lines:
        yield line
        count -= line.startswith(":")
        if not count:
            return


@pytest.mark.parametrize(
    ("starting_after", "left"),
    [
        (None, "at last"),
        (1, "at last"),
        (3, "at last"),
        (6, "last"),
        (10, ""),
        (CLOSING, ""),
    ],
)
async def test_a_stream_that_broke_off_is_taken_up_again(starting_after: int | None, left: str) -> None:
    slow = Slow()
    async with Bridge(slow) as server:
        client = server.sdk()
        stream = await client.responses.create(model="m", input="hi", stream=True)
        events = [await anext(stream) for _ in BEGINNING]
        await stream.close()
        assert [event.type for event in events] == BEGINNING
        assert events[0].type == "response.created"
        response_id = events[0].response.id
        slow.gate.set()
        after: Any = {} if starting_after is None else {"starting_after": starting_after}
        again = await client.responses.retrieve(response_id, stream=True, **after)
        every = [*BEGINNING, *TEXT, "response.completed"]
        numbers = [0, 1, 2, 3, 10, *range(CLOSING, CLOSING + 4)]
        begin = -1 if starting_after is None else starting_after
        rest = [event async for event in again]
        assert [(event.sequence_number, event.type) for event in rest] == [
            (number, kind) for number, kind in zip(numbers, every, strict=True) if number > begin
        ]
        assert "".join(event.delta for event in rest if event.type == "response.output_text.delta") == left
