"""Limits on the connections of a server, so that no stranger can use it up: how many there are, and how long they wait.

A connection *waits* while no request of it is complete: before its first request, between two of them, and while it sends
the head of one. Waiting connections are closed after some seconds. Where all connections are in use, a new one takes the
place of the one that has waited longest; only if none waits, it is refused with 503. Answers may take any time, streams
too, as long as the client reads them.
"""

import asyncio
import logging
import math
from collections import OrderedDict
from enum import Enum, auto
from typing import Any

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import CLOSE_HEADER
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from mail.config import ConnectionsConfig
from mail.server.transport import JoiningTransport

logger = logging.getLogger(__name__)

SWEEP_SECONDS = 0.5
"""Seconds between two checks of all deadlines."""

BODY_BYTES_PER_SECOND = 8 * 1024
"""A body may take a second more for so many bytes that have arrived."""

HEAD_BYTES = 16 * 1024
"""The size of a request's head, at which uvicorn refuses it; about twice as much is accepted in one piece."""

RETRY_AFTER = 5

MAX_DESCRIPTORS = 65_536
"""The number of open files and connections that a server asks the system for."""

MIN_RESERVE, MAX_RESERVE = 48, 1024
"""Descriptors that connections must leave for the database and for requests to models, webhooks and other swarms."""

INVALID_REQUEST = "Invalid HTTP request received."


def _response(status: str, detail: str, *headers: str) -> bytes:
    body = f'{{"detail":"{detail}"}}'
    lines = ("Content-Type: application/json", f"Content-Length: {len(body)}", "Connection: close", *headers)
    return "\r\n".join((f"HTTP/1.1 {status}", *lines, "", body)).encode()


REFUSAL = _response(
    "503 Service Unavailable",
    "the server has too many connections; try again later",
    f"Retry-After: {RETRY_AFTER}",
)
TIMED_OUT = _response("408 Request Timeout", "the request did not arrive in time")


class Phase(Enum):
    """What a connection is doing."""

    HEAD = auto()
    """No request is complete, and part of the next one may have arrived."""
    BODY = auto()
    RESPONSE = auto()
    """The request is complete, its response is not."""
    IDLE = auto()
    """Between two requests."""
    LINGER = auto()
    """The response is complete, but not the request's body, which nobody reads."""


WAITING = (Phase.HEAD, Phase.IDLE, Phase.LINGER)


class _Share:
    """Connections that count towards one limit; those that wait are in order, the longest first."""

    __slots__ = ("count", "limit", "waiting")

    def __init__(self, limit: int) -> None:
        self.limit = limit or math.inf
        self.count = 0
        self.waiting: OrderedDict[LimitedProtocol, None] = OrderedDict()


class Connections:
    """The open connections of a server, and their limits.

    Args:
        descriptors: the number of files that the process may open; None if the system sets no limit.
    """

    def __init__(self, config: ConnectionsConfig, descriptors: int | None = None) -> None:
        self.config = config
        self._total = _Share(config.total)
        if descriptors is not None:
            reserve = max(MIN_RESERVE, min(MAX_RESERVE, descriptors // 4))
            self._total.limit = min(self._total.limit, max(1, descriptors - reserve))
        self._open: dict[LimitedProtocol, tuple[_Share, ...]] = {}
        self._addresses: dict[str, _Share] = {}

    @property
    def limit(self) -> float:
        """The number of connections that may be open."""
        return self._total.limit

    def admit(self, connection: "LimitedProtocol") -> bool:
        """Count a new connection; return False if it must be refused."""
        address = connection.address
        by_address = self._addresses.get(address) or _Share(self.config.per_address)
        shares = (by_address, self._total)
        for share in shares:
            if share.count >= share.limit:
                longest = next(iter(share.waiting), None)
                logger.warning(
                    "%s connections are open, the limit%s; %s",
                    share.count,
                    "" if share is self._total else f" of address {address}",
                    "no other is accepted" if longest is None else "those that wait longest are closed",
                )
                if longest is None:
                    return False
                self.release(longest)
                longest.transport.abort()
        self._addresses[address] = by_address
        self._open[connection] = shares
        for share in shares:
            share.count += 1
        return True

    def release(self, connection: "LimitedProtocol") -> None:
        """Forget a connection, if it is known."""
        shares = self._open.pop(connection, ())
        for share in shares:
            share.count -= 1
            share.waiting.pop(connection, None)
        if shares and not shares[0].count:
            del self._addresses[connection.address]

    def set_waiting(self, connection: "LimitedProtocol", is_waiting: bool) -> None:
        """Put a connection at the end of those that wait, or take it out."""
        for share in self._open.get(connection, ()):
            if is_waiting:
                share.waiting[connection] = None
                share.waiting.move_to_end(connection)
            else:
                share.waiting.pop(connection, None)

    def close_overdue(self, now: float) -> None:
        """Close the connections whose deadline has passed; `now` is a time of the event loop."""
        for connection in list(self._open):
            connection.check(now)

    def abort_unanswered(self) -> None:
        """Abort the connections on which no response is under way, or one that the client doesn't read."""
        for connection in list(self._open):
            if connection.phase is not Phase.RESPONSE or connection.transport.get_write_buffer_size():
                connection.transport.abort()


class LimitedProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 protocol with deadlines, as one of `Connections`.

    It closes the connection after a request whose length is stated twice (RFC 9112, section 6.1), and refuses heads that
    have bare line feeds or are too long.
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
        self._tail = b""
        self._unsent, self._stalled_since = 0, math.inf

    @property
    def address(self) -> str:
        """The address of the client; empty if it is unknown."""
        return self.client[0] if self.client else ""

    # ------------------------------------------------------------------------------------- events of asyncio

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Admit or refuse the connection."""
        super().connection_made(JoiningTransport(transport, self.loop))
        if self._all.admit(self):
            self._enter(Phase.HEAD)
        else:
            transport.write(REFUSAL)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._all.release(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read part of a request; a head in pieces, so that its size is checked."""
        start = 0
        while start < len(data) and not self.transport.is_closing():
            piece = data[start:]
            if self.conn.their_state is h11.IDLE:
                piece = piece[:HEAD_BYTES]
                if self._has_bare_line_feed(piece):
                    self.logger.warning(INVALID_REQUEST)
                    self.send_400_response(INVALID_REQUEST)
                    return
            super().data_received(piece)
            start += len(piece)
        self._look(len(data))

    # ---------------------------------------------------------------------------------------- events of uvicorn

    def handle_events(self) -> None:
        """Handle what has arrived; make the response to an ambiguous request the last one."""
        last = self.cycle
        super().handle_events()
        if self.cycle is not last:
            names = {name for name, _ in self.headers}
            if b"content-length" in names and b"transfer-encoding" in names:
                self.headers.append(CLOSE_HEADER)

    def on_response_complete(self) -> None:
        """Wait for the next request, or for the rest of this one.

        uvicorn would start a timer after each response; idle connections have a deadline here as all others.
        """
        self.server_state.total_requests += 1
        if not self.transport.is_closing():
            self.flow.resume_reading()
            if self.conn.our_state is h11.DONE and self.conn.their_state is h11.DONE:
                self.conn.start_next_cycle()
                self.handle_events()
        self._look()

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
        if state is h11.IDLE:
            is_idle = not received and not self.conn.trailing_data[0]
            phase = Phase.IDLE if is_idle else Phase.HEAD
        elif state is h11.SEND_BODY:
            phase = Phase.LINGER if self.cycle.response_complete else Phase.BODY
        else:
            phase = Phase.RESPONSE
        if phase is not self.phase:
            self._enter(phase)
        if phase is Phase.BODY:
            self._deadline += received / BODY_BYTES_PER_SECOND

    def _enter(self, phase: Phase) -> None:
        self.phase = phase
        self._all.set_waiting(self, phase in WAITING)
        seconds = 0.0 if phase is Phase.RESPONSE else self._seconds(phase)
        self._deadline = self.loop.time() + seconds if seconds else math.inf

    def _seconds(self, phase: Phase) -> float:
        """Return how long the connection may be in a phase; 0 for no limit."""
        config = self._all.config
        if phase is Phase.HEAD:
            return config.head_seconds
        return config.body_seconds if phase is Phase.BODY else config.idle_seconds

    def _has_bare_line_feed(self, data: bytes) -> bool:
        """Return whether a line of the head ends without a carriage return, which other programs read differently."""
        text = self._tail + data
        head, end, _ = text.partition(b"\r\n\r\n")
        self._tail = b"" if end else text[-3:].lstrip(b"\n")
        return head.count(b"\n") != head.count(b"\r\n")


# ------------------------------------------------------------------------------------------- file descriptors


def descriptor_limit() -> int | None:
    """Return how many files and connections this process may open; None if that is unknown or unlimited."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def raise_descriptor_limit() -> None:
    """Let this process open as many files and connections as the system lets it ask for, within reason."""
    try:
        import resource
    except ImportError:  # Windows
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError) as error:  # macOS has a limit besides
            logger.info("the limit of open files stays at %d: %s", soft, error)
