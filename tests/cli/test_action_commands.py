"""`mail action finish`, `fail` and `report`, against a server whose action finishes later."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.processes.commands import mail
from support.processes.http_server import HTTPServer, eventually

from mail.client.errors import BadAnswer
from mail.core.task.callbacks import LATER, Later
from mail.core.task.swarm import ActionCore
from mail.core.turns.context import current_context
from mail.testing.agents import build_swarm, call, complete

TOKENS: list[str] = []


async def render(_arguments: dict[str, Any]) -> str | Later:
    TOKENS.append(current_context().callback.token)
    return LATER


@pytest.fixture
async def server() -> AsyncIterator[HTTPServer]:
    TOKENS.clear()
    swarm = build_swarm(
        {
            "chief": lambda view: (
                [call("render")] if view.mail.sender_type == "user" else [complete(view.mail.body)]
            )
        },
        actions={"render": ActionCore("render", render, finish_within=3600.0)},
    )
    async with HTTPServer(swarm) as server:
        yield server


async def begin(server: HTTPServer) -> asyncio.Task[Any]:
    """Ask for a film, whose call waits then."""
    asked = asyncio.create_task(server.post(body="a film", task_id="t"))

    async def waits() -> bool:
        return bool(TOKENS) and "calls" in await server.task("t")

    await eventually(waits)
    return asked


async def test_a_call_is_reported_on_shown_and_finished(server: HTTPServer) -> None:
    asked = await begin(server)
    reported = await mail(server, "action", "report", TOKENS[0], "half of it")
    assert (reported.exit_code, reported.output[:12]) == (0, "waiting, due")
    shown = await mail(server, "task", "show", "t")
    (waiting,) = (await server.task("t"))["calls"]
    assert f"render of chief since {waiting['since']}, due by {waiting['due']}: half of it" in shown.output
    assert f"(call {waiting['id']})" in shown.output
    assert "its result comes later" in shown.output
    finished = await mail(server, "action", "finish", TOKENS[0], "the film")
    assert finished.output == "finished\n"
    assert (await asked).json()["response"] == "render: the film"
    refused = await mail(server, "action", "fail", TOKENS[0], "no light")
    assert isinstance(refused.exception, BadAnswer)
    assert refused.exception.status == 409


async def test_a_call_is_cancelled(server: HTTPServer) -> None:
    asked = await begin(server)
    (waiting,) = (await server.task("t"))["calls"]
    cancelled = await mail(server, "task", "cancel-call", "t", waiting["id"])
    assert cancelled.output == f"{waiting['id']} is cancelled; task t is running\n"
    assert (await asked).json()["response"] == "render: ERROR: ann has cancelled it"
