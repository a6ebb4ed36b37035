"""The account of a process: the bytes and the streams that its requests hold, and each caller's share of them.

A request *holds* bytes until it ends: the body that it has sent, what is read for its answer. It is refused before
anything is read, if they don't fit. Beyond that it works on *pieces*, one after the other: a slice of a timeline, a
long event, a frame that has not been sent. A piece that doesn't fit waits. One piece of the process always fits, and
one of each caller if the process has room, so that some work always continues.

Requests of a few kilobytes are not counted: the limits of connections and of rates bound them.
"""

import asyncio
from collections import Counter

from fastapi import Request

from mail.auth.keys import Caller
from mail.core.engine.pacing import PIECE_BYTES, Pacer
from mail.core.engine.permits import Gate, ModelPermits
from mail.errors import Overloaded, RateLimited

MEMORY_BYTES = 128 * 1024 * 1024
"""The bytes that all requests may hold."""

SHARE = 4
"""A caller may hold one in so many of them."""

STREAMS = 100
"""The streams that a caller may read at the same time."""

SHARED_STREAMS = 10
"""The same where all callers share a few functions, for streams that can't be resumed and for long waits."""

SMALL_BYTES = 16 * 1024
"""The size up to which a body or an answer is not counted."""

BODY_FACTOR = 3
"""A body takes so many times its size: as it came, as text, and in the message that is stored."""

WIDE_FACTOR = 9
"""The same for a body or a message with characters that make Python keep its text with four bytes for each."""

PIECE_FACTOR = 6
"""The same for stored events: as objects, as JSON, and as what is sent."""

READ_BYTES = 8 * 1024 * 1024
"""What reading a whole task takes, however large it is: a few slices of its timeline."""

LIST_BYTES = 2 * 1024 * 1024
"""What reading a page of tasks takes, before their sizes are known: a caller reads a few pages at the same time."""

CALLER = "mail.caller"
"""The caller of a request, in its scope."""

HELD = "mail.held"
"""The `Holding` of a request, in its scope."""


class Account:
    """The memory and streams that the requests of a process hold; 0 for no limit of `memory` or `streams`.

    Attributes:
        permits: counts the streams and long waits in all processes, where each knows a few only.
    """

    def __init__(
        self, memory: int = MEMORY_BYTES, streams: int = STREAMS, permits: ModelPermits | None = None
    ) -> None:
        self.memory, self.share, self.streams = memory, memory // SHARE, streams
        self.permits = permits
        self._bytes: Counter[Caller | None] = Counter()
        self._pieces: Counter[Caller | None] = Counter()
        self._streams: Counter[Caller | None] = Counter()
        self._freed = asyncio.Event()

    def holding(self, request: Request, pacer: Pacer) -> "Holding":
        """Return what a request holds; strangers count as one caller."""
        held: Holding | None = request.scope.get(HELD)
        if held is None:
            held = request.scope[HELD] = Holding(self, request.scope.get(CALLER), pacer)
        return held

    @property
    def is_empty(self) -> bool:
        """Whether no request holds anything."""
        return not (+self._bytes or +self._pieces or +self._streams)

    def check(self, caller: Caller | None, size: int, own: int = 0) -> None:
        """Raise RateLimited if a caller can't hold so many bytes more, and Overloaded if the process can't.

        The request itself holds `own` bytes already: one that is alone is never refused.
        """
        if self.memory and self._bytes[caller] > own and self._bytes[caller] + size > self.share:
            raise RateLimited(
                f"your requests hold {self._bytes[caller]} bytes of this server's memory, this one needs about {size}, "
                f"and {self.share} are the limit; wait for the answers to the others first",
                retry_after=1,
            )
        if self.memory and self._bytes.total() > own and self._bytes.total() + size > self.memory:
            raise Overloaded

    def fits(self, caller: Caller | None, size: int) -> bool:
        """Return whether a piece can begin."""
        if not self.memory or not self._pieces.total():
            return True
        of_caller, of_all = self._bytes[caller] + size, self._bytes.total() + size
        return of_all <= self.memory and (of_caller <= self.share or not self._pieces[caller])

    def count(self, caller: Caller | None, size: int, pieces: int, streams: int) -> None:
        """Add to what a caller holds."""
        for counter, more in ((self._bytes, size), (self._pieces, pieces), (self._streams, streams)):
            counter[caller] += more
            if not counter[caller]:
                del counter[caller]
        if size < 0:
            self._freed.set()
            self._freed = asyncio.Event()

    def check_streams(self, caller: Caller | None) -> None:
        """Raise RateLimited if a caller can't read another stream."""
        if self.streams and self._streams[caller] >= self.streams:
            raise RateLimited(
                f"you are reading {self.streams} streams, which is the limit; close one of them first"
            )

    async def wait(self) -> None:
        """Wait until somebody holds less."""
        await self._freed.wait()


class Holding:
    """The memory and streams of one request, which end with it (`MAILApp`)."""

    __slots__ = ("_account", "_caller", "_fixed", "_pacer", "_permit", "_piece", "_read", "_streams")

    def __init__(self, account: Account, caller: Caller | None, pacer: Pacer) -> None:
        self._account, self._caller, self._pacer = account, caller, pacer
        self._fixed = self._read = self._piece = self._streams = 0
        self._permit: Gate | None = None

    def hold(self, size: int) -> None:
        """Hold so many bytes more until the request ends. Raises RateLimited and Overloaded."""
        self._account.check(self._caller, size, self._fixed + self._piece)
        self.keep(size)

    def hold_to_read(self, size: int) -> None:
        """Hold what reading tasks takes, once in a request. Raises RateLimited and Overloaded."""
        if size > self._read:
            self.hold(size - self._read)
            self._read = size

    def keep(self, size: int) -> None:
        """Hold so many bytes more that are in memory already, whether they fit or not."""
        self._fixed += size
        self._account.count(self._caller, size, 0, 0)

    def open_stream(self) -> None:
        """Count the answer as a stream. Raises RateLimited."""
        self._account.check_streams(self._caller)
        self._streams += 1
        self._account.count(self._caller, 0, 0, 1)

    async def share_stream(self) -> None:
        """Count the stream in all processes that share permits, for ten minutes or until `close_stream`.

        Raises RateLimited.
        """
        if (permits := self._account.permits) is None:
            return
        assert self._caller is not None
        name, limit = f"{self._caller.role}:{self._caller.id}", self._account.streams
        gate = permits.streams(name, limit)
        if not (await gate.take(name, waits=False)).may_begin:
            raise RateLimited(
                f"you have {limit} streams of POST /message or waits for one, which is the limit; each ends with its "
                "answer, even if nobody reads it. Post with `Prefer: respond-async`, and read GET /task/stream"
            )
        self._permit = gate

    async def close_stream(self) -> None:
        """Stop counting the stream in all processes."""
        permit, self._permit = self._permit, None
        if permit is not None:
            await permit.end(0, 0.0)

    def take(self, size: int) -> bool:
        """Take the room for a piece of so many bytes, instead of the piece before; return False if there is none.

        What the request holds anyway is part of that room.
        """
        more = max(0, size * PIECE_FACTOR - self._fixed) - self._piece
        if more > 0 and not self._account.fits(self._caller, more):
            return False
        before, self._piece = self._piece, self._piece + more
        self._account.count(self._caller, more, bool(self._piece) - bool(before), 0)
        return True

    async def wait(self, size: int, seconds: float | None = None) -> bool:
        """Take that room as soon as there is some; meanwhile the request has no piece.

        Return False if there is none for `seconds`.
        """
        try:
            async with asyncio.timeout(seconds):
                while not self.take(size):
                    if self._piece:
                        self.take(0)
                    else:
                        await self._account.wait()
        except TimeoutError:
            return False
        return True

    async def pause(self, size: int) -> None:
        """Wait until a piece of work on so many bytes may begin (`Pacer.pause`); a large one waits for room, too."""
        if size > PIECE_BYTES:
            await self.wait(size)
        await self._pacer.pause(size)

    def end(self) -> None:
        """Give everything back."""
        self._account.count(self._caller, -self._fixed - self._piece, -bool(self._piece), -self._streams)
        self._fixed = self._piece = self._streams = 0
