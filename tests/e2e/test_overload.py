"""What one caller, or strangers, can do to a `mail server` all at once: memory stays bounded, and others get answers.

Each load is everything that a caller may send at the same moment, against a task of tens of thousands of events.
Another process asks for `/health` and posts a message of another caller all the time.
"""

import asyncio
import hmac
import json
import resource
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime, timedelta
from itertools import batched, repeat
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import NAMESPACE_OID, uuid5

import httpx2
import pytest
from fastapi.routing import APIRoute
from pydantic_core import to_json
from support.processes.projects import entry, supervisor, write_project
from support.processes.server import ServerProcess, run_mail

from mail.core.task.audit import MAX_TEXT, Act, AuditEntry
from mail.core.task.documents import Kind
from mail.core.task.files import MAX_FILE_BYTES
from mail.core.task.rows import Times
from mail.core.task.size import MAX_HELD
from mail.http.routes import load_routers
from mail.mail2.lists import MAX_MEMBERS
from mail.mail2.records import ACCOUNTS, Account, InboxRow, Row, box

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

ENTRIES = 100_000
"""Entries of an inbox."""

SECRET = "of reviews"
AT_ONCE = 30
MANY = 200
LOAD_SECONDS = 20.0

WAITING = 13
"""Messages of the largest size that wait in a task, with a character that makes their texts wide in memory."""

MODULE = """
import asyncio
from pathlib import Path

from mail import LATER, ActionContext
from mail.factories.rules import call, complete, rule_based

@rule_based
def factory(view):
    begin = str(view.history[0]["content"])
    if "keep waiting" in begin:
        return [call("hold")]
    if "approve" in begin:
        return [call("pay", text=view.mail.body)]
    if "break" in begin:
        raise RuntimeError("broken")
    if "finish later" in begin:
        return [call("begin")]
    turns = sum("tool_calls" in entry for entry in view.history)
    if "large" not in str(view.history[0]["content"]) or turns >= 42:
        return [complete()]
    return [call("note", text="x" * 100)] * 400

async def note(arguments):
    return arguments["text"]

async def pay(arguments):
    return "paid"

async def hold(arguments):
    await asyncio.Event().wait()

async def begin(ctx: ActionContext):
    Path("callback.txt").write_text(ctx.callback.token)
    return LATER
"""

SWARM = entry(
    "example-no-proxy",
    supervisor(
        "worker", "busy_swarm:factory", actions=["note", "hold", "begin", "pay"], tool_format="completions"
    ),
    actions=[
        {
            "name": "note",
            "function": "python::busy_swarm:note",
            "parameters": {"type": "object", "properties": {"text": {"type": "string"}}},
        },
        {
            "name": "pay",
            "function": "python::busy_swarm:pay",
            "parameters": {"type": "object", "properties": {"text": {"type": "string"}}},
            "needs_approval": {
                "by": ["user"],
                "webhook": "https://hooks.example/reviews",
                "secret": "${WEBHOOK_SECRET_REVIEWS}",
            },
        },
        {
            "name": "hold",
            "function": "python::busy_swarm:hold",
            "parameters": {"type": "object", "properties": {}},
        },
        {
            "name": "begin",
            "function": "python::busy_swarm:begin",
            "parameters": {"type": "object", "properties": {}},
            "finishes": "later",
            "timeout": "1h",
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


Load = Callable[["Server"], Awaitable[Counter[int]]]


class Server:
    """A server with a large task of the user."""

    def __init__(self, process: ServerProcess) -> None:
        self.process = process
        self.at = urlsplit(process.url)
        made = run_mail("token", "create", "--role", "user", "--id", "bob", cwd=process.folder)
        self.other = made.stdout.strip()
        self.turn = self.waiting = 0
        self.thread = self.file = ""

    def request(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *headers: str,
        length: int | None = None,
        by: str = "user",
    ) -> bytes:
        lines = (
            f"{method} {path} HTTP/1.1",
            f"Host: {self.at.netloc}",
            f"Authorization: Bearer {self.process.tokens[by]}",
            f"Content-Length: {len(body) if length is None else length}",
            "Content-Type: application/json",
            "Connection: close",
            *headers,
        )
        return "\r\n".join((*lines, "", "")).encode() + body

    async def connect(self, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(self.at.hostname, self.at.port, limit=2**20)
        writer.write(data)
        return reader, writer

    async def read(self, data: bytes) -> dict[str, Any]:
        """The answer, which is JSON."""
        reader, writer = await self.connect(data)
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        if b"chunked" in head.lower():
            chunks, (size, _, rest) = bytearray(), body.partition(b"\r\n")
            while length := int(size, 16):
                chunks += rest[:length]
                size, _, rest = rest[length + 2 :].partition(b"\r\n")
            body = bytes(chunks)
        found: dict[str, Any] = json.loads(body)
        return found

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
        return await self.all_at_once([data] * count)

    async def all_at_once(self, requests: Sequence[bytes]) -> Counter[int]:
        return Counter(await asyncio.gather(*map(self.ask, requests)))

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

    def store(self, statement: str, rows: Iterable[Sequence[object]]) -> None:
        """Write rows into the server's database, as that would take long by requests."""
        with closing(sqlite3.connect(self.process.folder / "mail.db", timeout=60)) as database:
            for some in batched(rows, 100):
                with database:
                    database.executemany(statement, some)

    def store_rows(self, place: str, rows: Iterable[tuple[str, Row, Times | None]]) -> None:
        statement = "INSERT OR IGNORE INTO rows (place, name, text, entered, sent) VALUES (?, ?, ?, ?, ?)"
        times = ((name, row.text, at and at.entered, at and at.sent) for name, row, at in rows)
        self.store(statement, ((place, *values) for values in times))

    def make_accounts(self) -> None:
        """Make the accounts of the recipients."""
        keys = [each.partition("@")[0] for each in RECIPIENTS]
        accounts = (
            Account("user", key.partition(":")[2], "", str(uuid5(NAMESPACE_OID, key)), "", "", "")
            for key in keys
        )
        self.store_rows(ACCOUNTS, zip(keys, accounts, repeat(None), strict=False))

    def fill_inbox(self) -> None:
        """Leave the user an inbox with many entries, of which no message is stored."""
        with closing(sqlite3.connect(self.process.folder / "mail.db", timeout=60)) as database:
            query = "SELECT text FROM rows WHERE place = ? AND name = 'user:user'"
            ((text,),) = database.execute(query, (ACCOUNTS,))
        place, at = box("inbox", Account.read(text).box), datetime(2026, 1, 1, tzinfo=UTC)
        times = (f"{at + timedelta(milliseconds=10 * n):%Y-%m-%dT%H:%M:%S.%fZ}" for n in range(ENTRIES))
        rows = (InboxRow(RECIPIENTS[0], "s" * 200, 9, time, time, RECIPIENTS[0]) for time in times)
        self.store_rows(place, ((str(uuid5(NAMESPACE_OID, row.sent_at)), row, row.times) for row in rows))

    def fill_audit(self) -> None:
        """Leave many acts with the longest texts."""
        texts = dict.fromkeys(("by", "on", "owner", "address", "reason"), "x" * MAX_TEXT)
        record = to_json({"act": Act.CANCEL_TASK, "time": "2026-01-01T00:00:00+00:00", **texts}).decode()
        fields = to_json({"record": record, "outcome": "done"}).decode()
        begun = datetime(2026, 1, 1, tzinfo=UTC)
        rows = ((Kind.AUDIT, AuditEntry.moment(begun + timedelta(seconds=n)), fields) for n in range(10_000))
        self.store("INSERT OR IGNORE INTO documents (kind, owner, name, fields) VALUES (?, '', ?, ?)", rows)

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
    (folder / "mail.toml").write_text(
        '[server.settings]\nallowed_imports = ["busy_swarm", "mail.factories"]\n', encoding="utf-8"
    )
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    env = {"PYTHONPATH": str(folder), "SWARM_AUTH_TOKEN_AGENT": "a token", "WEBHOOK_SECRET_REVIEWS": SECRET}
    env["BASE_URL"] = "https://mail.example"
    with ServerProcess(folder, env=env) as process, process.client("user") as user:
        server = Server(process)
        make_large(server, user)
        server.waiting = leave_mail(user)
        yield server
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def make_large(server: Server, user: httpx2.Client) -> None:
    """Make a task of many events, and a file of the largest size."""
    given = {"body": "large", "task_id": "large", "kwargs": {"max_steps": 1_000_000}}
    assert user.post("/message", json=given, headers={"Prefer": "respond-async"}).status_code == 202
    task = {"status": "running"}
    while task["status"] == "running":
        time.sleep(1)
        task = user.get("/task", params={"task_id": "large", "fields": "summary"}).json()
    assert int(task["seq"]) > EVENTS
    server.turn = user.get("/task/turns", params={"task_id": "large"}).json()["turns"][0]["first"]
    server.thread = user.get("/threads", params={"task_id": "large"}).json()["threads"][0]["thread_id"]
    stored = user.post("/files", content=b"x" * MAX_FILE_BYTES)
    assert stored.status_code == 201, stored.text
    server.file = stored.json()["id"]


def leave_mail(user: httpx2.Client) -> int:
    """Leave long messages with an agent that is busy; return the last event of the task."""
    for body in ("keep waiting", *["y" * (4 * 2**20 - 200) + "\N{GRINNING FACE}"] * WAITING):
        content = json.dumps({"body": body, "task_id": "waiting"}, ensure_ascii=False).encode()
        answer = user.post("/message", content=content, headers={"Prefer": "respond-async"})
        assert answer.status_code == 202, answer.text
    return int(user.get("/task", params={"task_id": "waiting", "fields": "summary"}).json()["seq"])


async def forks(server: Server) -> Counter[int]:
    return await server.at_once(server.request("POST", "/task/fork", b'{"task_id": "large"}'))


async def comparisons(server: Server) -> Counter[int]:
    """Of a fork of the large task with its original, which has all events."""
    forked = await server.read(server.request("POST", "/task/fork", b'{"task_id": "large", "at": 1}'))
    path = f"/task/comparison?task_id={forked['task_id']}"
    return await server.at_once(server.request("GET", path))


async def forks_with_mail(server: Server) -> Counter[int]:
    three_wait = server.waiting - WAITING + 3
    body = json.dumps({"task_id": "waiting", "at": three_wait}).encode()
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


async def uploads(server: Server) -> Counter[int]:
    return await server.at_once(server.request("POST", "/files", b"y" * MAX_FILE_BYTES))


async def deletions(server: Server) -> Counter[int]:
    """Of one fork, which one of them deletes."""
    made = await server.read(server.request("POST", "/task/fork", b'{"task_id": "large"}'))
    return await server.at_once(server.request("DELETE", f"/task?task_id={made['task_id']}"))


WIDE = "y" * (4 * 2**20 - 4000) + "\N{GRINNING FACE}"
"""A text of about the longest body, with a character that makes it wide in memory."""


def filled(body: dict[str, Any]) -> bytes:
    """A body in which one empty text is the longest, most of which is wide in memory."""
    return json.dumps(body).replace('""', f'"{WIDE}"', 1).encode()


async def until(server: Server, path: str, is_so: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    while not is_so(answer := await server.read(server.request("GET", path))):  # noqa: ASYNC110  # it happens in another process
        await asyncio.sleep(0.1)
    return answer


async def begin(server: Server, task_id: str, body: str) -> None:
    """Begin a task that doesn't end."""
    content = json.dumps({"body": body, "task_id": task_id}).encode()
    await server.ask(server.request("POST", "/message", content, "Prefer: respond-async"))


async def cancels(server: Server) -> Counter[int]:
    """Of a task with a running turn."""
    task_id = f"cancelled-{time.time()}"
    await begin(server, task_id, "keep waiting")
    await until(server, f"/task?task_id={task_id}&fields=summary", lambda task: task["working"])
    return await server.at_once(
        server.request("POST", "/task/cancel", filled({"task_id": task_id, "more": ""}))
    )


async def callbacks(server: Server) -> Counter[int]:
    """Results of one call, the longest."""
    task_id = f"later-{time.time()}"
    await begin(server, task_id, "finish later")
    await until(server, f"/task?task_id={task_id}", lambda task: task.get("calls"))
    token = (server.process.folder / "callback.txt").read_text()
    return await server.at_once(server.request("POST", f"/callbacks/{token}", filled({"result": ""})))


def approvals(method: str, path: str, body: bytes = b"") -> Load:
    """About calls with the longest arguments: all that wait, or one of them."""

    async def load(server: Server) -> Counter[int]:
        for n in range(AT_ONCE):
            given = {"task_id": f"approve-{n}", "body": f"approve {WIDE[-MAX_HELD + 100 :]}"}
            await server.ask(server.request("POST", "/message", json.dumps(given).encode()))
        [one] = (await server.read(server.request("GET", "/approvals?limit=1")))["approvals"]
        key = hmac.digest(SECRET.encode(), b"link of an approval", "sha256")
        link = f"{one['id']}/{hmac.digest(key, one['id'].encode(), 'sha256').hex()}"
        return await server.at_once(server.request(method, path.format(id=one["id"], link=link), body))

    return load


async def by_a_link(server: Server) -> Counter[int]:
    """By the code of a link to the large task."""
    asked = server.request("POST", "/task/shares", json.dumps({"task_id": "large"}).encode())
    server.process.tokens["link"] = (await server.read(asked))["code"]
    return await server.at_once(server.request("GET", "/task/shared", by="link"))


def dead_letters(verb: str) -> Load:
    """Of tasks of long messages that became dead letters."""

    async def load(server: Server) -> Counter[int]:
        bodies = []
        for n in range(5):
            given = {"task_id": f"{verb}-{n}-{time.time()}", "body": f"break {WIDE[4096:]}"}
            await server.ask(server.request("POST", "/message", json.dumps(given).encode()))
            bodies.append(filled({"task_id": given["task_id"], "more": ""}))
        return await server.all_at_once(
            [server.request("POST", f"/dead-letters/{verb}", bodies[n % 5]) for n in range(AT_ONCE)]
        )

    return load


def mail_of_a_swarm(path: str) -> Load:
    """Different messages, which begin tasks or continue one."""

    async def load(server: Server) -> Counter[int]:
        about = {
            "request_id": "r-1",
            "sender": {"address_type": "agent", "address": "boss@agent"},
            "recipient": {"address_type": "agent", "address": "worker@example-no-proxy"},
            "subject": "Request",
            **dict.fromkeys(("sender_swarm", "recipient_swarm", "routing_info")),
        }

        def request(path: str, number: str, task_id: str, body: str) -> bytes:
            contributors = ["swarm:agent@example-no-proxy"] if path.endswith("/back") else []
            message = {
                "message_id": number,
                "source_swarm": "agent",
                "target_swarm": "example-no-proxy",
                "timestamp": "2026-01-31T08:00:00Z",
                "payload": {**about, "task_id": task_id, "body": body},
                "msg_type": "request",
                "auth_token": "",
                "metadata": {},
                "task_owner": "user:zoe@agent",
                "task_contributors": ["user:zoe@agent", *contributors],
            }
            content = json.dumps({"message": message}).encode() if body else filled({"message": message})
            return server.request("POST", path, content, by="agent")

        first = f"first-{time.time()}"
        given = json.dumps({"name": "agent", "base_url": "https://agent.example"}).encode()
        await server.ask(server.request("POST", "/swarms", given, by="admin"))
        await server.ask(request("/interswarm/forward", first, first, "keep waiting"))
        is_back = path.endswith("/back")
        numbers = [f"{time.time()}-{n}" for n in range(AT_ONCE)]
        return await server.all_at_once(
            [request(path, number, first if is_back else number, "") for number in numbers]
        )

    return load


async def sign_ins(server: Server) -> Counter[int]:
    links = [await server.read(server.request("POST", "/sign-in-links", b"{}")) for _ in range(AT_ONCE)]
    return await server.all_at_once(
        [server.request("POST", "/sign-in", json.dumps({"code": link["code"]}).encode()) for link in links]
    )


async def schedules(server: Server) -> Counter[int]:
    given = {"cron": "0 0 1 1 *", "body": "hello", "more": ""}
    return await server.all_at_once(
        [server.request("POST", "/schedules", filled({"name": f"n{n}", **given})) for n in range(AT_ONCE)]
    )


async def mail2(server: Server, path: str, body: dict[str, Any]) -> dict[str, Any]:
    return await server.read(server.request("POST", f"/v2{path}", json.dumps(body).encode()))


def of_mail2(method: str, path: str, body: dict[str, Any] | None = None) -> Load:
    """About a box of a hundred drafts with the longest bodies, and of mail to the most recipients."""

    async def load(server: Server) -> Counter[int]:
        given = {"subject": "s", "body": WIDE[-65_000:]}
        for _ in range(100):
            draft = (await mail2(server, "/drafts", given))["entry"]["draft"]["draft_id"]
        for _ in range(10):
            sent = await mail2(server, f"/drafts/{draft}/send", {"recipients": RECIPIENTS[:1000]})
        ids = {"draft": draft, "message": sent["message"]["message_id"]}
        content = b"" if body is None else json.dumps(body).encode()
        return await server.at_once(server.request(method, f"/v2{path}".format(**ids), content))

    return load


RECIPIENTS = [f"user:{n:032}@mail.example" for n in range(MAX_MEMBERS)]


def of_lists(method: str, path: str, body: dict[str, Any] | None = None) -> Load:
    """About lists with the most members, of whom each has an account."""

    async def load(server: Server) -> Counter[int]:
        server.make_accounts()
        for name in LISTS:
            given = {"name": name, "swarm_name": "s", "owner": RECIPIENTS[0], "members": RECIPIENTS}
            await server.ask(
                server.request("POST", "/v2/admin/lists", json.dumps(given).encode(), by="admin")
            )
        draft = (await mail2(server, "/drafts", {"subject": "s", "body": "b"}))["entry"]["draft"]["draft_id"]
        content = b"" if body is None else json.dumps(body).encode()
        statuses = await server.at_once(
            server.request(method, f"/v2{path}".format(draft=draft, list=LISTS[0]), content)
        )
        await asyncio.sleep(0 if body is None else LOAD_SECONDS)  # the mail is delivered
        return statuses

    return load


LISTS = [f"list-{n}" for n in range(20)]


def of_an_inbox(path: str, *headers: str) -> Load:
    """About an inbox of a hundred thousand entries; nobody reads the answer."""

    async def load(server: Server) -> Counter[int]:
        await server.ask(server.request("GET", "/v2/inbox"))
        server.fill_inbox()
        async with server.open(server.request("GET", f"/v2{path}", b"", *headers), AT_ONCE) as statuses:
            await asyncio.sleep(LOAD_SECONDS)
        return statuses

    return load


async def audits(server: Server) -> Counter[int]:
    server.fill_audit()
    return await server.at_once(server.request("GET", "/audit?limit=1000", by="admin"))


def of_a_schedule(path: str) -> Load:
    async def load(server: Server) -> Counter[int]:
        given = {"name": "yearly", "cron": "0 0 1 1 *", "body": "hello"}
        await server.ask(server.request("POST", "/schedules", json.dumps(given).encode()))
        return await server.at_once(server.request("POST", path.format(name="yearly"), filled({"more": ""})))

    return load


def reads(path: str) -> Load:
    return lambda server: server.at_once(
        server.request("GET", path.format(**vars(server)), b"", "A2A-Version: 1.0")
    )


def posts(path: str, body: dict[str, Any], *headers: str) -> Load:
    """Posts of small bodies, about the large task."""
    content = json.dumps(body).encode()
    return lambda server: server.at_once(server.request("POST", path, content, *headers))


def held(path: str, body: dict[str, Any], *headers: str) -> Load:
    """Posts of which the answers don't end."""
    content = json.dumps(body).encode()

    async def load(server: Server) -> Counter[int]:
        async with server.open(server.request("POST", path, content, *headers), AT_ONCE) as statuses:
            await asyncio.sleep(LOAD_SECONDS)
        return statuses

    return load


def long_posts(path: str, *, by: str = "user", **body: Any) -> Load:
    """Posts of the longest bodies, most of which is one text, and of short ones if the route ignores that text."""
    given = body or {"more": ""}
    contents = [filled(given)]
    if "more" in given:
        contents.append(json.dumps({**given, "more": "little"}).encode())

    async def load(server: Server) -> Counter[int]:
        statuses: Counter[int] = Counter()
        for content in contents:
            statuses += await server.at_once(server.request("POST", path, content, *PROTOCOLS, by=by))
        return statuses

    return load


PROTOCOLS = (
    "A2A-Version: 1.0",
    "Accept: application/json, text/event-stream",
    "MCP-Protocol-Version: 2025-06-18",
)


def rpc(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


SAID = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": ""}]}}
TURNS = [{"role": "user", "content": ""}]

LOADS: dict[str, Load] = {
    "GET /task": reads("/task?task_id=large"),
    "GET /task, at": reads(f"/task?task_id=large&at={EVENTS}"),
    "GET /task, at and items": reads(f"/task?task_id=large&at={EVENTS}&items=true"),
    "GET /task, limit": reads("/task?task_id=large&limit=1000"),
    "GET /task, items": reads("/task?task_id=large&limit=1000&items=true"),
    "GET /task, waiting mail": reads("/task?task_id=waiting"),
    "GET /task, at, waiting mail": reads("/task?task_id=waiting&at={waiting}"),
    "GET /task/stream": reads("/task/stream?task_id=large"),
    "GET /task/stream, items": reads("/task/stream?task_id=large&items=true"),
    "GET /task/stream, unread": streams_that_nobody_reads,
    "GET /task/stream, 4096": more_streams_than_connections,
    "GET /task/export": reads("/task/export?task_id=large"),
    "GET /task/turn": reads("/task/turn?task_id=large&seq={turn}&limit=1000"),
    "GET /task/turns": reads("/task/turns?task_id=large"),
    "GET /task/comparison": comparisons,
    "GET /task/shared": by_a_link,
    "GET /tasks": reads("/tasks"),
    "GET /tasks, q": reads("/tasks?q=yyy+xxx"),
    "GET /audit": audits,
    "GET /threads": reads("/threads"),
    "GET /threads/{thread_id:path}": reads("/threads/{thread}"),
    "GET /usage": reads("/usage"),
    "GET /approvals": approvals("GET", "/approvals?limit=50"),
    "GET /approvals/{approval_id}": approvals("GET", "/approvals/{id}"),
    "GET /approvals/{approval_id}/{token}": approvals("GET", "/approvals/{link}"),
    "GET /dead-letters": reads("/dead-letters"),
    "GET /files/{file_id}": reads("/files/{file}"),
    "GET /v1/files/{file_id}/content": reads("/v1/files/{file}/content"),
    "GET /v1/responses/{response_id:path}": reads("/v1/responses/resp_large_1"),
    "GET /v1/responses/{response_id:path}, stream": reads("/v1/responses/resp_large_1?stream=true"),
    "GET /a2a/{path:path}": reads("/a2a/tasks/large.1?historyLength=1000"),
    "GET /a2a/{path:path}, list": reads("/a2a/tasks"),
    "POST /task/fork": forks,
    "POST /task/fork, waiting mail": forks_with_mail,
    "POST /task/cancel": cancels,
    "DELETE /task": deletions,
    "POST /message": posts_of_large_bodies,
    "POST /message, show_events": answers_with_events,
    "POST /message, bodies that never end": bodies_that_never_end,
    "POST /message, one-byte chunks": chunks_of_a_byte,
    "POST /files": uploads,
    "POST /v1/responses": long_posts("/v1/responses", model="example-no-proxy", input=""),
    "POST /v1/responses, after": posts(
        "/v1/responses", {"model": "example-no-proxy", "input": "more", "conversation": "conv_large"}
    ),
    "POST /v1/responses/{response_id:path}/cancel": posts("/v1/responses/resp_large_1/cancel", {}),
    "POST /v1/chat/completions": long_posts("/v1/chat/completions", model="example-no-proxy", messages=TURNS),
    "POST /v1/chat/completions, stream": long_posts(
        "/v1/chat/completions", model="example-no-proxy", messages=TURNS, stream=True
    ),
    "POST /a2a": long_posts("/a2a", **rpc("SendMessage", **SAID)),
    "POST /a2a, read": posts("/a2a", rpc("GetTask", id="large.1", historyLength=1000), *PROTOCOLS),
    "POST /a2a, waiting mail": posts("/a2a", rpc("GetTask", id="waiting.1"), *PROTOCOLS),
    "POST /a2a, stream, waiting mail": held("/a2a", rpc("SubscribeToTask", id="waiting.1"), *PROTOCOLS),
    "GET /a2a/{path:path}, list with history": reads("/a2a/tasks?historyLength=1000&includeArtifacts=true"),
    "POST /a2a, stream": posts("/a2a", rpc("SubscribeToTask", id="large.1"), *PROTOCOLS),
    "POST /a2a, after": posts(
        "/a2a",
        rpc(
            "SendMessage",
            message={
                "messageId": "m",
                "contextId": "large",
                "role": "ROLE_USER",
                "parts": [{"text": "more"}],
            },
        ),
        *PROTOCOLS,
    ),
    "POST /a2a/{path:path}": long_posts("/a2a/message:send", **SAID),
    "POST /mcp": long_posts("/mcp", **rpc("tools/call", name="worker", arguments={"message": ""})),
    "POST /mcp, after": posts(
        "/mcp", rpc("tools/call", name="ask", arguments={"message": "more", "task_id": "large"}), *PROTOCOLS
    ),
    "POST /mcp, waiting mail": posts(
        "/mcp",
        rpc("tools/call", name="task", arguments={"task_id": "waiting", "wait_seconds": 5}),
        *PROTOCOLS,
    ),
    "POST /mcp, read, waiting mail": posts(
        "/mcp", rpc("resources/read", uri="mail://tasks/waiting"), *PROTOCOLS
    ),
    "POST /mcp, read": posts("/mcp", rpc("resources/read", uri="mail://tasks/large"), *PROTOCOLS),
    "POST /ag-ui": long_posts(
        "/ag-ui", threadId="t", runId="r", messages=[{"id": "m", "role": "user", "content": ""}]
    ),
    "POST /ag-ui, after": posts(
        "/ag-ui",
        {"threadId": "large", "runId": "r", "messages": [{"id": "m", "role": "user", "content": "more"}]},
    ),
    "POST /interswarm/message": long_posts("/interswarm/message", body="", targets=["worker"]),
    "POST /approvals/{approval_id}": approvals(
        "POST", "/approvals/{id}", filled({"decision": "edit", "arguments": {"text": ""}})
    ),
    "POST /approvals/{approval_id}/{token}": approvals(
        "POST", "/approvals/{link}", b"decision=approve&reason=" + b"y" * 15_000
    ),
    "POST /callbacks/{token}": callbacks,
    "POST /dead-letters/discard": dead_letters("discard"),
    "POST /dead-letters/redrive": dead_letters("redrive"),
    "POST /health": long_posts("/health", by="admin", status="healthy", more=""),
    "POST /interswarm/back": mail_of_a_swarm("/interswarm/back"),
    "POST /interswarm/forward": mail_of_a_swarm("/interswarm/forward"),
    "POST /schedules": schedules,
    "POST /schedules/{name}": of_a_schedule("/schedules/{name}"),
    "POST /schedules/{name}/run": of_a_schedule("/schedules/{name}/run"),
    "POST /sign-in": sign_ins,
    "POST /sign-in-links": long_posts("/sign-in-links"),
    "POST /sign-out": long_posts("/sign-out"),
    "POST /swarms": long_posts("/swarms", by="admin", name="beta", base_url="https://beta.example", more=""),
    "POST /swarms/check": long_posts("/swarms/check", by="admin", json=json.dumps(SWARM), more=""),
    "POST /swarms/load": long_posts("/swarms/load", by="admin", json=json.dumps(SWARM), more=""),
    "POST /swarms/load, long": long_posts(
        "/swarms/load", by="admin", json=json.dumps({**SWARM, "description": WIDE[4096:]})
    ),
    "POST /tokens": long_posts("/tokens", by="admin", role="user", id="x", more=""),
    "POST /webhooks": long_posts("/webhooks", url="https://hooks.example/mail", more=""),
    "POST /v1/conversations": long_posts("/v1/conversations"),
    "GET /v2/drafts": of_mail2("GET", "/drafts?limit=100"),
    "GET /v2/outbox": of_mail2("GET", "/outbox?limit=100"),
    "GET /v2/outbox/{message_id}": of_mail2("GET", "/outbox/{message}"),
    "POST /v2/drafts": of_mail2("POST", "/drafts", {"subject": "s", "body": WIDE[-65_000:]}),
    "POST /v2/drafts/{draft_id}/send": of_mail2(
        "POST", "/drafts/{draft}/send", {"recipients": RECIPIENTS[:1000]}
    ),
    "POST /v2/drafts/{draft_id}/send, to lists": of_lists(
        "POST", "/drafts/{draft}/send", {"recipients": [f"list:{name}@s@mail.example" for name in LISTS]}
    ),
    "GET /v2/lists": of_lists("GET", "/lists"),
    "GET /v2/lists/{address}": of_lists("GET", "/lists/{list}@s"),
    "GET /v2/inbox": of_an_inbox(f"/inbox?limit=100&offset={ENTRIES - 200}"),
    "GET /v2/inbox, filter": of_an_inbox("/inbox?limit=100&tag=none"),
    "GET /v2/inbox/stream": of_an_inbox("/inbox/stream", "Last-Event-ID: 2025-01-01T00:00:00.000000Z"),
    "GET /v2/export": of_an_inbox("/export"),
}

SMALL = {
    "the answer is short, whatever a caller has": (
        *("GET /", "GET /live", "GET /health", "GET /whoami", "GET /status", "GET /metrics", "GET /sign-in"),
        *("GET /.well-known/agent-card.json", "GET /.well-known/oauth-protected-resource/mcp"),
        *("GET /swarm", "GET /swarms", "GET /v1/models", "GET /v1/models/{name:path}"),
        *("GET /ui", "GET /ui/{name:path}"),
    ),
    "it is about one record, and nothing of a task": (
        *("DELETE /schedules/{name}", "DELETE /swarms/{name:path}", "DELETE /task/calls/{call_id}"),
        *("DELETE /task/timers/{timer_id}", "DELETE /tokens/{number}", "DELETE /webhooks/{webhook_id}"),
        *("GET /schedules", "GET /schedules/{name}", "GET /webhooks"),
        *("DELETE /task/shares/{number}", "GET /task/shares", "POST /task/shares"),
    ),
    "it is for admins": (
        *("GET /drafts", "GET /drafts/{name}", "DELETE /drafts/{name}", "POST /drafts/{name}"),
        *("DELETE /drafts/{name}/publish", "POST /drafts/{name}/publish"),
        *("DELETE /callers/{caller}", "DELETE /holds", "GET /callers/{caller}", "GET /holds"),
        *("GET /swarms/dump", "GET /swarms/versions", "GET /tokens", "POST /holds"),
    ),
    "GET /files/{file_id} does the same": ("GET /files/shared/{link}",),
    "DELETE /task does the same": ("DELETE /v1/responses/{response_id:path}",),
    "it is a request of A2A that only refuses": ("DELETE /a2a/{path:path}",),
}
"""The routes without a load, by the reason."""


@pytest.mark.full
def test_each_route_has_a_load_or_a_reason_for_none() -> None:
    served = {
        f"{method} {route.path}"
        for router in load_routers()
        for route in router.routes
        if isinstance(route, APIRoute)
        for method in route.methods - {"HEAD", "OPTIONS"}
    }
    loads, small = (
        {name.partition(",")[0] for name in LOADS},
        [name for some in SMALL.values() for name in some],
    )
    first_protocol = {name for name in loads if "/v2/" not in name}  # MAIL 2.0: only what holds most
    assert sorted(first_protocol | {*small}) == sorted(served)
    assert loads.isdisjoint(small)


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
