"""Many calls wait for results that come later, while servers are killed: none is lost, none ends twice, and nothing is
written while they wait.

    MAIL_LATER_CALLS=100000 pytest tests/crash/test_later_soak.py -k sqlite
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from crash_runs import HERE, SEED
from later_soak import CALLS_PER_TASK
from support.engines.aws import aws_environment, endpoint
from support.engines.dynamodb import SERVERS
from support.engines.postgres import borrow_database, has_postgres, return_database

CALLS = int(os.environ.get("MAIL_LATER_CALLS", "1000")) // CALLS_PER_TASK * CALLS_PER_TASK
KILLS = 20
"""How many processes are killed, half of them while calls begin, the others while they end."""

LEASE_SECONDS = 3600.0
"""How much later each process starts than the one before, so that the leases of the dead are over."""

GLANCE_SECONDS = 0.01

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3 * 3600)]


@pytest.fixture(params=["sqlite", "postgres", "dynamodb"])
def world(request: pytest.FixtureRequest) -> Iterator[tuple[str, dict[str, str]]]:
    match request.param:
        case "postgres":
            if not has_postgres():
                pytest.skip("PostgreSQL is not installed")
            url = borrow_database()
            yield url, {}
            return_database(url)
        case "dynamodb":
            if "ministack" not in SERVERS:
                pytest.skip("ministack is not installed")
            yield f"later-{uuid4()}", dict(aws_environment(endpoint("ministack")))
        case _:
            yield "sqlite", {}


class Processes:
    """Processes of `later_soak`, one after the other."""

    def __init__(self, folder: Path, world: str, environment: dict[str, str]) -> None:
        self._folder = folder
        paths = os.pathsep.join(
            [str(HERE), str(HERE.parent), str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")]
        )
        self._zygote = subprocess.Popen(
            [sys.executable, str(HERE / "later_soak.py"), str(folder), world, str(CALLS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment, "PYTHONPATH": paths},
        )
        self._started = 0
        self.kills = 0

    def close(self) -> None:
        """End the process that forks."""
        self._zygote.communicate()

    def run(self, phase: str) -> dict[str, Any]:
        """Run a phase to its end."""
        self._start(phase)
        assert self._end() == 0, phase
        return dict(json.loads((self._folder / "said").read_text()))

    def kill(self, phase: str, log: str, at: int) -> None:
        """Kill a process of a phase when a log has so many lines."""
        process = self._start(phase)
        while self._lines(log) < at:
            time.sleep(GLANCE_SECONDS)
        os.kill(process, signal.SIGKILL)
        self.kills += self._end() == signal.SIGKILL

    def _start(self, phase: str) -> int:
        assert self._zygote.stdin is not None
        assert self._zygote.stdout is not None
        self._zygote.stdin.write(json.dumps([phase, self._started * LEASE_SECONDS]) + "\n")
        self._zygote.stdin.flush()
        self._started += 1
        return int(self._zygote.stdout.readline())

    def _end(self) -> int:
        assert self._zygote.stdout is not None
        return int(self._zygote.stdout.readline())

    def _lines(self, log: str) -> int:
        path = self._folder / log
        return path.read_bytes().count(b"\n") if path.exists() else 0


def test_calls_that_wait_survive_servers(tmp_path: Path, world: tuple[str, dict[str, str]]) -> None:
    with closing(Processes(tmp_path, *world)) as processes:
        _survive(processes, random.Random(SEED))


def _survive(processes: Processes, chance: random.Random) -> None:
    moments = [sorted(chance.sample(range(1, CALLS), KILLS // 2)) for _ in range(2)]
    for moment in moments[0]:
        processes.kill("begin", "begun", moment)
    processes.run("begin")
    waited = processes.run("wait")
    assert (waited["writes"], waited["changed"]) == (0, False), waited
    for moment in moments[1]:
        processes.kill("finish", "done", moment)
    processes.run("finish")
    tasks = CALLS // CALLS_PER_TASK
    assert processes.run("check") == {
        "completed": tasks,
        "answered": tasks,
        "ended once": CALLS,
        "ended again": 0,
        "failed": 0,
        "open": 0,
        "tokens": CALLS,
        "problems": [],
    }
    assert processes.kills == KILLS
