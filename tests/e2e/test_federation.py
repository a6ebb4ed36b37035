"""Swarms that help each other, as servers of their own: the federation example, also while servers die."""

import asyncio
import json
import random
import re
import sqlite3
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.processes.server import TIMEOUT, ServerProcess, eventually, run_mail

QUESTION = "weather in Tokyo and 12*(3+4)"
TASKS = 24
KILLS = 4


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

    def errors(self) -> str:
        return "\n".join(f"== {name}\n{server.errors[-2000:]}" for name, server in self.servers.items())


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
    source: Path | None,
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
        if source is not None:
            flags += ["--swarm-source", str(source)]
        server = stack.enter_context(ServerProcess(folder, *flags, env=env))
        server.tokens = {role: token_for(folder, role, role) for role in ("user", "admin")}
        federation.servers[name] = server
        server.flags = (*flags, "--port", server.url.rpartition(":")[2])  # where it is found again
    introduce(federation)
    return federation


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Federation]:
    with ExitStack() as stack:
        yield start(stack, tmp_path, None, "swarm-alpha", "swarm-beta")


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


@pytest.mark.soak
def test_the_record_of_many_tasks_is_in_order(pair: Federation) -> None:
    """Mail stands where it was sent: before its answer, and word of the end before the end."""
    alpha = pair.servers["swarm-alpha"]
    names = [f"task-{n}" for n in range(TASKS)]
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda name: alpha.ask("12*(3+4)", task_id=name), names))
    for name in names:
        events = alpha.task(name)["events"]
        assert [int(event["id"]) for event in events] == list(range(1, len(events) + 1))
        kinds = [event["event"] for event in events]
        assert [kind for kind in kinds if kind.startswith(("interswarm", "task_complete"))] == [
            "interswarm_message_sent",
            "interswarm_message_received",
            "task_complete_call",
            "interswarm_message_sent",
            "task_complete",
        ]
        assert kinds[-1] == "task_complete"
        with (
            alpha.client() as client,
            client.stream("GET", "/task/stream", params={"task_id": name}) as stream,
        ):
            lines = list(stream.iter_lines())
        streamed = [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]
        assert streamed == kinds


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
        pair = start(stack, tmp_path, None, "swarm-alpha", settings=settings)
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


@pytest.mark.soak
async def test_many_tasks_while_servers_die(pair: Federation) -> None:
    """All end with the right answer, and no agent is asked twice."""
    await ask_while_killing(pair, ["swarm-alpha", "swarm-beta"])


THREE = ("swarm-one", "swarm-two", "swarm-three")


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


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[Federation]:
    """Three swarms in a row: one asks two, two asks three for what it doesn't know."""
    source = tmp_path / "swarms.json"
    packaged = Path(__file__).parents[2] / "src/mail/examples/swarms.json"
    swarms = {each["name"]: each for each in json.loads(packaged.read_text("utf-8"))}
    alpha, beta = swarms["swarm-alpha"], swarms["swarm-beta"]
    one = {**alpha, "name": "swarm-one", "agents": [dict(alpha["agents"][0])], "actions": []}
    one["agents"][0] = {**one["agents"][0], "comm_targets": ["weather@swarm-two", "math@swarm-three"]}
    two, three = {**alpha, "name": "swarm-two"}, {**beta, "name": "swarm-three"}
    source.write_text(json.dumps([one, two, three]), encoding="utf-8")
    with ExitStack() as stack:
        yield start(stack, tmp_path, source, *THREE)


@pytest.mark.soak
async def test_three_swarms_while_servers_die(ring: Federation) -> None:
    await ask_while_killing(ring, ["swarm-one"])


async def ask_while_killing(federation: Federation, askers: list[str]) -> None:
    seed = random.randrange(10**6)
    luck = random.Random(seed)
    tasks = [(askers[n % len(askers)], f"task-{n}", n) for n in range(TASKS)]
    done = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        chaos = group.create_task(kill_at_random(federation, luck, done))
        answers = [group.create_task(ask(federation, name, task_id, n)) for name, task_id, n in tasks]
        await asyncio.wait(answers)
        done.set()
        await chaos
    wrong = {
        task_id: answer.result()
        for (name, task_id, n), answer in zip(tasks, answers, strict=True)
        if f"{n}*2 = {n * 2}." not in answer.result() or "The weather in Tokyo" not in answer.result()
    }
    assert not wrong, f"seed {seed}\n{wrong}\n{federation.errors()}"
    for name, task_id, _n in tasks:
        events = federation.task(name, task_id)["events"]
        said = [
            json.loads(event["data"])["description"] for event in events if event["event"] == "new_message"
        ]
        letters = [text.partition("<from")[2] for text in said]  # less the time
        assert len(letters) == len(set(letters)), f"seed {seed}: said twice in {task_id}: {letters}"

    for name, server in federation.servers.items():
        expected = sum(asker != name for asker, _, _ in tasks)
        eventually(lambda: len(received(server)) == expected, f"{name} has been told of all ends")  # noqa: B023
        twice = {task: times for task, times in received(server).items() if times != TIMES}
        assert not twice, f"seed {seed}: {name} took messages more or less often than once: {twice}"


TIMES = 2
"""How many messages of another swarm its task brings here: the question, and word of the end."""


def received(server: ServerProcess) -> dict[str, int]:
    """Of each task that another swarm has brought to a server and that is over: how many messages came with it."""
    with closing(sqlite3.connect(f"file:{server.folder / 'mail.db'}?mode=ro", uri=True)) as database:
        return dict(
            database.execute(
                "SELECT tasks.task_id, sum((length(events) - length(replace(events, ?, ''))) / length(?))"
                " FROM tasks JOIN commits ON commits.id >> 32 = tasks.id"
                " WHERE instance LIKE 'swarm:%' AND status <> 'running' GROUP BY tasks.id",
                ("interswarm_message_received", "interswarm_message_received"),
            )
        )


async def kill_at_random(federation: Federation, luck: random.Random, done: asyncio.Event) -> None:
    for _ in range(KILLS):
        await asyncio.sleep(luck.uniform(0.1, 0.6))
        server = luck.choice(list(federation.servers.values()))
        server.kill()
        await asyncio.sleep(luck.uniform(0.0, 0.5))
        await asyncio.to_thread(server.start)
    await done.wait()


async def ask(federation: Federation, name: str, task_id: str, n: int) -> str:
    """Ask until it is stored, whatever befalls the server, then wait for the answer."""
    server = federation.servers[name]
    body = {"body": f"weather in Tokyo and {n}*2", "task_id": task_id}
    headers = {"Authorization": f"Bearer {server.tokens['user']}"}
    async with asyncio.timeout(TIMEOUT * 2), httpx2.AsyncClient(headers=headers, timeout=20.0) as client:
        while True:
            try:
                record = await client.get(f"{server.url}/task", params={"task_id": task_id})
                if record.status_code == 404:
                    await client.post(f"{server.url}/message", json=body, headers={"Prefer": "respond-async"})
                elif record.status_code == 200 and not record.json()["is_running"]:
                    return answer_in(record.json()["events"])
            except httpx2.TransportError:
                pass
            await asyncio.sleep(0.1)
