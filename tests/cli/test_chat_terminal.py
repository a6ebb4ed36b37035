"""`mail chat` at a terminal: how answers look, and what can be typed besides messages."""

import io
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console
from support.processes import forkserver
from support.processes.projects import entry, supervisor, write_project
from support.processes.server import MAIL, ServerProcess, environment
from support.processes.terminal import Screen, Terminal

from mail.cli.output import Output
from mail.cli.views.markdown import render

ANSWER = """\
# Report

It has **two** parts, and its first paragraph is longer than a line of this terminal has room for, so it is wrapped.
Second line.

- one
- two

| drink | price |
| ----- | ----- |
| tea   | 3     |

```python
print("a very long line of code that is not broken where Markdown would have two spaces")
```
"""

AGENT = f'''
"""An agent that notes what it reads, and answers in Markdown."""

from pathlib import Path

from mail.core.turns.context import model_call
from mail.examples.rule_based.calls import say


def writer(**_wiring):
    async def decide(history, tool_choice):
        text = str(history[-1])
        Path("read").write_text(text)
        if "look at" in str(history) and "green" not in str(history):
            return say("completions", [("look", {{"what": "tea"}})])
        return say("completions", [("task_complete", {{"finish_message": {ANSWER!r}}})])

    decide.llm = "house/model"
    return decide


async def look(arguments):
    return "green"
'''


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    look = {"name": "look", "description": "Look.", "function": "python::writing:look"}
    swarm = entry("studio", supervisor("writer", "writing:writer", actions=["look"]), actions=[look])
    folder = write_project(tmp_path_factory.mktemp("studio"), swarm, writing=AGENT)
    with ServerProcess(folder, "--swarm-name", "studio") as running:
        yield running


def chat_of(server: ServerProcess, folder: Path, *flags: str) -> Terminal:
    env = server.caller(XDG_STATE_HOME=str(folder / "state"), HOME=str(folder))
    return Terminal("chat", server.url, *flags, cwd=folder, env=env)


def test_an_answer_is_markdown_and_its_work_unfolds_by_a_key(studio: ServerProcess, tmp_path: Path) -> None:
    with chat_of(studio, tmp_path) as chat:
        chat.expect("you>")
        chat.type("look at tea\r")
        shown = chat.expect("spaces")
        assert "· 1 action" in shown
        assert "(Ctrl+O unfolds, /task)" in shown
        assert "**" not in shown
        assert "```" not in shown
        assert "\nReport\n" in shown
        assert " • one\n • two\n" in shown
        assert re.search(r"drink +price\n.*─+\n +tea +3\n", shown)
        chat.expect("you>")
        chat.type("\x0f")
        chat.expect('writer action  look {"what": "tea"} → green\nyou>')
        chat.type("\x0f")
        chat.expect("you>")
        chat.type("thanks\r")
        assert "look {" not in chat.expect("spaces")


def test_a_conversation_is_continued_with_files_lines_and_facts(
    studio: ServerProcess, tmp_path: Path
) -> None:
    (tmp_path / "plan.txt").write_text("the plan")
    with chat_of(studio, tmp_path) as chat:
        chat.expect("you>")
        chat.type("/cost\r")
        chat.expect("there is no conversation yet")
        chat.type("/model\r")
        chat.expect("writer  house/model")
        chat.type("/attach plan.txt\r")
        chat.expect("The next message has plan.txt.")
        chat.type("/attach nosuch.txt\r")
        chat.expect("nosuch.txt can't be read: No such file or directory")
        chat.type("\x1b[200~first line\nsecond line\n\nthird\x1b[201~")  # a paste
        chat.expect("third")
        chat.type("\r")
        chat.expect("spaces")
        read = (studio.folder / "read").read_text()
        assert "first line" in read
        assert "third" in read
        assert "plan.txt" in read
        chat.expect("you>")
        chat.type("/cost\r")
        chat.expect("0 model calls, 0 tokens in, 0 out, 0.0000 USD")
        chat.type("again\r")
        chat.expect("spaces")
        assert "plan.txt" not in (studio.folder / "read").read_text()
    with studio.client() as client:
        newest = next(iter(client.get("/tasks", params={"fields": "summary", "limit": 1}).json()))
    with chat_of(studio, tmp_path, "--continue") as chat:
        chat.expect(f"task {newest[:8]} is completed: first line")
        chat.expect("you>")
        chat.type("more\r")
        chat.expect("spaces")
    assert studio.task(newest)["generation"] == 3


def test_watching_in_a_pipe_says_who_works(waiting: ServerProcess, tmp_path: Path) -> None:
    env = environment(waiting.caller())
    waiting.mail("send", "hello", "--task-id", "piped", "--no-wait")
    read, write = os.pipe()
    process = forkserver.start(
        [*MAIL, "task", "watch", "piped"], cwd=tmp_path, env=env, stdout=write, stderr=write
    )
    os.close(write)
    with os.fdopen(read) as output:
        lines = iter(output.readline, "")
        working = next(line for line in lines if " working " in line)
        assert working.split() == [*working.split()[:2], "working", "waiter", "house/model"]
        (waiting.folder / "go").touch()
        assert "Answer: gone\n" in lines
    assert process.wait(60) == 0


def test_what_is_typed_while_agents_work_is_left_for_the_prompt(
    waiting: ServerProcess, tmp_path: Path
) -> None:
    with chat_of(waiting, tmp_path) as chat:
        chat.expect("you>")
        chat.type("hello\r")
        chat.expect("waiter: house/model")
        chat.type("typed ahead")
        chat.expect("s")
        (waiting.folder / "go").touch()
        shown = chat.expect("you>")
        assert "typed" not in shown.partition("gone")[0], "it is not between what agents do"
        chat.expect("typed ahead")


def test_one_of_two_tasks_is_continued(studio: ServerProcess) -> None:
    done = studio.mail("chat", "--continue", "--task-id", "x")
    assert done.returncode == 2
    assert "give --continue for the last one" in done.stderr


# ----------------------------------------------------------------------------------------------- in process


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("one\ntwo", ["one", "two"]),
        ("```\na\n\nb  c\n```", ["", " a", "", " b  c", ""]),
        ("see [here](https://example.com/x)", ["see here (https://example.com/x)"]),
        ("\x1b[2Jgone", ["\\u001b[2Jgone"]),
        ("# Title", ["Title"]),
        ("", []),
    ],
)
def test_markdown_as_lines(text: str, lines: list[str]) -> None:
    rendered = [line.plain for line in render(text, Console(file=io.StringIO(), width=60))]
    assert [line.strip() for line in rendered if line.strip()] == [
        line.strip() for line in lines if line.strip()
    ]


def test_text_is_wrapped_at_words_but_not_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    command = "  mail task approve 2f0c1a3b --call c"
    text = f"Decide about this payment with\n{command}"
    for style in ("", "bold"):
        screen, pipe = Screen(), io.StringIO()
        Output(screen).text(text, style=style)
        Output(pipe).text(text, style=style)
        plain = re.sub(r"\x1b\[\d*m", "", screen.getvalue())
        assert plain == f"Decide about this payment with\n{command}\n"
        assert pipe.getvalue() == f"{text}\n"
    screen = Screen()
    Output(screen).text("a word and another and yet another of them")
    assert screen.getvalue() == "a word and another and yet\nanother of them\n"
