"""Names, arguments and values of MAIL 1.3.6 that are accepted besides the documented signatures."""

import asyncio
import importlib
import json
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import pytest
from sse_starlette import EventSourceResponse, ServerSentEvent
from support.processes.projects import entry, supervisor
from support.services.templates import agent, template

import mail.core
from mail import MAILAction, MAILAgentTemplate, MAILMessage, MAILRuntime, MAILSwarm, MAILSwarmTemplate
from mail.core.message import build_mail_xml
from mail.errors import BadRequest, ConfigurationError, ToolCallFault
from mail.factories import LiteLLMSupervisorFunction, MAILAgentFunction, SupervisorFunction
from mail.testing.agents import View, complete, request


def echo(view: View) -> list[Any]:
    return [complete(f"you said: {view.mail.body}")]


def solo() -> MAILSwarm:
    return template(agent("boss", echo, supervises=True)).instantiate({}, user_id="ann")


def as_dictionary(**changes: Any) -> dict[str, Any]:
    """A message as MAIL 1.3.6 documents it: a typed dictionary."""
    return {
        "id": str(uuid4()),
        "timestamp": "2026-03-02T09:15:00+00:00",
        "message": {
            "task_id": "t1",
            "request_id": "r1",
            "sender": {"address_type": "user", "address": "ann"},
            "recipient": {"address_type": "agent", "address": "boss"},
            "subject": "s",
            "body": "Hello",
            "sender_swarm": None,
            "recipient_swarm": None,
            "routing_info": {},
            **changes,
        },
        "msg_type": "request",
    }


class TestMessagesAsDictionaries:
    async def test_a_swarm_takes_them(self) -> None:
        swarm = solo()
        response, _ = await swarm.submit_message(as_dictionary())
        assert response["message"]["body"] == "you said: Hello"
        stream = await swarm.submit_message_stream(as_dictionary(task_id="t2"))
        assert [event.event async for event in stream.body_iterator][-1] == "task_complete"  # type: ignore[union-attr]
        await swarm.submit_message_nowait(as_dictionary(task_id="t3"))
        await swarm.handle_interswarm_response(as_dictionary(task_id="t4"))
        await swarm.await_queue_empty()
        assert {"t3", "t4"} <= swarm.runtime.events.keys()

    async def test_a_runtime_takes_them(self) -> None:
        swarm = solo()
        answer = await swarm.runtime.submit_and_wait(as_dictionary())
        assert answer.message.body == "you said: Hello"
        await swarm.runtime.submit(as_dictionary(task_id="t2"))
        assert (await swarm.runtime.run()) is not None

    async def test_what_is_no_message_is_refused_with_the_reason(self) -> None:
        swarm = solo()
        for wrong in ({}, as_dictionary(subject=3), as_dictionary() | {"id": "abc"}):
            with pytest.raises(BadRequest, match="the message is not valid"):
                await swarm.submit_message(wrong)

    def test_as_xml(self) -> None:
        given = as_dictionary()
        turn = build_mail_xml(given)
        assert turn == build_mail_xml(MAILMessage.model_validate(given))
        assert build_mail_xml(given, is_manual=True)["content"] == f"<private>\n{turn['content']}\n</private>"

    def test_they_yield_their_keys(self) -> None:
        given = as_dictionary()
        message = MAILMessage.model_validate(given)
        assert set(message) == set(given)
        assert [message[key] for key in message] == list(dict(message).values())
        assert list(message["message"]["sender"]) == ["address_type", "address"]
        assert {**message}["id"] == given["id"]


class TestErrors:
    def test_they_are_value_errors(self) -> None:
        with pytest.raises(ValueError, match="no example agent"):
            MAILAgentTemplate.from_example("wether", [])
        assert issubclass(ToolCallFault, ValueError)

    def test_a_broken_file_is_a_configuration_error_still(self, tmp_path: Any, monkeypatch: Any) -> None:
        """Pydantic turns a ValueError inside of a validator into one of its own."""
        (tmp_path / "mail.toml").write_text("port =")
        monkeypatch.chdir(tmp_path)
        from mail.config import ClientConfig

        with pytest.raises(ConfigurationError):
            ClientConfig(timeout=3)


class TestNames:
    @pytest.mark.parametrize("name", mail.core.__all__)
    def test_of_the_core(self, name: str) -> None:
        assert getattr(mail.core, name) is not None
        assert name in dir(mail.core)

    def test_those_documented_are_there(self) -> None:
        wanted = "MAILMessage MAILRequest MAILResponse MAILBroadcast MAILInterrupt MAILAddress create_agent_address "
        wanted += (
            "parse_agent_address AgentToolCall pydantic_model_to_tool create_mail_tools "
            "MAIL_TOOL_NAMES MAILRuntime"
        )
        assert set(wanted.split()) <= set(mail.core.__all__)
        assert mail.core.MAILRuntime is MAILRuntime
        with pytest.raises(AttributeError, match="no attribute 'MAILMesage'"):
            _ = mail.core.MAILMesage

    @pytest.mark.parametrize(
        "reference",
        [
            "mail.core.tasks:MAILTask",
            "mail.core.actions:ActionOverrideFunction",
            "mail.core.tools:pydantic_function_tool",
            "mail.core.tools:_make_tools",
            "mail.core.tools:MAIL_TOOL_NAMES",
            "mail.core.tools:task_tools",
        ],
    )
    def test_in_their_modules(self, reference: str) -> None:
        module, _, name = reference.partition(":")
        assert getattr(importlib.import_module(module), name)

    def test_a_task_has_the_documented_fields(self) -> None:
        fields = "task_id task_owner task_contributors start_time is_running completed remote_swarms events "
        fields += "task_message_queue"
        assert set(fields.split()) <= mail.core.MAILTask.model_fields.keys()


class TestStreams:
    async def test_it_is_iterated_over_with_and_without_await(self) -> None:
        swarm = solo()
        streamed = swarm.runtime.submit_and_stream(as_dictionary())
        events = [event async for event in streamed]
        assert isinstance(events[0], ServerSentEvent)
        assert events[-1].event == "task_complete"
        response = await swarm.runtime.submit_and_stream(as_dictionary(task_id="t2"))
        assert isinstance(response, EventSourceResponse)


class TestArguments:
    async def test_the_steps_of_a_swarm_that_runs(self) -> None:
        def busy(view: View) -> list[Any]:
            return [complete("stopped")] if "::maximum" in view.mail.subject else [request("boss", "more")]

        swarm = template(agent("boss", busy, supervises=True, targets=["boss"])).instantiate({})
        running = asyncio.create_task(swarm.run_continuous(max_steps=2))
        await swarm.post_message("go", task_id="t")
        task = await swarm.runtime.load_task("t")
        assert task is not None
        assert task.max_steps == 2
        await swarm.shutdown()
        await running

    def test_json_dump(self) -> None:
        assert MAILSwarmTemplate.from_swarm_json(json_dump=json.dumps(ENTRY)).name == "s"
        agent, action = {**ENTRY["agents"][0], "actions": []}, ENTRY["actions"][0]
        assert MAILAgentTemplate.from_swarm_json(json_dump=json.dumps(agent)).name == "boss"
        assert MAILAction.from_swarm_json(json_dump=json.dumps(action)).name == "a"

    def test_more_arguments_of_agent_functions(self) -> None:
        class Mine(SupervisorFunction):
            def __init__(self, mood: str, **wiring: Any) -> None:
                super().__init__(mood=mood, **wiring)

            async def __call__(self, messages: Any, tool_choice: Any = "required") -> Any:
                return self.extra["mood"], []

        made = template(
            agent("boss", factory=Mine, supervises=True, agent_params={"mood": "fine"})
        ).instantiate({"user_token": "t"})
        function: Any = made.agents[0].function
        assert isinstance(function, MAILAgentFunction)
        assert function.extra == {"mood": "fine", "user_token": "t"}

    @pytest.mark.soak
    def test_more_arguments_of_agents_with_a_model(self) -> None:
        class Mine(LiteLLMSupervisorFunction):
            def __init__(self, **given: Any) -> None:
                super().__init__(**given)

        made = Mine(name="boss", comm_targets=[], llm="openai/gpt-5-mini", mood="fine")
        assert (made.extra, made.llm) == ({"mood": "fine"}, "openai/gpt-5-mini")
        with pytest.raises(ConfigurationError, match="'mood' is not an option of litellm"):
            LiteLLMSupervisorFunction(name="boss", comm_targets=[], llm="openai/gpt-5-mini", mood="fine")

    def test_mistakes_in_the_settings_of_a_model_are_still_refused(self) -> None:
        params: Mapping[str, Any] = {"llm": "openai/gpt-5-mini", "sistem": "You work."}
        with pytest.raises(ConfigurationError, match="sistem"):
            MAILAgentTemplate(
                name="boss",
                factory="python::mail.factories:LiteLLMSupervisorFunction",
                comm_targets=[],
                actions=[],
                agent_params=params,
            ).instantiate({})


ENTRY = entry(
    "s",
    supervisor("boss", "mail.examples.rule_based:Supervisor", actions=["a"]),
    actions=[{"name": "a", "function": "python::mail.examples.weather_dummy.actions:get_weather_forecast"}],
)


class TestSwarmsJSON:
    def test_the_entries(self) -> None:
        from mail.swarms_json import SwarmsJSONAgent, SwarmsJSONSwarm, build_swarm_from_swarms_json, utils

        swarm = build_swarm_from_swarms_json(ENTRY)
        assert isinstance(swarm, SwarmsJSONSwarm)
        assert isinstance(swarm["agents"][0], SwarmsJSONAgent)
        assert utils.build_agents_from_swarms_json(ENTRY["agents"]) == swarm.agents
        assert utils.build_actions_from_swarms_json(ENTRY["actions"]) == swarm.actions
        assert utils.build_swarms_from_swarms_json([ENTRY]) == [swarm]
        with pytest.raises(ConfigurationError, match="agent: nam"):
            utils.build_agent_from_swarms_json({**ENTRY["agents"][0], "nam": "x"})


RESPONSES = {
    "GetRootResponse": ("health", "Root"),
    "GetStatusResponse": ("server", "Status"),
    "GetWhoamiResponse": ("server", "Whoami"),
    "PostMessageResponse": ("message", "Answer"),
    "GetHealthResponse": ("health", "Health"),
    "GetSwarmsResponse": ("registry", "Swarms"),
    "PostSwarmsResponse": ("registry", "SwarmRegistered"),
    "GetSwarmsDumpResponse": ("swarm", "SwarmDump"),
    "PostInterswarmForwardResponse": ("interswarm", "Delivered"),
    "PostInterswarmBackResponse": ("interswarm", "Delivered"),
    "PostInterswarmMessageResponse": ("interswarm", "InterswarmAnswer"),
    "PostSwarmsLoadResponse": ("swarm", "SwarmLoaded"),
}
"""The documented types, and the models of the routes that answer with them."""


@pytest.mark.parametrize("name", RESPONSES)
def test_types_of_answers(name: str) -> None:
    module, model = RESPONSES[name]
    answered = getattr(importlib.import_module(f"mail.http.routes.{module}"), model)
    documented = getattr(importlib.import_module("mail.net.types"), name)
    assert documented.__required_keys__ <= answered.model_fields.keys()
    assert documented.__required_keys__
