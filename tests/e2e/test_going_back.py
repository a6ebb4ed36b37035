"""Going back: the code of the previous release works on a database that this one has used, and this one after it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.engines.aws import ROOT, aws_environment, endpoint
from support.engines.dynamodb import DynamoDBAdapter
from support.engines.postgres import borrow_database, has_postgres, return_database
from support.previous_release import source_of_previous
from support.processes import forkserver
from support.processes.local_aws import needs_ministack
from support.processes.server import ServerProcess, eventually

needs_postgres = pytest.mark.skipif(not has_postgres(), reason="PostgreSQL is not installed")


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=[needs_postgres, pytest.mark.soak])])
def flags(request: pytest.FixtureRequest) -> Iterator[tuple[str, ...]]:
    """Where the server keeps its tasks."""
    if request.param == "sqlite":
        yield ()
        return
    url = borrow_database()
    yield ("--database", url)
    return_database(url)


def serve(server: ServerProcess, source: Path | None) -> None:
    """Start the server with the packages in a folder, or with those of this checkout."""
    server.spawn = forkserver.start if source is None else subprocess.Popen
    server.env = {} if source is None else {"PYTHONPATH": str(source)}
    server.start()


def test_a_previous_release_reads_and_continues_tasks(
    slow_folder: Path, tmp_path_factory: pytest.TempPathFactory, flags: tuple[str, ...]
) -> None:
    previous = source_of_previous(tmp_path_factory.mktemp("previous"))
    turns, go = slow_folder / "turns.txt", slow_folder / "go"
    with ServerProcess(slow_folder, "--swarm-name", "slow", *flags) as server:
        go.touch()
        assert server.ask("work", task_id="done")
        go.unlink()
        turns.unlink()
        assert server.post("work", task_id="open", headers={"Prefer": "respond-async"}).status_code == 202
        eventually(turns.exists, "the worker is in the middle of its turn")
        done = server.task("done")
        server.kill()
        serve(server, previous)
        assert server.task("done")["events"] == done["events"]
        go.touch()
        eventually(lambda: not server.task("open")["is_running"], "the task resumes")
        assert server.task("open")["status"] == "completed"
        assert server.ask("work", task_id="done")
        server.kill()
        serve(server, None)
        assert server.task("done")["events"][: len(done["events"])] == done["events"]
        assert server.ask("work", task_id="open")


ON_DYNAMODB = """
import asyncio
import json
import sys

from mail.adapters.aws.client import Aws
from mail.adapters.aws.store import DynamoDBStore
from mail.adapters.local.queue import LocalQueue
from mail.core.decisions.submit import Submission
from mail.core.engine.runtime import Runtime
from mail.core.protocol.address import Principal
from mail.core.protocol.clock import SYSTEM_CLOCK
from mail.core.task.task import TaskKey
from mail.testing.agents import build_swarm, complete, request, respond


def chief(view):
    return [complete("done")] if view.mail.sender == "expert" else [request("expert", "well?")]


def expert(view):
    return [respond("chief", "so")]


async def main(table, task_id, turns, body):
    store = DynamoDBStore(Aws().client("dynamodb"), table)
    queue = LocalQueue(lambda: SYSTEM_CLOCK.now().timestamp())
    swarm = build_swarm({"chief": chief, "expert": expert})
    runtime = Runtime(swarm, store, queue, SYSTEM_CLOCK)
    ann = Principal(role="user", id="ann", swarm=swarm.name)
    if body:
        await runtime.submit(ann, Submission(body=body, task_id=task_id))
    else:
        await runtime.recover(quiet_for=0.0)
    while turns and len(queue):
        await runtime.run_turn(*await queue.take())
        turns -= 1
    key = TaskKey(str(ann), task_id)
    task, events = await store.load(key), await store.read_events(key)
    print(json.dumps({"status": task.status, "events": [[each.seq, each.text] for each in events]}))


table, task_id, turns, body = sys.argv[1:]
asyncio.run(main(table, task_id, int(turns), body))
"""
"""Writes to a task, or recovers it, takes so many turns at most, and prints what the task is like then."""


@pytest.mark.soak
@needs_ministack
async def test_a_previous_release_reads_and_continues_tasks_on_dynamodb(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    previous = source_of_previous(tmp_path_factory.mktemp("previous"))
    aws = aws_environment(endpoint("ministack"))
    adapter = DynamoDBAdapter("ministack")
    await adapter.open()

    def run(source: Path, task_id: str, body: str = "", *, turns: int = 20) -> tuple[str, list[Any]]:
        words = (adapter.table, task_id, str(turns), body)
        environ = {**os.environ, **aws, "PYTHONPATH": str(source)}
        ran = subprocess.run(
            [sys.executable, "-c", ON_DYNAMODB, *words],
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        told = json.loads(ran.stdout)
        return told["status"], told["events"]

    here = ROOT / "src"
    status, done = run(here, "done", "work")
    assert status == "completed"
    assert run(here, "open", "work", turns=1)[0] == "running"
    status, more = run(previous, "done", "more")
    assert (status, more[: len(done)]) == ("completed", done)
    assert run(previous, "open")[0] == "completed"
    status, most = run(here, "done", "most")
    assert (status, most[: len(more)]) == ("completed", more)
    assert run(here, "open", "more")[0] == "completed"
    await adapter.close()
