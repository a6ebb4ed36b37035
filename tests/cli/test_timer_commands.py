"""`mail send --in` and `--at`, and `mail task cancel-timer`, against a server."""

from collections.abc import AsyncIterator

import pytest
from support.processes.commands import mail
from support.processes.http_server import HTTPServer

from mail.client.errors import BadAnswer
from mail.testing.agents import build_swarm, complete


@pytest.fixture
async def server() -> AsyncIterator[HTTPServer]:
    async with HTTPServer(build_swarm({"chief": lambda view: [complete(view.mail.body)]})) as server:
        yield server


async def test_a_message_is_posted_later_shown_and_taken_back(server: HTTPServer) -> None:
    sent = await mail(server, "send", "good morning", "--task-id", "t", "--in", "2h")
    assert (sent.exit_code, sent.output) == (0, "t\n")
    at = "2099-12-01T08:00:00Z"
    refused = await mail(server, "send", "too late", "--task-id", "t", "--at", at)
    assert "366 days ahead at most" in f"{refused.output} {refused.exception}"
    (timer,) = (await server.task("t"))["timers"]
    shown = await mail(server, "task", "show", "t")
    assert f"a message, at {timer['due']}: good morning (timer {timer['id']})" in shown.output
    cancelled = await mail(server, "task", "cancel-timer", "t", timer["id"])
    assert cancelled.output == f"{timer['id']} is cancelled; task t is cancelled\n"
    again = await mail(server, "task", "cancel-timer", "t", timer["id"])
    assert isinstance(again.exception, BadAnswer) or again.exit_code


@pytest.mark.parametrize(("flag", "given"), [("--in", "soon"), ("--at", "2026-12-01")])
async def test_a_time_that_is_none_is_refused(server: HTTPServer, flag: str, given: str) -> None:
    refused = await mail(server, "send", "hello", "--task-id", "t", flag, given)
    assert refused.exit_code != 0
    assert "must be" in f"{refused.output} {refused.exception}"
