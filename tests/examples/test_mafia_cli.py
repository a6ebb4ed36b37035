"""`python -m mail.examples.mafia`, as people run it."""

import re
import subprocess

import pytest
from mafia_models import MODEL, models
from support.processes.server import run_python

from mail.examples.mafia.game import Game


def run(*flags: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    return run_python("-m", "mail.examples.mafia", *flags, given=typed)


@pytest.fixture(scope="module")
def printed() -> str:
    done = run("--players", "7", "--seed", "3")
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_whole_game_is_printed(printed: str) -> None:
    headings = re.findall(r"^── (\w+[\w ]*) (\d+) ──$", printed, re.MULTILINE)
    assert headings[:5] == [
        ("setup", "1"),
        ("night", "1"),
        ("discussion", "1"),
        ("nomination", "1"),
        ("trial", "1"),
    ]
    assert headings[-1][0] == "game over"
    assert re.search(r"^\w+ → Narrator: I protect \w+\.$", printed, re.MULTILINE)
    assert re.search(r"^Narrator: Night 1 falls\.", printed, re.MULTILINE)
    assert re.search(r"^The (Town|Mafia) wins\. \(seed 3\)$", printed.strip().splitlines()[-1])


async def test_it_is_the_game_of_its_seed(printed: str) -> None:
    game = Game.create(7, seed=3)
    await game.run()
    lines = [
        f"{said.speaker}{'' if said.is_public else ' → ' + ', '.join(said.audience)}: {said.text}"
        for said in game.transcript
    ]
    assert [
        line
        for line in printed.splitlines()
        if ": " in line and not line.startswith(("Living", "The Mafia is"))
    ] == [line.splitlines()[0] for line in lines]


def test_what_everyone_hears() -> None:
    done = run("--players", "7", "--seed", "3", "--public")
    assert "→" not in done.stdout
    assert "I protect" not in done.stdout
    assert "I nominate" in done.stdout


def test_a_seed_of_its_own() -> None:
    done = run("--players", "4")
    found = re.search(r"\(seed (\d+)\)", done.stdout)
    assert found is not None
    assert run("--players", "4", "--seed", found[1]).stdout == done.stdout


def test_too_few_players() -> None:
    done = run("--players", "3")
    assert (done.returncode, done.stderr) == (1, "Mafia takes 4 to 16 players, not 3\n")


def test_a_human_steps() -> None:
    done = run("--players", "4", "--seed", "1", "--interactive", typed="\n" * 200)
    assert done.returncode == 0, done.stderr
    assert "Next: Narrator" in done.stdout
    assert "wins" in done.stdout


def test_with_models(monkeypatch: pytest.MonkeyPatch) -> None:
    with models(monkeypatch, seed=0) as stub:
        done = run("--players", "4", "--seed", "1", "--llm", MODEL)
    assert done.returncode == 0, done.stderr
    assert {request.body["model"] for request in stub.requests} == {"gpt-5-mini"}
    assert "wins. (seed 1)" in done.stdout
