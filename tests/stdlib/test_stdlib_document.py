"""docs/stdlib/README.md: its samples run, and it names every action of the catalogue with all its arguments."""

import importlib
import json
import pkgutil
import re
from pathlib import Path
from typing import Any

import pytest
from support.processes.document_samples import DOCS, blocks, run

import mail.stdlib
from mail import MAILAction, MAILSwarmTemplate
from mail.mcp.results import MAX_SHOWN
from mail.mcp.servers import find_server
from mail.stdlib.fs import actions as fs
from mail.stdlib.fs import files
from mail.stdlib.http import actions as http
from mail.stdlib.interswarm import actions as interswarm
from mail.stdlib.mcp.actions import mcp_list_servers
from mail.stdlib.web import MAX_REDIRECTS
from mail.swarms_json.build import import_action
from mail.swarms_json.references import resolver
from mail.utils.outcomes import Timeout

DOCUMENT = DOCS / "stdlib" / "README.md"
TEXT = DOCUMENT.read_text(encoding="utf-8")
AREAS = {"http", "fs", "interswarm", "mcp", "agentmail"}


def catalogue() -> dict[str, MAILAction]:
    """Every action of mail.stdlib, by its reference without prefix."""
    modules = [each.name for each in pkgutil.walk_packages(mail.stdlib.__path__, "mail.stdlib.")]
    return {
        f"{module}:{name}": value
        for module in modules
        for name, value in vars(importlib.import_module(module)).items()
        if isinstance(value, MAILAction) and module.endswith(".actions")
    }


def test_the_areas() -> None:
    assert {reference.split(".")[2] for reference in catalogue()} == AREAS
    assert all(re.fullmatch(r"mail\.stdlib\.\w+\.actions:\w+", reference) for reference in catalogue())


@pytest.mark.parametrize("reference", catalogue())
def test_every_action_is_named_and_can_be_imported(reference: str) -> None:
    action = catalogue()[reference]
    area = reference.split(".")[2]
    section = re.search(rf"^## {area}$(.*?)^## ", TEXT, re.MULTILINE | re.DOTALL | re.IGNORECASE)
    assert section is not None
    assert f"python::mail.stdlib.{area}.actions:…" in section[1]
    row = re.search(rf"^\| `{action.name}` \|([^|]*)\|", section[1], re.MULTILINE)
    assert row is not None
    assert set(re.findall(r"`(\w+)`", row[1])) == set(action.parameters["properties"])
    package = importlib.import_module(f"mail.stdlib.{area}")
    if area != "agentmail":
        assert getattr(package, action.name) is getattr(mail.stdlib, action.name) is action
    core = import_action(f"python::{reference}", resolver(["mail.stdlib"]))
    assert core.name == action.name == reference.partition(":")[2]


def test_no_action_is_made_up() -> None:
    named = set(re.findall(r"^\| `([a-z]+_[a-z_]+)` \|", TEXT, re.MULTILINE))
    assert named == {action.name for action in catalogue().values()}


@pytest.mark.parametrize("reference", catalogue())
def test_models_are_told_what_arguments_mean(reference: str) -> None:
    declared = catalogue()[reference].to_tool_dict("completions")["function"]
    assert len(declared["description"]) > 20
    assert all("description" in argument for argument in declared["parameters"]["properties"].values())


def test_the_limits() -> None:
    limits = {
        "At most 64 KiB of the decompressed body": http.MAX_BODY_BYTES == 64 * 1024,
        "At most 5 redirects": MAX_REDIRECTS == 5,
        "Up to 64 KiB of text": fs.MAX_READ_BYTES == 64 * 1024,
        "up to 1 MiB of text": fs.MAX_WRITE_BYTES == 1024 * 1024,
        "up to 1000 entries": fs.MAX_ENTRIES == 1000,
        "Up to 1000 paths": fs.MAX_ENTRIES == 1000,
        "Up to 200 lines": files.MAX_MATCHES == 200,
        "at most 32 segments": files.MAX_DEPTH == 32,
        "at most 50,000 entries": files.MAX_VISITED == 50_000,
        "files of up to 1 MiB, and 64 MiB in total": (files.MAX_FILE_BYTES, files.MAX_SEARCHED_BYTES)
        == (2**20, 2**26),
        "knows, up to 200": interswarm.MAX_SWARMS == 200,
        "At most 64 Ki characters": MAX_SHOWN == 64 * 1024,
        "(up to 300)": "le=300" in repr(Timeout),
    }
    assert [words for words in limits if words not in " ".join(TEXT.split())] == []
    assert [words for words, holds in limits.items() if not holds] == []


async def test_the_python_sample(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MAIL_STDLIB_FS_ROOT", str(tmp_path))
    namespace: dict[str, Any] = {"__name__": "document"}
    for _, code in blocks(DOCUMENT, "python"):
        await run(code, namespace)
    assert capsys.readouterr().out.splitlines() == ["Noted.", "Buy tea."]
    assert (tmp_path / "notes" / "today.txt").read_text() == "Buy tea."


def test_the_swarm_sample() -> None:
    [sample] = [each for _, each in blocks(DOCUMENT, "json") if "action_imports" in each]
    template = MAILSwarmTemplate.from_swarm_json(sample)
    assert [action.name for action in template.actions] == json.loads(sample)["agents"][0]["actions"]


async def test_the_mcp_sample(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    [sample] = [each for _, each in blocks(DOCUMENT, "json") if "mcpServers" in each]
    (tmp_path / "mcp.json").write_text(sample)
    monkeypatch.setenv("MAIL_MCP_SERVERS", str(tmp_path / "mcp.json"))
    monkeypatch.setenv("TICKETS_TOKEN", "t0")
    monkeypatch.setenv("SEARCH_TOKEN", "s0")
    assert json.loads(await mcp_list_servers({})) == {"servers": ["search", "tickets"]}
    assert find_server("tickets").model_dump() == {  # type: ignore[union-attr]
        "command": "tickets-mcp",
        "args": ["--read-only"],
        "env": {"TICKETS_TOKEN": "t0"},
        "cwd": "/srv/tickets",
    }
    assert find_server("search").model_dump() == {  # type: ignore[union-attr]
        "url": "https://search.example.com/mcp",
        "headers": {"Authorization": "Bearer s0"},
    }
