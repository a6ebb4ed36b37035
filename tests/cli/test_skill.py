"""The skill that `mail init` writes for coding agents: its samples run as they are."""

import re
from pathlib import Path
from typing import Any

import pytest
from support.processes.server import run_mail

from mail.cli.project.scaffold import Project

FILES = dict(Project("shop", "openai/gpt-5-mini", is_python=True).files())
SKILL = FILES[".agents/skills/mail-swarms/SKILL.md"]


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", SKILL, re.DOTALL)


def test_its_test_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "shop"}
    swarm, test = blocks("python")
    exec(swarm, names)
    exec(test, names)
    names["test_it_answers"]()


def test_its_file_is_valid(tmp_path: Path) -> None:
    (entry,) = blocks("json")
    (tmp_path / "shop.py").write_text(blocks("python")[0])
    (tmp_path / "swarms.json").write_text(entry)
    done = run_mail("check", "swarms.json", cwd=tmp_path, env={"OPENAI_API_KEY": "sk-test"})
    assert done.returncode == 0, done.stdout + done.stderr


def test_its_head_is_that_of_agent_skills() -> None:
    head = re.match(r"---\nname: ([a-z-]+)\ndescription: (.+)\n---\n", SKILL)
    assert head is not None
    assert head[1] == "mail-swarms"
    assert len(head[2]) <= 1024
    assert ".agents/skills/mail-swarms/SKILL.md" in FILES["AGENTS.md"]
