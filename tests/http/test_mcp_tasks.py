"""Agents call a swarm as an MCP server: its tasks are late results, and its progress is seen live."""

import asyncio
from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from desk_swarm import PNG
from support.faults.gates import Gate
from support.processes.http_server import HTTPServer, eventually

from mail.core.engine.watch import Submitted
from mail.core.task.callbacks import LaterCall
from mail.core.task.events import EventKind
from mail.core.task.mailboxes import CANCELLED_CALLS
from mail.core.task.swarm import SwarmCore
from mail.core.task.task import TaskKey
from mail.http.mcp import tasks
from mail.mcp import sessions
from mail.mcp import tasks as client_tasks
from mail.mcp.servers import read_servers, tool_servers
from mail.mcp.sessions import Sessions
from mail.mcp.tools import MCPTools
from mail.testing.agents import Call, View, build_agent, build_swarm, call, complete
from mail.testing.rig import Rig


@pytest.fixture
def server(desk: HTTPServer, monkeypatch: pytest.MonkeyPatch) -> HTTPServer:
    monkeypatch.setattr(tasks, "POLL_MS", 10)
    monkeypatch.setattr(sessions, "SHORTEST_PAUSE", 0.01)
    return desk


IMAGE = {"type": "image", "data": b64encode(PNG).decode(), "mimeType": "image/png"}


def lead(view: View) -> Sequence[Call]:
    """Send the desk what the user says, and answer with what comes of it."""
    if view.mail.sender_type == "user" and view.history[-1]["role"] == "user":
        files = [IMAGE] if view.mail.body == "look at this" else []
        return [call("desk", message=view.mail.body, files=files)]
    return [complete(view.results[-1] if view.history[-1]["role"] == "tool" else view.mail.body)]


def client_of(server: HTTPServer) -> SwarmCore:
    found = {"desk": {"url": f"{server.uvicorn.url}/mcp", "headers": server.headers("user")}}
    tools = MCPTools(tool_servers(read_servers("agent 'lead'", found)), (), Sessions())
    return build_swarm({"lead": build_agent(lead, supervises=True, tool_source=tools)})


class Client(Rig):
    """A swarm whose agent calls the desk."""

    async def stop(self) -> None:
        source = self.swarm.agents["lead"].tool_source
        assert source is not None
        await source.aclose()
        await super().stop()

    async def until(self, key: TaskKey, is_so: Callable[[Any], bool]) -> None:
        async def holds() -> bool:
            return is_so(await self.task(key))

        await eventually(holds)

    async def begin(self, message: str) -> Submitted:
        """The task of a message whose answer comes later."""
        submitted = await self.submit(message)
        await self.until(submitted.key, lambda task: task.is_asleep)
        return submitted

    async def answer(self, submitted: Submitted) -> str:
        """The answer of a task, once the desk has finished: it is asked each minute."""

        key = submitted.key

        async def is_answered() -> bool:
            await self.pass_time(60)
            await self.runtime.run_turn(key, CANCELLED_CALLS)
            return not (await self.task(key)).waits.open_calls

        await eventually(is_answered)
        return (await self.outcome(submitted)).answer


async def test_a_task_that_ends_at_once_has_its_result_in_the_turn(server: HTTPServer) -> None:
    async with Client(client_of(server)) as rig:
        outcome = await rig.ask("hello")
        assert "you said: hello" in outcome.answer
        assert outcome.of(EventKind.ACTION_WAITING) == []


async def test_the_result_of_a_longer_task_comes_later(
    gate: Gate, server: HTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "TASK_SECONDS", 0.0)
    async with Client(client_of(server)) as rig:
        submitted = await rig.begin("dig")
        await gate.begun.wait()
        await rig.pass_time(1)
        key = submitted.key
        await rig.runtime.run_turn(key, CANCELLED_CALLS)
        (waiting,) = await rig.store.list_waits(key, limit=9)
        assert isinstance(waiting, LaterCall)
        assert waiting.polled is not None
        assert waiting.polled.polls == 1
        gate.opened.set()
        assert "dug" in await rig.answer(submitted)


@pytest.mark.parametrize("seconds", [60.0, 0.0])
async def test_files_of_a_result_are_stored(
    server: HTTPServer, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """Whether the result comes in the turn of the call or later."""
    monkeypatch.setattr(sessions, "TASK_SECONDS", seconds)
    async with Client(client_of(server)) as rig:
        if seconds:
            submitted = await rig.submit("look at this")
            answer = (await rig.outcome(submitted)).answer
        else:
            submitted = await rig.begin("look at this")
            answer = await rig.answer(submitted)
        [file_id] = await rig.runtime.caller_files.of_task(submitted.key)
        assert f"image/png, {len(PNG)} bytes, file:{file_id}]" in answer
        assert await rig.runtime.caller_files.read(submitted.key.instance, file_id) == PNG


async def test_a_task_that_fails_is_an_error(server: HTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "TASK_SECONDS", 0.0)
    async with Client(client_of(server)) as rig:
        submitted = await rig.begin("fail")
        assert "ERROR" in await rig.answer(submitted)


async def test_cancelling_cancels_the_task_at_the_server(
    gate: Gate, server: HTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "TASK_SECONDS", 0.0)
    async with Client(client_of(server)) as rig:
        key = (await rig.begin("dig")).key
        await gate.begun.wait()
        await rig.runtime.cancel(rig.user, key.task_id)
        await rig.until(key, lambda task: task.waits.see_at is None)
        (there,) = (await server.client.get("/tasks", headers=server.headers("user"))).json().values()
        assert there["status"] == "cancelled"


async def test_a_turn_that_is_cancelled_while_it_waits_cancels_the_task_too(
    server: HTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asks, get_task = asyncio.Event(), client_tasks.get_task

    async def get(*arguments: Any) -> client_tasks.SeenTask:
        asks.set()
        return await get_task(*arguments)

    monkeypatch.setattr(client_tasks, "get_task", get)
    async with Client(client_of(server)) as rig:
        key = (await rig.submit("dig")).key
        await asks.wait()
        await rig.runtime.cancel(rig.user, key.task_id)

        async def is_cancelled() -> bool:
            found = (await server.client.get("/tasks", headers=server.headers("user"))).json()
            return [each["status"] for each in found.values()] == ["cancelled"]

        await eventually(is_cancelled)
