"""docs/agents-and-tools.md: its pieces run, and it names every MAIL tool with its arguments, and what it says holds."""

import re
from dataclasses import fields

import pytest
from support.processes.document_samples import DOCS, run_in_order

from mail.core.protocol.mail_tools import MAIL_TOOLS
from mail.core.task.limits import FAULTS_IN_A_ROW, TURNS_PER_STEP
from mail.core.task.swarm import AgentCore
from mail.errors import AgentUnavailable
from mail.testing.agents import Call, build_swarm, call, scripted
from mail.testing.rig import ask_once

DOCUMENT = DOCS / "agents-and-tools.md"
TEXT = DOCUMENT.read_text(encoding="utf-8")


async def test_every_piece(capsys: pytest.CaptureFixture[str]) -> None:
    assert await run_in_order(DOCUMENT, capsys) == 3


@pytest.mark.parametrize("name", MAIL_TOOLS)
def test_every_tool_with_its_arguments(name: str) -> None:
    row = re.search(rf"^\| `{name}` \| ([^|]*) \|", TEXT, re.MULTILINE)
    assert row is not None
    fields_of = MAIL_TOOLS[name].model_fields
    assert re.findall(r"`(\w+)`", row[1]) == [each.alias or key for key, each in fields_of.items()]


def test_every_setting_and_limit() -> None:
    for field in fields(AgentCore):
        if field.init and field.name not in (
            "function",
            "tool_format",
            "mcp_servers",
            "options",
        ):  # `mcp` and the factory have these
            assert f"| `{'mcp' if field.name == 'tool_source' else field.name}` |" in TEXT
    assert (FAULTS_IN_A_ROW, TURNS_PER_STEP) == (5, 20)
    assert "five turns in a row" in TEXT
    assert "twenty turns for each step" in TEXT


@pytest.mark.parametrize(
    ("mistake", "told"),
    [
        (call("fly"), "::action_error::"),
        (call("send_request", target="worker"), "::tool_call_error::"),
        (call("send_request", target="stranger", subject="", body=""), "::invalid_recipient::"),
        (call("send_request", target="nobody", subject="", body=""), "::agent_error::"),
        (call("send_response", target="user", subject="", body=""), "::improper_response_to_user::"),
    ],
)
async def test_what_an_agent_is_told(mistake: Call, told: str) -> None:
    heard: list[str] = []

    def policy(view) -> list[Call]:
        heard.append(view.mail.subject)
        return [mistake] if len(heard) == 1 else [call("task_complete", finish_message="done")]

    supervisor = AgentCore(
        scripted(policy), comm_targets=["worker"], enable_entrypoint=True, can_complete_tasks=True
    )
    idle = AgentCore(scripted(lambda view: []))
    outcome = await ask_once(
        build_swarm({"supervisor": supervisor, "worker": idle, "stranger": idle}), "Go on"
    )
    assert outcome.answer == "done"
    assert heard[1] == told


@pytest.mark.parametrize(
    ("error", "told"), [(AgentUnavailable("on strike"), "on strike"), (KeyError("sk-secret"), "KeyError")]
)
async def test_what_is_told_of_an_exception(error: Exception, told: str) -> None:
    async def fail(history: object, choice: object) -> tuple[None, list[object]]:
        raise error

    agent = AgentCore(fail, enable_entrypoint=True, can_complete_tasks=True)  # type: ignore[arg-type]
    outcome = await ask_once(build_swarm({"supervisor": agent}), "Go on")
    assert outcome.subject == "::task_error::"
    assert told in outcome.answer
    assert "sk-secret" not in outcome.answer
