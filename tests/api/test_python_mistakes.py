"""Mistakes in Python: one line with the cause and the remedy, below the program's own line.

Those on the command line and over HTTP are in `tests/cli/test_mistakes.py`.
"""

import sqlite3
import traceback
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from mail import Agent, MAILAction, MAILAgentTemplate, MAILSwarmTemplate, Swarm, action
from mail.api import tracebacks
from mail.errors import MAILError
from mail.testing.agents import complete, scripted


def helper(**settings: Any) -> Agent:
    return Agent("lead", function=scripted(lambda _: [complete("done")], tool_format="responses"), **settings)


def look_up(word: str) -> str:
    """Look a word up."""
    return word


def second_swarm_on_a_file() -> None:
    first = Swarm(helper(), database="tasks.db")
    first.ask("hi")
    try:
        Swarm(helper(), database="tasks.db").ask("hi")
    finally:
        first.close()


def template(**settings: Any) -> Any:
    return MAILSwarmTemplate("team", "1", [helper().template(leads=True)], [], "lead", **settings)


MISTAKES: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "a list of agents": (lambda: Swarm([helper()]), ("takes its lead", "not [Agent('lead')]", "team")),  # type: ignore[call-overload]
    "a word for approval": (
        lambda: action(needs_approval="yes")(look_up),  # type: ignore[call-overload]
        ("action 'look_up'", "must be True, False, a function or an Approval, not 'yes'"),
    ),
    "the same of an action": (
        lambda: MAILAction("f", "F.", {"type": "object"}, look_up, needs_approval="no"),  # type: ignore[arg-type]
        ("action 'f'", "not 'no'"),
    ),
    "a misspelt option of an action": (
        lambda: MAILAction("f", "F.", {"type": "object"}, look_up, retry=2),  # type: ignore[call-arg]
        ("action 'f' has no option 'retry'", "Did you mean 'retries'?"),
    ),
    "tools": (
        lambda: Agent("lead", model="openai/gpt-5-mini", tools=[look_up]),
        ("'tools' is not an option: use actions=", "mcp"),
    ),
    "neither model nor function": (lambda: Agent("lead"), ("agent 'lead'", "such as 'openai/gpt-5-mini'")),
    "misspelt tool": (
        lambda: Swarm(helper(exclude_tools=["send_reqest"])),
        ("Did you mean 'send_request'?",),
    ),
    "no entrypoint": (lambda: template(breakpoint_tools=["ask"]), ("'ask' is not an action",)),
    "a missing file": (
        lambda: MAILSwarmTemplate.from_swarm_json_file("team", "swarms-1.json"),
        ("swarms-1.json: can't be read",),
    ),
    "two swarms on one file": (
        second_swarm_on_a_file,
        ("another server or program works with tasks.db", "tasks-2.db", "database= in Python"),
    ),
    "a folder that can't be written": (
        lambda: Swarm(helper(), database="/proc/x.db").ask("hi"),
        ("/proc/x.db can't be used as a database: the folder /proc can't be written",),
    ),
}


@pytest.mark.parametrize(("make", "told"), MISTAKES.values(), ids=MISTAKES)
def test_in_one_line_below_the_program_s_own(
    make: Callable[[], Any], told: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MAILError) as caught:
        make()
    for part in told:
        assert part in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    files = [frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)]
    own = [file for file in files if file not in (__file__, tracebacks.__file__)]
    assert (own, files.count(tracebacks.__file__)) == ([], 1)
    shown = "".join(traceback.format_exception(caught.value))
    assert "direct cause" not in shown
    assert "another exception" not in shown


async def test_in_a_coroutine_too(tmp_path: Path) -> None:
    file = str(tmp_path / "tasks.db")
    async with Swarm(helper(), database=file):
        for make in (
            lambda: Swarm(helper(), database=file).aask("hi"),
            Swarm(helper(), database=file).__aenter__,
            lambda: anext(Swarm(helper(), database=file).stream("hi")),
        ):
            with pytest.raises(MAILError, match="another server or program") as caught:
                await make()
            shown = traceback.extract_tb(caught.value.__traceback__)
            assert [frame.filename for frame in shown][-2:] == [__file__, tracebacks.__file__]


def test_a_cause_of_the_program_s_own_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_desk.py").write_text("import json\nPRICES = json.loads('{')\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MAILError, match=r"broken_desk.py, line 2") as caught:
        MAILAgentTemplate("lead", "python::broken_desk:Desk", [], [], {}).instantiate({})
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_locked_database_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mail.adapters.sqlite.database.LOCK_TIMEOUT", 0.1)
    file = tmp_path / "tasks.db"
    swarm = Swarm(helper(), database=str(file))
    swarm.ask("hi")
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(MAILError, match=r"Another process has locked the database tasks\.db"):
            swarm.ask("hi")
        other.execute("ROLLBACK")
    swarm.close()


class TestKinds:
    """Decorated functions keep their signature and their kind."""

    def test_signatures(self) -> None:
        import inspect

        assert inspect.iscoroutinefunction(Swarm.aask)
        assert not inspect.iscoroutinefunction(Swarm.ask)
        assert inspect.isasyncgenfunction(Swarm.stream)
        assert "database" in inspect.signature(Swarm).parameters
        assert inspect.getdoc(Swarm.ask)
