"""`mail worker` on the queues of the deployed shape: beside its functions, and when one of two is killed or stopped."""

import asyncio
import json
import os
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
from aws_client import Crowd, answer
from aws_swarm import make_project
from support.engines.aws import aws_environment, endpoint
from support.processes.local_aws import needs_ministack
from support.processes.projects import entry, supervisor
from support.processes.server import MAIL, environment, eventually, run_mail

from mail.local_aws.processes import free_port
from mail.local_aws.system import LocalAws

pytestmark = [needs_ministack, pytest.mark.timeout(900)]

RECORD_VARIABLE = "TEST_RECORD"

THINKING = f'''
"""Two agents whose turns take a while, as with a model; each call is written down when it begins and when it ends."""

import asyncio
import os

from mail.core.turns.context import CURRENT_TASK
from mail.factories.rules import complete, request, respond, rule_based


def note(what, view, agent):
    line = f"{{what}}|{{os.getpid()}}|{{CURRENT_TASK.get()}}|{{agent}} {{len(view.messages)}}\\n"
    record = os.open(os.environ["{RECORD_VARIABLE}"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(record, line.encode())
    os.close(record)


def thinking(agent, reply):
    @rule_based
    async def decide(view):
        note("begin", view, agent)
        await asyncio.sleep(float(os.environ["TEST_TURN_SECONDS"]))
        note("end", view, agent)
        return reply(view)

    return decide


chief = thinking(
    "chief", lambda view: [complete("done")] if view.mail.sender == "expert" else [request("expert", "well?")]
)
expert = thinking("expert", lambda view: [respond("chief", "so")])
'''

SWARM = entry(
    "thinking",
    supervisor("chief", "thinking:chief", comm_targets=["expert"]),
    {"name": "expert", "factory": "python::thinking:expert", "comm_targets": ["chief"]},
)

TURNS = {"chief 1", "chief 2", "expert 1"}
"""The model calls of each task."""


class Thinking:
    """The swarm, to be deployed with `template` and `environment`, and its record."""

    def __init__(self, folder: Path, *, turn_seconds: float, lease_seconds: float) -> None:
        self.template = make_project(folder, SWARM, {"thinking": THINKING})
        self.code = folder / "swarm"
        config = self.code / "mail.toml"
        config.write_text(
            f"{config.read_text(encoding='utf-8')}\n[server.settings]\nlease_seconds = {lease_seconds}\n"
        )
        self._record = folder / "record.txt"
        self.environment = {RECORD_VARIABLE: str(self._record), "TEST_TURN_SECONDS": str(turn_seconds)}

    def calls(self, what: str = "begin") -> list[tuple[int, str, str]]:
        """The calls that have begun, or ended: process, task and call."""
        text = self._record.read_text(encoding="utf-8") if self._record.exists() else ""
        lines = [line.split("|") for line in text.splitlines()]
        return [(int(pid), task, call) for event, pid, task, call in lines if event == what]


class WorkerProcess:
    """A running `mail worker` on a local deployment."""

    def __init__(self, name: str, folder: Path, endpoint: str, env: Mapping[str, str], *flags: str) -> None:
        self.port = free_port()
        self._log = folder / f"{name}.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [*MAIL, "worker", "--stack", "mail", "--port", str(self.port), *flags],
                cwd=folder,
                env=environment({**aws_environment(endpoint), **env}),
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        eventually(
            lambda: "takes turns" in self.log or self.process.poll() is not None, "the worker is ready"
        )
        assert self.process.poll() is None, self.log

    @property
    def cost(self) -> str:
        """The processor time that it has taken, in seconds, and the most memory that it has held, where /proc tells."""
        process = Path("/proc") / str(self.process.pid)
        if not process.exists():
            return "unknown"
        fields = (process / "stat").read_text().rpartition(")")[2].split()
        seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        (memory,) = re.findall(r"VmHWM:\s+(\d+) kB", (process / "status").read_text())
        return f"{seconds:.2f} s, {int(memory) / 1024:.0f} MB"

    @property
    def log(self) -> str:
        """What it has printed."""
        return self._log.read_text(encoding="utf-8")


@contextmanager
def worker(name: str, swarm: Thinking, system: LocalAws, *flags: str, **env: str) -> Iterator[WorkerProcess]:
    started = WorkerProcess(name, swarm.code, system.endpoint, {**swarm.environment, **env}, *flags)
    try:
        yield started
    finally:
        started.process.kill()
        started.process.wait(60)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("tasks", "turn_seconds", "lease_seconds"),
    [(8, 2.0, 4.0), (600, 15.0, 40.0)],
)
async def test_all_turns_of_a_killed_worker_are_run_by_another_and_by_functions(
    tmp_path: Path, tasks: int, turn_seconds: float, lease_seconds: float
) -> None:
    swarm = Thinking(tmp_path, turn_seconds=turn_seconds, lease_seconds=lease_seconds)
    parameters = {"Turns": "both"}
    local = LocalAws(swarm.template, parameters=parameters, environment=swarm.environment, concurrency=2)
    async with local as system, Crowd(system) as crowd:
        names = [f"task {n}" for n in range(tasks)]
        await asyncio.gather(*(crowd.submit(name, "think") for name in names))
        with worker("doomed", swarm, system) as doomed, worker("other", swarm, system) as other:
            killed = doomed.process.pid
            taken = lambda: sum(pid == killed for pid, *_ in swarm.calls())  # noqa: E731
            eventually(lambda: taken() >= tasks / 4, "it has taken its share of turns")
            doomed.process.kill()
            records = await crowd.finish(names, seconds=60 + 10 * (turn_seconds + lease_seconds))
            live = httpx2.get(f"http://127.0.0.1:{other.port}/live").json()
            cost = other.cost
    assert live == {"status": "ok", "running": 0}
    assert [answer(record) for record in records] == ["task_complete: done"] * tasks
    by_killed = {(task, call) for pid, task, call in swarm.calls() if pid == killed}
    by_others = Counter((task, call) for pid, task, call in swarm.calls() if pid != killed)
    assert max(by_others.values()) == 1, "none is doubled"
    assert by_killed | by_others.keys() == {(name, call) for name in names for call in TURNS}
    ended = {(task, call) for pid, task, call in swarm.calls("end") if pid == killed}
    print(f"{len(by_killed & by_others.keys())} repeated, of {len(by_killed - ended)} in flight")
    print(f"{len([pid for pid, *_ in swarm.calls() if pid == other.process.pid])} turns of the other: {cost}")


def test_a_worker_that_names_no_deployment_says_how_to(tmp_path: Path) -> None:
    done = run_mail("worker", cwd=tmp_path)
    assert done.returncode == 2
    assert "--stack" in done.stderr
    env = aws_environment(endpoint("ministack"))
    done = run_mail("worker", "--stack", "absent", cwd=tmp_path, env=env)
    assert done.returncode == 2
    assert "the stack absent can't be read" in done.stderr


@pytest.mark.soak
async def test_a_worker_that_is_stopped_hands_back_its_turns_and_counts_what_it_has_done(
    tmp_path: Path,
) -> None:
    swarm = Thinking(tmp_path, turn_seconds=3.0, lease_seconds=8.0)
    local = LocalAws(swarm.template, parameters={"Turns": "workers"}, environment=swarm.environment)
    async with local as system, Crowd(system) as crowd:
        with worker("stopped", swarm, system, "--grace", "0.5", MAIL_LOG_FORMAT="json") as stopped:
            names = [f"task {n}" for n in range(12)]
            for name in names:
                await crowd.submit(name, "think")
            eventually(lambda: "expert 1" in {call for _, _, call in swarm.calls()}, "its second turn begins")
            stopped.process.send_signal(signal.SIGTERM)
            assert stopped.process.wait(60) == 0
            log = stopped.log
        with worker("next", swarm, system):
            records = await crowd.finish(names, seconds=60)
    pids = {each[0] for each in swarm.calls()}
    assert len(pids) == 2, "no function has run a turn"
    assert [answer(record) for record in records] == ["task_complete: done"] * len(names)
    lines = [json.loads(line) for line in log.splitlines()]
    assert sum(line.get("Turns", 0) for line in lines) >= 1
    assert {line["service"] for line in lines if "_aws" in line} == {"mail"}
    assert [line["RunningTurns"] for line in lines if "RunningTurns" in line]
    assert any(re.search(r"\d+ turns did not end in time", line.get("message", "")) for line in lines)
