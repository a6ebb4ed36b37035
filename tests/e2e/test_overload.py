"""What one caller, or strangers, can do to a `mail server` all at once: memory stays bounded, and others get answers.

Each load is everything that a caller may send at the same moment, against a task of tens of thousands of events.
Another process asks for `/health` and posts a message of another caller all the time.
"""

import asyncio
import json
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest
from support.processes.projects import entry, supervisor, write_project
from support.processes.server import ServerProcess, run_mail

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the memory of a process"),
]

EVENTS = 50_000
RSS_MIB = 400
"""The memory that the server may ever have (docs/performance.md)."""

HEALTH_SECONDS, POST_SECONDS = 1.0, 1.0
SLACK = 4.0
"""Times that others take are only looked at for what is out of all proportion: this machine does other things, too."""

AT_ONCE = 30
MANY = 200
LOAD_SECONDS = 20.0

WAITING = 13
"""Messages of the largest size that wait in a task, with a character that makes their texts wide in memory."""

MODULE = """
import asyncio

from mail.factories.rules import call, complete, rule_based

@rule_based
def factory(view):
    if "keep waiting" in str(view.history[0]["content"]):
        return [call("hold")]
    turns = sum("tool_calls" in entry for entry in view.history)
    if "large" not in str(view.history[0]["content"]) or turns >= 42:
        return [complete()]
    return [call("note", text="x" * 100)] * 400

async def note(arguments):
    return arguments["text"]

async def hold(arguments):
    await asyncio.Event().wait()
"""

SWARM = entry(
    "example-no-proxy",
    supervisor("worker", "busy_swarm:factory", actions=["note", "hold"], tool_format="completions"),
    actions=[
        {
            "name": "note",
            "function": "python::busy_swarm:note",
            "parameters": {"type": "object", "properties": {"text": {"type": "string"}}},
        },
        {
            "name": "hold",
            "function": "python::busy_swarm:hold",
            "parameters": {"type": "object", "properties": {}},
        },
    ],
)

PROBE = """
import json, sys, time, http.client
host, port, key = sys.argv[1], int(sys.argv[2]), sys.argv[3]

def ask(method, path, body=None):
    begun = time.monotonic()
    try:
        connection = http.client.HTTPConnection(host, port, timeout=60)
        connection.request(method, path, body, {"Authorization": "Bearer " + key})
        status = connection.getresponse().status
        connection.close()
    except OSError:
        status = 0
    return status, time.monotonic() - begun

n = 0
while True:
    print(json.dumps(["/health", *ask("GET", "/health")]), flush=True)
    if n % 5 == 0:
        print(json.dumps(["/message", *ask("POST", "/message", json.dumps({"body": "hi"}))]), flush=True)
    n += 1
    time.sleep(0.1)
"""


class Server:
    """A server with a large task of the user."""

    def __init__(self, process: ServerProcess) -> None:
        self.process = process
        self.at = urlsplit(process.url)
        self.key = process.tokens["user"]
        made = run_mail("token", "create", "--role", "user", "--id", "bob", cwd=process.folder)
        self.other = made.stdout.strip()
        self.waiting = 0

    def request(self, method: str, path: str, body: bytes = b"", *, length: int | None = None) -> bytes:
        lines = (
            f"{method} {path} HTTP/1.1",
            f"Host: {self.at.netloc}",
            f"Authorization: Bearer {self.key}",
            f"Content-Length: {len(body) if length is None else length}",
            "Connection: close",
        )
        return "\r\n".join((*lines, "", "")).encode() + body

    async def connect(self, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(self.at.hostname, self.at.port, limit=2**20)
        writer.write(data)
        return reader, writer

    async def ask(self, data: bytes) -> int:
        """The status of the answer, which is read as fast as it comes."""
        try:
            reader, writer = await self.connect(data)
            status = int((await reader.readline()).split()[1])
            while await reader.read(2**20):
                pass
            writer.close()
        except (OSError, IndexError):
            return 0
        return status

    async def at_once(self, data: bytes, count: int = AT_ONCE) -> Counter[int]:
        return Counter(await asyncio.gather(*(self.ask(data) for _ in range(count))))

    @asynccontextmanager
    async def open(self, data: bytes, count: int) -> AsyncIterator[Counter[int]]:
        """Connections on which the answer is not read after its first line."""
        statuses: Counter[int] = Counter()
        held = []

        async def hold() -> None:
            try:
                reader, writer = await self.connect(data)
                writer.transport.pause_reading()  # type: ignore[attr-defined]
                held.append((reader, writer))
            except OSError:
                statuses[0] += 1

        for start in range(0, count, 50):
            await asyncio.gather(*(hold() for _ in range(min(50, count - start))))
        try:
            yield statuses
        finally:
            for _, writer in held:
                writer.transport.abort()

    @property
    def memory(self) -> float:
        """The most memory that it had since the last reset, in MiB."""
        status = Path(f"/proc/{self.process.process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 1024

    def reset_memory(self) -> None:
        Path(f"/proc/{self.process.process.pid}/clear_refs").write_text("5")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("overload")
    write_project(folder, SWARM, busy_swarm=MODULE)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    with ServerProcess(folder, env={"PYTHONPATH": str(folder)}) as process, process.client("user") as user:
        server = Server(process)
        given = {"body": "large", "task_id": "large", "kwargs": {"max_steps": 1_000_000}}
        assert user.post("/message", json=given, headers={"Prefer": "respond-async"}).status_code == 202
        task = {"status": "running"}
        while task["status"] == "running":
            time.sleep(1)
            task = user.get("/task", params={"task_id": "large", "fields": "summary"}).json()
        assert int(task["seq"]) > EVENTS
        server.waiting = leave_mail(user)
        yield server
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def leave_mail(user: httpx2.Client) -> int:
    """Leave long messages with an agent that is busy; return the last event of the task."""
    for body in ("keep waiting", *["y" * (4 * 2**20 - 200) + "\N{GRINNING FACE}"] * WAITING):
        content = json.dumps({"body": body, "task_id": "waiting"}, ensure_ascii=False).encode()
        answer = user.post("/message", content=content, headers={"Prefer": "respond-async"})
        assert answer.status_code == 202, answer.text
    return int(user.get("/task", params={"task_id": "waiting", "fields": "summary"}).json()["seq"])


async def large_reads(server: Server, path: str) -> Counter[int]:
    return await server.at_once(server.request("GET", path))


async def forks(server: Server) -> Counter[int]:
    return await server.at_once(server.request("POST", "/task/fork", b'{"task_id": "large"}'))


async def forks_with_mail(server: Server) -> Counter[int]:
    body = json.dumps({"task_id": "waiting", "at": server.waiting}).encode()
    return await server.at_once(server.request("POST", "/task/fork", body))


async def answers_with_events(server: Server) -> Counter[int]:
    body = json.dumps({"body": "more", "task_id": "large", "show_events": True}).encode()
    return await server.at_once(server.request("POST", "/message", body))


async def bodies_that_never_end(server: Server) -> Counter[int]:
    length = 4 * 2**20
    async with server.open(
        server.request("POST", "/message", b" " * (length - 1), length=length), MANY
    ) as statuses:
        await asyncio.sleep(LOAD_SECONDS)
    return statuses


async def posts_of_large_bodies(server: Server) -> Counter[int]:
    body = json.dumps({"body": "y" * (4 * 2**20 - 100)}).encode()
    return await server.at_once(server.request("POST", "/message", body), 2 * AT_ONCE)


async def streams_that_nobody_reads(server: Server) -> Counter[int]:
    async with server.open(server.request("GET", "/task/stream?task_id=large"), MANY) as statuses:
        await asyncio.sleep(LOAD_SECONDS)
    return statuses


async def more_streams_than_connections(server: Server) -> Counter[int]:
    """As fast as the limit of requests lets them begin, and then as many connections without one."""
    async with server.open(server.request("GET", "/task/stream?task_id=large"), 4096) as statuses:
        await asyncio.sleep(LOAD_SECONDS)
    return statuses


async def chunks_of_a_byte(server: Server) -> Counter[int]:
    """From ten strangers, each of whom connects again when its connection is closed."""
    head = b"POST /message HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    end = time.monotonic() + LOAD_SECONDS / 2
    statuses: Counter[int] = Counter()

    async def stranger() -> None:
        while time.monotonic() < end:
            try:
                reader, writer = await server.connect(head)
                statuses["connections"] += 1  # type: ignore[index]
                while not reader.at_eof() and time.monotonic() < end:
                    writer.write(b"1\r\n \r\n" * 2000)
                    await writer.drain()
                    await asyncio.sleep(0)
            except OSError:
                pass
            else:
                writer.transport.abort()

    await asyncio.gather(*(stranger() for _ in range(10)))
    return statuses


LOADS: dict[str, Callable[[Server], Awaitable[Counter[int]]]] = {
    "GET /task": lambda server: large_reads(server, "/task?task_id=large"),
    "GET /task?at=": lambda server: large_reads(server, f"/task?task_id=large&at={EVENTS}"),
    "GET /task?limit=": lambda server: large_reads(server, "/task?task_id=large&limit=1000"),
    "GET /task/stream": lambda server: large_reads(server, "/task/stream?task_id=large"),
    "GET /tasks": lambda server: large_reads(server, "/tasks"),
    "GET /threads": lambda server: large_reads(server, "/threads"),
    "POST /task/fork": forks,
    "GET /task, waiting mail": lambda server: large_reads(server, "/task?task_id=waiting"),
    "GET /task?at=, waiting mail": lambda server: large_reads(
        server, f"/task?task_id=waiting&at={server.waiting}"
    ),
    "POST /task/fork, waiting mail": forks_with_mail,
    "POST /message, show_events": answers_with_events,
    "posts of 4 MiB": posts_of_large_bodies,
    "bodies that never end": bodies_that_never_end,
    "unread streams": streams_that_nobody_reads,
    "4096 streams": more_streams_than_connections,
    "one-byte chunks": chunks_of_a_byte,
}


@pytest.mark.parametrize("name", LOADS)
async def test_others_notice_little(server: Server, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = [
        sys.executable,
        "-c",
        PROBE,
        str(server.at.hostname),
        str(server.at.port),
        server.other,
    ]
    server.reset_memory()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as probe:  # noqa: ASYNC220
        begun = time.monotonic()
        await asyncio.sleep(0.5)
        try:
            statuses = await LOADS[name](server)
        finally:
            await asyncio.sleep(0.5)
            probe.terminate()
        lines = [json.loads(line) for line in probe.communicate()[0].splitlines()]
    health = sorted(seconds for path, _, seconds in lines if path == "/health")
    posts = [seconds for path, _, seconds in lines if path == "/message"]
    seen = (
        f"{server.memory:.0f} MiB; /health p99 {health[len(health) * 99 // 100]:.3f} s, worst {health[-1]:.3f} s; "
        f"post {max(posts):.3f} s; {dict(statuses)} in {time.monotonic() - begun:.1f} s"
    )
    with capsys.disabled():
        print(f"\n{name}: {seen}")
    assert {status for _, status, _ in lines} == {200}
    assert server.memory < RSS_MIB
    assert health[-1] < HEALTH_SECONDS * SLACK
    assert max(posts) < POST_SECONDS * SLACK
