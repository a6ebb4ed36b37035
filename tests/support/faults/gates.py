"""Swarms that wait where a test wants them to."""

import asyncio
from typing import Any

from mail.core.task.activity import model_call
from mail.core.task.swarm import SwarmCore
from mail.testing.agents import build_agent, build_swarm, call, complete

TEXT = "a text of some length " * 10
"""What the model of `gated_swarm` writes at each turn, word by word."""


class Gate:
    """Where the action waits."""

    def __init__(self) -> None:
        self.begun, self.opened = asyncio.Event(), asyncio.Event()


def gated_swarm(gate: Gate) -> SwarmCore:
    """A supervisor with a model, which calls an action that waits for the gate."""

    def supervise(view: Any) -> Any:
        with model_call("house/model") as reply:
            for piece in TEXT.split():
                reply.delta("text", f"{piece} ")
        return [complete("done")] if view.mail.sender_type == "system" else [call("web_search", q="x")]

    async def web_search(_args: Any) -> str:
        gate.begun.set()
        await gate.opened.wait()
        return "found"

    agent = build_agent(supervise, supervises=True, actions=["web_search"])
    return build_swarm({"supervisor": agent}, actions={"web_search": web_search})


def waiting_swarm(gate: asyncio.Event) -> SwarmCore:
    """A supervisor that waits, then completes its task."""

    async def supervise(_view: Any) -> Any:
        await gate.wait()
        return [complete("at last")]

    return build_swarm({"supervisor": supervise})
