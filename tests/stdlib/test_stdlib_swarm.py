"""Whole swarms whose agents use the catalogue: built from swarms.json, and in Python."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.processes.projects import entry, supervisor
from support.services.mcp_program import COMMAND
from support.services.templates import agent, rule_based, template

from mail import MAILSwarmTemplate
from mail.stdlib.fs.actions import read_file, write_file
from mail.testing.agents import Call, View, call, complete

pytestmark = pytest.mark.full


def use_the_toolbox(view: View) -> list[Any]:
    """Add two numbers, then fail, then tell of both."""
    match view.results:
        case []:
            return [
                Call("mcp_call_tool", {"server": "toolbox", "tool": "add", "arguments": {"a": 2, "b": 40}})
            ]
        case [_]:
            return [
                Call("mcp_call_tool", {"server": "toolbox", "tool": "fail", "arguments": {"reason": "rain"}})
            ]
        case results:
            return [complete("\n".join(results[:2]))]


adder = rule_based(use_the_toolbox)


@pytest.mark.parametrize("tool_format", ["completions", "responses"])
async def test_a_swarm_of_swarms_json(monkeypatch: pytest.MonkeyPatch, tool_format: str) -> None:
    """An agent that follows rules calls a tool of a real MCP server, as the engine runs it."""
    servers = {"toolbox": COMMAND}
    monkeypatch.setenv("MAIL_MCP_SERVERS", json.dumps({"mcpServers": servers}))
    adders = entry(
        "adders",
        supervisor("adder", f"{__name__}:adder", actions=["mcp_call_tool"], tool_format=tool_format),
        action_imports=[
            "python::mail.stdlib.mcp.actions:mcp_ping",
            "python::mail.stdlib.mcp.actions:mcp_call_tool",
        ],
    )
    swarm = MAILSwarmTemplate.from_swarm_json(json.dumps(adders)).instantiate({}, user_id="ann")
    response, _ = await swarm.post_message_and_run("2+40?")
    await swarm.shutdown()
    added, failed = response.message.body.split("\n", 1)
    assert added.startswith("SUCCESS: ")
    assert json.loads(added.removeprefix("SUCCESS: "))["structured_content"]["total"] == 42
    assert failed.startswith("ERROR: ")
    assert "no luck: rain" in failed


async def test_a_swarm_of_python(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MAIL_STDLIB_FS_ROOT", str(tmp_path))

    def take_a_note(view: View) -> list[Any]:
        match view.results:
            case []:
                return [
                    call("write_file", path="notes/a.txt", content=view.mail.body),
                    call("read_file", path="../../etc/passwd"),
                    call("read_file", path="notes/a.txt"),
                ]
            case results:
                return [complete("\n".join(results[:3]))]

    clerk = agent("clerk", take_a_note, supervises=True, actions=[read_file, write_file])
    swarm = template(clerk, actions=[read_file, write_file]).instantiate({}, user_id="ann")
    response, _ = await swarm.post_message_and_run("Buy tea.")
    await swarm.shutdown()
    written, refused, read = response.message.body.split("\n")
    assert written == 'SUCCESS: {"path": "notes/a.txt", "size": 8}'
    assert refused.startswith("ERROR: ")
    assert json.loads(read.removeprefix("SUCCESS: "))["text"] == "Buy tea."
    assert (tmp_path / "notes" / "a.txt").read_text() == "Buy tea."
