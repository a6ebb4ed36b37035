"""LLM agents for the tests: every dialect that a provider can be spoken to in, and swarms of such agents."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from mail.core.protocol.calls import BUILTIN_TOOLS, TEXT_OUTPUT, AgentToolCall, ToolFormat
from mail.core.task.swarm import ActionCore, AgentCore, History, SwarmCore
from mail.factories import (
    LiteLLMActionAgentFunction,
    LiteLLMAgentFunction,
    LiteLLMSupervisorFunction,
)


@dataclass(frozen=True)
class Dialect:
    """A model, an API's shapes, and whether replies are streamed."""

    llm: str
    tool_format: ToolFormat
    streams: bool = False

    def __str__(self) -> str:
        model = "claude" if "claude" in self.llm else "gpt"
        return f"{model}-{self.tool_format}{'-streamed' if self.streams else ''}"

    @property
    def params(self) -> dict[str, Any]:
        """The arguments of a factory."""
        return {
            "llm": self.llm,
            "tool_format": self.tool_format,
            "stream_tokens": self.streams,
            "print_llm_streams": False,
        }


GPT = "openai/gpt-5-mini"
CLAUDE = "anthropic/claude-sonnet-4-5"

CHAT = [Dialect(GPT, "completions", streams) for streams in (False, True)]
RESPONSES = [Dialect(GPT, "responses", streams) for streams in (False, True)]
CLAUDES = [
    Dialect(CLAUDE, tool_format, streams)
    for tool_format in ("completions", "responses")
    for streams in (False, True)
]
INTERLEAVING = [*RESPONSES, *CLAUDES]
"""Dialects in which reasoning, text and calls come in any order."""

ALL = [*CHAT, *INTERLEAVING]


def of(dialects: Sequence[Dialect] | Mapping[str, Dialect]) -> Any:
    """Run a test in each of these dialects, which may have names."""
    if isinstance(dialects, Mapping):
        return pytest.mark.parametrize("dialect", dialects.values(), ids=dialects)
    return pytest.mark.parametrize("dialect", dialects, ids=str)


def supervisor(dialect: Dialect, **params: Any) -> LiteLLMSupervisorFunction:
    """A supervisor; Claude thinks, the others reason."""
    given = {"name": "supervisor", "comm_targets": ["worker"], "system": "You are the supervisor.", **params}
    return LiteLLMSupervisorFunction(**{**dialect.params, "reasoning_effort": "high", **given})


def prompt(text: str = "hello") -> dict[str, Any]:
    return {"role": "user", "content": text}


def after(history: History, calls: Sequence[AgentToolCall], text: str = "go on") -> History:
    """The history as the engine makes it: what was said, a result per call, and the next message."""
    results = [
        call.create_response_msg("SUCCESS: done")
        for call in calls
        if call.tool_name not in BUILTIN_TOOLS and call.tool_name != TEXT_OUTPUT
    ]
    return [*history, *calls[0].turns, *results, prompt(text)]


async def look_up(arguments: dict[str, Any]) -> str:
    return f"it is sunny in {arguments['city']}"


LOOK_UP = ActionCore(
    name="look_up",
    function=look_up,
    description="Look up the weather.",
    parameters={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)


def swarm_of(dialect: Dialect, *, breakpoint_tools: Sequence[str] = (), **params: Any) -> SwarmCore:
    """A supervisor and a worker with an action; both can also call `ask`, if that is a breakpoint tool."""
    shared = {**dialect.params, "reasoning_effort": "high", **params}
    tools = [LOOK_UP.to_tool_dict(dialect.tool_format)]
    ask = ActionCore(name="ask", function=look_up)
    actions = {"look_up": LOOK_UP} | ({"ask": ask} if breakpoint_tools else {})
    if breakpoint_tools:
        tools.append(ask.to_tool_dict(dialect.tool_format))

    def agent(function: LiteLLMAgentFunction, **wiring: Any) -> AgentCore:
        return AgentCore(
            function=function,
            comm_targets=function.comm_targets,
            actions=tuple(actions),
            tool_format=dialect.tool_format,
            can_complete_tasks=function.can_complete_tasks,
            **wiring,
        )

    return SwarmCore(
        name="weather",
        version="1.0",
        entrypoint="supervisor",
        agents={
            "supervisor": agent(
                LiteLLMSupervisorFunction(
                    name="supervisor",
                    comm_targets=["worker"],
                    system="You are the supervisor.",
                    tools=tools,
                    **shared,
                ),
                enable_entrypoint=True,
            ),
            "worker": agent(
                LiteLLMActionAgentFunction(
                    name="worker",
                    comm_targets=["supervisor"],
                    system="You are the worker.",
                    tools=tools,
                    **shared,
                )
            ),
        },
        actions=actions,
        breakpoint_tools=frozenset(breakpoint_tools),
    )
