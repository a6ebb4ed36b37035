"""scripts/multi_swarm_demo.py, as people run it."""

from pathlib import Path

from support.processes.server import run_python

SCRIPT = Path(__file__).parents[2] / "scripts" / "multi_swarm_demo.py"


def test_each_swarm_needs_the_other() -> None:
    done = run_python(str(SCRIPT), "weather in Oslo and 2**10")
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.strip() for line in done.stdout.splitlines()]
    answers = [line for line in lines if line.startswith("Answer: ")]
    assert len(answers) == 2
    assert all("The weather in Oslo today: " in answer and "2**10 = 1024." in answer for answer in answers)
    assert "math@swarm-beta → supervisor: 2**10 = 1024." in lines
