"""Going back: the code of the previous release works on a database that this one has used, and this one after it."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.engines.postgres import borrow_database, has_postgres, return_database
from support.previous_release import source_of_previous
from support.processes import forkserver
from support.processes.server import ServerProcess, eventually

needs_postgres = pytest.mark.skipif(not has_postgres(), reason="PostgreSQL is not installed")


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=needs_postgres)])
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
