"""Swarms that help each other, as servers of their own: the federation example, also while one is down."""

import json
import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.processes.server import ServerProcess, eventually, run_mail

QUESTION = "weather in Tokyo and 12*(3+4)"


def variable(swarm: str) -> str:
    return f"SWARM_AUTH_TOKEN_{swarm.upper().replace('-', '_')}"


@dataclass
class Federation:
    """Servers that know each other, each with a folder, a database and tokens of its own."""

    servers: dict[str, ServerProcess] = field(default_factory=dict)

    def client(self, name: str, role: str = "user") -> httpx2.Client:
        return self.servers[name].client(role)

    def task(self, name: str, task_id: str) -> dict[str, Any]:
        return self.servers[name].task(task_id)


def introduce(federation: Federation) -> None:
    """Register each with each, by tokens that they have given to each other."""
    for name, server in federation.servers.items():
        with server.client("admin") as client:
            for peer, other in federation.servers.items():
                if peer != name:
                    response = client.post(
                        "/swarms", json={"name": peer, "base_url": other.url, "volatile": False}
                    )
                    assert response.status_code == 200, response.text


def answer_in(events: list[dict[str, Any]]) -> str:
    """The last answer in a timeline; word of the end goes out to other swarms after it."""
    ends = [event for event in events if event["event"] in ("task_complete", "task_error")]
    return str(json.loads(ends[-1]["data"])["response"])


def token_for(folder: Path, caller: str, role: str = "agent") -> str:
    """A token by which a caller may call the server whose database is in this folder."""
    made = run_mail("token", "create", "--role", role, "--id", caller, cwd=folder)
    assert made.returncode == 0, made.stderr
    return re.search(r"mail_\S+", made.stdout)[0]  # type: ignore[index]


def start(
    stack: ExitStack,
    tmp_path: Path,
    *names: str,
    settings: Mapping[str, str] | None = None,
) -> Federation:
    folders = {name: tmp_path / name for name in names}
    for folder in folders.values():
        folder.mkdir()
    keys = {
        (owner, peer): token_for(folders[owner], peer) for owner in names for peer in names if owner != peer
    }
    federation = Federation()
    for name, folder in folders.items():
        env = {variable(peer): keys[peer, name] for peer in names if peer != name} | dict(settings or {})
        flags = ["--swarm-name", name, "--host", "127.0.0.1"]
        server = stack.enter_context(ServerProcess(folder, *flags, env=env))
        server.tokens = {role: token_for(folder, role, role) for role in ("user", "admin")}
        federation.servers[name] = server
        server.flags = (*flags, "--port", server.url.rpartition(":")[2])  # where it is found again
    introduce(federation)
    return federation


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Federation]:
    with ExitStack() as stack:
        yield start(stack, tmp_path, "swarm-alpha", "swarm-beta")


def test_the_documented_sample(tmp_path: Path) -> None:
    """Two servers that are started for the first time, introduced with the tokens that each has printed."""
    names = ("swarm-alpha", "swarm-beta")
    with ExitStack() as stack:
        servers = {}
        for name in names:
            (folder := tmp_path / name).mkdir()
            flags = ("--swarm-name", name, "--swarm-registry", f"registries/{name}.json")
            servers[name] = stack.enter_context(ServerProcess(folder, *flags))
        for name, peer in (names, names[::-1]):
            with servers[name].client("admin") as client:
                sent = {
                    "name": peer,
                    "base_url": servers[peer].url,
                    "auth_token": servers[peer].tokens["agent"],
                }
                response = client.post("/swarms", json=sent)
            assert response.status_code == 200, response.text
            assert response.json()["notes"][0] == (
                f"its token for this server must have the id '{peer}' or 'agent'; to accept only one id, register it "
                "with a caller_id"
            )
        for server in servers.values():
            answer = server.ask(QUESTION)
            assert "12*(3+4) = 84." in answer
            assert "The weather in Tokyo today" in answer


def test_a_swarm_that_cannot_be_answered_is_told_at_once(pair: Federation) -> None:
    """Beta doesn't know alpha (any more): alpha's agent tells the person, and alpha's log says why."""
    with pair.client("swarm-beta", "admin") as admin:
        assert admin.delete("/swarms/swarm-alpha").status_code == 200
    alpha = pair.servers["swarm-alpha"]
    assert "403 Forbidden" in alpha.ask("12*(3+4)", task_id="refused")
    assert "'swarm-alpha' is not registered at 'swarm-beta' (POST /swarms)" in alpha.errors
    with pair.client("swarm-beta", "admin") as admin:
        named = {"name": "swarm-alpha", "base_url": alpha.url, "caller_id": "a-1"}
        assert admin.post("/swarms", json=named).status_code == 200
    assert "403 Forbidden" in alpha.ask("12*(3+4)", task_id="misnamed")
    expected = "the token of this request has the id 'swarm-alpha', and swarm 'swarm-beta' expects 'a-1'"
    assert expected in alpha.errors


def test_the_answer_waits_for_a_server_that_is_down(pair: Federation) -> None:
    pair.servers["swarm-beta"].kill()
    alpha = pair.servers["swarm-alpha"]
    with alpha.client() as client:
        accepted = client.post(
            "/message", json={"body": QUESTION, "task_id": "patient"}, headers={"Prefer": "respond-async"}
        )
    assert accepted.status_code == 202
    eventually(
        lambda: any(
            event["event"] == "interswarm_message_error" for event in alpha.task("patient")["events"]
        ),
        "alpha has tried",
    )
    pair.servers["swarm-beta"].start()
    eventually(lambda: alpha.task("patient")["completed"], "beta has answered")
    assert "84" in answer_in(alpha.task("patient")["events"])


def test_a_swarm_that_never_answered_is_reported_soon(tmp_path: Path) -> None:
    """Its port refuses connections; the agent reads so, and tells the person, while five minutes of retries
    would hang.
    """
    with ExitStack() as stack:
        settings = {"MAIL_UNREACHABLE_SECONDS": "1"}
        pair = start(stack, tmp_path, "swarm-alpha", settings=settings)
        alpha = pair.servers["swarm-alpha"]
        with alpha.client("admin") as admin:
            peer = {"name": "swarm-beta", "base_url": "http://127.0.0.1:1", "auth_token": "t0ken"}
            assert admin.post("/swarms", json=peer).status_code == 200
        answer = alpha.ask("12*(3+4)", task_id="t")
        assert "no delivery after 2 tries: swarm 'swarm-beta': no answer" in answer
        assert "(it has never answered)" in answer


def test_what_could_not_be_delivered_is_redriven(pair: Federation) -> None:
    """A swarm refuses mail, which is a dead letter, also after the death of the server; then it takes it."""
    alpha = pair.servers["swarm-alpha"]
    with pair.client("swarm-beta", "admin") as admin:
        assert admin.delete("/swarms/swarm-alpha").status_code == 200
    sent = {"user_token": "", "body": "2+3", "targets": ["math@swarm-beta"], "task_id": "lost"}
    with pair.client("swarm-alpha") as client:
        client.post("/interswarm/message", json=sent)
    eventually(lambda: alpha.task("lost")["status"] == "failed", "it can't be delivered")
    alpha.kill()
    alpha.start()
    with pair.client("swarm-beta", "admin") as admin:
        registered = {"name": "swarm-alpha", "base_url": alpha.url, "volatile": False}
        assert admin.post("/swarms", json=registered).status_code == 200
    with pair.client("swarm-alpha") as client, pair.client("swarm-alpha", "admin") as admin:
        (letter,) = client.get("/dead-letters").json()["dead_letters"]
        assert letter["mailbox"] == "@swarm-beta"
        answer = admin.post("/dead-letters/redrive", json={"all": True}).json()
        assert [each["seq"] for each in answer["redriven"]] == [letter["seq"]]
        eventually(lambda: alpha.task("lost")["status"] == "completed", "beta has answered")
        assert answer_in(alpha.task("lost")["events"]) == "2+3 = 5."
        assert client.get("/dead-letters").json()["dead_letters"] == []


def test_a_cancelled_task_is_ended_in_the_other_swarm(pair: Federation) -> None:
    alpha, beta = pair.servers["swarm-alpha"], pair.servers["swarm-beta"]
    beta.kill()
    alpha.post("2+3", task_id="t", headers={"Prefer": "respond-async"})

    def cancel() -> httpx2.Response:
        with alpha.client("user") as client:
            return client.post("/task/cancel", json={"task_id": "t"}, headers={"Prefer": "wait=1"})

    eventually(lambda: alpha.task("t")["remote_swarms"] == ["swarm-beta"], "beta has a part in it")
    cancelled = cancel()
    assert (cancelled.status_code, cancelled.json().get("waiting_swarms")) == (202, ["swarm-beta"]), (
        cancelled.text
    )
    beta.start()
    eventually(lambda: cancel().status_code == 200, "beta has taken the word")
    with closing(sqlite3.connect(beta.folder / "mail.db")) as database:
        eventually(
            lambda: database.execute("SELECT status FROM tasks WHERE status = 'running'").fetchall() == [],
            "beta's part is over",
        )
        assert database.execute("SELECT count(*) FROM tasks").fetchone() == (1,)
    assert alpha.task("t")["status"] == "cancelled"
