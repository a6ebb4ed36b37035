"""Parts of uvicorn that it doesn't document, or not as open to overriding: its protocol, server and reloader.

`tests/http/test_uvicorn_parts.py` checks each of them, with the lowest and the highest version allowed.
"""

import asyncio
import math
import re
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import CLOSE_HEADER
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState
from uvicorn.supervisors.statreload import StatReload

from mail.config import ConnectionsConfig
from mail.errors import MAILError
from mail.http.access import RESERVED
from mail.http.account import SMALL_BYTES
from mail.http.app import MAILApp
from mail.http.routes.health import LIVE
from mail.http.service import StopSignal
from mail.server.connections import SWEEP_SECONDS, WAITING, Connections, Phase, descriptor_limit

BODY_BYTES_PER_SECOND = 8 * 1024
"""The rate at which a body must arrive, besides the seconds that it may take."""

CHUNK_OVERHEAD = 4 * 1024
"""The bytes around the chunks of a body that may come before others have made up for them."""

CARRIED_PER_OVERHEAD = 8
"""The bytes of a body that make up for one around its chunks."""

LINGER_SECONDS = 1.0
"""For how long what comes of a body that nobody reads is discarded, so that the client gets the answer."""

HEAD_BYTES = 16 * 1024
"""The size of a request's head, at which uvicorn refuses it; about twice as much is accepted in one piece."""

RETRY_AFTER = 5

CONNECTION_GRACE_SECONDS = 5
"""Seconds for open requests to end when the server stops."""

BACKLOG = 4096
"""Connections that may wait to be accepted."""

ACCEPTED_AT_ONCE, ACCEPTED_OF_FEW = 32, 8
"""Connections that are accepted before others are served, or where descriptors are few: each needs one before it is
counted, and so often asyncio tries, and logs, without any. With 8, the queue of 4,096 that came at once overflowed, and
clients waited for seconds to connect.
"""

MANY_DESCRIPTORS = 4096

NO_LIMIT_SECONDS = 24 * 3600
"""Seconds for which uvicorn keeps idle connections where `[server.connections]` sets no limit."""

UNPARSED = (Phase.QUEUED, Phase.LINGER)
"""The phases in which nothing is parsed."""

KEY = re.compile(rb"^(?:x-mail-)?authorization:[^\r]*", re.IGNORECASE | re.MULTILINE)
"""The header that tells callers apart before a request is parsed."""

INVALID_REQUEST = "Invalid HTTP request received."


def _response(status: str, body: bytes, *headers: str) -> bytes:
    lines = ("Content-Type: application/json", f"Content-Length: {len(body)}", "Connection: close", *headers)
    return "\r\n".join((f"HTTP/1.1 {status}", *lines, "", "")).encode() + body


REFUSAL = _response(
    "503 Service Unavailable",
    b'{"detail":"the server has too many connections; try again later"}',
    f"Retry-After: {RETRY_AFTER}",
)
TIMED_OUT = _response("408 Request Timeout", b'{"detail":"the request did not arrive in time"}')
TINY_CHUNKS = _response(
    "400 Bad Request", b'{"detail":"the chunks of the body are too small; send larger ones"}'
)
ALIVE = _response("200 OK", LIVE)


class LimitedProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 protocol with deadlines, as one of `Connections`.

    It closes the connection after a request whose length is stated twice (RFC 9112, section 6.1), and refuses heads
    that have bare line feeds or are too long, and bodies in tiny chunks, which take long to parse.
    """

    def __init__(
        self,
        connections: Connections,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._all = connections
        self.phase = Phase.HEAD
        self._deadline = math.inf
        self._tail = self._unread = b""
        self._is_chunked, self._overhead, self._was_whole = False, 0, True
        self._unsent, self._stalled_since = 0, math.inf

    @property
    def address(self) -> str:
        """The address of the client; empty if it is unknown."""
        return self.client[0] if self.client else ""

    # ------------------------------------------------------------------------------------- events of asyncio

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Admit or refuse the connection."""
        self._close_now = transport.close
        super().connection_made(_Transport(transport, self._close))
        transport.set_write_buffer_limits(SMALL_BYTES)  # what requests have ended with, nobody counts
        if self._all.admit(self):
            self._enter(Phase.HEAD)
        elif self._all.hear_out(self):
            self._enter(Phase.REFUSED)
        else:
            self._refuse(REFUSAL)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._all.release(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read part of a request in pieces: a head so that its size is checked, a body so that its chunks are."""
        if self.phase is Phase.REFUSED:
            self._refuse(ALIVE if data.startswith(b"GET /live ") else REFUSAL)
            return
        start = 0
        while start < len(data) and self.phase not in UNPARSED and not self.transport.is_closing():
            if self._is_chunked and self.conn.their_state is h11.SEND_BODY:
                start += self._read_chunks(data[start : start + CHUNK_OVERHEAD - self._overhead])
                continue
            piece = data[start:]
            if self.conn.their_state is h11.IDLE:
                piece = piece[:HEAD_BYTES]
                if self._has_bare_line_feed(piece):
                    self.logger.warning(INVALID_REQUEST)
                    self.send_400_response(INVALID_REQUEST)
                    return
                end = piece.find(b"\r\n\r\n")
                piece = piece if end < 0 else piece[: end + CHUNK_OVERHEAD]
            super().data_received(piece)
            start += len(piece)
        if self.phase is Phase.QUEUED:
            self._unread = data[start:]
        self._look(len(data))

    def _read_chunks(self, data: bytes) -> int:
        """Read a piece of a chunked body, and return its length; end the connection if the chunks are tiny."""
        cycle, before = self.cycle, len(self.cycle.body)
        super().data_received(data)
        if cycle is self.cycle:  # else the next request has begun
            carried = len(cycle.body) - before
            overhead = len(data) - carried - carried // CARRIED_PER_OVERHEAD
            self._overhead = max(self._overhead + overhead, -CHUNK_OVERHEAD)
        if self._overhead >= CHUNK_OVERHEAD:
            self._refuse(b"" if cycle.response_started else TINY_CHUNKS)
        return len(data)

    def _refuse(self, answer: bytes) -> None:
        """Answer without the application, and close the connection."""
        self.transport.write(answer)
        self.transport.close()

    # ---------------------------------------------------------------------------------------- events of uvicorn

    def handle_events(self) -> None:
        """Handle what has arrived; a request begins when it is its caller's turn."""
        if self.conn.their_state is h11.IDLE:
            head, is_whole, _ = self.conn.trailing_data[0].partition(b"\r\n\r\n")
            if is_whole and not self._all.beginnings.may_begin():
                self._enter(Phase.QUEUED)
                self.flow.pause_reading()
                key = KEY.search(head)
                self._all.beginnings.wait(key[0].decode("latin-1") if key else "", self._begin)
                return
        self._parse()

    def _begin(self) -> bool:
        """Begin the request that has waited; return False if there is none."""
        if self.phase is not Phase.QUEUED or self.transport.is_closing():
            return False
        self._enter(Phase.HEAD)
        self.flow.resume_reading()
        self._parse()
        unread, self._unread = self._unread, b""
        self.data_received(unread)
        return True

    def _parse(self) -> None:
        """Parse what has arrived; make the response to an ambiguous request the last one.

        So is one that begins before the body is there: `uvicorn` repeats the header that says so.
        """
        last = self.cycle
        super().handle_events()
        is_whole = self.conn.their_state is not h11.SEND_BODY
        if self.cycle is not last:
            self._overhead = 0
            if self._all.is_reserved(self):
                scope: Any = self.scope
                scope[RESERVED] = self._all.answering
            names = {name for name, _ in self.headers}
            self._is_chunked = b"transfer-encoding" in names
            if self._is_chunked and b"content-length" in names:
                self.headers.append(CLOSE_HEADER)
            if not is_whole:
                self.headers.append(CLOSE_HEADER)
        elif is_whole and not self._was_whole:
            headers: Any = self.cycle.scope["headers"]  # Starlette has replaced the list
            headers.remove(CLOSE_HEADER)
        self._was_whole = is_whole

    def shutdown(self) -> None:
        """Close the connection after the response under way, to a request that waits, too."""
        self._begin()
        super().shutdown()

    def on_response_complete(self) -> None:
        """Wait for the next request; without the whole body of this one, the connection ends with the response."""
        super().on_response_complete()
        self._look()
        if self.phase is Phase.BODY:
            self.transport.close()

    def _close(self) -> None:
        """Close the connection; while a body arrives, let the client read the response first."""
        if self.conn.their_state is h11.SEND_BODY and self.phase is not Phase.LINGER:
            self._enter(Phase.LINGER)
            if not self.cycle.response_complete:  # the application must not write any more
                self.cycle.disconnected, self.cycle.waiting_for_100_continue = True, False
                self.cycle.message_event.set()
            if self.transport.can_write_eof():
                self.transport.write_eof()
        else:
            self._close_now()

    # --------------------------------------------------------------------------------------------- deadlines

    def check(self, now: float) -> None:
        """Close the connection if its deadline has passed, or if the client has stopped reading."""
        unsent = self.transport.get_write_buffer_size()
        if not unsent:
            self._stalled_since = math.inf
        elif self._stalled_since == math.inf or unsent < self._unsent:
            self._unsent, self._stalled_since = unsent, now
        elif now - self._stalled_since > (self._all.config.stall_seconds or math.inf):
            self.transport.abort()
        if self.flow.read_paused and self.phase is Phase.BODY:
            self._enter(Phase.BODY)  # it is the app that doesn't read
        elif now > self._deadline and self.phase is Phase.REFUSED:
            self._refuse(REFUSAL)
        elif now > self._deadline:
            is_half_sent = (
                not self.cycle.response_started
                if self.phase is Phase.BODY
                else bool(self.conn.trailing_data[0])
            )
            if is_half_sent and self.phase is not Phase.LINGER and not unsent:
                self.transport.write(TIMED_OUT)
            self._deadline = math.inf
            self.transport.close()

    def _look(self, received: int = 0) -> None:
        """Enter the phase that the connection is in, `received` bytes after the last look."""
        state = self.conn.their_state
        if self.phase in UNPARSED:
            return
        if state is h11.IDLE:
            is_idle = not received and not self.conn.trailing_data[0]
            phase = Phase.IDLE if is_idle else Phase.HEAD
        elif state is h11.SEND_BODY:
            phase = Phase.BODY
        else:
            phase = Phase.RESPONSE
        if phase is not self.phase:
            self._enter(phase)
        if phase is Phase.BODY:
            latest = self.loop.time() + (self._seconds(phase) or math.inf)
            self._deadline = min(self._deadline + received / BODY_BYTES_PER_SECOND, latest)

    def _enter(self, phase: Phase) -> None:
        self.phase = phase
        self._all.set_waiting(self, phase in WAITING)
        seconds = 0.0 if phase in (Phase.QUEUED, Phase.RESPONSE) else self._seconds(phase)
        self._deadline = self.loop.time() + seconds if seconds else math.inf

    def _seconds(self, phase: Phase) -> float:
        """Return how long the connection may be in a phase; 0 for no limit."""
        config = self._all.config
        if phase in (Phase.LINGER, Phase.REFUSED):
            return LINGER_SECONDS
        if phase is Phase.HEAD:
            return config.head_seconds
        return config.body_seconds if phase is Phase.BODY else config.idle_seconds

    def _has_bare_line_feed(self, data: bytes) -> bool:
        """Return whether a line of the head ends without a carriage return, which other programs read differently."""
        text = self._tail + data
        head, end, _ = text.partition(b"\r\n\r\n")
        self._tail = b"" if end else text[-3:].lstrip(b"\n")
        return head.count(b"\n") != head.count(b"\r\n")


class _Transport(asyncio.Transport):
    """A transport that its protocol closes."""

    def __init__(self, transport: asyncio.Transport, close: Callable[[], None]) -> None:
        super().__init__()
        names = (
            *("abort", "can_write_eof", "get_extra_info", "get_write_buffer_size", "is_closing"),
            *("pause_reading", "resume_reading", "write", "write_eof"),
        )
        vars(self).update({name: getattr(transport, name) for name in names}, close=close)


@asynccontextmanager
async def running(server: uvicorn.Server, listener: socket.socket) -> AsyncIterator[None]:
    """Serve on this event loop, from when requests are answered. Raises MAILError if the server doesn't start."""
    task = asyncio.create_task(server.serve([listener]))
    try:
        while not server.started:
            if task.done():
                await task
                raise MAILError("the server did not start; see the log")
            await asyncio.sleep(0.01)
        yield
    finally:
        server.should_exit = True
        await task


class _QuietServer(uvicorn.Server):
    """uvicorn that leaves signals to others."""

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()


def serving(application: ASGIApp, listener: socket.socket) -> AbstractAsyncContextManager[None]:
    """Serve an ASGI application on this event loop, without limits, logs and signals."""
    config = uvicorn.Config(
        application,
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_keep_alive=3600,
        timeout_graceful_shutdown=1,
    )
    return running(_QuietServer(config), listener)


class GracefulServer(uvicorn.Server):
    """uvicorn on an open socket; on shutdown it doesn't wait for clients that wait for an agent.

    Args:
        limits: the limits of its connections.
        catches_signals: whether SIGTERM and SIGINT stop it; otherwise only `should_exit` does.
        on_listening: called when it begins to answer requests.
        on_ready: called when everything is loaded.
    """

    def __init__(
        self,
        app: MAILApp,
        *,
        limits: ConnectionsConfig,
        catches_signals: bool = True,
        on_listening: Callable[[], object] = lambda: None,
        on_ready: Callable[[], object] = lambda: None,
    ) -> None:
        descriptors = descriptor_limit()
        has_few = descriptors is not None and descriptors < MANY_DESCRIPTORS
        self._connections = Connections(limits, descriptors)
        protocol: Any = partial(LimitedProtocol, self._connections)
        super().__init__(
            uvicorn.Config(
                app,
                http=protocol,
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,  # the log of activity has a line per request
                backlog=ACCEPTED_OF_FEW if has_few else ACCEPTED_AT_ONCE,
                h11_max_incomplete_event_size=HEAD_BYTES,
                timeout_keep_alive=math.ceil(limits.idle_seconds) or NO_LIMIT_SECONDS,
                timeout_graceful_shutdown=CONNECTION_GRACE_SECONDS,
            )
        )
        self._stopping: StopSignal = app.service.stopping
        self._catches_signals = catches_signals
        self._on_listening = on_listening
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application and answer requests."""
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(BACKLOG)  # uvicorn has one setting for this and that
        if self.started:
            self._on_listening()
            self._on_ready()

    async def on_tick(self, counter: int) -> bool:
        """Close overdue connections; uvicorn calls this ten times a second."""
        if counter % round(SWEEP_SECONDS * 10) == 0:
            self._connections.close_overdue(asyncio.get_running_loop().time())
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Cut waiting requests short, then close the connections and the application.

        Clients that neither send their request nor read their response are cut off before uvicorn counts that as an
        error.
        """
        self._stopping.set()
        loop = asyncio.get_running_loop()
        cut_off = loop.call_later(CONNECTION_GRACE_SECONDS - 1, self._connections.abort_unanswered)
        try:
            await super().shutdown(sockets)
        finally:
            cut_off.cancel()

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        """Install uvicorn's signal handlers if `catches_signals` is set."""
        return super().capture_signals() if self._catches_signals else nullcontext()


class Reloader(StatReload):
    """Restarts the server when source code or a skill in this folder changes, or one of some further files."""

    def __init__(
        self,
        config: uvicorn.Config,
        target: Callable[[list[socket.socket] | None], None],
        sockets: list[socket.socket],
        files: Iterable[Path],
    ) -> None:
        super().__init__(config, target, sockets)
        self._files = tuple(files)

    def iter_py_files(self) -> Iterator[Path]:
        """Yield the files to watch."""
        yield from super().iter_py_files()
        yield from Path().rglob("SKILL.md")
        yield from self._files
