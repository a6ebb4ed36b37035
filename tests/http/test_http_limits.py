"""429: callers who ask too often, have too many tasks, or write to an agent that has enough to read."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from support.faults.gates import waiting_swarm
from support.processes.http_server import HTTPServer, eventually
from test_http_interswarm import wrapper

from mail import bootstrap
from mail.adapters.sqlite.backend import SQLiteDocuments
from mail.auth.keys import Caller
from mail.config import ServerConfig
from mail.config.aws import AwsConfig
from mail.core.decisions.caller_limits import CallerLimits
from mail.core.engine.pacing import Pacer
from mail.core.engine.permits import ModelPermits
from mail.core.protocol.clock import SYSTEM_CLOCK
from mail.core.task.documents import IN_MEMORY, Kind
from mail.core.task.stored import read_permits
from mail.core.task.task import TaskKey
from mail.errors import Overloaded, RateLimited
from mail.http.account import BODY_FACTOR, PIECE_FACTOR, SMALL_BYTES, WIDE_FACTOR, Account, Holding
from mail.http.rates import KNOWN_CALLERS, RateLimiter
from mail.server.app import make_service
from mail.testing.agents import Call, View, build_swarm, complete
from mail.testing.rig import Rig


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class TestRateLimiter:
    def test_a_burst_then_the_rate(self) -> None:
        clock, ann = Clock(), Caller("user", "ann")
        limiter = RateLimiter(2.0, 3, clock=clock)
        for _ in range(3):
            limiter.admit(ann)
        with pytest.raises(RateLimited) as refusal:
            limiter.admit(ann)
        assert refusal.value.retry_after == 1
        clock.now += 0.5
        limiter.admit(ann)
        with pytest.raises(RateLimited):
            limiter.admit(ann)

    def test_retry_after_is_kept(self) -> None:
        clock, ann = Clock(), Caller("user", "ann")
        limiter = RateLimiter(0.1, 1, clock=clock)
        limiter.admit(ann)
        with pytest.raises(RateLimited) as refusal:
            limiter.admit(ann)
        clock.now += refusal.value.retry_after
        limiter.admit(ann)

    def test_who_waits_gets_no_more_than_a_burst(self) -> None:
        clock, ann = Clock(), Caller("user", "ann")
        limiter = RateLimiter(10.0, 2, clock=clock)
        clock.now += 3600
        limiter.admit(ann)
        limiter.admit(ann)
        with pytest.raises(RateLimited):
            limiter.admit(ann)

    def test_refusals_cost_nothing(self) -> None:
        clock, ann = Clock(), Caller("user", "ann")
        limiter = RateLimiter(1.0, 1, clock=clock)
        limiter.admit(ann)
        for _ in range(50):
            with pytest.raises(RateLimited):
                limiter.admit(ann)
        clock.now += 1
        limiter.admit(ann)

    @pytest.mark.parametrize(("per_second", "burst"), [(0, 3), (2.5, 0)])
    def test_0_sets_no_limit(self, per_second: float, burst: int) -> None:
        limiter = RateLimiter(per_second, burst, clock=Clock())
        for _ in range(10):
            limiter.admit(Caller("user", "ann"))

    def test_callers_differ_by_role_and_id(self) -> None:
        limiter = RateLimiter(1.0, 1, clock=Clock())
        for caller in (Caller("user", "ann"), Caller("admin", "ann"), Caller("user", "bob")):
            limiter.admit(caller)

    def test_it_remembers_so_many_callers(self) -> None:
        limiter = RateLimiter(1.0, 1, clock=Clock())
        for n in range(KNOWN_CALLERS + 10):
            limiter.admit(Caller("user", f"u{n}"))
        assert len(limiter._callers) == KNOWN_CALLERS

    def test_strangers_reset_no_limit_of_a_caller(self) -> None:
        limiter = RateLimiter(1.0, 1, clock=Clock())
        limiter.admit(Caller("user", "ann"))
        for n in range(KNOWN_CALLERS + 10):
            limiter.admit_stranger(f"2001:db8:0:{n:x}::1")
        with pytest.raises(RateLimited):
            limiter.admit(Caller("user", "ann"))


class TestAccount:
    """A process may hold 4000 bytes, each caller 1000."""

    def holding(self, account: Account, name: str = "ann") -> Holding:
        return Holding(account, Caller("user", name), Pacer())

    def test_a_share_and_the_rest(self) -> None:
        account = Account(4000)
        first, second = self.holding(account), self.holding(account)
        first.hold(900)
        with pytest.raises(RateLimited, match="hold 900 bytes of this server's memory"):
            second.hold(101)
        second.hold(100)
        for name in ("bob", "cem", "dea"):
            self.holding(account, name).hold(1000)
        with pytest.raises(Overloaded):
            self.holding(account, "eve").hold(1)
        first.end()
        self.holding(account, "eve").hold(1)

    def test_a_request_of_any_size_fits_alone(self) -> None:
        account = Account(4000)
        holding = self.holding(account)
        holding.hold(5000)
        with pytest.raises(Overloaded):
            self.holding(account, "bob").hold(1)
        holding.end()
        assert account.is_empty

    def test_a_request_that_is_alone_may_hold_more(self) -> None:
        account = Account(4000)
        holding = self.holding(account)
        for size in (900, 200, 5000):
            holding.hold(size)
        holding.end()
        other = self.holding(account)
        other.hold(1)
        holding.hold(900)
        with pytest.raises(RateLimited):
            holding.hold(200)

    async def test_a_piece_waits_for_room(self) -> None:
        account, size = Account(4000), 900 // PIECE_FACTOR
        first, second, other = self.holding(account), self.holding(account), self.holding(account, "bob")
        assert first.take(size)
        assert not second.take(size)
        assert other.take(size)
        waiting = asyncio.create_task(second.wait(size))
        await asyncio.sleep(0)
        assert not waiting.done()
        first.take(0)
        await waiting
        for holding in (first, second, other):
            holding.end()
        assert account.is_empty

    async def test_somebody_always_gets_on(self) -> None:
        """What is held until the answer never keeps all pieces waiting."""
        account = Account(4000)
        holdings = [self.holding(account) for _ in range(4)]
        for holding in holdings:
            holding.hold(250)
        work = [asyncio.create_task(holding.wait(2000)) for holding in holdings]
        for task, holding in zip(work, holdings, strict=True):
            await task
            holding.take(0)

    def test_what_a_request_holds_is_room_for_its_pieces(self) -> None:
        account = Account(4000)
        first, second = self.holding(account), self.holding(account)
        first.hold(600)
        assert first.take(600 // PIECE_FACTOR)
        second.hold(400)

    def test_no_limit(self) -> None:
        account = Account(0, 0)
        for _ in range(200):
            holding = self.holding(account)
            holding.hold(2**40)
            holding.open_stream()
            assert holding.take(2**40)


def echo(view: View) -> list[Call]:
    return [complete(view.mail.body)]


@pytest.fixture
async def server() -> AsyncIterator[HTTPServer]:
    """A server that lets each caller ask three times."""
    async with HTTPServer(build_swarm({"supervisor": echo}), rates=RateLimiter(0.01, 3)) as server:
        yield server


async def test_the_answer(server: HTTPServer) -> None:
    for _ in range(3):
        assert (await server.client.get("/whoami")).status_code == 200
    response = await server.post(task_id="t")
    assert response.status_code == 429
    assert response.headers["retry-after"] == "100"
    assert response.json() == {"detail": "more than 0.01 requests a second; try again later"}
    assert await server.rig.store.load(TaskKey(str(server.rig.user), "t")) is None


async def test_others_and_public_routes_are_let_through(server: HTTPServer) -> None:
    for _ in range(5):
        await server.client.get("/whoami")
    admin = await server.client.get("/whoami", headers=server.headers("admin"))
    assert admin.status_code == 200
    for _ in range(5):
        assert (await server.client.get("/health")).status_code == 200


async def test_unknown_keys_cost_nobody_anything(server: HTTPServer) -> None:
    for _ in range(5):
        refused = await server.client.get("/whoami", headers={"Authorization": "Bearer wrong"})
        assert refused.status_code == 401
    assert (await server.client.get("/whoami")).status_code == 200


async def test_in_openais_words() -> None:
    async with HTTPServer(
        build_swarm({"supervisor": echo}), rates=RateLimiter(0.01, 1), debug=True
    ) as server:
        await server.client.get("/whoami")
        response = await server.client.post("/responses", json={"input": "hi"})
        assert response.status_code == 429
        assert response.headers["retry-after"] == "100"
        error = response.json()["error"]
        assert (error["type"], error["code"]) == ("rate_limit_error", "rate_limit_exceeded")


async def test_tasks_at_once() -> None:
    gate = asyncio.Event()

    async with HTTPServer(waiting_swarm(gate)) as server:
        server.rig.runtime.caller_limits = CallerLimits(running_tasks=1)
        now = {"Prefer": "respond-async"}
        assert (await server.post(task_id="1", headers=now)).status_code == 202
        refused = await server.post(task_id="2", headers={**now, "Idempotency-Key": "k"})
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1
        gate.set()
        await server.rig.workers.idle()
        again = await server.post(task_id="2", headers={"Idempotency-Key": "k"})
        assert again.json()["response"] == "at last"


async def test_another_swarm_is_refused_as_well_and_may_come_again() -> None:
    gate = asyncio.Event()

    async def work(view: View) -> list[Call]:
        await gate.wait()
        return [complete(view.mail.body)]

    async with HTTPServer(build_swarm({"supervisor": echo, "worker": work})) as server:
        server.rig.runtime.caller_limits = CallerLimits(mailbox_depth=2)

        async def forward(n: int) -> int:
            body = {"message": wrapper(message_id=f"m-{n}")}
            answer = await server.client.post(
                "/interswarm/forward", json=body, headers=server.headers("agent")
            )
            return answer.status_code

        assert [await forward(n) for n in (1, 2, 3)] == [200, 200, 429]
        assert await forward(2) == 200  # known already, so nothing is added
        key = TaskKey("swarm:other@example", "t-1")
        task = await server.rig.task(key)
        assert len(task.received) == 2
        server.rig.runtime.caller_limits = CallerLimits()
        assert await forward(3) == 200
        gate.set()


async def test_a_body_is_refused_before_it_is_read() -> None:
    """By its length: nobody waits for a body that has no room, and a short one needs none."""
    length = 10 * SMALL_BYTES
    account = Account(4 * BODY_FACTOR * length)
    async with HTTPServer(build_swarm({"supervisor": echo}), account=account) as server:

        async def begin(key: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(
                f"POST /message HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n"
                f"Content-Length: {length}\r\n\r\n {{".encode()
            )
            return reader, writer

        _, first = await begin(server.keys["user"])
        await eventually(lambda: _truth(not account.is_empty))
        reader, second = await begin(server.keys["user"])
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        assert " 429 " in head
        assert "retry-after: 1" in head
        _, other = await begin(server.keys["admin"])
        assert (await server.post()).status_code == 200
        for writer in (first, second, other):
            writer.close()
        await eventually(lambda: _truth(account.is_empty))


@pytest.mark.parametrize("is_escaped", [False, True])
async def test_a_body_of_wide_text_holds_more(is_escaped: bool) -> None:
    account, held = Account(), []

    def note(view: View) -> list[Call]:
        held.append(account._bytes.total())
        return [complete("noted")]

    async with HTTPServer(build_swarm({"supervisor": note}), account=account) as server:
        for text in ("y" * 100_000, "y" * 100_000 + "\N{GRINNING FACE}"):
            body = json.dumps({"body": text}, ensure_ascii=is_escaped).encode()
            assert (await server.client.post("/message", content=body)).status_code == 200
        await eventually(lambda: _truth(account.is_empty))
    narrow, wide = held
    assert BODY_FACTOR * 80_000 < narrow < BODY_FACTOR * 100_000
    assert wide > WIDE_FACTOR * 80_000


async def _truth(value: bool) -> bool:
    return value


async def test_streams_of_a_caller() -> None:
    gate = asyncio.Event()

    async with HTTPServer(waiting_swarm(gate), account=Account(streams=2)) as server:
        await server.post(task_id="t", headers={"Prefer": "respond-async"})
        url = "/task/stream?task_id=t"
        async with server.frames("GET", url), server.frames("GET", url):
            refused = await server.client.get(url)
            assert refused.status_code == 429
            assert refused.json()["detail"].startswith("you are reading 2 streams")
            assert (await server.post(task_id="new", stream=True)).status_code == 429
            assert (await server.client.get("/task?task_id=new")).status_code == 404
        gate.set()

        await eventually(lambda: server.service.account.is_empty)
        async with server.frames("GET", url) as frames:
            assert [frame.event for frame in [each async for each in frames]][-1] == "task_complete"


async def test_long_waits_count_as_streams_where_processes_share_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mail.http.service.UNCOUNTED_SECONDS", 0.01)
    gate = asyncio.Event()

    swarm = waiting_swarm(gate)
    async with Rig(swarm) as shared:
        documents = SQLiteDocuments(shared.database)
        permits = ModelPermits(documents, SYSTEM_CLOCK, {})
        async with HTTPServer(swarm, account=Account(streams=1, permits=permits)) as server:

            async def is_open(count: int) -> bool:
                document = await documents.get(Kind.PERMITS, "streams/user:ann")
                return len(read_permits(document.fields["record"]).running if document else ()) == count

            waiting = asyncio.create_task(server.post(task_id="first"))
            await eventually(lambda: is_open(1))
            unanswered = await server.post(task_id="second")
            assert unanswered.status_code == 202  # accepted, as where the time is up
            assert unanswered.json()["task_id"] == "second"
            sent = {"model": swarm.name, "input": "hello"}
            headers = server.headers("user")
            response = await server.client.post("/v1/responses", json=sent, headers=headers)
            assert response.json()["status"] == "in_progress"
            message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
            headers |= {"A2A-Version": "1.0"}
            refused = await server.client.post(
                "/a2a/message:send", json={"message": message}, headers=headers
            )
            assert refused.status_code == 429
            gate.set()
            assert (await waiting).status_code == 200
            await eventually(lambda: is_open(0))


async def test_streams_of_a_caller_in_all_processes() -> None:
    gate = asyncio.Event()

    swarm = waiting_swarm(gate)
    async with Rig(swarm) as shared, AsyncExitStack() as resources:
        documents = SQLiteDocuments(shared.database)

        async def start() -> HTTPServer:
            permits = ModelPermits(documents, SYSTEM_CLOCK, {})
            server = HTTPServer(swarm, account=Account(streams=2, permits=permits))
            return await resources.enter_async_context(server)

        async def is_open(count: int) -> bool:
            document = await documents.get(Kind.PERMITS, "streams/user:ann")
            assert document is not None
            return len(read_permits(document.fields["record"]).running) == count

        first, second = await start(), await start()
        message = {"body": "hello", "stream": True}
        assert (await first.post(task_id="none", stream=True, resume_from="user_response")).status_code == 404
        assert await is_open(0)
        async with (
            first.frames("POST", "/message", json=message),
            second.frames("POST", "/message", json=message) as frames,
        ):
            refused = await first.post(task_id="new", stream=True)
            assert refused.status_code == 429
            assert refused.json()["detail"].startswith("you have 2 streams of POST /message")
            assert (await first.client.get("/task?task_id=new")).status_code == 404
            other = await second.client.post(
                "/message",
                json={"body": "hello"},
                headers={**second.headers("admin"), "Prefer": "respond-async"},
            )
            assert other.status_code == 202
            assert await is_open(2)
            gate.set()
            assert [frame.event for frame in [each async for each in frames]][-1] == "task_complete"
        await eventually(lambda: is_open(0))
        assert (await second.post(stream=True)).status_code == 200
        await eventually(lambda: is_open(0))


@pytest.mark.parametrize(
    ("limits", "of_a_server", "of_functions"),
    [({}, 100, 10), ({"streams": 3}, 3, 3), ({"streams": 0}, 0, 0)],
)
async def test_callers_may_read_fewer_streams_where_functions_count_them_together(
    limits: dict[str, int], of_a_server: int, of_functions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    config = ServerConfig.model_validate({"storage": {"database": IN_MEMORY}, "limits": limits})
    system = bootstrap.local(config)
    service = make_service(system, config)
    assert (service.account.streams, service.account.permits) == (of_a_server, None)
    await system.stop()
    functions = bootstrap.aws(AwsConfig(server=config, table="mail", stream_seconds=90.0))
    service = make_service(functions, config, stream_seconds=functions.stream_seconds)
    assert service.account.streams == of_functions
    assert service.account.permits is (functions.permits if of_functions else None)
    await functions.stop()
