"""`mail audit`, against a server; acts of `mail token` are in it."""

import json
import subprocess

import pytest
from support.processes.server import ServerProcess, run_mail


@pytest.fixture
def acted(server: ServerProcess) -> ServerProcess:
    """The server, after an act by HTTP and two by commands on its database."""
    with server.client("admin") as admin:
        assert admin.post("/tokens", json={"role": "user", "id": "eve"}).status_code == 201
    run_mail("token", "create", "--role", "user", "--id", "bob", cwd=server.folder, env={})
    run_mail("token", "revoke", "none", cwd=server.folder, env={})
    return server


def run(server: ServerProcess, *arguments: str, role: str = "admin") -> subprocess.CompletedProcess[str]:
    return server.mail("audit", *arguments, role=role)


def test_audit(acted: ServerProcess) -> None:
    done = run(acted, "--limit", "3")
    assert (done.returncode, done.stderr) == (0, "")
    headings, *lines = (line.split("\t") for line in done.stdout.splitlines())
    assert headings == ["time", "by", "act", "on", "whose", "from", "outcome", "reason"]
    acts = [(by, act, on.split()[0], outcome) for _, by, act, on, _, _, outcome, _ in lines]
    assert acts[:2] == [
        ("operator", "revoke token", "none", "refused"),
        ("operator", "create token", "user:bob", "done"),
    ]
    assert acts[2][1:] == ("create token", "user:eve", "done")
    (one,) = json.loads(run(acted, "--limit", "1", "--act", "revoke token", "--json").stdout)
    assert one["by"] == "operator"
    assert run(acted, "--until", "2020-01-01").stdout.splitlines() == ["\t".join(headings)]


def test_it_is_exported_as_json_lines(acted: ServerProcess) -> None:
    exported = run(acted, "--lines", "--since", "1h", "--caller", "operator").stdout
    entries = [json.loads(line) for line in exported.splitlines()]
    assert len(entries) >= 2
    assert {entry["by"] for entry in entries} == {"operator"}


def test_an_admin_reads_a_task_for_a_reason_that_its_owner_sees(acted: ServerProcess) -> None:
    def show(role: str, *flags: str) -> subprocess.CompletedProcess[str]:
        return acted.mail("task", "show", "opened", *flags, role=role)

    with acted.client() as client:
        assert client.post("/message", json={"body": "2**10", "task_id": "opened"}).status_code == 200
    refused = show("admin", "--caller", "user:user")
    assert refused.returncode == 1
    assert "say why" in refused.stderr
    read = show("admin", "--caller", "user:user", "--reason", "ticket 42")
    assert (read.returncode, read.stderr) == (0, "")
    assert "2**10" in read.stdout
    own = show("user", "--events")
    assert "admin:admin@" in own.stdout
    assert "opened the task to read it: ticket 42" in own.stdout
    assert "ticket 42" in show("user").stdout
    (entry,) = json.loads(run(acted, "--act", "open task", "--limit", "1", "--json").stdout)
    assert (entry["on"], entry["reason"], entry["outcome"]) == ("opened", "ticket 42", "done")
