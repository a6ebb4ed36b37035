"""`python -m bench --peers`: the same durable workload (`bench.peers.workload`) on MAIL, LangGraph and DBOS.

Each engine runs in a program of its own, with its documented settings for durable work, on SQLite and, where it is
installed, on PostgreSQL (LangGraph on SQLite only). The others' packages are installed into .tools/peers, as pinned in
requirements.txt. Every round runs each workload on each engine, one engine at a time. CPU times, of PostgreSQL as well,
say more than rates, as the machine may be busy with something else.
"""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import mail
from bench.engine import ROOT, scratch
from bench.peers.workload import REQUEST_TURNS
from scripts import dev

if TYPE_CHECKING:
    from support.engines.postgres import PostgresServer

HERE = Path(__file__).parent
VENV = dev.TOOLS / "peers"
REQUIREMENTS = HERE / "requirements.txt"

ON_POSTGRES = {"MAIL": "postgres", "DBOS": "dbos"}
"""The engines that also run on PostgreSQL, and their databases."""

SECONDS, PAUSE = 0.5, 0.2
"""Seconds that a sample lasts at least, and before it, for what the engine before still does."""


@dataclass(frozen=True, slots=True)
class Workload:
    """So many tasks of so many turns, `at_once` of them at a time."""

    name: str
    tasks: int
    turns: int
    at_once: int = 1


WORKLOADS = (
    Workload("ping-pong of 201 turns", 1, 201),
    Workload("requests one by one", 48, REQUEST_TURNS),
    Workload("requests 16 at once", 96, REQUEST_TURNS, at_once=16),
)


@dataclass(frozen=True, slots=True)
class Sample:
    """What a workload took: wall and CPU seconds, those of a database server included."""

    wall: float
    cpu: float


type Samples = dict[tuple[str, str, Workload], list[Sample]]
"""By engine, database and workload."""


class Engine:
    """The running program of an engine, and the server that it keeps busy, if any."""

    def __init__(self, process: "subprocess.Popen[str]", server: "PostgresServer | None") -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout, self._server = process.stdin, process.stdout, server
        if not self._stdout.readline():
            raise ChildProcessError(f"{process.args!r} did not start; see above")

    def run(self, workload: Workload) -> Sample:
        """Run a workload as often as it takes to fill `SECONDS`; return what it took once."""
        time.sleep(PAUSE)
        before = self._server_cpu()
        runs, wall, cpu = 0, 0.0, 0.0
        while wall < SECONDS:
            self._stdin.write(json.dumps([workload.tasks, workload.turns, workload.at_once]) + "\n")
            self._stdin.flush()
            taken = json.loads(self._stdout.readline())
            runs, wall, cpu = runs + 1, wall + taken[0], cpu + taken[1]
        return Sample(wall / runs, (cpu + self._server_cpu() - before) / runs)

    def _server_cpu(self) -> float:
        return 0.0 if self._server is None else _cpu_of(self._server)


def compare(rounds: int) -> str:
    """Run all workloads on all engines; return the table, in Markdown."""
    python = set_up()
    programs = {
        "MAIL": [sys.executable, "-m", "bench.peers.on_mail"],
        "LangGraph": [python, str(HERE / "on_langgraph.py")],
        "DBOS": [python, str(HERE / "on_dbos.py")],
    }
    samples: Samples = {}
    with scratch() as folder, ExitStack() as running:
        places = [(name, "SQLite", f"sqlite:///{folder / name}.db") for name in programs]
        if postgres := running.enter_context(_postgres()):
            places += [(name, "PostgreSQL", postgres.url(database)) for name, database in ON_POSTGRES.items()]
        engines = {}
        for name, kind, url in places:
            process = running.enter_context(_running([*programs[name], url]))
            engines[name, kind] = Engine(process, postgres if kind == "PostgreSQL" else None)
        for number in range(rounds + 1):
            for workload in WORKLOADS:
                for key, engine in engines.items():
                    sample = engine.run(workload)
                    if number:  # the first round warms up
                        samples.setdefault((*key, workload), []).append(sample)
    return _table(samples)


def set_up() -> str:
    """Install the other engines, unless they are installed; return the Python that has them."""
    mark, current = VENV / ".mail", dev.digest_of(REQUIREMENTS)
    if not mark.is_file() or mark.read_text() != current:
        dev.create_venv(VENV)
        dev.pip("install", "-qq", "--requirement", str(REQUIREMENTS), venv=VENV)
        mark.write_text(current)
    return dev.program(VENV, "python")


@contextmanager
def _running(command: Sequence[str]) -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            assert process.stdin is not None
            process.stdin.close()


@contextmanager
def _postgres() -> Iterator["PostgresServer | None"]:
    """Start PostgreSQL, if it is installed."""
    sys.path.append(str(ROOT / "tests"))
    from support.engines import postgres

    if not postgres.has_postgres():
        yield None
        return
    postgres.SETTINGS["fsync"] = "on"
    server = postgres.PostgresServer()
    try:
        yield server
    finally:
        server.remove()


def _cpu_of(server: "PostgresServer") -> float:
    """CPU seconds of the processes of a PostgreSQL server, those that have ended included."""
    postmaster = (server.folder / "data" / "postmaster.pid").read_text().split()[0]
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if stat.parent.name == postmaster:
                ticks += sum(map(int, fields[11:15]))
            elif fields[1] == postmaster:
                ticks += sum(map(int, fields[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _table(samples: Samples) -> str:
    """A line per engine and database; CPU in parentheses in units of MAIL's on the same database, round by round."""
    heads = ["", "database", *(f"{each.name}: CPU per turn" for each in WORKLOADS)]
    heads += ["turns/s", "answers/s, one by one", f"answers/s, {WORKLOADS[-1].at_once} at once"]
    lines = [heads, ["---"] * len(heads)]
    for name, kind in dict.fromkeys((name, kind) for name, kind, _ in samples):
        cells, rates = [f"{name} {_version(name)}", kind], []
        for workload in WORKLOADS:
            taken, ours = samples[name, kind, workload], samples["MAIL", kind, workload]
            ratio = median(sample.cpu / our.cpu for sample, our in zip(taken, ours, strict=True))
            cpu = median(sample.cpu for sample in taken) / workload.tasks / workload.turns
            cells.append(f"{cpu * 1e6:,.0f} µs ({ratio:.1f} ×)")
            done = workload.turns if workload.tasks == 1 else workload.tasks
            rates.append(f"{median(done / sample.wall for sample in taken):,.0f}")
        lines.append([*cells, *rates])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _version(name: str) -> str:
    if name == "MAIL":
        return mail.__version__
    pinned = re.search(rf"^{name}==(\S+)$", REQUIREMENTS.read_text(), re.IGNORECASE | re.MULTILINE)
    assert pinned is not None, name
    return pinned[1]
