"""`/v1`, as OpenAI's SDK uses it on any server: models, completions, conversations, files, typed answers, streams."""

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletion
from pydantic import BaseModel
from responses_stage import Slow, problem
from support.processes.http_server import HTTPServer

from mail.core.task.activity import model_call
from mail.core.task.files import MAX_FILES
from mail.core.task.limits import Budget
from mail.core.task.swarm import AgentCore, SwarmCore
from mail.core.tools import caller_tools, declared_name
from mail.errors import AgentUnavailable
from mail.http.service import RESPONSE_MARGIN
from mail.testing.agents import Call, View, build_agent, build_swarm, call, complete

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 8
PICTURE = f"data:image/png;base64,{b64encode(PNG).decode()}"
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Look up the weather.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        "strict": True,
    },
}


def echo(view: View) -> list[Call]:
    return [complete(f"{len(view.messages)}: {view.mail.body}")]


def second(_view: View) -> list[Call]:
    return [complete("from second")]


def use_all(view: View) -> list[Call]:
    """Call every tool of the caller's once, then say what came of it."""
    if view.results:
        return [complete(" | ".join(view.results))]
    return [call(declared_name(tool), city="Tokyo") for tool in caller_tools()] or [complete("no tools")]


@asynccontextmanager
async def serve(swarm: Any, **settings: Any) -> AsyncIterator[tuple[HTTPServer, AsyncOpenAI]]:
    if not isinstance(swarm, SwarmCore):
        swarm = build_swarm({"supervisor": swarm})
    async with (
        HTTPServer(swarm, **settings) as server,
        AsyncOpenAI(
            base_url=f"{server.uvicorn.url}/v1", api_key=server.keys["user"], max_retries=0, timeout=60.0
        ) as client,
    ):
        yield server, client


@pytest.fixture
async def both() -> AsyncIterator[tuple[HTTPServer, AsyncOpenAI]]:
    swarm = build_swarm({"first": echo, "second": build_agent(second, supervises=True)})
    async with serve(swarm) as stage:
        yield stage


def user(*parts: Any) -> Any:
    return {
        "role": "user",
        "content": list(parts) if len(parts) > 1 or not isinstance(parts[0], str) else parts[0],
    }


# ---------------------------------------------------------------------------------------------------- models


async def test_the_models_are_the_swarm_and_its_entrypoints(both: tuple[HTTPServer, AsyncOpenAI]) -> None:
    _, client = both
    assert [model.id async for model in client.models.list()] == ["example", "first", "second"]
    model = await client.models.retrieve("second")
    assert (model.id, model.object, model.owned_by) == ("second", "model", "mail")
    for name, answer in [("example", "1: hi"), ("first", "1: hi"), ("second", "from second")]:
        response = await client.responses.create(model=name, input="hi")
        assert (response.output_text, response.model) == (answer, name)
        completion = await client.chat.completions.create(model=name, messages=[user("hi")])
        assert (completion.choices[0].message.content, completion.model) == (answer, name)


@pytest.mark.parametrize("stream", [False, True])
async def test_an_unknown_model(both: tuple[HTTPServer, AsyncOpenAI], stream: bool) -> None:
    server, client = both
    for refused in (
        client.responses.create(model="gpt-5", input="hi", stream=stream),
        client.chat.completions.create(model="gpt-5", messages=[user("hi")], stream=stream),
        client.models.retrieve("gpt-5"),
    ):
        with pytest.raises(openai.NotFoundError, match="example, first, second") as error:
            await refused
        assert (error.value.code, error.value.param) == ("model_not_found", "model")
    assert (await server.client.get("/tasks")).json() == {}


# ------------------------------------------------------------------------------------------------ completions


async def test_a_completion(both: tuple[HTTPServer, AsyncOpenAI]) -> None:
    _, client = both
    raw = await client.chat.completions.with_raw_response.create(
        model="example", messages=[{"role": "system", "content": "Be brief."}, user("hello")], temperature=0.5
    )
    completion = ChatCompletion.model_validate_json(raw.content, strict=True)
    [choice] = completion.choices
    assert choice.message.content == "1: [system]\nBe brief.\n\n[user]\nhello"
    assert (choice.finish_reason, choice.message.role, choice.message.tool_calls) == (
        "stop",
        "assistant",
        None,
    )
    assert completion.usage is not None
    assert completion.usage.total_tokens == 0
    assert completion.id == f"resp_{raw.headers['x-task-id']}_1"
    assert (await client.responses.retrieve(completion.id)).output_text == choice.message.content


async def _read(client: AsyncOpenAI, *, stream: bool) -> None:
    answer: Any = await client.chat.completions.create(model="example", messages=[user("hi")], stream=stream)
    async for _ in answer:
        pass


@pytest.mark.parametrize("stream", [False, True])
async def test_a_task_that_fails(stream: bool) -> None:
    async def fail(_history: Any, _choice: Any) -> Any:
        raise AgentUnavailable("its model is on holiday")

    agent = AgentCore(fail, enable_entrypoint=True, can_complete_tasks=True)
    async with serve(build_swarm({"supervisor": agent})) as (server, client):
        client.max_retries = 2  # a failed task is not sent again
        with pytest.raises(openai.APIError, match="its model is on holiday"):
            await _read(client, stream=stream)
        assert len((await server.client.get("/tasks")).json()) == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_a_completion_that_takes_too_long_can_be_fetched_later(stream: bool) -> None:
    slow = Slow()
    async with serve(slow, time_left=lambda _: RESPONSE_MARGIN + 0.2) as (_, client):
        client.max_retries = 2
        with pytest.raises(openai.APIError, match="GET /v1/responses/resp_") as error:
            await _read(client, stream=stream)
        slow.gate.set()
        name = error.value.message.partition("/v1/responses/")[2].split()[0].rstrip(",")
        response = None
        async for event in await client.responses.retrieve(name, stream=True):
            response = event.response if event.type == "response.completed" else None
        assert response is not None
        assert response.output_text == "at last"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 2}, "n"),
        ({"modalities": ["text", "audio"]}, "audio"),
        ({"audio": {"voice": "alloy", "format": "mp3"}}, "audio"),
        ({"functions": [{"name": "x"}]}, "functions"),
        ({"function_call": "auto"}, "function_call"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}, "text"),
        ({"messages": []}, None),
        ({"messages": [{"role": "tool", "content": "?"}]}, None),
        ({"messages": [{"role": "tool", "content": "?", "tool_call_id": "x"}]}, "input"),
        ({"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]}, None),
        ({"messages": [{"role": "user", "content": ""}]}, "input"),
        ({"tools": [{"type": "custom", "custom": {"name": "x"}}]}, None),
    ],
)
async def test_completions_that_are_refused(
    both: tuple[HTTPServer, AsyncOpenAI], fields: dict[str, Any], param: str | None
) -> None:
    server, _ = both
    answer = await server.client.post("/v1/chat/completions", json={"messages": [user("hi")], **fields})
    assert problem(answer)["param"] == param
    assert (await server.client.get("/tasks")).json() == {}


async def test_keys_and_roles(both: tuple[HTTPServer, AsyncOpenAI]) -> None:
    server, client = both
    stranger, peer = client.with_options(api_key="wrong"), client.with_options(api_key=server.keys["agent"])
    for ask in (
        lambda client: client.chat.completions.create(model="example", messages=[user("hi")]),
        lambda client: client.models.list(),
        lambda client: client.conversations.create(),
    ):
        with pytest.raises(openai.AuthenticationError):
            await ask(stranger)
        with pytest.raises(openai.PermissionDeniedError):
            await ask(peer)


# ------------------------------------------------------------------------------------------------------ tools


@pytest.mark.parametrize("stream", [False, True])
async def test_tool_calls_of_a_completion_and_their_results(stream: bool) -> None:
    async with serve(use_all) as (server, client):
        messages: list[Any] = [{"role": "system", "content": "Help."}, user("Weather?")]

        async def ask(tools: Any) -> tuple[Any, str | None]:
            if not stream:
                answer = await client.chat.completions.create(model="example", messages=messages, tools=tools)
                return answer.choices[0].message, answer.choices[0].finish_reason
            async with client.chat.completions.stream(
                model="example", messages=messages, tools=tools
            ) as chunks:
                final = await chunks.get_final_completion()
            return final.choices[0].message, final.choices[0].finish_reason

        other = {"type": "function", "function": {"name": "get_time", "strict": True}}
        asked, reason = await ask([WEATHER, other])
        assert (reason, asked.content or None) == ("tool_calls", None)
        assert [(each.function.name, each.function.arguments) for each in asked.tool_calls] == [
            ("get_weather", '{"city": "Tokyo"}'),
            ("get_time", '{"city": "Tokyo"}'),
        ]
        calls = [each.model_dump(include={"id", "type", "function"}) for each in asked.tool_calls]
        messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        messages += [
            {"role": "tool", "tool_call_id": each["id"], "content": content}
            for each, content in zip(calls, ["sunny", "noon"], strict=True)
        ]
        answer, reason = await ask([WEATHER])
        assert (answer.content, reason) == ("sunny | noon", "stop")
        assert len((await server.client.get("/tasks")).json()) == 1

        # the task doesn't wait any more, so the same conversation begins another one
        answer, _ = await ask([])
        assert answer.content == "no tools"
        assert len((await server.client.get("/tasks")).json()) == 2


async def test_a_result_that_is_missing() -> None:
    async with serve(use_all) as (_, client):
        other = {"type": "function", "function": {"name": "get_time", "strict": True}}
        asked = await client.chat.completions.create(
            model="example", messages=[user("?")], tools=[WEATHER, other]
        )
        calls = asked.choices[0].message.tool_calls or []
        messages: Any = [
            user("?"),
            asked.choices[0].message,
            {"role": "tool", "tool_call_id": calls[0].id, "content": "sunny"},
        ]
        with pytest.raises(openai.BadRequestError, match="No tool output found for function call resp_"):
            await client.chat.completions.create(model="example", messages=messages)


async def test_a_client_without_previous_response_id_continues_a_paused_task() -> None:
    async with serve(use_all) as (server, client):
        tool: Any = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}}
        asked = await client.responses.create(model="example", input="Weather?", tools=[tool])
        conversation: Any = [
            {"role": "user", "content": "Weather?"},
            *(item.to_dict() for item in asked.output),
            {"type": "function_call_output", "call_id": asked.output[0].call_id, "output": "sunny"},
            {"role": "user", "content": "In Oslo?"},
        ]
        told = await client.responses.create(model="example", input=conversation, store=False)
        assert told.output_text == "sunny"
        assert told.id == asked.id.removesuffix("_1") + "_2"
        assert len((await server.client.get("/tasks")).json()) == 1


# ---------------------------------------------------------------------------------------------- conversations


async def test_a_conversation_is_a_task(both: tuple[HTTPServer, AsyncOpenAI]) -> None:
    server, client = both
    conversation = await client.conversations.create(metadata={"team": "a"})
    assert (conversation.object, conversation.metadata) == ("conversation", {"team": "a"})
    assert (await server.client.get("/tasks")).json() == {}
    for text, answer in [("one", "1: one"), ("two", "2: two")]:
        response = await client.responses.create(model="example", input=text, conversation=conversation.id)
        assert response.output_text == answer
        assert response.conversation is not None
        assert response.conversation.id == conversation.id
    assert list((await server.client.get("/tasks")).json()) == [conversation.id.removeprefix("conv_")]
    refusal = await server.client.post("/v1/conversations", json={"items": [user("hi")]})
    assert problem(refusal)["param"] == "items"


# ------------------------------------------------------------------------------- limits of callers, and retries


async def test_a_retry_with_the_same_key_is_the_same_request() -> None:
    async with serve(use_all) as (server, client):
        tool: Any = {"type": "function", "name": "get_weather"}
        once = {"Idempotency-Key": "k1"}
        asked = [
            await client.responses.create(model="example", input="?", tools=[tool], extra_headers=once)
            for _ in range(2)
        ]
        assert asked[0].id == asked[1].id
        output: Any = [
            {"type": "function_call_output", "call_id": asked[0].output[0].call_id, "output": "sunny"}
        ]
        twice = {"Idempotency-Key": "k2"}
        told = [
            await client.responses.create(
                model="example", input=output, previous_response_id=asked[0].id, extra_headers=twice
            )
            for _ in range(2)
        ]
        assert told[0].id == told[1].id == asked[0].id.removesuffix("_1") + "_2"
        assert told[0].output_text == told[1].output_text == "sunny"
        messages: Any = [user("hi")]
        completions = [
            await client.chat.completions.create(
                model="example", messages=messages, extra_headers={"Idempotency-Key": "k3"}
            )
            for _ in range(2)
        ]
        assert completions[0].id == completions[1].id
        with pytest.raises(openai.UnprocessableEntityError):
            await client.responses.create(model="example", input="other", extra_headers=once)
        assert len((await server.client.get("/tasks")).json()) == 2


async def test_the_ceiling_of_a_caller_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serve(echo) as (server, client):
        monkeypatch.setattr(server.rig.runtime, "ceiling", lambda _caller: Budget(tokens=7))
        response = await client.responses.create(model="example", input="hi")
        await client.chat.completions.create(model="example", messages=[user("hi")])
        tasks = (await server.client.get("/tasks")).json()
        assert response.status == "completed"
        budgets = [(await server.task(task_id))["budget"] for task_id in tasks]
        assert [budget["tokens"] for budget in budgets] == [7, 7]


# ------------------------------------------------------------------------------------------------------ files


async def test_images_and_files_in_and_out() -> None:
    read: list[Any] = []

    def look(view: View) -> list[Call]:
        read.append(view.history[-1])
        names = [file["name"] for file in read[-1].get("files", [])]
        return [complete(f"{names}: {view.mail.body} file:{read[-1]['files'][0]['id']}")]

    async with serve(look) as (server, client):
        text = {"type": "input_text", "text": "What is it?"}
        plan = {"type": "input_file", "filename": "plan.txt", "file_data": b64encode(b"a plan").decode()}
        answer = await client.responses.create(
            model="example",
            input=[user(text, {"type": "input_image", "image_url": PICTURE, "detail": "auto"}, plan)],
        )
        assert answer.output_text.startswith("['")
        assert ", 'plan.txt']: What is it? file:" in answer.output_text
        [picture, _] = read[-1]["files"]
        assert (picture["type"], picture["bytes"]) == ("image/png", len(PNG))
        [annotation] = answer.output[0].content[0].annotations
        assert (annotation.type, annotation.file_id) == ("file_path", picture["id"])
        assert (await client.files.content(annotation.file_id)).content == PNG
        assert (await server.client.get(f"/files/{annotation.file_id}")).content == PNG

        chat = await client.chat.completions.create(
            model="example",
            messages=[
                user(
                    {"type": "image_url", "image_url": {"url": PICTURE}},
                    {"type": "file", "file": {"file_id": picture["id"]}},
                )
            ],
        )
        assert chat.choices[0].message.content is not None
        assert "[file" in chat.choices[0].message.content  # there is no other text
        assert [file["id"] for file in read[-1]["files"]] == [picture["id"]]  # it is the same one


async def test_a_conversation_with_many_images_has_the_last_ones() -> None:
    read: list[Any] = []

    def look(view: View) -> list[Call]:
        read.append(view.history[-1])
        return [complete(view.mail.body)]

    pictures = [f"data:image/png;base64,{b64encode(PNG + bytes([n])).decode()}" for n in range(MAX_FILES + 2)]
    messages: list[Any] = []
    for picture in pictures:
        messages += [
            user({"type": "image_url", "image_url": {"url": picture}}),
            {"role": "assistant", "content": "Nice."},
        ]
    async with serve(look) as (_, client):
        answer = await client.chat.completions.create(model="example", messages=[*messages, user("And?")])
        body = answer.choices[0].message.content or ""
        assert body.count("image/png") == len(pictures)
        ids = [file["id"] for file in read[-1]["files"]]
        assert len(ids) == MAX_FILES
        assert all(f"file:{each}" in body for each in ids)
        assert body.rindex(ids[-1]) > body.rindex(ids[0])


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"type": "input_image", "image_url": "https://example.com/a.png"}, "POST /files"),
        ({"type": "input_image"}, "neither a file_id"),
        ({"type": "input_image", "image_url": "data:image/png;base64,!"}, "base64"),
        ({"type": "input_image", "image_url": "data:image/png,abc"}, "data: URL"),
        ({"type": "input_image", "image_url": "data:image/png;base64,YWJj"}, "first bytes"),
        ({"type": "input_file", "file_url": "https://example.com/a.pdf"}, "POST /files"),
        ({"type": "input_file", "file_data": ""}, "neither a file_id"),
        ({"type": "input_audio", "input_audio": {}}, "text, images and files"),
    ],
)
async def test_files_that_are_refused(
    both: tuple[HTTPServer, AsyncOpenAI], part: dict[str, Any], message: str
) -> None:
    server, _ = both
    answer = await server.client.post("/v1/responses", json={"input": [user(part, part)]})
    assert message in problem(answer)["message"]


async def test_an_unknown_file(both: tuple[HTTPServer, AsyncOpenAI]) -> None:
    server, _ = both
    part = {"type": "input_file", "file_id": "file-x"}
    answer = await server.client.post("/v1/responses", json={"input": [user(part, part)]})
    assert "there is no file 'file-x'" in problem(answer, 404)["message"]


# ---------------------------------------------------------------------------------------------- typed answers


class City(BaseModel):
    name: str
    people: int


def tokyo(_view: View) -> list[Call]:
    return [call("task_complete", output={"name": "Tokyo", "people": 14_000_000})]


async def test_typed_answers() -> None:
    async with serve(tokyo) as (_, client):
        response = await client.responses.parse(model="example", input="?", text_format=City)
        assert response.output_parsed == City(name="Tokyo", people=14_000_000)
        assert response.text is not None
        assert response.text.format is not None
        assert response.text.format.type == "json_schema"
        parsed = await client.chat.completions.parse(
            model="example", messages=[user("?")], response_format=City
        )
        assert parsed.choices[0].message.parsed == City(name="Tokyo", people=14_000_000)
        anything = await client.chat.completions.create(
            model="example", messages=[user("?")], response_format={"type": "json_object"}
        )
        assert json.loads(anything.choices[0].message.content or "")["name"] == "Tokyo"


# ---------------------------------------------------------------------------------------------------- streams


class Writer:
    """An agent whose model writes pieces of an answer, each when the test lets it, and then answers."""

    def __init__(
        self, answer: str, *calls: list[str], use: list[Call] | None = None, kind: Any = "answer"
    ) -> None:
        self.answer, self.calls, self.use, self.kind = answer, calls, use, kind
        self.next = asyncio.Event()

    async def __call__(self, view: View) -> list[Call]:
        if view.results:
            return [complete(self.answer)]
        for pieces in self.calls:
            with model_call("house/model") as reply:
                for piece in pieces:
                    await self.next.wait()
                    self.next.clear()
                    reply.delta(self.kind, piece)
        return self.use or [complete(self.answer)]


@pytest.mark.parametrize(
    ("calls", "deltas"),
    [
        ([["Hello ", "world"]], ["Hello ", "world"]),
        ([["Hello "]], ["Hello ", "world"]),
        ([["Hola"]], ["Hola", "\n\nHello world"]),
        ([["Hola"], ["Hello "]], ["Hola", "\n\n", "Hello ", "world"]),
    ],
)
async def test_text_is_streamed_as_a_model_writes_it(calls: list[list[str]], deltas: list[str]) -> None:
    writer = Writer("Hello world", *calls)
    async with serve(writer) as (_, client):
        got: list[str] = []
        numbers: list[int] = []
        done = ""
        async for event in await client.responses.create(model="example", input="hi", stream=True):
            numbers.append(event.sequence_number)
            if event.type in ("response.in_progress", "response.output_text.delta"):
                writer.next.set()  # the next piece is written only after this one has come
            if event.type == "response.output_text.delta":
                got.append(event.delta)
            if event.type == "response.output_text.done":
                done = event.text
            if event.type == "response.completed":
                assert event.response.output_text == "Hello world"
        assert (got, done) == (deltas, "Hello world")
        assert numbers == sorted(set(numbers))

        got.clear()
        writer.next.clear()
        async for chunk in await client.chat.completions.create(
            model="example", messages=[user("hi")], stream=True
        ):
            writer.next.set()
            if chunk.choices[0].delta.content:
                got.append(chunk.choices[0].delta.content)
        assert got == deltas


async def test_the_chunks_of_a_completion() -> None:
    writer = Writer("Hello world", ["Hello "])
    async with serve(writer) as (server, client):
        stream = await client.chat.completions.create(
            model="example", messages=[user("hi")], stream=True, stream_options={"include_usage": True}
        )
        chunks = []
        async for chunk in stream:
            writer.next.set()
            chunks.append(chunk)
        *rest, last = chunks
        assert [chunk.choices[0].delta.content for chunk in rest] == ["", "Hello ", "world", None]
        assert rest[0].choices[0].delta.role == "assistant"
        assert [chunk.choices[0].finish_reason for chunk in rest] == [None, None, None, "stop"]
        assert last.choices == []
        assert last.usage is not None
        assert len({chunk.id for chunk in chunks}) == 1
        writer.next.set()
        body = {"model": "example", "messages": [user("hi")], "stream": True}
        raw = await server.client.post("/v1/chat/completions", json=body)
        assert raw.text.endswith("data: [DONE]\r\n\r\n")
        assert '"usage"' not in raw.text


async def test_text_before_the_calls_of_a_stream() -> None:
    writer = Writer("done", ["Let me look."], use=[call("get_weather", city="Oslo")])
    tool: Any = {"type": "function", "name": "get_weather"}
    async with serve(writer) as (_, client):
        async with client.responses.stream(model="example", input="hi", tools=[tool]) as stream:
            async for event in stream:
                if event.type == "response.in_progress":
                    writer.next.set()
            asked = await stream.get_final_response()
        assert [item.type for item in asked.output] == ["message", "function_call"]
        assert asked.output_text == "Let me look."
        output: Any = {"type": "function_call_output", "call_id": asked.output[1].call_id, "output": "cold"}
        told = await client.responses.create(model="example", input=[output], previous_response_id=asked.id)
        assert told.output_text == "done"


async def test_a_typed_answer_is_streamed_whole() -> None:
    writer = Writer('{"a": 1}', ['{"a":'])
    writer.next.set()
    async with serve(writer) as (_, client):
        stream = await client.chat.completions.create(
            model="example",
            messages=[user("hi")],
            stream=True,
            response_format={"type": "json_object"},
        )
        text = ""
        async for chunk in stream:
            text += chunk.choices[0].delta.content or ""
        assert json.loads(text) == {"a": 1}
