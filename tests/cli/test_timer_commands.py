"""`mail send --in` and `--at`, and `mail task cancel-timer`, against a server."""

import pytest
from support.processes.commands import mail
from support.processes.http_server import HTTPServer

from mail.client.errors import BadAnswer


async def test_a_message_is_posted_later_shown_and_taken_back(chief: HTTPServer) -> None:
    sent = await mail(chief, "send", "good morning", "--task-id", "t", "--in", "2h")
    assert (sent.exit_code, sent.output) == (0, "t\n")
    at = "2099-12-01T08:00:00Z"
    refused = await mail(chief, "send", "too late", "--task-id", "t", "--at", at)
    assert "366 days ahead at most" in f"{refused.output} {refused.exception}"
    (timer,) = (await chief.task("t"))["timers"]
    shown = await mail(chief, "task", "show", "t")
    assert f"a message, at {timer['due']}: good morning (timer {timer['id']})" in shown.output
    cancelled = await mail(chief, "task", "cancel-timer", "t", timer["id"])
    assert cancelled.output == f"{timer['id']} is cancelled; task t is cancelled\n"
    again = await mail(chief, "task", "cancel-timer", "t", timer["id"])
    assert isinstance(again.exception, BadAnswer) or again.exit_code


@pytest.mark.parametrize(("flag", "given"), [("--in", "soon"), ("--at", "2026-12-01")])
async def test_a_time_that_is_none_is_refused(chief: HTTPServer, flag: str, given: str) -> None:
    refused = await mail(chief, "send", "hello", "--task-id", "t", flag, given)
    assert refused.exit_code != 0
    assert "must be" in f"{refused.output} {refused.exception}"
