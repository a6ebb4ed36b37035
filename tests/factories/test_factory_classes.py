"""The factories as seed 000 documents them: their parameters, their tools, and what they ask of a model."""

import asyncio
import subprocess
import sys
from typing import Any

import pytest
from factory_agents import (
    ALL,
    CHAT,
    CLAUDE,
    CLAUDES,
    GPT,
    LOOK_UP,
    RESPONSES,
    Dialect,
    of,
    prompt,
    supervisor,
)
from pydantic import BaseModel, Field
from support.services.llm_stub import LLMStub, call, reply, search, text, thinking

from mail.core.protocol.mail_tools import MAIL_TOOLS
from mail.core.protocol.tool_schemas import declared_name
from mail.core.tools import pydantic_function_tool
from mail.errors import AgentUnavailable, ConfigurationError
from mail.factories import (
    ActionAgentFunction,
    LiteLLMActionAgentFunction,
    LiteLLMAgentFunction,
    LiteLLMSupervisorFunction,
    MAILAgentFunction,
    SupervisorFunction,
    base_agent_factory,
)
from mail.factories.tools import make_tools
from mail.swarms_json import build_swarm
from mail.swarms_json.specs import SwarmSpec

REPORT = {
    "type": "function",
    "function": {
        "name": "fetch_report",
        "description": "Fetch it.",
        "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}},
    },
}


def names(function: MAILAgentFunction) -> list[str]:
    return [declared_name(tool) for tool in function.tools]


# ---------------------------------------------------------------------------------------------------- the classes


def test_the_documented_paths_lead_to_the_same_classes() -> None:
    from mail.factories.action import ActionAgentFunction as FromAction
    from mail.factories.base import LiteLLMAgentFunction as FromBase
    from mail.factories.base import base_agent_factory as from_base
    from mail.factories.supervisor import LiteLLMSupervisorFunction as FromSupervisor

    assert FromAction is ActionAgentFunction
    assert FromBase is LiteLLMAgentFunction
    assert FromSupervisor is LiteLLMSupervisorFunction
    assert from_base is base_agent_factory


def test_the_hierarchy() -> None:
    assert issubclass(LiteLLMAgentFunction, MAILAgentFunction)
    assert issubclass(ActionAgentFunction, MAILAgentFunction)
    assert issubclass(LiteLLMActionAgentFunction, ActionAgentFunction)
    assert issubclass(LiteLLMActionAgentFunction, LiteLLMAgentFunction)
    assert issubclass(LiteLLMSupervisorFunction, SupervisorFunction)
    assert issubclass(LiteLLMSupervisorFunction, LiteLLMAgentFunction)
    with pytest.raises(TypeError, match="abstract"):
        MAILAgentFunction(name="a", comm_targets=[])  # type: ignore[abstract]


async def test_the_quick_start_of_the_seed(stub: LLMStub) -> None:
    analyst = LiteLLMAgentFunction(
        name="analyst",
        comm_targets=["consultant", "supervisor"],
        tools=[REPORT],
        llm="openai/gpt-5-mini",
        system="system prompt string",
        tool_format="responses",
        enable_entrypoint=False,
        enable_interswarm=False,
        can_complete_tasks=False,
        user_token="user's token",
        reasoning_effort="low",
        thinking_budget=4000,
        max_tokens=6000,
        memory=True,
        use_proxy=True,
        stream_tokens=True,
        print_llm_streams=True,
    )
    stub.script(reply(text("Fine.")))
    said, (made,) = await analyst(messages=[prompt("Test message")], tool_choice="auto")
    assert (said, made.tool_name) == ("Fine.", "text_output")
    (request,) = stub.requests
    assert (request.path, request.key) == ("/responses", "user's token")
    assert request.body["model"] == "openai/gpt-5-mini"
    assert request.body["reasoning"]["effort"] == "low"
    assert request.body["max_output_tokens"] == 6000
    assert request.body["tool_choice"] == "auto"
    assert request.body["stream"] is True


BASIC = [
    "send_request",
    "send_response",
    "acknowledge_broadcast",
    "ignore_broadcast",
    "await_message",
    "help",
]


def test_tools_follow_from_the_place_in_the_swarm() -> None:
    worker = LiteLLMAgentFunction(name="w", comm_targets=["s"], llm=GPT)
    assert names(worker) == [*BASIC, "read_more"]
    boss = LiteLLMSupervisorFunction(name="s", comm_targets=["w"], llm=GPT)
    assert names(boss) == [*BASIC, "send_interrupt", "send_broadcast", "task_complete", "read_more"]
    assert boss.can_complete_tasks
    modest = LiteLLMSupervisorFunction(name="s", comm_targets=["w"], llm=GPT, can_complete_tasks=False)
    assert names(modest) == [*BASIC, "send_interrupt", "send_broadcast", "read_more"]
    far = LiteLLMSupervisorFunction(
        name="s", comm_targets=["w@b"], llm=GPT, enable_interswarm=True, reminders=True
    )
    assert set(names(far)) == set(MAIL_TOOLS)


def test_tools_can_be_left_out() -> None:
    quiet = LiteLLMSupervisorFunction(
        name="s", comm_targets=["w"], llm=GPT, exclude_tools=["help", "send_broadcast", "send_request"]
    )
    assert not {"help", "send_broadcast", "send_request"} & set(names(quiet))


class OldAgent(LiteLLMAgentFunction):
    """An agent as programs for MAIL 1.3.6 define it."""

    def __init__(
        self, name: str, comm_targets: list[str], *, _debug_include_mail_tools: bool = True, **rest: Any
    ) -> None:
        super().__init__(
            name=name, comm_targets=comm_targets, _debug_include_mail_tools=_debug_include_mail_tools, **rest
        )


@pytest.mark.parametrize("kind", [LiteLLMAgentFunction, LiteLLMSupervisorFunction, OldAgent])
def test_an_agent_may_do_without_the_tools_of_mail(kind: Any) -> None:
    bare = kind(name="a", comm_targets=["b"], tools=[REPORT], llm=GPT, _debug_include_mail_tools=False)
    assert names(bare) == ["fetch_report"]
    usual = kind(name="a", comm_targets=["b"], llm=GPT, _debug_include_mail_tools=True)
    assert names(usual) == names(kind(name="a", comm_targets=["b"], llm=GPT))


class Args(BaseModel):
    """Fetch it."""

    n: int = Field(description="Which.")


@pytest.mark.parametrize("style", ["completions", "responses"])
def test_tools_are_taken_in_every_form(style: Any) -> None:
    flat = {"type": "function", "name": "flat", "parameters": {"type": "object", "properties": {}}}
    bare = {"name": "bare"}
    made = make_tools([REPORT, flat, bare, Args, LOOK_UP, {"type": "web_search"}], style)
    assert [declared_name(tool) for tool in made[:5]] == ["fetch_report", "flat", "bare", "Args", "look_up"]
    assert all(("function" in tool) == (style == "completions") for tool in made[:5])
    assert made[5] == {"type": "web_search"}
    assert pydantic_function_tool(Args)["function"]["description"] == "Fetch it."


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"llm": ""}, "needs the name of its model"),
        ({"tool_format": "xml"}, "tool_format"),
        ({"tools": [REPORT, REPORT]}, "several tools with the name fetch_report"),
        ({"tools": [{"type": "function", "function": {}}]}, "needs a name"),
    ],
)
def test_what_can_not_be_is_refused(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        LiteLLMAgentFunction(**{"name": "a", "comm_targets": [], "llm": GPT, **wrong})


@pytest.mark.parametrize(
    ("action", "why"),
    [
        ({"name": "two words"}, "1 to 64"),
        ({"name": "send_request"}, "MAIL tool"),
        ({"name": "a", "parameters": {"type": "string"}}, "type 'object'"),
        ({"name": "a", "parameters": {"type": "object", "properties": {}, "required": ["n"]}}, "n"),
    ],
)
def test_actions_are_checked_before_a_provider_does(action: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        LiteLLMActionAgentFunction(name="a", comm_targets=[], llm=GPT, tools=[action])


def test_swarms_json_builds_them() -> None:
    entry = {
        "name": "example",
        "version": "1.3.0",
        "entrypoint": "supervisor",
        "agents": [
            {
                "name": "supervisor",
                "factory": "python::mail.factories.supervisor:LiteLLMSupervisorFunction",
                "comm_targets": ["weather"],
                "enable_entrypoint": True,
                "can_complete_tasks": True,
                "agent_params": {"llm": GPT, "system": "Be good.", "stream_tokens": True},
            },
            {
                "name": "weather",
                "factory": "mail.factories:LiteLLMActionAgentFunction",
                "comm_targets": ["supervisor"],
                "actions": ["ask"],
                "agent_params": {"llm": GPT, "_debug_include_mail_tools": True},
                "exclude_tools": ["help"],
                "tool_format": "completions",
            },
        ],
        "actions": [{"name": "ask"}],
        "breakpoint_tools": ["ask"],
    }
    swarm = build_swarm(SwarmSpec.model_validate(entry), print_llm_streams=False, user_token="token")
    boss: Any = swarm.agents["supervisor"].function
    worker: Any = swarm.agents["weather"].function
    assert (boss.system, boss.user_token, boss.print_llm_streams) == ("Be good.", "token", False)
    assert declared_name(worker.tools[0]) == "ask"
    assert "help" not in names(worker)
    entry["agents"][0]["agent_params"] = {"llm": GPT, "temprature": 1}  # type: ignore[index]
    with pytest.raises(ConfigurationError, match="temprature"):
        build_swarm(SwarmSpec.model_validate(entry))


# --------------------------------------------------------------------------------------------- what a model is asked


@of(ALL)
async def test_tools_and_choice_are_in_the_style_of_the_api(stub: LLMStub, dialect: Dialect) -> None:
    stub.script(reply(call("help")))
    await supervisor(dialect, tools=[LOOK_UP], max_tokens=5000)([prompt()])
    body = stub.requests[0].body
    tools = {declared_name(tool): tool for tool in body["tools"]}
    assert set(tools) == {"look_up", *BASIC, "send_interrupt", "send_broadcast", "task_complete", "read_more"}
    if "claude" in dialect.llm:
        assert tools["look_up"]["input_schema"]["required"] == ["city"]
        assert body["tool_choice"] == {"type": "auto"}
        assert body["thinking"]["type"] == "enabled"
        assert body["stream"] is True
    else:
        function = tools["look_up"].get("function", tools["look_up"])
        assert function["parameters"]["required"] == ["city"]
        assert body["tool_choice"] == "required"
        assert bool(body.get("stream")) == dialect.streams
    limits = {body.get(name) for name in ("max_tokens", "max_completion_tokens", "max_output_tokens")}
    assert 5000 in limits


@of([CHAT[0], RESPONSES[0], CLAUDES[0]])
async def test_the_choice_can_be_another(stub: LLMStub, dialect: Dialect) -> None:
    stub.script(*[reply(call("help"))] * 3)
    agent = supervisor(dialect, default_tool_choice="auto", reasoning_effort=None)
    await agent([prompt()])
    await agent([prompt()], "none")
    await agent([prompt()], {"type": "function", "function": {"name": "task_complete"}})
    first, second, third = (request.body["tool_choice"] for request in stub.requests)
    assert first in ("auto", {"type": "auto"})
    assert second in ("none", {"type": "none"})
    assert "task_complete" in str(third)


@of([CHAT[0], RESPONSES[0], CLAUDES[0]])
async def test_without_any_tool_there_is_no_choice(stub: LLMStub, dialect: Dialect) -> None:
    stub.script(reply(text("Hi.")))
    everything = list(MAIL_TOOLS)
    await supervisor(dialect, exclude_tools=everything, can_complete_tasks=False)([prompt()])
    assert "tools" not in stub.requests[0].body
    assert "tool_choice" not in stub.requests[0].body


async def test_a_budget_of_thinking_leaves_room_to_answer(stub: LLMStub) -> None:
    stub.script(reply(thinking("Hm."), call("help")))
    await supervisor(CLAUDES[0], thinking_budget=4000, max_tokens=2000)([prompt()])
    (request,) = stub.requests
    assert request.body["thinking"] == {"type": "enabled", "budget_tokens": 4000}
    assert request.body["max_tokens"] == 5024
    assert request.headers["anthropic-beta"] == "interleaved-thinking-2025-05-14"


async def test_without_reasoning_claude_is_made_to_call_tools(stub: LLMStub) -> None:
    stub.script(reply(call("help")))
    await supervisor(CLAUDES[0], reasoning_effort=None)([prompt()])
    (request,) = stub.requests
    assert "thinking" not in request.body
    assert request.body["tool_choice"] == {"type": "any"}
    assert "anthropic-beta" not in request.headers


async def test_tools_of_the_provider_are_passed_on(stub: LLMStub) -> None:
    stub.script(reply(search("Oslo"), call("help")), reply(search("Oslo"), call("help")))
    await supervisor(RESPONSES[0], tools=[{"type": "web_search"}])([prompt()])
    native = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}
    await supervisor(CLAUDES[0], tools=[native])([prompt()])
    assert {"type": "web_search"} in stub.requests[0].body["tools"]
    assert native in stub.requests[1].body["tools"]


@of(ALL)
async def test_a_proxy_is_asked_with_the_user_s_token(stub: LLMStub, dialect: Dialect) -> None:
    stub.script(reply(call("help")))
    agent = supervisor(dialect, use_proxy=True, user_token="user's token", reasoning_effort=None)
    await agent([prompt()])
    (request,) = stub.requests
    assert request.key == "user's token"
    assert request.body["model"] == dialect.llm


async def test_a_proxy_needs_an_address(stub: LLMStub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LITELLM_PROXY_API_BASE")
    with pytest.raises(AgentUnavailable, match="LITELLM_PROXY_API_BASE"):
        await supervisor(CHAT[0], use_proxy=True)([prompt()])
    assert stub.requests == []


async def test_model_and_instructions_can_be_others_for_once(stub: LLMStub) -> None:
    agent = supervisor(CHAT[0])
    stub.script(reply(thinking("Hm."), call("help")), reply(call("help")))
    await agent.but(llm=CLAUDE, system="You are a wolf.")([prompt()])
    await agent([prompt()])
    assert stub.requests[0].body["model"] == "claude-sonnet-4-5"
    assert stub.requests[0].body["system"] == [{"type": "text", "text": "You are a wolf."}]
    assert stub.requests[1].body["messages"][0]["content"] == "You are the supervisor."


async def test_agents_think_at_the_same_time(stub: LLMStub) -> None:
    stub.script(*[reply(call("help"), delay=0.05)] * 8)
    agent = supervisor(RESPONSES[0])
    outputs = await asyncio.gather(*(agent([prompt(str(n))]) for n in range(8)))
    assert len({calls[0].tool_call_id for _, calls in outputs}) == 8


# -------------------------------------------------------------------------------------------------- the console


@pytest.mark.parametrize("prints", [True, False])
@of([CHAT[1], RESPONSES[1], CLAUDES[1]])
async def test_streams_are_printed_line_by_line(
    stub: LLMStub, capsys: pytest.CaptureFixture[str], dialect: Dialect, prints: bool
) -> None:
    stub.script(reply(thinking("First line.\nSecond line."), text("I [bold]ask[/bold]."), call("help")))
    await supervisor(dialect, print_llm_streams=prints)([prompt()])
    printed = capsys.readouterr().out.splitlines()
    told = ["[supervisor] First line.", "[supervisor] Second line.", "[supervisor] I [bold]ask[/bold]."]
    assert printed == (told if prints else [])


@of([CHAT[0], RESPONSES[0], CLAUDES[0]])
async def test_what_is_not_streamed_is_not_printed(
    stub: LLMStub, capsys: pytest.CaptureFixture[str], dialect: Dialect
) -> None:
    stub.script(reply(thinking("Hm."), call("help")))
    await supervisor(dialect, print_llm_streams=True)([prompt()])
    assert capsys.readouterr().out == ""


# ------------------------------------------------------------------------------------------------------- litellm


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_litellm_is_not_imported_before_a_call() -> None:
    code = (
        "import sys, mail.factories as f\n"
        "f.LiteLLMSupervisorFunction(name='s', comm_targets=[], llm='openai/gpt-5-mini')\n"
        "print(sorted({'litellm', 'openai', 'httpx2', 'rich', 'fastapi'} & set(sys.modules)))"
    )
    assert run(code) == "[]"


@pytest.mark.soak
def test_preloading_asks_nobody() -> None:
    """No telemetry, no tables from GitHub: while litellm is imported, no host is looked up and nothing connected."""
    code = (
        "import socket, sys\n"
        "def refuse(*_): raise AssertionError('network')\n"
        "socket.getaddrinfo = socket.socket.connect = refuse\n"
        "from mail.factories import preload\n"
        "from mail.factories.models import context_window, traits_of\n"
        "preload()\n"
        "for llm in ('openai/gpt-5-mini', 'anthropic/claude-sonnet-4-5'):\n"
        "    print('litellm' in sys.modules, traits_of(llm).reasons, context_window(llm))"
    )
    gpt, claude = (line.split() for line in run(code).splitlines())
    assert gpt == ["True", "True", "272000"]
    assert claude[:2] == ["True", "True"]


def test_without_litellm_agents_say_what_to_install() -> None:
    code = (
        "import asyncio, sys\n"
        "sys.modules['litellm'] = None\n"
        "from mail.factories import LiteLLMAgentFunction, preload\n"
        "preload()\n"
        "agent = LiteLLMAgentFunction(name='s', comm_targets=[], llm='gemini/gemini-2.5-pro')\n"
        "try: asyncio.run(agent([]))\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    assert (
        run(code) == "AgentUnavailable agents with a language model need litellm: pip install 'litellm[mcp]'"
    )


def test_one_process_may_have_several_event_loops(stub: LLMStub) -> None:
    """litellm keeps its connections by the id of their loop, which a later loop may have again."""
    for dialect in (CHAT[0], RESPONSES[0], CLAUDES[0]):
        for _ in range(3):
            stub.script(reply(call("help")))
            asyncio.run(_ask(dialect))
    assert len(stub.requests) == 9


async def _ask(dialect: Dialect) -> None:
    from mail.factories.ports import close_clients

    await supervisor(dialect)([prompt()])
    await close_clients()
