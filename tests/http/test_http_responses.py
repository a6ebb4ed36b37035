"""`POST /responses`, as the official SDK and MAIL's own client see it: answers, conversations, errors."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from openai.types.responses import Response
from responses_stage import Bridge, Slow, problem
from support.processes.http_server import HTTPServer

from mail.core.protocol.calls import AgentToolCall
from mail.core.task.swarm import AgentCore, History, ToolChoice
from mail.errors import AgentUnavailable
from mail.http.service import RESPONSE_MARGIN
from mail.testing.agents import Call, View, build_agent, build_swarm, call, complete, interrupt, wait


def echo(view: View) -> list[Call]:
    """Say what was read, and how many messages there were."""
    return [complete(f"{len(view.messages)}: {view.mail.body}")]


@pytest.fixture
async def server() -> AsyncIterator[Bridge]:
    async with Bridge(echo) as server:
        yield server


# ------------------------------------------------------------------------------------------- where it is served


async def test_it_is_only_below_v1_without_debug() -> None:
    async with HTTPServer(build_swarm({"supervisor": echo})) as server:
        assert (await server.client.post("/responses", json={"input": "hi"})).status_code == 404
        assert (await server.client.get("/responses/resp_t_1")).status_code == 404


async def test_it_is_not_in_the_public_document(server: Bridge) -> None:
    document = (await server.client.get("/openapi.json")).json()
    assert not [path for path in document["paths"] if "responses" in path]
    assert "PostResponses" not in document["components"]["schemas"]


@pytest.mark.parametrize("path", ["", "/", "/v1"])
async def test_the_sdk_finds_it(server: Bridge, path: str) -> None:
    response = await server.sdk(path=path).responses.create(model="example", input="hello")
    assert response.output_text == "1: hello"


# ----------------------------------------------------------------------------------------------------- answers


async def test_the_response_object(server: Bridge) -> None:
    given = {"model": "gpt-5", "input": "hello", "metadata": {"team": "a"}, "temperature": 0.5, "new": [1]}
    answer = await server.respond(**given)
    assert answer.status_code == 200
    response = Response.model_validate(answer.json(), strict=True)
    task_id = answer.headers["x-task-id"]
    assert response.id == f"resp_{task_id}_1"
    assert (response.status, response.model, response.metadata) == ("completed", "gpt-5", {"team": "a"})
    assert (response.error, response.incomplete_details, response.tools) == (None, None, [])
    record = await server.task(task_id)
    assert record["title"] == "hello"
    assert response.usage is not None
    assert response.usage.total_tokens == 0
    assert response.completed_at is not None
    assert response.completed_at >= response.created_at > 1.7e9


async def test_without_a_model_the_swarm_is_named(server: Bridge) -> None:
    assert (await server.respond(input="hello")).json()["model"] == "example"


async def test_a_conversation_goes_on(server: Bridge) -> None:
    client = server.sdk()
    first = await client.responses.create(model="m", input="one")
    second = await client.responses.create(model="m", input="two", previous_response_id=first.id)
    assert second.output_text == "2: two"
    assert second.previous_response_id == first.id
    assert second.id == first.id.removesuffix("_1") + "_2"
    assert (await client.responses.retrieve(first.id)).output_text == "1: one"


async def test_a_task_begun_with_a_message_goes_on(server: Bridge) -> None:
    await server.ask(task_id="of/mine", body="one")
    client = server.sdk()
    response = await client.responses.create(model="m", input="two", previous_response_id="resp_of/mine_1")
    assert response.output_text == "2: two"
    assert (await client.responses.retrieve("resp_of/mine_1")).output_text == "1: one"
    assert (await server.ask(task_id="of/mine", body="three"))["response"] == "3: three"


async def test_instructions_and_a_whole_conversation_become_sections(server: Bridge) -> None:
    response = await server.sdk().responses.create(
        model="m",
        instructions="Be brief.",
        input=[
            {"role": "developer", "content": "You help."},
            {"role": "user", "content": [{"type": "input_text", "text": "Tokyo?"}]},
            {"type": "reasoning", "id": "rs_1", "summary": []},
            {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city": "Tokyo"}'},
            {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
            {"role": "assistant", "content": "It is sunny."},
            {"type": "message", "role": "user", "content": "And Oslo?"},
        ],
    )
    assert response.output_text == (
        "1: [instructions]\nBe brief.\n\n[developer]\nYou help.\n\n[user]\nTokyo?\n\n"
        '[call c1 of the function weather]\n{"city": "Tokyo"}\n\n[result of call c1]\nsunny\n\n'
        "[assistant]\nIt is sunny.\n\n[user]\nAnd Oslo?"
    )
    assert response.instructions == "Be brief."
    task_id = response.id.removeprefix("resp_").removesuffix("_1")
    assert (await server.task(task_id))["title"] == "And Oslo?"


async def test_instructions_are_told_again_only_when_they_change(server: Bridge) -> None:
    client = server.sdk()
    response = await client.responses.create(model="m", input="one", instructions="Be brief.")
    for instructions, heard in [
        ("Be brief.", "two"),
        ("Be long.", "[instructions]\nBe long.\n\n[user]\ntwo"),
    ]:
        response = await client.responses.create(
            model="m", input="two", instructions=instructions, previous_response_id=response.id
        )
        assert response.output_text.partition(": ")[2] == heard


async def test_what_is_told_of_a_request_is_kept_until_the_next(server: Bridge) -> None:
    client = server.sdk()
    first = await client.responses.create(model="a", input="one", metadata={"n": "1"}, instructions="Go.")
    assert await client.responses.retrieve(first.id) == first
    second = await client.responses.create(model="b", input="two", previous_response_id=first.id)
    assert await client.responses.retrieve(second.id) == second
    old = await client.responses.retrieve(first.id)
    assert (old.model, old.metadata, old.instructions) == ("example", {}, None)
    assert (old.output, old.usage, old.created_at) == (first.output, first.usage, first.created_at)


async def test_mails_own_settings() -> None:
    second = build_agent(lambda _view: [complete("from second")], supervises=True)
    swarm = build_swarm({"first": echo, "second": second})
    async with Bridge(swarm) as server:
        response = await server.sdk().responses.create(
            model="m", input="hi", extra_body={"entrypoint": "second"}
        )
        assert response.output_text == "from second"
        error = problem(await server.respond(input="hi", entrypoint="third"))
        assert error["param"] == "entrypoint"


# --------------------------------------------------------------------------------------- waiting for it or not


async def test_in_the_background() -> None:
    slow = Slow()
    async with Bridge(slow) as server:
        client = server.sdk()
        response = await client.responses.create(model="m", input="hi", background=True)
        assert (response.status, response.output, response.background) == ("in_progress", [], True)
        assert (await client.responses.retrieve(response.id)).status == "in_progress"
        with pytest.raises(openai.BadRequestError, match="is running"):
            await client.responses.create(model="m", input="more", previous_response_id=response.id)
        slow.gate.set()
        while response.status == "in_progress":
            await asyncio.sleep(0.01)
            response = await client.responses.retrieve(response.id)
        assert response.output_text == "at last"


async def test_a_request_that_may_not_take_longer_is_answered_in_time() -> None:
    slow = Slow()
    swarm = build_swarm({"supervisor": slow})
    async with Bridge(swarm, time_left=lambda _: RESPONSE_MARGIN + 0.05) as server:
        response = await server.sdk().responses.create(model="m", input="hi")
        assert response.status == "in_progress"
        slow.gate.set()


# ------------------------------------------------------------------------------------------- cancelling, deleting


async def test_the_work_on_a_response_is_cancelled() -> None:
    slow = Slow()
    async with Bridge(slow) as server:
        client = server.sdk(path="/v1")
        begun = await client.responses.create(model="supervisor", input="hi", background=True)
        with pytest.raises(openai.NotFoundError):
            await server.sdk("admin").responses.cancel(begun.id)
        stream = await client.responses.retrieve(begun.id, stream=True)
        assert (await anext(stream)).type == "response.created"
        for response in (
            await client.responses.cancel(begun.id),
            await client.responses.cancel(begun.id),
            await client.responses.retrieve(begun.id),
        ):
            assert (response.id, response.status, response.output) == (begun.id, "cancelled", [])
            assert response.error is not None
            assert response.error.message == "The task was cancelled by ann."
        assert [event.type async for event in stream][-1] == "response.failed"
        slow.gate.set()
        more = await client.responses.create(model="supervisor", input="more", previous_response_id=begun.id)
        assert more.output_text == "at last"
        with pytest.raises(openai.BadRequestError, match="completed") as error:
            await client.responses.cancel(more.id)
        assert error.value.param == "response_id"
        assert (await client.responses.cancel(begun.id)).status == "cancelled"


async def test_a_completion_whose_task_is_cancelled_is_an_error() -> None:
    slow = Slow()
    async with Bridge(slow) as server:
        client = server.sdk(path="/v1")
        asked: Any = {"model": "supervisor", "messages": [{"role": "user", "content": "hi"}]}
        waiting = asyncio.create_task(client.chat.completions.create(**asked))
        await slow.begun.wait()
        [task_id] = (await server.client.get("/tasks")).json()
        await client.responses.cancel(f"resp_{task_id}_1")
        with pytest.raises(openai.InternalServerError, match="was cancelled by ann"):
            await waiting


async def test_a_response_is_deleted(server: Bridge) -> None:
    client = server.sdk(path="/v1")
    first = await client.responses.create(model="supervisor", input="hi")
    second = await client.responses.create(model="supervisor", input="more", previous_response_id=first.id)
    with pytest.raises(openai.BadRequestError, match=second.id):
        await client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        await server.sdk("admin").responses.delete(second.id)
    await client.responses.delete(second.id)
    for name in (first.id, second.id):
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(name)
    assert (await server.client.get("/tasks")).json() == {}


async def test_a_response_that_is_worked_on_is_not_deleted() -> None:
    slow = Slow()
    async with Bridge(slow) as server:
        client = server.sdk()
        begun = await client.responses.create(model="m", input="hi", background=True)
        with pytest.raises(openai.ConflictError, match="running"):
            await client.responses.delete(begun.id)
        slow.gate.set()


# ------------------------------------------------------------------------------------------------------ failures


async def test_a_task_that_fails() -> None:
    async def fail(_history: History, _choice: ToolChoice) -> tuple[str | None, list[AgentToolCall]]:
        raise AgentUnavailable("its model is on holiday")

    agent = AgentCore(fail, enable_entrypoint=True, can_complete_tasks=True)
    async with Bridge(build_swarm({"supervisor": agent})) as server:
        response = await server.sdk().responses.create(model="m", input="hi")
        assert (response.status, response.output) == ("failed", [])
        assert response.error is not None
        assert response.error.code == "server_error"
        assert "its model is on holiday" in response.error.message


async def test_an_answer_that_was_cut_short_is_incomplete() -> None:
    def supervise(view: View) -> list[Call]:
        if view.tool_choice != "required":
            return [complete("so far")]
        return [call("send_request", target="worker", subject="s", body="b"), wait()]

    def work(view: View) -> list[Call]:
        return [interrupt("supervisor")]

    async with Bridge(build_swarm({"supervisor": supervise, "worker": work})) as server:
        answer = await server.respond(input="hi", tools=[], kwargs={"max_steps": 2, "metadata": {"a": "b"}})
        response = Response.model_validate_json(answer.json())
        assert (response.status, response.output_text) == ("incomplete", "so far")
        assert response.incomplete_details is not None
        assert response.incomplete_details.reason == "max_output_tokens"
        (task,) = (await server.client.get("/tasks")).json().values()
        told = [json.loads(event["data"]).get("extra_data", {}) for event in task["events"]]
        (notice,) = [extra for extra in told if "out_of_steps" in extra]
        assert notice["out_of_steps"] is True
        assert notice["full_message"]["message"]["recipient"]["address"] == "supervisor"
        assert response.metadata == {"a": "b"}


async def test_an_unknown_or_foreign_response(server: Bridge) -> None:
    mine = await server.sdk().responses.create(model="m", input="hi")
    other = server.sdk("admin")
    later = mine.id.removesuffix("_1") + "_2"
    for client, name in [
        (other, mine.id),
        (server.sdk(), later),
        (server.sdk(), "resp_x"),
        (server.sdk(), "x"),
    ]:
        with pytest.raises(openai.NotFoundError, match="not found"):
            await client.responses.retrieve(name)
        with pytest.raises(openai.BadRequestError) as error:
            await client.responses.create(model="m", input="hi", previous_response_id=name)
        assert error.value.code == "previous_response_not_found"
        assert error.value.param == "previous_response_id"


async def test_only_the_last_response_goes_on(server: Bridge) -> None:
    client = server.sdk()
    first = await client.responses.create(model="m", input="one")

    async def go_on() -> str:
        try:
            response = await client.responses.create(model="m", input="two", previous_response_id=first.id)
        except openai.BadRequestError as error:
            return str(error.param)
        return response.output_text

    assert (
        sorted(await asyncio.gather(*(go_on() for _ in range(5))))
        == ["2: two"] + ["previous_response_id"] * 4
    )


async def test_keys_and_roles(server: Bridge) -> None:
    with pytest.raises(openai.AuthenticationError):
        await server.sdk(key="wrong").responses.create(model="m", input="hi")
    with pytest.raises(openai.PermissionDeniedError):
        await server.sdk("agent").responses.create(model="m", input="hi")
    response = await server.client.post("/responses", json={}, headers={"Authorization": ""})
    assert problem(response, 401)["code"] == "invalid_api_key"
    assert response.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"input": None},
        {"input": ""},
        {"input": []},
        {"input": 7},
        {"input": ["hi"]},
        {"input": [{"role": "robot", "content": "hi"}]},
        {"input": [{"role": "user"}]},
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "http://x/"}]}]},
        {"input": [{"type": "item_reference", "id": "msg_1"}]},
        {"input": [{"role": "assistant", "content": ""}]},
        {"input": "hi", "conversation": "conv_a#b"},
        {"input": "hi", "conversation": "conv_1", "previous_response_id": "resp_t_1"},
        {"input": "hi", "prompt": {"id": "p"}},
        {"input": "hi", "text": {"format": {"type": "json_schema", "name": "x"}}},
        {"input": "hi", "text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "no"}}}},
        {"input": "hi", "metadata": {"a": 1}},
        {"input": "hi", "metadata": {"a": "x" * 513}},
        {"input": "hi", "max_steps": 0},
        {"input": "hi", "kwargs": {"timeout": -1}},
        {"input": "hi", "instructions": "x" * 200_000},
    ],
)
async def test_requests_that_are_refused(server: Bridge, fields: dict[str, Any]) -> None:
    assert problem(await server.respond(**fields))["type"] == "invalid_request_error"
    assert (await server.client.get("/tasks")).json() == {}


async def test_a_body_that_is_no_json_or_too_large() -> None:
    async with Bridge(echo, max_body_bytes=100) as server:
        server.rig.runtime.caller_files.max_bytes = 75
        for content, status in [(b"{", 400), (b"[]", 400), (b"x" * 200, 400), (b"x" * 201, 413)]:
            problem(await server.client.post("/responses", content=content), status)


# -------------------------------------------------------------------------------------------- MAIL's own client


MAIL_CLIENT = {"User-Agent": "MAIL-Client/1.3.6"}
FUNCTION = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}


@pytest.mark.parametrize(
    ("headers", "given"),
    [
        (MAIL_CLIENT, {}),
        (MAIL_CLIENT, {"instructions": "Be brief."}),
        (MAIL_CLIENT, {"tools": [FUNCTION], "tool_choice": "auto", "parallel_tool_calls": False}),
        (MAIL_CLIENT, {"tool_choice": {"type": "function", "name": "look"}, "tools": [FUNCTION]}),
        (MAIL_CLIENT, {"kwargs": {"metadata": {"team": "a"}}}),
        ({}, {"kwargs": {}}),
        ({}, {"kwargs": {"metadata": {"team": "a"}}}),
    ],
)
async def test_the_client_of_mail_1_3_6_reads_json_text(
    server: Bridge, headers: dict[str, str], given: dict[str, Any]
) -> None:
    """It sends only what its caller gives it; OpenAI's SDK never sends `kwargs`."""
    asked = {"input": [{"role": "user", "content": "Plan."}], "tools": []}
    answer = await server.client.post("/responses", json={**asked, **given}, headers=headers)
    assert answer.headers["content-type"] == "application/json"
    text = answer.json()
    assert isinstance(text, str)
    response = Response.model_validate_json(text)
    assert response.output_text.endswith("Plan.")
    assert response.metadata == given.get("kwargs", {}).get("metadata", {})
    again = await server.respond(**asked)
    assert Response.model_validate(again.json()).output_text == "1: Plan."


async def test_the_client_of_mail_1_3_6_continues_a_response(server: Bridge) -> None:
    first = await server.respond(input="one")
    asked = {"input": "two", "tools": [], "previous_response_id": first.json()["id"]}
    answer = await server.client.post("/responses", json=asked, headers=MAIL_CLIENT)
    assert Response.model_validate_json(answer.json()).output_text == "2: two"
