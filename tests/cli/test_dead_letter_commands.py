"""`mail dead-letter`, against a server; and the same at the prompt of `mail client`."""

import json
import subprocess
from typing import Any

import pytest
from support.processes.server import ServerProcess, eventually


@pytest.fixture
def dead(server: ServerProcess) -> ServerProcess:
    """The server, with nothing but one letter to a swarm for which it has no token."""
    run(server, "discard", "--all", role="admin")
    with server.client("admin") as admin:
        admin.post("/swarms", json={"name": "nowhere", "base_url": "http://127.0.0.1:9"})
    with server.client() as client:
        sent = {"user_token": "", "body": "are you there?", "targets": ["ann@nowhere"], "subject": "Hello"}
        client.post("/interswarm/message", json=sent)
        eventually(lambda: letters(client) != [], "it can't be delivered")
    return server


def letters(client: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get("/dead-letters").json()["dead_letters"]
    return found


def run(server: ServerProcess, *arguments: str, role: str = "user") -> subprocess.CompletedProcess[str]:
    return server.mail("dead-letter", *arguments, role=role)


def test_list(dead: ServerProcess) -> None:
    done = run(dead, "list")
    assert (done.returncode, done.stderr) == (0, "")
    headings, line = done.stdout.splitlines()
    assert headings.startswith("task\tseq\tstatus\t")
    _, seq, status, mailbox, tries, _, subject, reason, caller = line.split("\t")
    assert (status, mailbox, tries, subject) == ("failed", "@nowhere", "1", "Hello")
    assert "nowhere" in reason
    (letter,) = json.loads(run(dead, "list", "--json").stdout)
    assert (letter["seq"], letter["caller"]) == (int(seq), caller)
    assert run(dead, "list", "--caller", caller, role="admin").stdout == done.stdout
    assert run(dead, "list", "--task", letter["task_id"]).stdout == done.stdout
    shown = dead.mail("task", "show", letter["task_id"]).stdout
    assert "dead        1 message could not be processed; mail dead-letter list shows it" in shown
    denied = run(dead, "list", "--caller", "user:bob@other")
    assert (denied.returncode, denied.stdout) == (1, "")
    assert "only admins can see" in denied.stderr


def test_redrive_and_discard(dead: ServerProcess) -> None:
    (letter,) = json.loads(run(dead, "list", "--json").stdout)
    task_id, seq = letter["task_id"], letter["seq"]
    done = run(dead, "redrive", task_id, str(seq))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{task_id} {seq} for @nowhere is processed again\n"
    gone = run(dead, "redrive", task_id, str(seq))
    assert (gone.returncode, gone.stdout) == (1, "")
    assert "may have been redriven or discarded" in gone.stderr
    with dead.client() as client:
        eventually(lambda: letters(client) != [], "it can't be delivered this time, either")
    (again,) = json.loads(run(dead, "discard", "--all", "--json").stdout)["discarded"]
    assert again["seq"] > seq
    assert run(dead, "discard", "--all").stdout == "no dead letters\n"
    assert run(dead, "list").stdout.count("\n") == 1, "only the headings"


@pytest.mark.parametrize("arguments", [["redrive"], ["discard"], ["redrive", "t", "--all"]])
def test_what_does_not_say_which(server: ServerProcess, arguments: list[str]) -> None:
    done = run(server, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "name a task, or give --all" in done.stderr


def test_at_the_prompt(dead: ServerProcess) -> None:
    with dead.client() as client:
        (letter,) = letters(client)
    lines = ["dead-letters", f"redrive {letter['task_id']} {letter['seq']}", "redrive", "discard --all"]
    done = dead.mail("client", *(word for line in lines for word in ("-c", line)))
    assert "@nowhere" in done.stdout
    assert "is processed again" in done.stdout
    assert "name a task, or give --all" in done.stderr
