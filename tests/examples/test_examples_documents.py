"""docs/examples.md and docs/manual-mode.md: their pieces run, in order, and print what they say; so do their
commands.
"""

import inspect
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from support.processes.document_samples import DOCS, ROOT, blocks, run
from support.processes.server import run_python

from mail.api.agents import EXAMPLES
from mail.core.task.ports import read_history
from mail.core.task.task import TaskKey

EXAMPLES_MD = DOCS / "examples.md"
MANUAL_MD = DOCS / "manual-mode.md"


async def test_pieces_of_the_examples(capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, Any] = {"__name__": "document"}
    for _, code in blocks(EXAMPLES_MD, "python"):
        await run(code, namespace)
    assert capsys.readouterr().out.splitlines() == [
        "['openai/gpt-5-mini', 'openai/gpt-5-mini', 'openai/gpt-5-mini']",
        "12*(3+4) = 84.",
    ]


async def test_pieces_of_manual_mode(capsys: pytest.CaptureFixture[str]) -> None:
    """An `output` block is printed by the piece before it; the `xml` block is in an agent's history."""
    namespace: dict[str, Any] = {"__name__": "document"}
    command = False
    for language, text in blocks(MANUAL_MD, "python", "output", "xml", "bash"):
        match language:
            case "python":
                await run(text, namespace)
                command = False
            case "bash":
                command = True
            case "output" if not command:
                assert capsys.readouterr().out == text
            case "xml":
                swarm = namespace["swarm"]
                runtime = swarm._runtime
                key = TaskKey(str(runtime.principal), "lot-1")
                history = await read_history(runtime.engine.store, key, "auctioneer")
                turns = [
                    re.sub(r"<timestamp>.*?</timestamp>", "<timestamp>…</timestamp>", str(entry["content"]))
                    for entry in history
                    if entry.get("role") == "user"
                ]
                assert text.rstrip("\n") in turns
    assert capsys.readouterr().out.splitlines() == ["Mafia wins on day 3", "True"]


@pytest.mark.parametrize("document", [EXAMPLES_MD, MANUAL_MD], ids=lambda path: path.name)
def test_commands(document: Path) -> None:
    """Every line that is shown after a command is printed by it, in this order; `…` stands for any number of lines."""
    printed: list[str] | None = None
    ran = 0
    for language, text in blocks(document, "python", "bash", "output"):
        match language:
            case "bash":
                (command,) = text.splitlines()
                python, *arguments = shlex.split(command)
                assert python == "python"
                printed = execute(arguments)
                ran += 1
            case "output" if printed is not None:
                expect(text, printed)
                printed = None
    assert ran


def execute(arguments: list[str]) -> list[str]:
    done = run_python(*arguments, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def expect(text: str, printed: list[str]) -> None:
    at = 0
    skips = True
    for line in text.splitlines():
        if line == "…":
            skips = True
            continue
        found = printed.index(line, at)
        assert skips or found == at, f"not printed right after the line before: {line}"
        at, skips = found + 1, False


def test_every_example_is_told_of() -> None:
    text = EXAMPLES_MD.read_text(encoding="utf-8")
    folders = {path.parent.name for path in (ROOT / "src" / "mail" / "examples").glob("*/__init__.py")}
    assert [name for name in folders if f"examples/{name}/" not in text] == []
    assert [name for name in EXAMPLES if f"`{name}`" not in text] == []
    for script in ("single_swarm_demo.py", "multi_swarm_demo.py", "demo_client.py"):
        assert f"scripts/{script}" in text


def test_every_module_of_the_game_is_told_of() -> None:
    text = MANUAL_MD.read_text(encoding="utf-8")
    modules = {path.stem for path in (ROOT / "src" / "mail" / "examples" / "mafia").glob("[a-z]*.py")}
    assert [name for name in modules if f"`{name}`" not in text] == []


def test_every_parameter_of_a_step_is_told_of() -> None:
    from mail import MAILSwarm

    text = MANUAL_MD.read_text(encoding="utf-8")
    names = [name for name in inspect.signature(MAILSwarm.manual_step).parameters if name != "self"]
    assert [name for name in names if f"`{name}`" not in text] == []
