"""Limits on the connections of a server, so that no stranger can use it up: how many there are, and how long they wait.

A connection *waits* while no request of it is complete: before its first request, between two of them, and while it
sends the head of one. Waiting connections are closed after some seconds. Where all connections are in use, a new one
takes the place of the one that has waited longest; only if none waits, it is refused with 503. Answers may take any
time, streams too, as long as the client reads them.

The last places are a *reserve*: on a connection that takes one, a caller who has several others open is refused.

Requests *begin* in turn for callers, so that a thousand of one caller don't delay the next one of another. Those that
wait aren't even parsed, so that accepting connections, among which is that other caller's, takes as little as it can.
"""

import asyncio
import logging
import math
from collections import OrderedDict
from collections.abc import Callable
from enum import Enum, auto
from typing import Any, Protocol

from mail.auth.keys import Caller
from mail.config import ConnectionsConfig
from mail.core.engine.fairness import RoundRobin
from mail.http.account import CALLER

logger = logging.getLogger(__name__)

SWEEP_SECONDS = 0.5
"""Seconds between two checks of all deadlines."""

MAX_DESCRIPTORS = 65_536
"""The number of open files and connections that a server asks the system for."""

RESERVE = 8
"""One place in so many is kept for callers with few connections."""

REFUSED_AT_ONCE = 64
"""Connections without a place that are read for a moment before they are refused, as they may ask for `GET /live`."""

MIN_RESERVE, MAX_RESERVE = 48, 1024
"""Descriptors that connections must leave for the database and for requests to models, webhooks and other swarms."""


class Phase(Enum):
    """The state of a connection."""

    HEAD = auto()
    """No request is complete, and part of the next one may have arrived."""
    QUEUED = auto()
    """The head of a request is complete; it is parsed when it is its caller's turn, and nothing is read before."""
    BODY = auto()
    RESPONSE = auto()
    """The request is complete, its response is not."""
    IDLE = auto()
    """Between two requests."""
    LINGER = auto()
    """The response is complete, but not the request's body; what comes of it is discarded."""
    REFUSED = auto()
    """There is no place for the connection; it may ask for `GET /live`."""


WAITING = (Phase.HEAD, Phase.IDLE, Phase.LINGER)


class _Share:
    """Connections that count towards one limit; those that wait are in order, the longest first."""

    __slots__ = ("count", "limit", "waiting")

    def __init__(self, limit: int) -> None:
        self.limit = limit or math.inf
        self.count = 0
        self.waiting: OrderedDict[Connection, None] = OrderedDict()


class Connection(Protocol):
    """A connection whose limits are watched."""

    transport: asyncio.Transport
    phase: Phase
    scope: Any  # of its request (ASGI); None before the first

    @property
    def address(self) -> str:
        """The address of the client; empty if it is unknown."""

    def check(self, now: float) -> None:
        """End the connection if it has exceeded a limit at `now`."""


class Beginnings:
    """Lets one request begin in each iteration of the event loop, one of each caller before anybody's second one."""

    def __init__(self) -> None:
        self._waiting: RoundRobin[Callable[[], bool]] = RoundRobin()
        self._has_begun = False

    def may_begin(self) -> bool:
        """Return whether a request may begin now, and count it if so."""
        is_first = not self._has_begun
        if is_first:
            self._has_begun = True
            asyncio.get_running_loop().call_soon(self._next)
        return is_first

    def wait(self, caller: str, begin: Callable[[], bool]) -> None:
        """Have the next request of a caller begin when it may; `begin` returns False if it is gone."""
        self._waiting.put(caller, begin)

    def _next(self) -> None:
        self._has_begun = False
        while not self._has_begun and (begin := self._waiting.take()) is not None:
            self._has_begun = begin()
        if self._has_begun:
            asyncio.get_running_loop().call_soon(self._next)


class Connections:
    """The open connections of a server, and their limits.

    Args:
        descriptors: the number of files that the process may open; None if the system sets no limit.
    """

    def __init__(self, config: ConnectionsConfig, descriptors: int | None = None) -> None:
        self.config = config
        self.beginnings = Beginnings()
        self._total = _Share(config.total)
        if descriptors is not None:
            reserve = max(MIN_RESERVE, min(MAX_RESERVE, descriptors // 4))
            self._total.limit = min(self._total.limit, max(1, descriptors - reserve))
        self._open: dict[Connection, tuple[_Share, ...]] = {}
        self._addresses: dict[str, _Share] = {}
        self._reserved: set[Connection] = set()
        self._refused: set[Connection] = set()
        self._swept = -math.inf
        self._has_skipped = False

    @property
    def limit(self) -> float:
        """The number of connections that may be open."""
        return self._total.limit

    def admit(self, connection: Connection) -> bool:
        """Give a new connection a place; return False if there is none."""
        address = connection.address
        by_address = self._addresses.get(address) or _Share(self.config.per_address)
        shares = (by_address, self._total)
        if any(
            share.count >= share.limit - share.limit // RESERVE for share in shares if share.limit < math.inf
        ):
            self._reserved.add(connection)
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
                    self._reserved.discard(connection)
                    return False
                self.release(longest)
                longest.transport.abort()
        self._addresses[address] = by_address
        self._open[connection] = shares
        for share in shares:
            share.count += 1
        return True

    def release(self, connection: Connection) -> None:
        """Forget a connection, if it is known."""
        self._reserved.discard(connection)
        self._refused.discard(connection)
        shares = self._open.pop(connection, ())
        for share in shares:
            share.count -= 1
            share.waiting.pop(connection, None)
        if shares and not shares[0].count:
            del self._addresses[connection.address]

    def hear_out(self, connection: Connection) -> bool:
        """Return whether a connection without a place may say what it wants, and count it if so."""
        if len(self._refused) >= REFUSED_AT_ONCE:
            return False
        self._refused.add(connection)
        return True

    def is_reserved(self, connection: Connection) -> bool:
        """Return whether a connection has one of the places that are kept for callers with few."""
        return connection in self._reserved

    def answering(self, caller: Caller) -> int:
        """Return how many connections have a request of a caller under way."""
        return sum(
            each.phase in (Phase.BODY, Phase.RESPONSE) and each.scope.get(CALLER) == caller
            for each in self._open
        )

    def set_waiting(self, connection: Connection, is_waiting: bool) -> None:
        """Put a connection at the end of those that wait, or take it out."""
        for share in self._open.get(connection, ()):
            if is_waiting:
                share.waiting[connection] = None
                share.waiting.move_to_end(connection)
            else:
                share.waiting.pop(connection, None)

    def close_overdue(self, now: float) -> None:
        """Close the connections whose deadline has passed; `now` is a time of the event loop.

        If the loop was held up since the last time, what clients have sent meanwhile is read first. If it is held up
        each time, every other call closes them.
        """
        was_held_up = now - self._swept > 4 * SWEEP_SECONDS
        self._swept, self._has_skipped = now, was_held_up and not self._has_skipped
        if self._has_skipped:
            return
        for connection in [*self._open, *self._refused]:
            connection.check(now)

    def abort_unanswered(self) -> None:
        """Abort the connections on which no response is under way, or one that the client doesn't read."""
        for connection in list(self._open):
            if connection.phase is not Phase.RESPONSE or connection.transport.get_write_buffer_size():
                connection.transport.abort()


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
