"""docs/testing.md: its sample passes, and fails where it should; its commands and folders are those there are."""

import re
import sys
from pathlib import Path

import pytest
from support.processes import forkserver
from support.processes.document_samples import DOCS, ROOT, blocks
from support.processes.server import PLUGINS, PYTEST, environment

DOCUMENT = DOCS / "testing.md"
TEXT = DOCUMENT.read_text(encoding="utf-8")
[SCRIPTED, SAMPLE, QUEUE, FAULTS, DECISION] = [text for _, text in blocks(DOCUMENT, "python")]


def run_sample(folder: Path, code: str, *flags: str) -> str:
    (folder / "test_greeter.py").write_text(code, encoding="utf-8")
    done = forkserver.run(
        [sys.executable, *PYTEST, *flags, "test_greeter.py"], cwd=folder, env=environment(PLUGINS)
    )
    return done.stdout


def test_the_sample_passes(tmp_path: Path) -> None:
    assert "4 passed" in run_sample(tmp_path, SAMPLE)


def test_the_sample_can_fail(tmp_path: Path) -> None:
    broken = SAMPLE.replace('return "Ada"', 'return "Bob"')
    assert "2 failed, 2 passed" in run_sample(tmp_path, broken)


def test_scripts_play_the_models(tmp_path: Path) -> None:
    assert "1 passed" in run_sample(tmp_path, SCRIPTED)
    assert "1 failed" in run_sample(tmp_path, SCRIPTED.replace('"It is 4."],', '"It is 5."],'))


def test_a_queue_of_ones_own_keeps_the_contract(tmp_path: Path) -> None:
    assert "14 passed" in run_sample(tmp_path, QUEUE, "-o", "asyncio_mode=auto")


def test_a_queue_that_breaks_the_contract_is_found(tmp_path: Path) -> None:
    broken = QUEUE.replace("(wake_up.tier, next", "(0, next")
    assert " failed" in run_sample(tmp_path, broken, "-o", "asyncio_mode=auto")


def test_faults(tmp_path: Path) -> None:
    assert "2 passed" in run_sample(tmp_path, FAULTS)
    assert "2 failed" in run_sample(tmp_path, FAULTS.replace('"after store.commit"', '"before store.commit"'))


def test_a_decision() -> None:
    exec(DECISION, {})
    with pytest.raises(AssertionError):
        exec(DECISION.replace('== "42"', '== "43"'), {})


def test_every_command_is_one() -> None:
    script = (ROOT / "scripts" / "dev.py").read_text(encoding="utf-8")
    commands = re.findall(r"python3 scripts/dev\.py (\w+)", TEXT)
    assert set(commands) == {"test", "lint", "bench", "chaos", "docs", "tools", "postgres"}
    for command in commands:
        assert f'"{command}"' in script
    for path in re.findall(r"dev\.py test (tests/\w+)", TEXT):
        assert (ROOT / path).is_dir()


def test_every_folder_is_named() -> None:
    folders = {path.name for path in (ROOT / "tests").iterdir() if any(path.glob("*.py"))}
    assert folders == set(re.findall(r"`tests/(\w+)`", TEXT))
