"""`mail smoke`, against servers that are well and servers that are not."""

import json

import pytest
from support.processes.server import ServerProcess

from mail.cli.run import run

CHECKS = [
    "the swarm is healthy",
    "a wrong key is refused",
    "your key is accepted",
    "a message is answered",
    "its task is stored",
    "events are streamed",
]


def test_a_server_that_works(server: ServerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["smoke", server.url, "--api-key", server.tokens["user"], "--message", "2**10"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(" (")[0] for line in lines] == [f"✓ {name}" for name in CHECKS]


def test_for_programs(server: ServerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run(["smoke", server.url, "--stream-url", server.url, "--api-key", server.tokens["user"], "--json"])
        == 0
    )
    result = json.loads(capsys.readouterr().out)
    assert result["passed"] is True
    assert [(check["name"], check["problem"]) for check in result["checks"]] == [
        (name, "") for name in CHECKS
    ]


def test_a_key_that_is_refused(server: ServerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["smoke", server.url, "--api-key", "wrong"]) == 1
    *_, last = capsys.readouterr().out.splitlines()
    assert last.startswith("✗ your key is accepted: ")


def test_a_server_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["smoke", "http://127.0.0.1:9", "--api-key", "key"]) == 1
    assert capsys.readouterr().out.startswith("✗ the swarm is healthy: cannot connect to http://127.0.0.1:9")
