"""The comparison with other engines: its table, and MAIL's program; the others' need packages of their own."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench import peers
from bench.peers import WORKLOADS, Engine, Sample

ROOT = Path(__file__).resolve().parents[2]


def test_the_table_has_cpu_in_units_of_mails() -> None:
    samples = {}
    for name, cpu in (("MAIL", 0.3), ("DBOS", 1.2)):
        for workload in WORKLOADS:
            samples[name, "SQLite", workload] = [Sample(wall=2.0, cpu=cpu * workload.tasks * workload.turns)]
    head, rule, mail, dbos = peers._table(samples).splitlines()
    assert len({line.count("|") for line in (head, rule, mail, dbos)}) == 1
    assert mail.startswith("| MAIL 1.3.0 | SQLite | 300,000 µs (1.0 ×) |")
    assert re.match(r"\| DBOS [\d.]+ \| SQLite \| 1,200,000 µs \(4\.0 ×\) \|", dbos)


def test_every_pin_is_a_version_and_names_no_index() -> None:
    for line in peers.REQUIREMENTS.read_text().splitlines():
        assert re.match(r"#|[\w-]+==[\d.]+\w*(;.*)?$", line)


@pytest.mark.soak
def test_the_program_of_mail_runs_every_workload(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.peers.on_mail", f"sqlite:///{tmp_path / 'mail.db'}"]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        engine = Engine(process, None)
        taken = [engine.run(workload) for workload in WORKLOADS]
        assert process.stdin is not None
        process.stdin.close()
    assert process.returncode == 0
    assert all(sample.wall > 0 and sample.cpu > 0 for sample in taken)
