"""`mail caller …` and `mail task export`, against a server."""

import asyncio
import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
from support.processes.commands import mail as mail_as
from support.processes.http_server import HTTPServer

from mail.testing.agents import build_swarm, complete, turns

mail = partial(mail_as, role="admin")


@pytest.fixture
async def server() -> AsyncIterator[HTTPServer]:
    async with HTTPServer(build_swarm({"supervisor": turns([complete("done")])})) as server:
        await server.ask(body="hello", task_id="t")
        yield server


async def test_a_caller_is_held_released_and_deleted(server: HTTPServer) -> None:
    held = await mail(server, "caller", "hold", "user:ann", "case 4711", "--task", "t")
    assert held.exit_code == 0, held.output
    assert "case 4711" in held.output
    refused = await mail(server, "caller", "delete", "user:ann")
    assert refused.exit_code != 0
    assert "lift them first" in str(refused.exception) + refused.output
    shown = await mail(server, "caller", "show", "user:ann")
    assert shown.output.startswith("user:ann@example is not being deleted\n")
    assert "case 4711" in shown.output
    released = await mail(server, "caller", "release", "user:ann", "--task", "t")
    assert released.output == "the hold on t is lifted\n"
    begun = await mail(server, "caller", "delete", "user:ann")
    assert begun.output == "user:ann@example is being deleted; tasks so far: 0\n"
    async with asyncio.timeout(60):
        while not (shown := await mail(server, "caller", "show", "user:ann")).output.startswith("everything"):
            await server.rig.runtime.deletions.work()
    assert shown.output.endswith("; tasks: 1\n")


async def test_a_task_is_exported(server: HTTPServer, tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    written = await mail(server, "task", "export", "t", "-o", str(file), role="user")
    assert written.exit_code == 0, written.output
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert (lines[0]["type"], lines[0]["task_id"]) == ("task", "t")
    shown = await mail(server, "task", "export", "t", "--files", role="user")
    assert shown.output == file.read_text(encoding="utf-8")
    text = await mail(server, "task", "export", "t", "--markdown", role="user")
    assert "Task `t`, completed." in text.output
