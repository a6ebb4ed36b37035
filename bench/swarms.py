"""Swarms whose agents take no time: everything they say is made beforehand, so that what is measured is the engine.

The agents keep no state: how far a task has come they see from the length of their history.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mail.core.protocol.tool_schemas import AgentToolCall
from mail.core.task.swarm import ActionCore, AgentCore, AgentFunction, History, SwarmCore, ToolChoice

NO_LIMIT = 1_000_000
"""Steps; the bench runs longer tasks than people do."""

BODY = (
    "Please find out what the weather in Tokyo will be like today and tomorrow, as I have to decide by noon "
    "whether the open-air part of the opening on Saturday can be held in the garden or has to be moved to the "
    "hall. What matters most is rain between 16:00 and 21:00, then wind above 30 km/h, because of the tents; "
    "temperature only if it falls below 12 °C. Give the figures that you found, say how sure the forecast is, "
    "name the hour from which it would change your advice, and end with one sentence that I can hand on to the "
    "caterer as it is. If two sources differ, say so and take the more careful one."
)
"""A letter as long as those that people and models write; the answers are two thirds of it."""

Output = tuple[str | None, list[AgentToolCall]]


def say(*calls: tuple[str, dict[str, Any]]) -> Output:
    """An agent's output as an LLM adapter gives it: the calls, and the completion they came from."""
    numbered = [(f"call_{index}", name, args) for index, (name, args) in enumerate(calls)]
    completion = {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(args)}}
            for call_id, name, args in numbered
        ],
    }
    return None, [
        AgentToolCall(tool_name=name, tool_args=args, tool_call_id=call_id, completion=completion)
        for call_id, name, args in numbered
    ]


ANSWER = "It is sunny in Tokyo, at 21 °C."
"""How every task ends."""

AWAIT = say(("await_message", {}))
RESPOND = say(("send_response", {"target": "supervisor", "subject": "weather", "body": BODY[:400]}))
COMPLETE = say(("task_complete", {"finish_message": ANSWER}))


def _ask(*workers: str) -> Output:
    requests = [("send_request", {"target": name, "subject": "weather", "body": BODY}) for name in workers]
    return say(*requests, ("await_message", {}))


async def _respond(_history: History, _choice: ToolChoice) -> Output:
    return RESPOND


async def _complete(_history: History, _choice: ToolChoice) -> Output:
    return COMPLETE


def _swarm(supervisor: AgentFunction, *workers: str) -> SwarmCore:
    agents = {name: AgentCore(_respond, ("supervisor",)) for name in workers}
    agents["supervisor"] = AgentCore(supervisor, workers, enable_entrypoint=True, can_complete_tasks=True)
    return SwarmCore(
        name="bench", version="1", entrypoint="supervisor", agents=agents, task_message_limit=NO_LIMIT
    )


def single() -> SwarmCore:
    """One turn per task: the supervisor completes it at once."""
    return _swarm(_complete)


def waiting(seconds: float) -> SwarmCore:
    """One turn per task, whose model takes so many seconds."""

    async def supervisor(_history: History, _choice: ToolChoice) -> Output:
        await asyncio.sleep(seconds)
        return COMPLETE

    return _swarm(supervisor)


def ping_pong(exchanges: int) -> SwarmCore:
    """The supervisor asks one worker so many times, one question after the other: 2 × exchanges + 1 turns."""
    ask = _ask("worker")
    per_turn = 2 + len(ask[1])  # the mail, the completion, a result per call

    async def supervisor(history: History, _choice: ToolChoice) -> Output:
        return ask if len(history) < exchanges * per_turn else COMPLETE

    return _swarm(supervisor, "worker")


def fan_out(width: int, *, copies: bool = False) -> SwarmCore:
    """The supervisor asks so many workers, or copies of one, at once and waits for them all: 2 × width + 1 turns."""
    workers = ["worker"] * width if copies else [f"worker-{n}" for n in range(width)]
    ask = _ask(*workers)
    before_last = (2 + len(ask[1])) + (width - 1) * (2 + len(AWAIT[1]))

    async def supervisor(history: History, _choice: ToolChoice) -> Output:
        if len(history) == 1:
            return ask
        return AWAIT if len(history) <= before_last else COMPLETE

    swarm = _swarm(supervisor, *dict.fromkeys(workers))
    if copies:
        worker = replace(swarm.agents["worker"], copies=width)
        swarm = replace(swarm, agents={**swarm.agents, "worker": worker})
    return swarm


def acting(*, idempotent: bool) -> SwarmCore:
    """The supervisor calls one action that takes no time, and completes the task: 2 turns."""

    async def act(_arguments: dict[str, Any]) -> str:
        return "done"

    async def supervisor(history: History, _choice: ToolChoice) -> Output:
        return say(("act", {})) if len(history) == 1 else COMPLETE

    swarm = _swarm(supervisor)
    return replace(
        swarm,
        actions={"act": ActionCore("act", act, idempotent=idempotent)},
        agents={name: replace(agent, actions=("act",)) for name, agent in swarm.agents.items()},
    )


def watched[Reading](swarm: SwarmCore, read: Callable[[], Reading]) -> tuple[SwarmCore, list[Reading]]:
    """The swarm, and the list that its agents add a reading to as they begin a turn: the n-th after n commits."""
    readings: list[Reading] = []

    def watch(agent: AgentCore) -> AgentCore:
        async def function(history: History, choice: ToolChoice) -> Output:
            readings.append(read())
            return await agent.function(history, choice)

        return replace(agent, function=function)

    return replace(swarm, agents={name: watch(agent) for name, agent in swarm.agents.items()}), readings
