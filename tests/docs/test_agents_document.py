"""docs/agents.md: its pieces run, against a stub of the providers; it names what agents, swarms and answers have, and
every tool of MAIL with its arguments; and what it says of mistakes holds.
"""

import ast
import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
from support.processes.document_samples import DOCS, ROOT, blocks, run_in_order
from support.services import llm_stub
from support.services.llm_stub import LLMStub, Tokens, reply
from support.services.llm_stub import text as says

from mail import ActionContext, Answer, Swarm
from mail.core.protocol.mail_tools import MAIL_TOOLS
from mail.core.task.limits import FAULTS_IN_A_ROW, TURNS_PER_STEP
from mail.core.task.swarm import AgentCore
from mail.errors import AgentUnavailable
from mail.testing.agents import Call, build_swarm, call, scripted
from mail.testing.rig import ask_once

DOCUMENT = DOCS / "agents.md"
TEXT = DOCUMENT.read_text(encoding="utf-8")
MAIL = "Agents that send each other mail."


def done(text: str) -> Any:
    return reply(llm_stub.call("task_complete", finish_message=text), tokens=Tokens(input=100, output=10))


async def test_every_piece(
    stub: LLMStub, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    streamed = reply(says(MAIL), tokens=Tokens(input=100, output=10))
    stub.script(done(MAIL), streamed, to="You answer in one sentence.")
    stub.script(
        reply(llm_stub.call("send_request", target="searcher", subject="Find", body="MAIL")),
        *[done(MAIL), done("Mail for agents.")],
        *[done("No report."), done('{"title": "MAIL", "pages": 3}')],
        to="You lead a research team.",
    )
    stub.script(
        reply(llm_stub.call("web_search", query="MAIL")),
        reply(llm_stub.call("send_response", target="lead", subject="Found", body="3 pages")),
        to="You search.",
    )
    stub.script(
        reply(llm_stub.call("look_up_price", drink="tea")), done("A tea is 2.50."), to="You sell drinks."
    )
    stub.script(
        reply(llm_stub.call("refund", amount=200)), done("Your money is on its way."), to="You refund orders."
    )
    stub.script(done("Four."), to="You count letters.")
    monkeypatch.chdir(tmp_path)
    space: dict[str, Any] = {"__name__": "document"}
    assert await run_in_order(DOCUMENT, capsys, space) == 14
    assert stub.is_done
    assert stub.complaints == []
    assert "2.5" in str(stub.requests[-1].body["input"])
    for value in list(space.values()):
        if isinstance(value, Swarm):
            value.close()


def test_what_an_answer_and_a_context_have() -> None:
    for kind in (Answer, ActionContext):
        for field in dataclasses.fields(kind):
            assert f"`{field.name}`" in TEXT


def test_methods_are_those_there_are() -> None:
    for name in re.findall(r"`swarm\.(\w+)", TEXT):
        assert hasattr(Swarm, name) or name in ("template", "running")


def test_how_short_it_is() -> None:
    hello, tool, team = [text for _, text in blocks(DOCUMENT, "python")][:3]
    assert _lines(hello) <= 5
    assert _lines("from mail import Agent, Swarm\n" + tool + team) <= 16


def _lines(code: str) -> int:
    """The number of lines of a program, without blank ones and docstrings."""
    functions = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.AsyncFunctionDef)]
    docstrings = [each.body[0] for each in functions if ast.get_docstring(each)]
    blank = {n for each in docstrings for n in range(each.lineno, (each.end_lineno or each.lineno) + 1)}
    return sum(bool(line.strip()) and n not in blank for n, line in enumerate(code.splitlines(), 1))


def test_the_swarm_of_the_readme(stub: LLMStub, capsys: pytest.CaptureFixture[str]) -> None:
    stub.script(
        reply(llm_stub.call("send_request", target="writer", subject="Write", body="MAIL")),
        reply(says(MAIL)),
        to="You answer questions; writer writes for you.",
    )
    stub.script(reply(says("One. Two. Three.")), to="You write three clear sentences on a topic.")
    ((_, text),) = blocks(ROOT / "README.md", "python")
    space: dict[str, Any] = {"__name__": "document"}
    exec(text, space)
    assert capsys.readouterr().out == f"{MAIL}\n"
    assert (stub.is_done, stub.complaints) == (True, [])


@pytest.mark.parametrize("name", MAIL_TOOLS)
def test_every_tool_with_its_arguments(name: str) -> None:
    row = re.search(rf"^\| `{name}` \| ([^|]*) \|", TEXT, re.MULTILINE)
    assert row is not None
    fields_of = MAIL_TOOLS[name].model_fields
    assert re.findall(r"`(\w+)`", row[1]) == [each.alias or key for key, each in fields_of.items()]


def test_every_setting_and_limit() -> None:
    for field in dataclasses.fields(AgentCore):
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
