"""Strangers: connections that send half a request or nothing, that don't read, or that are too many."""

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from functools import partial
from typing import Any
from unittest.mock import create_autospec

import httpx2
import pytest
import uvicorn
from support.faults.gates import waiting_swarm
from uvicorn.server import ServerState

from mail.auth.keys import Caller
from mail.auth.tokens import issue_token
from mail.bootstrap import local
from mail.config import ConnectionsConfig, ServerConfig
from mail.core.task.swarm import SwarmCore
from mail.server import serving
from mail.server.connections import Beginnings, Connections
from mail.server.uvicorn_parts import LimitedProtocol
from mail.testing.agents import build_swarm, complete

PROMPT = ConnectionsConfig(head_seconds=0.3, body_seconds=0.3, idle_seconds=1, stall_seconds=0.3)
"""Limits that a test can wait for."""

PATIENT = ConnectionsConfig(head_seconds=60.0, body_seconds=60.0, idle_seconds=60, stall_seconds=60.0)
"""Limits that a busy machine doesn't reach."""

HALF_A_HEAD = b"GET /health HTTP/1.1\r\nHost: x\r\nX-Slow: "
WHOLE_HEAD = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
TIMEOUT = 60.0


class Stranger:
    """A connection, and what it gets."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def rest(self) -> str:
        """All that comes until the server closes the connection."""
        try:
            return (await asyncio.wait_for(self.reader.read(), TIMEOUT)).decode()
        except ConnectionResetError:
            return ""

    async def answer(self) -> str:
        """The head and the body of one answer."""
        head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), TIMEOUT)
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
        return (head + await self.reader.readexactly(int(length.split(b":")[1]))).decode()


class Server:
    def __init__(self, url: str, key: str, other: str, strangers: AsyncExitStack) -> None:
        self.url = httpx2.URL(url)
        self.key, self.other = key, other
        self._strangers = strangers

    async def connect(self, data: bytes = b"") -> Stranger:
        stranger = Stranger(*await asyncio.open_connection(self.url.host, self.url.port))
        self._strangers.callback(stranger.writer.close)
        if data:
            await stranger.send(data)
        return stranger

    def post(self, body: bytes, *, key: str = "", length: int | None = None) -> bytes:
        """The head of a message, and its body as far as it is given."""
        size = len(body) if length is None else length
        lines = (
            "POST /message HTTP/1.1",
            "Host: x",
            f"Authorization: Bearer {key or self.key}",
            f"Content-Length: {size}",
        )
        return "\r\n".join((*lines, "", "")).encode() + body


@asynccontextmanager
async def server_with(limits: ConnectionsConfig, swarm: SwarmCore | None = None) -> AsyncIterator[Server]:
    config = ServerConfig().with_overrides(database=":memory:")
    system = local(
        config.model_copy(update={"connections": limits}),
        swarm=swarm or build_swarm({"supervisor": lambda _: [complete("hi")]}),
        environ={},
    )
    async with serving(system) as url, AsyncExitStack() as strangers:
        ann, bob = [await issue_token(system.documents, Caller("user", name)) for name in ("ann", "bob")]
        yield Server(url, ann, bob, strangers)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with server_with(PROMPT) as server:
        yield server


@pytest.fixture
async def patient() -> AsyncIterator[Server]:
    async with server_with(PATIENT) as server:
        yield server


@pytest.mark.full
class TestTime:
    @pytest.mark.parametrize("sent", [b"", HALF_A_HEAD], ids=["nothing", "half a head"])
    async def test_a_head_that_does_not_come(self, server: Server, sent: bytes) -> None:
        strangers = [await server.connect(sent) for _ in range(20)]
        answers = {await stranger.rest() for stranger in strangers}
        (answer,) = answers
        assert answer.startswith("HTTP/1.1 408 ") if sent else not answer

    async def test_a_head_byte_by_byte(self, server: Server) -> None:
        stranger = await server.connect(HALF_A_HEAD)

        async def trickle() -> None:
            while True:
                await stranger.send(b"x")
                await asyncio.sleep(0.05)

        trickling = asyncio.create_task(trickle())
        answer = await stranger.rest()
        trickling.cancel()
        # a byte that comes after the end resets the connection, and may take the answer with it
        assert not answer or answer.startswith("HTTP/1.1 408 ")

    async def test_a_second_head_on_the_same_connection(self, server: Server) -> None:
        stranger = await server.connect(WHOLE_HEAD)
        assert "healthy" in await stranger.answer()
        await stranger.send(HALF_A_HEAD)
        assert (await stranger.rest()).startswith("HTTP/1.1 408 ")

    async def test_a_body_that_does_not_come(self, server: Server) -> None:
        stranger = await server.connect(server.post(b'{"body": ', length=100))
        assert (await stranger.rest()).startswith("HTTP/1.1 408 ")

    async def test_a_body_that_nobody_reads(self, server: Server) -> None:
        """The answer is there before the body, which may not keep the connection open."""
        stranger = await server.connect(server.post(b"x", key="unknown", length=10**9))
        assert (await stranger.answer()).startswith("HTTP/1.1 401 ")

        async def trickle() -> None:
            while True:
                await stranger.send(b"x")
                await asyncio.sleep(0.05)

        trickling = asyncio.create_task(trickle())
        assert await stranger.rest() == ""
        trickling.cancel()

    async def test_an_answer_before_the_body_says_that_it_is_the_last(self, server: Server) -> None:
        early = await server.connect(server.post(b"", key="unknown", length=2))
        assert "\r\nconnection: close" in await early.answer()
        whole = await server.connect(server.post(b"{", length=2))
        await asyncio.sleep(0.05)
        await whole.send(b"}")
        answer = await whole.answer()
        assert (answer.split()[1], "connection" in answer.lower()) == ("400", False)

    async def test_nothing_is_parsed_after_an_answer_without_the_body(self, server: Server) -> None:
        head = b"POST /message HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        stranger = await server.connect(head)
        assert (await stranger.answer()).startswith("HTTP/1.1 401 ")
        await stranger.send(b"no chunk\r\n" + WHOLE_HEAD)
        assert await stranger.rest() == ""

    async def test_a_large_body_may_take_longer(self, server: Server) -> None:
        body = json.dumps({"body": "x" * 32 * 1024}).encode()
        stranger = await server.connect(server.post(body[:1], length=len(body)))
        for start in range(1, len(body), 3000):
            await asyncio.sleep(0.1)
            await stranger.send(body[start : start + 3000])
        assert (await stranger.answer()).startswith("HTTP/1.1 200 ")

    async def test_a_body_that_stops_before_its_last_byte(self, server: Server) -> None:
        """What came before gives it no time."""
        stranger = await server.connect(server.post(b" " * 2**20, length=2**20 + 1))
        assert (await stranger.rest()).startswith("HTTP/1.1 408 ")

    @pytest.mark.soak
    async def test_an_answer_that_nobody_reads(self, server: Server) -> None:
        stranger = await server.connect()
        stranger.writer.transport.pause_reading()  # type: ignore[attr-defined]

        async def keep_asking() -> None:
            while True:
                await stranger.send(b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n")

        with pytest.raises(ConnectionError):
            await asyncio.wait_for(keep_asking(), TIMEOUT)

    async def test_answers_that_take_long(self) -> None:
        """Neither a stream without events nor a long wait is cut."""
        release = asyncio.Event()
        async with server_with(PROMPT, waiting_swarm(release)) as server:
            headers = {"Authorization": f"Bearer {server.key}"}
            async with httpx2.AsyncClient(base_url=server.url, headers=headers, timeout=TIMEOUT) as client:
                requests = [
                    asyncio.create_task(client.post("/message", json={"body": "x", "stream": stream}))
                    for stream in (True, False)
                ]
                await asyncio.sleep(1.0)
                assert not any(request.done() for request in requests)
                release.set()
                answers = await asyncio.gather(*requests)
        assert "task_complete" in answers[0].text
        assert answers[1].json()["response"] == "at last"


class TestNumber:
    LIMITS = (
        PROMPT.model_copy(update={"total": 4, "head_seconds": 60.0, "idle_seconds": 60}),
        PROMPT.model_copy(update={"per_address": 4, "head_seconds": 60.0, "idle_seconds": 60}),
    )

    @pytest.mark.parametrize("limits", LIMITS, ids=["total", "per_address"])
    async def test_a_new_one_takes_the_place_of_the_one_that_waits_longest(
        self, limits: ConnectionsConfig
    ) -> None:
        async with server_with(limits) as server:
            first, *others = [await server.connect(HALF_A_HEAD) for _ in range(4)]
            for _ in range(3):
                newest = await server.connect(WHOLE_HEAD)
                assert "healthy" in await newest.answer()
            for stranger in (first, *others[:2]):
                assert await stranger.rest() == ""
            await others[2].send(b"\r\n\r\n")
            assert "healthy" in await others[2].answer()

    @pytest.mark.parametrize("limits", LIMITS, ids=["total", "per_address"])
    async def test_answers_are_never_cut_for_a_new_one(self, limits: ConnectionsConfig) -> None:
        release = asyncio.Event()
        async with server_with(limits, waiting_swarm(release)) as server:
            busy = [await server.connect(server.post(b'{"body": "x"}')) for _ in range(4)]
            while True:  # until all four are under way
                refusal = await (await server.connect(WHOLE_HEAD)).rest()
                if " 503 " in refusal:
                    break
            assert "\r\nRetry-After: 5\r\n" in refusal
            assert refusal.endswith('{"detail":"the server has too many connections; try again later"}')
            release.set()
            for stranger in busy:
                assert "at last" in await stranger.answer()
            assert "healthy" in await (await server.connect(WHOLE_HEAD)).answer()

    async def test_the_last_places_are_for_callers_with_few(self) -> None:
        """A caller with many requests under way gets 429 there; others get their answers."""
        release = asyncio.Event()
        limits = PATIENT.model_copy(update={"total": 16})
        async with server_with(limits, waiting_swarm(release)) as server:
            busy = [await server.connect(server.post(b'{"body": "x"}')) for _ in range(14)]
            refused = await (await server.connect(server.post(b'{"body": "x"}'))).answer()
            assert refused.startswith("HTTP/1.1 429 ")
            assert "14 of your requests are under way" in refused or "15 of your" in refused
            bob = await server.connect(server.post(b'{"body": "x"}', key=server.other))
            assert "healthy" in await (await server.connect(WHOLE_HEAD)).answer()
            release.set()
            for stranger in (*busy, bob):
                assert "at last" in await stranger.answer()

    async def test_liveness_needs_no_place(self) -> None:
        release = asyncio.Event()
        async with server_with(PATIENT.model_copy(update={"total": 4}), waiting_swarm(release)) as server:
            busy = [await server.connect(server.post(b'{"body": "x"}')) for _ in range(4)]
            while " 503 " not in await (await server.connect(WHOLE_HEAD)).rest():
                pass
            assert (await (await server.connect(b"GET /live HTTP/1.1\r\n\r\n")).rest()).endswith(
                '{"status":"live"}'
            )
            assert " 503 " in await (await server.connect()).rest()
            release.set()
            for stranger in busy:
                assert "at last" in await stranger.answer()

    @pytest.mark.parametrize(
        ("total", "descriptors", "limit"),
        [
            (100, 1024, 100),
            (8192, 1024, 768),
            (0, 1024, 768),
            (8192, 64, 16),
            (0, 20, 1),
            (8192, 10**6, 8192),
        ],
    )
    def test_some_descriptors_are_left_for_other_things(
        self, total: int, descriptors: int, limit: int
    ) -> None:
        assert Connections(ConnectionsConfig(total=total), descriptors).limit == limit


class TestRequests:
    async def test_many_of_one_caller_delay_nobody_else(self, patient: Server) -> None:
        """All of them have arrived before the server reads the first one."""
        mine = f"GET /tasks HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {patient.key}\r\n\r\n".encode()
        order: list[str] = []

        async def read(name: str, sent: socket.socket) -> None:
            reader, writer = await asyncio.open_connection(sock=sent)
            await Stranger(reader, writer).answer()
            order.append(name)
            writer.close()

        with ExitStack() as stack:
            waiting = []
            for name, head in [*(("mine", mine) for _ in range(300)), ("health", WHOLE_HEAD)]:
                sent = stack.enter_context(socket.create_connection((patient.url.host, patient.url.port)))
                sent.sendall(head)
                sent.setblocking(False)
                waiting.append((name, sent))
            await asyncio.gather(*(read(name, sent) for name, sent in waiting))
        assert order.index("health") < 200

    async def test_one_begins_at_a_time_those_of_all_callers_in_turn(self) -> None:
        beginnings, order = Beginnings(), list[str]()

        def begin(caller: str) -> bool:
            order.append(caller)
            return caller != "gone"

        assert beginnings.may_begin()
        for caller in (*["ann"] * 3, "gone", *["bob"] * 2):
            assert not beginnings.may_begin()
            beginnings.wait(caller, partial(begin, caller))
        seen = []
        while len(order) < 6:
            await asyncio.sleep(0)
            seen.append(len(order))
        assert order == ["ann", "gone", "bob", "ann", "bob", "ann"]
        assert seen == [1, 3, 4, 5, 6]

    async def test_those_that_wait_keep_their_bodies_and_what_follows(self, patient: Server) -> None:
        """Each connection has a body in several pieces and a second request, and has sent all of it."""
        body = json.dumps({"body": "x" * 20_000}).encode()
        second = f"GET /whoami HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {patient.other}\r\n\r\n".encode()
        with ExitStack() as stack:
            waiting = []
            for _ in range(20):
                sent = stack.enter_context(socket.create_connection((patient.url.host, patient.url.port)))
                sent.sendall(patient.post(body) + second)
                sent.setblocking(False)
                waiting.append(sent)

            async def answers(sent: socket.socket) -> list[str]:
                stranger = Stranger(*await asyncio.open_connection(sock=sent))
                both = [await stranger.answer(), await stranger.answer()]
                stranger.writer.close()
                return both

            for first, last in await asyncio.gather(*map(answers, waiting)):
                assert '"hi"' in first
                assert '"bob"' in last

    async def test_one_that_waits_when_the_server_stops_is_the_last_of_its_connection(self) -> None:
        async def app(scope: Any, receive: Any, send: Any) -> None: ...

        config = uvicorn.Config(app, lifespan="off", log_config=None)
        config.load()
        connections = Connections(PATIENT)
        protocol = LimitedProtocol(connections, config, ServerState(), {})
        transport = create_autospec(asyncio.Transport, instance=True)
        transport.is_closing.return_value = False
        protocol.connection_made(transport)
        assert connections.beginnings.may_begin()
        protocol.data_received(WHOLE_HEAD)
        assert protocol.cycle is None
        protocol.shutdown()
        assert not protocol.cycle.keep_alive
        cycle = protocol.cycle
        await asyncio.sleep(0)
        assert protocol.cycle is cycle

    async def test_deadlines_that_passed_while_the_server_was_held_up_wait_for_what_clients_have_sent(
        self,
    ) -> None:
        connections, checked = Connections(PATIENT), list[float]()
        connection = create_autospec(LimitedProtocol, instance=True, address="127.0.0.1")
        connection.check.side_effect = checked.append
        assert connections.admit(connection)
        for now in (10.0, 10.5, 11.0, 18.0, 18.5):
            connections.close_overdue(now)
        assert checked == [10.5, 11.0, 18.5]
        for now in (21.0, 24.0, 27.0, 30.0, 30.5):  # the loop is slow all the time
            connections.close_overdue(now)
        assert checked[3:] == [24.0, 30.0, 30.5]

    @pytest.mark.parametrize("is_known", [True, False])
    async def test_chunks_of_a_byte(
        self, patient: Server, is_known: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        """They are refused once their overhead is some kilobytes, whatever the answer would be; no error is logged."""
        line = f"Authorization: Bearer {patient.key}\r\n".encode() if is_known else b""
        head = b"POST /message HTTP/1.1\r\nHost: x\r\n" + line + b"Transfer-Encoding: chunked\r\n\r\n"
        stranger = await patient.connect(head + b"1\r\n \r\n" * 5000)
        answer = await stranger.rest()
        assert answer.count("HTTP/1.1 ") == 1
        assert answer.startswith("HTTP/1.1 400 ")
        assert "larger" in answer
        assert not [record for record in caplog.records if record.levelno >= logging.ERROR]

    async def test_chunks_that_carry_something(self, patient: Server) -> None:
        body = json.dumps({"body": "x" * 300_000}).encode()
        head = patient.post(b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
        chunks = b"".join(b"40\r\n%b\r\n" % body[n : n + 64] for n in range(0, len(body) - 64, 64))
        rest = body[len(body) // 64 * 64 :] if len(body) % 64 else body[-64:]
        stranger = await patient.connect(head + chunks + b"%x\r\n%b\r\n0\r\n\r\n" % (len(rest), rest))
        assert (await stranger.answer()).startswith("HTTP/1.1 200 ")

    async def test_a_length_that_is_stated_twice(self, server: Server) -> None:
        """RFC 9112, section 6.1: the connection is closed, as another program may see another end of the request."""
        head = b"POST /health HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n"
        stranger = await server.connect(head + b"0\r\n\r\n" + WHOLE_HEAD)
        answer = await stranger.rest()
        assert answer.count("HTTP/1.1 ") == 1
        assert "connection: close" in answer.lower()

    @pytest.mark.parametrize(
        "pieces",
        [
            [b"GET /health HTTP/1.1\nHost: x\n\n"],
            [b"GET /health HTTP/1.1\r\nHost: x\nX: y\r\n\r\n"],
            [b"GET /health HTTP/1.1\r\nHost: x", b"\n", b"X: y\r\n\r\n"],
        ],
    )
    async def test_bare_line_feeds(self, patient: Server, pieces: list[bytes]) -> None:
        stranger = await patient.connect()
        for piece in pieces:
            await stranger.send(piece)
            await asyncio.sleep(0.01)
        assert (await stranger.rest()).startswith("HTTP/1.1 400 ")

    async def test_heads_in_any_pieces(self, patient: Server) -> None:
        body = b'{"body":\n"x"}\n\n'
        stranger = await patient.connect()
        for data in (patient.post(body), WHOLE_HEAD):
            for start in range(0, len(data), 3):
                await stranger.send(data[start : start + 3])
                await asyncio.sleep(0)
            assert (await stranger.answer()).startswith("HTTP/1.1 200 ")

    async def test_a_thousand_headers_and_ten_thousand(self, server: Server) -> None:
        for count, status in ((1000, 200), (10_000, 400)):
            lines = b"".join(b"X-%d: y\r\n" % n for n in range(count))
            stranger = await server.connect(b"GET /health HTTP/1.1\r\nHost: x\r\n" + lines + b"\r\n")
            assert (await asyncio.wait_for(stranger.reader.readline(), TIMEOUT)).split()[1] == b"%d" % status
