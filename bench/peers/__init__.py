"""`python -m bench --peers`: the same durable workload (`bench.peers.workload`) on MAIL, LangGraph and DBOS.

Each engine runs in a program of its own, on SQLite, with its documented settings for durable work; the others' packages are
installed into .tools/peers, as pinned in requirements.txt. Every round runs each workload on each engine, one engine at a
time. The rates say little while the machine is busy with something else; the CPU times do.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.engine import ROOT, scratch
from bench.peers.workload import REQUEST_TURNS
from scripts import dev

HERE = Path(__file__).parent
VENV = dev.TOOLS / "peers"
REQUIREMENTS = HERE / "requirements.txt"


@dataclass(frozen=True, slots=True)
class Workload:
    """So many tasks of so many turns, `at_once` of them at a time."""

    name: str
    tasks: int
    turns: int
    at_once: int = 1


WORKLOADS = (
    Workload("ping-pong of 201 turns", 1, 201),
    Workload("requests one by one", 60, REQUEST_TURNS),
    Workload("requests 16 at once", 160, REQUEST_TURNS, at_once=16),
)


@dataclass(frozen=True, slots=True)
class Sample:
    """What a workload took: wall and CPU seconds."""

    wall: float
    cpu: float


class Engine:
    """The running program of an engine."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout
        assert json.loads(self._stdout.readline()) == "ready"

    def run(self, workload: Workload) -> Sample:
        """Run a workload once."""
        self._stdin.write(json.dumps([workload.tasks, workload.turns, workload.at_once]) + "\n")
        self._stdin.flush()
        return Sample(*json.loads(self._stdout.readline()))


def compare(rounds: int) -> str:
    """Run all workloads on all engines; return the table, in Markdown."""
    python = set_up()
    commands = {
        "MAIL": [sys.executable, "-m", "bench.peers.on_mail"],
        "LangGraph": [python, str(HERE / "on_langgraph.py")],
        "DBOS": [python, str(HERE / "on_dbos.py")],
    }
    samples: dict[tuple[str, Workload], list[Sample]] = {
        (name, workload): [] for name in commands for workload in WORKLOADS
    }
    with scratch() as folder, ExitStack() as running:
        engines = {
            name: running.enter_context(_running(command, folder)) for name, command in commands.items()
        }
        for number in range(rounds + 1):
            for workload in WORKLOADS:
                for name, engine in engines.items():
                    sample = engine.run(workload)
                    if number:  # the first round warms up
                        samples[name, workload].append(sample)
    return _table(list(commands), samples)


def set_up() -> str:
    """Install the other engines, unless they are installed; return the Python that has them."""
    mark, current = VENV / ".mail", dev.digest_of(REQUIREMENTS)
    if not mark.is_file() or mark.read_text() != current:
        dev.create_venv(VENV)
        dev.pip("install", "-qq", "--requirement", str(REQUIREMENTS), venv=VENV)
        mark.write_text(current)
    return dev.program(VENV, "python")


@contextmanager
def _running(command: Sequence[str], folder: Path) -> Iterator[Engine]:
    with subprocess.Popen(
        [*command, str(folder)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Engine(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()


def _table(engines: Sequence[str], samples: dict[tuple[str, Workload], list[Sample]]) -> str:
    """A line per engine; in parentheses, the CPU in units of MAIL's, round by round."""
    heads = [
        "",
        *(f"{each.name}: CPU per turn" for each in WORKLOADS),
        "turns/s",
        "answers/s",
        "answers/s, 16 at once",
    ]
    lines = [heads, ["---"] * len(heads)]
    for name in engines:
        cells = [f"{name} {_version(name)}"]
        for workload in WORKLOADS:
            pairs = zip(samples[name, workload], samples["MAIL", workload], strict=True)
            ratio = median(sample.cpu / ours.cpu for sample, ours in pairs)
            turns = workload.tasks * workload.turns
            cpu = median(sample.cpu for sample in samples[name, workload]) / turns
            cells.append(f"{cpu * 1e6:,.0f} µs ({ratio:.1f} ×)")
        for workload in WORKLOADS:
            done = workload.turns if workload is WORKLOADS[0] else workload.tasks
            cells.append(f"{median(done / sample.wall for sample in samples[name, workload]):,.0f}")
        lines.append(cells)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _version(name: str) -> str:
    if name == "MAIL":
        return __import__("mail").__version__
    pins = dict(line.split("==") for line in REQUIREMENTS.read_text().splitlines() if "==" in line)
    return pins[name.lower()]
