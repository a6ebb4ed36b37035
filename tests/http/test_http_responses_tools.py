"""`POST /responses` with tools of the caller's: agents call them, the caller gives the results."""

from typing import Any

import openai
import pytest
from openai.types.responses import Response
from responses_stage import WEATHER, Bridge, calls_of, problem, result

from mail.core.protocol.tool_schemas import ToolFormat, declared_name
from mail.core.tools import caller_tools
from mail.testing.agents import Call, View, build_swarm, call, complete, request, respond, wait

TIME: Any = {"type": "function", "name": "get_time"}


def offered() -> list[str]:
    """The caller's tools, as an agent finds them."""
    return [declared_name(tool) for tool in caller_tools()]


def use_all(view: View) -> list[Call]:
    """Call every tool of the caller's once, then say what came of it."""
    if view.results:
        return [complete(" | ".join(view.results))]
    return [call(name, city="Tokyo") for name in offered()] or [complete("no tools")]


def say_tools(view: View) -> list[Call]:
    """Say which tools are offered, and what must be called."""
    return [complete(f"{offered()} {view.tool_choice}")]


def task_of(response: Response) -> str:
    return response.id.removeprefix("resp_").rpartition("_")[0]


@pytest.mark.parametrize("tool_format", ["completions", "responses"])
async def test_a_call_and_its_result(tool_format: ToolFormat) -> None:
    async with Bridge(build_swarm({"supervisor": use_all}, tool_format=tool_format)) as server:
        client = server.sdk()
        asked = await client.responses.create(model="m", input="Weather?", tools=[WEATHER])
        assert (asked.status, asked.output_text) == ("completed", "")
        [waiting] = calls_of(asked)
        assert (waiting.name, waiting.arguments, waiting.status) == (
            "get_weather",
            '{"city": "Tokyo"}',
            "completed",
        )
        assert [tool.to_dict() for tool in asked.tools] == [WEATHER]
        told = await client.responses.create(
            model="m", input=[result(waiting, "sunny")], previous_response_id=asked.id, tools=[WEATHER]
        )
        assert told.output_text == "sunny"
        assert (await client.responses.retrieve(asked.id)).output == asked.output


async def test_the_tools_of_coding_clients_collide_with_none_of_ours() -> None:
    names = ["read", "write", "edit", "bash", "glob", "grep", "task", "web_search", "apply_patch"]
    tools: Any = [{"type": "function", "name": name} for name in names]
    async with Bridge(build_swarm({"supervisor": say_tools})) as server:
        asked = await server.sdk().responses.create(model="m", input="Look.", tools=tools)
    assert asked.output_text == f"{names} required"


async def test_parallel_calls() -> None:
    async with Bridge(use_all) as server:
        client = server.sdk()
        asked = await client.responses.create(model="m", input="?", tools=[WEATHER, TIME])
        first, second = calls_of(asked)
        assert first.id != second.id
        for some in ([], [result(first, "a")], [result(second, "b")]):
            with pytest.raises(
                openai.BadRequestError, match="No tool output found for function call"
            ) as error:
                await client.responses.create(model="m", input=some, previous_response_id=asked.id)
            assert error.value.param == "input"
        with pytest.raises(openai.BadRequestError, match="No tool call found"):
            await client.responses.create(
                model="m",
                input=[
                    result(first, "a"),
                    result(second, "b"),
                    {"type": "function_call_output", "call_id": "x", "output": "?"},
                ],
                previous_response_id=asked.id,
            )
        twice = [result(first, "a"), result(first, "a"), result(second, "b")]
        refusal = problem(await server.respond(input=twice, previous_response_id=asked.id))
        assert "two results" in refusal["message"]
        assert refusal["param"] == "input"
        both = [result(second, "b"), result(first, "a")]
        told = await client.responses.create(model="m", input=both, previous_response_id=asked.id)
        assert told.output_text == "a | b"


async def test_one_call_at_a_time() -> None:
    def supervise(view: View) -> list[Call]:
        real = [text for text in view.results if not text.startswith("ERROR")]
        if len(real) == 2:
            return [complete(" | ".join(view.results))]
        return [call(name) for name in offered()[len(real) :]]

    async with Bridge(supervise) as server:
        client = server.sdk()
        asked = await client.responses.create(
            model="m", input="?", tools=[WEATHER, TIME], parallel_tool_calls=False
        )
        assert asked.parallel_tool_calls is False
        for name, output in [("get_weather", "sunny"), ("get_time", "noon")]:
            [waiting] = calls_of(asked)
            assert waiting.name == name
            asked = await client.responses.create(
                model="m",
                input=[result(waiting, output)],
                previous_response_id=asked.id,
                tools=[WEATHER, TIME],
                parallel_tool_calls=False,
            )
        refused, *real = asked.output_text.split(" | ")
        assert "one tool at a time" in refused
        assert real == ["sunny", "noon"]


async def test_words_that_come_with_the_results() -> None:
    def supervise(view: View) -> list[Call]:
        if not view.results:
            return [call("get_weather", city="Tokyo")]
        return [complete(f"{view.results[0]} {view.messages[1].body} {view.mail.subject}")]

    async with Bridge(supervise) as server:
        client = server.sdk()
        asked = await client.responses.create(model="m", input="?", tools=[WEATHER])
        [waiting] = calls_of(asked)
        said: Any = [waiting.to_dict(), result(waiting, "sunny"), {"role": "user", "content": "In short."}]
        told = await client.responses.create(model="m", input=said, previous_response_id=asked.id)
        assert told.output_text == "sunny In short. ::action_complete::"


async def test_a_result_without_a_call() -> None:
    async with Bridge(use_all) as server:
        client = server.sdk()
        alone: Any = [{"type": "function_call_output", "call_id": "c", "output": "?"}]
        done = await client.responses.create(model="m", input="hi")
        for given in ({"input": alone}, {"input": alone, "previous_response_id": done.id}):
            with pytest.raises(openai.BadRequestError, match=r"No tool call found .* call_id c"):
                await client.responses.create(model="m", **given)


async def test_tools_of_the_swarm_that_wait_for_the_user() -> None:
    """They need not be declared; and the results may also be given by `POST /message`."""
    swarm = build_swarm(
        {"supervisor": lambda view: [complete(view.results[0])] if view.results else [call("ask", what="?")]},
        breakpoint_tools=frozenset({"ask"}),
    )
    async with Bridge(swarm) as server:
        client = server.sdk()
        asked = await client.responses.create(model="m", input="hi")
        [waiting] = calls_of(asked)
        assert waiting.name == "ask"
        told = await client.responses.create(
            model="m", input=[result(waiting, "42")], previous_response_id=asked.id
        )
        assert told.output_text == "42"
        asked = await client.responses.create(model="m", input="hi")
        answer = await server.ask(
            body="",
            task_id=asked.id.split("_")[1],
            resume_from="breakpoint_tool_call",
            kwargs={"breakpoint_tool_call_result": "43"},
        )
        assert answer["response"] == "43"


# -------------------------------------------------------------------------------------------- to whom they are lent


async def test_only_the_agent_that_reads_the_callers_words_is_offered_them() -> None:
    def supervise(view: View) -> list[Call]:
        if view.mail.sender == "worker":
            return [complete(view.mail.body)]
        assert offered() == ["get_weather"]
        return [request("worker"), wait()]

    def work(view: View) -> list[Call]:
        if view.mail.sender_type == "system":
            return [respond("supervisor", view.mail.body)]
        assert offered() == []
        return [call("get_weather", city="Tokyo")]

    async with Bridge(build_swarm({"supervisor": supervise, "worker": work})) as server:
        response = await server.sdk().responses.create(model="m", input="?", tools=[WEATHER])
        assert "there is no tool 'get_weather'" in response.output_text


async def test_they_are_lent_to_one_answer_only() -> None:
    async with Bridge(say_tools) as server:
        client = server.sdk()
        first = await client.responses.create(model="m", input="?", tools=[WEATHER])
        assert first.output_text == "['get_weather'] required"
        second = await client.responses.create(model="m", input="?", previous_response_id=first.id)
        assert second.output_text == "[] required"
        assert second.tools == []
        third = await client.responses.create(
            model="m", input="?", previous_response_id=second.id, tools=[TIME]
        )
        assert third.output_text == "['get_time'] required"
        task_id = third.id.split("_")[1]
        assert (await server.ask(task_id=task_id))["response"] == "[] required"


def _forced(name: str) -> str:
    return str({"type": "function", "function": {"name": name}})


@pytest.mark.parametrize(
    ("choice", "seen"),
    [
        (None, "['get_weather', 'get_time'] required"),
        ("auto", "['get_weather', 'get_time'] required"),
        ("none", "[] required"),
        ("required", "['get_weather', 'get_time'] required"),
        ({"type": "function", "name": "get_time"}, f"['get_time'] {_forced('get_time')}"),
        ({"type": "function", "function": {"name": "get_time"}}, f"['get_time'] {_forced('get_time')}"),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "get_time"}]},
            "['get_time'] required",
        ),
        (
            {
                "type": "allowed_tools",
                "mode": "required",
                "tools": [{"type": "function", "name": "get_time"}],
            },
            f"['get_time'] {_forced('get_time')}",
        ),
    ],
)
async def test_tool_choices(choice: Any, seen: str) -> None:
    async with Bridge(say_tools) as server:
        given = {} if choice is None else {"tool_choice": choice}
        answer = await server.respond(input="?", tools=[WEATHER, TIME], **given)
        response = Response.model_validate(answer.json())
        assert response.output_text == seen


async def test_a_demand_holds_for_the_first_turn() -> None:
    def supervise(view: View) -> list[Call]:
        if len(view.messages) == 1:
            assert offered() == ["get_weather"]
            return [call("help")]
        return [complete(f"{offered()} {view.tool_choice}")]

    async with Bridge(supervise) as server:
        choice: Any = {"type": "function", "name": "get_weather"}
        response = await server.sdk().responses.create(
            model="m", input="?", tools=[WEATHER, TIME], tool_choice=choice
        )
        assert response.output_text == "['get_weather', 'get_time'] required"


# ------------------------------------------------------------------------------------------------- what is refused


async def _action(_arguments: dict[str, Any]) -> str:
    return "done"


ACTING = build_swarm({"supervisor": use_all}, actions={"act": _action}, breakpoint_tools=frozenset({"ask"}))


@pytest.mark.parametrize(
    ("tools", "choice"),
    [
        ([TIME, TIME], None),
        ([{"type": "function", "name": "with space"}], None),
        ([{"type": "function", "name": ""}], None),
        ([{"type": "function"}], None),
        ([{"type": "function", "name": "x", "parameters": {"type": "string"}}], None),
        ([{"type": "web_search"}], None),
        ([{"name": "x"}], None),
        ("x", None),
        ([TIME], "sometimes"),
        ([TIME], {"type": "function", "name": "other"}),
        ([], "required"),
        ([TIME], {"type": "allowed_tools", "mode": "auto", "tools": []}),
        ([TIME], {"type": "web_search"}),
    ],
)
async def test_tools_that_are_refused(tools: Any, choice: Any) -> None:
    async with Bridge(ACTING) as server:
        error = problem(await server.respond(input="hi", tools=tools, tool_choice=choice))
        assert error["type"] == "invalid_request_error"
        assert (await server.client.get("/tasks")).json() == {}


@pytest.mark.parametrize(
    "name", ["task_complete", "text_output", "web_search_call", "act", "ask", "caller__x"]
)
async def test_a_tool_with_a_name_of_the_swarms_has_another_one_there(name: str) -> None:
    """So a swarm can be the model of an agent of another swarm, which has `task_complete`, too."""
    tool: Any = {**TIME, "name": name}
    async with Bridge(ACTING) as server:
        client = server.sdk()
        asked = await client.responses.create(
            model="m", input="hi", tools=[tool], tool_choice={"type": "function", "name": name}
        )
        [waiting] = calls_of(asked)
        assert waiting.name == name
        assert [declared.to_dict()["name"] for declared in asked.tools] == [name]
        [paused] = (await server.client.get(f"/task?task_id={task_of(asked)}")).json()["pending_tool_calls"]
        assert paused["name"] == f"caller__{name}"
        told = await client.responses.create(
            model="m", input=[result(waiting, "noon")], previous_response_id=asked.id
        )
        assert told.output_text == "noon"


async def test_a_tool_in_the_shape_of_chat_completions() -> None:
    chat = {"type": "function", "function": {name: WEATHER[name] for name in WEATHER if name != "type"}}
    async with Bridge(use_all) as server:
        answer = await server.respond(input="hi", tools=[chat])
        [item] = answer.json()["output"]
        assert item["name"] == "get_weather"
        assert answer.json()["tools"] == [WEATHER]
