"""A server's parts, wired: what it needs, what it finds again, what it leaves to others."""

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.processes.server import environment

from mail import bootstrap
from mail.adapters.postgres.liveness import Liveness
from mail.adapters.postgres.queue import PostgresQueue
from mail.adapters.postgres.schema import TABLES
from mail.bootstrap.backends import database_of, open_documents
from mail.bootstrap.system import LocalSystem
from mail.config import ServerConfig
from mail.core.decisions.submit import Submission
from mail.core.protocol.address import Principal
from mail.core.task.ports import WakeUp
from mail.errors import ConfigurationError
from mail.testing.agents import NAME, build_swarm, complete, turns

ANN = Principal(role="user", id="ann", swarm=NAME)


def system(url: str, folder: Path) -> LocalSystem:
    config = ServerConfig().with_overrides(database=url, swarm_registry=str(folder / "registry.json"))
    return bootstrap.local(config, swarm=build_swarm({"alpha": turns([complete("done")])}), environ={})


async def test_mail_that_nobody_was_woken_for_is_found(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mail.adapters.postgres.liveness.LIVENESS_SECONDS", 0.05)
    monkeypatch.setattr("mail.adapters.postgres.liveness.SWEEP_SECONDS", 0.3)
    publish = PostgresQueue.publish
    lost: list[WakeUp] = []

    async def lose_the_first(self: PostgresQueue, tokens: Sequence[WakeUp]) -> None:
        if tokens and not lost:
            lost.extend(tokens)
            return
        await publish(self, tokens)

    monkeypatch.setattr(PostgresQueue, "publish", lose_the_first)
    async with system(url, tmp_path) as server, asyncio.timeout(20):
        submitted = await server.runtime.submit(ANN, Submission(body="hello"))
        answer = await server.runtime.wait(submitted)
    assert lost
    assert answer is not None
    assert answer.message.body == "done"


async def test_it_may_be_stopped_before_it_was_started(url: str, tmp_path: Path) -> None:
    server = system(url, tmp_path)
    assert await server.documents.has_tokens() is False
    await server.stop()


async def test_a_failing_sweep_is_told_and_tried_again(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("mail.adapters.postgres.liveness.LIVENESS_SECONDS", 0.02)
    server = system(url, tmp_path)
    calls = 0

    async def check(*_: Any, **__: Any) -> bool:
        nonlocal calls
        calls += 1
        raise RuntimeError("no")

    async with server:
        monkeypatch.setattr(Liveness, "check", check)
        async with asyncio.timeout(60):
            while calls < 3:  # noqa: ASYNC110 - the server counts
                await asyncio.sleep(0.01)
    assert "the check for servers that are gone has failed" in caplog.text


async def test_tables_and_records_for_commands(url: str) -> None:
    storage = ServerConfig().with_overrides(database=url).storage
    assert await database_of(storage).create_tables() == TABLES
    async with open_documents(storage) as records:
        assert await records.tokens() == []


def test_a_swarm_inside_a_program_says_what_it_takes() -> None:
    swarm = build_swarm({"alpha": turns([complete("done")])})
    with pytest.raises(ConfigurationError, match="inside a program keeps its tasks in SQLite") as refusal:
        bootstrap.embedded(swarm, database="postgresql://u:s3cret@h/d")
    assert "s3cret" not in refusal.value.detail


@pytest.mark.soak(on="psycopg_pool")
@pytest.mark.parametrize("missing", ["psycopg", "psycopg_pool"])
def test_without_its_package_it_says_what_to_install(tmp_path: Path, missing: str) -> None:
    commands = [["db-init"], ["token", "list"], ["server"]]
    code = f"""
import sys
sys.modules[{missing!r}] = None
from mail.cli import main
for command in {commands}:
    try:
        main(command)
    except SystemExit as end:
        print(end.code)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment({"DATABASE_URL": "postgresql://u:s3cret@h/d"}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.split() == ["2", "2", "2"]
    hint = f"postgresql://h/d needs {missing}: pip install 'psycopg[binary]' psycopg-pool"
    assert done.stderr.count(hint) == len(commands)
    assert "s3cret" not in done.stderr
