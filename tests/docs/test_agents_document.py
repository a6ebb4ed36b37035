"""docs/agents.md: its pieces run, against a stub of the providers, and it names what agents and swarms have."""

import ast
import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
from support.processes.document_samples import DOCS, ROOT, blocks
from support.services.llm_stub import LLMStub, Tokens, call, reply
from support.services.llm_stub import text as says

from mail import ActionContext, Answer, Swarm

DOCUMENT = DOCS / "agents.md"
TEXT = DOCUMENT.read_text(encoding="utf-8")
MAIL = "Agents that send each other mail."


def done(text: str) -> Any:
    return reply(call("task_complete", finish_message=text), tokens=Tokens(input=100, output=10))


def test_every_piece(
    stub: LLMStub, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    streamed = reply(says(MAIL), tokens=Tokens(input=100, output=10))
    stub.script(done(MAIL), streamed, done(MAIL), to="You answer in one sentence.")
    stub.script(
        reply(call("send_request", target="searcher", subject="Find", body="MAIL")),
        *[done(MAIL), done("Mail for agents.")],
        *[done("No report."), done('{"title": "MAIL", "pages": 3}')],
        to="You lead a research team.",
    )
    stub.script(
        reply(call("web_search", query="MAIL")),
        reply(call("send_response", target="lead", subject="Found", body="3 pages")),
        to="You search.",
    )
    stub.script(reply(call("look_up_price", drink="tea")), done("A tea is 2.50."), to="You sell drinks.")
    stub.script(reply(call("refund", amount=200)), done("Your money is on its way."), to="You refund orders.")
    stub.script(done("Four."), to="You count letters.")
    monkeypatch.chdir(tmp_path)
    space: dict[str, Any] = {"__name__": "document"}
    printed = ""
    for language, text in blocks(DOCUMENT, "python", "output"):
        if language == "output":
            assert printed == text
            continue
        exec(compile(text, DOCUMENT.name, "exec"), space)
        printed = capsys.readouterr().out
    assert stub.is_done
    assert stub.complaints == []
    assert "2.5" in str(stub.requests[-2].body["input"])
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
        reply(call("send_request", target="writer", subject="Write", body="MAIL")),
        reply(says(MAIL)),
        to="You answer questions; writer writes for you.",
    )
    stub.script(reply(says("One. Two. Three.")), to="You write three clear sentences on a topic.")
    ((_, text),) = blocks(ROOT / "README.md", "python")
    space: dict[str, Any] = {"__name__": "document"}
    exec(text, space)
    assert capsys.readouterr().out == f"{MAIL}\n"
    assert (stub.is_done, stub.complaints) == (True, [])
