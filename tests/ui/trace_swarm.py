"""A swarm whose turns take time, for the tests of the trace: models and actions with durations, tokens and
reasoning.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from studio_server import Gate

from mail.core.task.activity import model_call
from mail.core.task.swarm import SwarmCore
from mail.core.task.usage import Usage
from mail.testing.agents import Call, View, build_agent, build_swarm, call, complete, request, respond, wait

REASONING = "The worker knows <b>this</b> better."
PACE = 0.02


async def think(model: str, tokens: int, **usage: Any) -> None:
    """Call a model that takes a moment."""
    with model_call(model) as calling:
        await asyncio.sleep(PACE * 3)
        calling.report(Usage(calls=1, input_tokens=tokens, output_tokens=34, **usage))


async def dig(arguments: dict[str, Any]) -> str:
    await asyncio.sleep(PACE * 2)
    if arguments.get("where") == "nowhere":
        raise ValueError("there is nothing to dig")
    return f"gold in {arguments.get('where', 'the hills')}"


def trace_swarm(gate: Gate) -> SwarmCore:
    """Return a swarm that digs; the gate holds the worker where a message says `wait`."""

    async def supervise(view: View) -> Sequence[Call]:
        if "break" in view.mail.body:
            raise RuntimeError("the map is lost")
        if view.mail.sender_type == "system":
            return [complete("We could not dig.")]
        if view.mail.sender_type == "agent":
            await think("openai/gpt-5", 2_400, cost=0.0321)
            return [complete(f"We found: **{view.mail.body}**")]
        await think("openai/gpt-5", 1_200, reasoning_tokens=20, cost=0.0123)
        ask = request("worker", view.mail.body)._replace(reasoning=[REASONING], preamble="I ask the worker.")
        return [ask, wait("for the worker")]

    async def work(view: View) -> Sequence[Call]:
        if view.mail.sender_type == "system":
            return [respond("supervisor", view.mail.body)]
        if "wait" in view.mail.body:
            await gate.step()
        await think("ollama_chat/qwen3", 800, unpriced_calls=1)
        if "fail" in view.mail.body:
            raise RuntimeError("the shovel is broken")
        return [call("dig", where="nowhere" if "nowhere" in view.mail.body else "the hills")]

    return build_swarm(
        {
            "supervisor": build_agent(supervise, targets=["worker"], supervises=True, name="supervisor"),
            "worker": build_agent(work, targets=["supervisor"], actions=["dig"], name="worker"),
        },
        actions={"dig": dig},
    )
