"""The samples of docs/registry.md: the Python runs as it stands, top to bottom; the HTTP is sent and answered so."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from support.processes.document_samples import DOCS, blocks, run
from support.processes.http_server import HTTPServer
from support.services.messages import letter
from support.services.peer_server import PeerServer

from mail.http.routes.registry import PostSwarms
from mail.net import SwarmRegistry
from mail.testing.agents import build_swarm

DOCUMENT = DOCS / "registry.md"
TEXT = DOCUMENT.read_text(encoding="utf-8")


async def test_python(
    beta: PeerServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"BETA_URL": beta.url, "TOKEN": "t0ken", "message": letter("boss@beta")}
    for _, code in blocks(DOCUMENT, "python"):
        await run(code, namespace)
    assert capsys.readouterr().out.splitlines() == [
        f"{beta.url} 7 True None",
        "['beta']",
        "{}",
        "[]",
        "boss@alpha -> boss@beta",
    ]


async def test_http(beta: PeerServer) -> None:
    (_, registering), (_, listing) = blocks(DOCUMENT, "http")
    asked, answered = registering.split("\n\n")
    line, body = asked.split("\n", 1)
    status, answer = answered.split("\n", 1)
    fields = {**json.loads(body), "base_url": beta.url, "auth_token": "t0ken", "volatile": True}
    registry = SwarmRegistry("alpha", "", allow_private=True)
    async with HTTPServer(build_swarm({"supervisor": lambda _: []}), registry=registry) as server:
        response = await server.client.request(*line.split(), json=fields, headers=server.headers("admin"))
        assert (response.status_code, response.json()) == (int(status), json.loads(answer.replace("\n", " ")))
        asked, answered = listing.split("\n\n")
        listed = (await server.client.request(*asked.split())).json()
    await registry.stop()
    shown = json.loads(answered.removeprefix("200\n"))
    assert listed.keys() == shown.keys()
    assert [entry.keys() for entry in listed["swarms"]] == [entry.keys() for entry in shown["swarms"]]


def test_the_file(tmp_path: Path) -> None:
    (_, text), *_ = blocks(DOCUMENT, "jsonc")
    (tmp_path / "registry.json").write_text(text)
    registry = SwarmRegistry("alpha", "", tmp_path / "registry.json")
    found = registry.get_swarm_endpoint("beta")
    assert found is not None
    assert found.auth_token_ref == "${SWARM_AUTH_TOKEN_BETA}"


def test_every_field_is_explained() -> None:
    explained = set(re.findall(r"^\| `(\w+)` \|", TEXT, re.MULTILINE))
    assert explained == set(PostSwarms.model_fields)
