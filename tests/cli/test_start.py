"""What a command and a server load and build before they answer, by counts: seconds depend on the machine."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

MORE_THAN_CLICK = {"--help": 95, "version": 45}
"""Modules that a command may load beside those of click."""


def command(*words: str) -> str:
    return f"from mail.cli import main\ntry: main({list(words)!r})\nexcept SystemExit: pass"


SERVER = """
import mail.server.process
from mail import bootstrap
from mail.config import load_config
from mail.server import build_app

build_app(bootstrap.local(load_config().server))
"""

COLLECTION = f"""
import gc
import mail.server.process
seen = []

async def serve(system, *, on_ready, **_):
    seen.append(gc.isenabled())
    on_ready()
    seen.extend((gc.isenabled(), gc.get_freeze_count() > 10_000))

mail.server.process._serve = serve
{command("server")}
"""

FROZEN = """
import gc
import mail.server.process
from mail.config import load_config
seen = []

async def serve(system, *, on_ready, **_):
    on_ready()
    seen.append(gc.get_freeze_count())

mail.server.process._serve = serve
from mail.testing.agents import build_swarm
swarm = build_swarm({"supervisor": lambda _: []})
before = gc.get_freeze_count()
mail.server.process.serve_swarm(swarm, load_config().server)
"""


def value_of(expression: str, code: str, folder: Path) -> Any:
    """The value of an expression in a new interpreter, once this has run."""
    done = subprocess.run(
        [sys.executable, "-c", f"import json, sys\n{code}\nprint(json.dumps({expression}))"],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def loaded_by(code: str, folder: Path) -> set[str]:
    return set(value_of("sorted(sys.modules)", code, folder))


@pytest.mark.parametrize("word", MORE_THAN_CLICK)
def test_cheap_commands_load_little(word: str, tmp_path: Path) -> None:
    loaded = loaded_by(command(word), tmp_path)
    assert "asyncio" not in loaded
    assert len(loaded - loaded_by("import click", tmp_path)) <= MORE_THAN_CLICK[word]


@pytest.mark.parametrize("words", [("version",), ("server", "--help")])
def test_some_commands_are_loaded_without_the_others(words: tuple[str, ...], tmp_path: Path) -> None:
    assert not {"mail.cli.client", "mail.cli.tasks"} & loaded_by(command(*words), tmp_path)


def test_a_server_loads_nothing_that_it_does_not_need(tmp_path: Path) -> None:
    unneeded = {"mail.cli.app", "asyncpg", "botocore", "httpx2", "jsonschema", "litellm", "psycopg", "rich"}
    assert not unneeded & loaded_by(SERVER, tmp_path)


@pytest.mark.soak
def test_a_server_collects_garbage_once_it_is_ready(tmp_path: Path) -> None:
    """What a start makes stays, so that looking through it again and again would only take time."""
    assert value_of("seen", COLLECTION, tmp_path) == [False, True, True]


@pytest.mark.soak
def test_a_program_that_serves_a_swarm_never_looks_through_what_its_start_has_made(tmp_path: Path) -> None:
    before, seen = value_of("[before, seen]", FROZEN, tmp_path)
    assert seen[0] > before + 10_000
