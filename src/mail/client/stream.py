"""The events of a task as a client reads them: one stream, however often its connection breaks."""

import asyncio
import random
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self, cast

import httpx

from mail.client.connection import translated
from mail.client.errors import (
    BadAnswer,
    ConnectionLost,
    MAILClientError,
    RequestTimedOut,
    ServerUnreachable,
)
from mail.client.sse import EventDecoder

if TYPE_CHECKING:
    from sse_starlette import ServerSentEvent

PING = "ping"
TERMINAL = frozenset({"task_complete", "task_error"})
"""The kinds of event that hold an answer."""

DELAYS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0)
"""Seconds before each attempt to reconnect, less up to a half by chance; a server restarts in their sum."""

BROKEN = (ServerUnreachable, ConnectionLost, RequestTimedOut)
"""What may be otherwise at the next attempt."""

_PASSING = frozenset({408, 425, 429})
"""Statuses, besides those from 500 on, of refusals that a later attempt may not meet."""


def may_pass(refusal: BadAnswer) -> bool:
    """Whether the server may answer otherwise later."""
    return refusal.status >= 500 or refusal.status in _PASSING


async def pause_before(attempt: int) -> None:
    """Wait before an attempt, counted from 0."""
    await asyncio.sleep(DELAYS[attempt] * random.uniform(0.5, 1.0))  # noqa: S311


async def attempts() -> AsyncIterator[int]:
    """As many attempts as there are `DELAYS`, each when it is due."""
    for attempt in range(len(DELAYS)):
        await pause_before(attempt)
        yield attempt


Reopen = Callable[[str | None], Awaitable[httpx.Response | None]]
"""Asks for the events past the one with this id; None when there are none and won't be any."""


class EventStream:
    """Every event of a task once, in order, and the pings between them: an async iterator.

    A connection that breaks, is silent for too long, or is ended by the server before the task is, is replaced by
    another that goes on past the last event; after as many attempts in vain as there are `DELAYS` the reason is
    raised as ConnectionLost. What was raised once can be tried again by going on.

    Close it with `aclose()`, or by `async with`, where it isn't read to its end.

    Attributes:
        task_id: the task.
        last_event_id: of the last event that arrived; what `MAILClient.watch_task` takes as `after`.
    """

    def __init__(
        self,
        task_id: str,
        reopen: Reopen,
        *,
        after: str | None = None,
        is_placed: bool = True,
        is_new: bool = False,
    ) -> None:
        """A stream without a connection; the first read makes one, unless `attach` has been given it.

        Args:
            is_placed: whether `reopen(after)` is known to begin where this stream does.
            is_new: whether nobody else writes to the task: its first answer is the last one then. Else a
                server that ends the stream after an answer is asked once whether there is more.
        """
        self.task_id = task_id
        self.last_event_id = after
        self._reopen = reopen
        self._is_placed = is_placed
        self._is_new = is_new
        self._arrived: deque[ServerSentEvent] = deque()
        self._response: httpx.Response | None = None
        self._failures = 0
        self._trouble: MAILClientError | None = None
        self._was_open = False
        self._has_answer = False
        self._is_over = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> "ServerSentEvent":
        while not self._arrived:
            if self._is_over:
                raise StopAsyncIteration
            if self._response is None:
                await self.connect()
            else:
                await self._receive(self._response)
        return self._arrived.popleft()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connection; the task goes on. The iteration is over."""
        self._is_over = True
        self._arrived.clear()
        await self._hang_up()

    def attach(self, response: httpx.Response | None) -> None:
        """Read from this answer; None when there is nothing more to come."""
        self._response = response
        self._is_over = response is None
        self._was_open = True
        if response is not None:
            self._has_answer = False
            # httpx types its generator as a mere iterator
            self._chunks = cast(AsyncGenerator[bytes], response.aiter_bytes())
            self._decoder = EventDecoder()

    async def connect(self, trouble: MAILClientError | None = None) -> None:
        """Connect again after `trouble`, as often as may help. Raises ConnectionLost, or BadAnswer."""
        self._trouble = trouble or self._trouble
        if not self._is_placed:
            raise ConnectionLost(
                f"the stream of task {self.task_id!r} broke off, and from where to go on is not known: "
                f"{self._why}; see get_task or watch_task"
            ) from self._trouble
        while self._response is None and not self._is_over:
            if self._failures == len(DELAYS):
                self._failures = 0
                raise ConnectionLost(
                    f"the stream of task {self.task_id!r} broke off and could not be taken up again: {self._why}"
                ) from self._trouble
            await pause_before(self._failures)
            self._failures += 1
            try:
                self.attach(await self._reopen(self.last_event_id))
            except BROKEN as failure:
                self._trouble = failure
            except BadAnswer as refusal:
                # A task that was just sent may not be stored yet.
                is_on_its_way = refusal.status == httpx.codes.NOT_FOUND and not self._was_open
                if not (self._has_answer or is_on_its_way or may_pass(refusal)):
                    raise
                self._trouble = refusal
            if self._response is None and self._has_answer:
                self._is_over = True  # it was only to see whether there is more

    async def _receive(self, response: httpx.Response) -> None:
        try:
            with translated(f"GET {response.request.url.path}"):
                chunk = await anext(self._chunks, None)
        except BROKEN as trouble:
            self._trouble, chunk = trouble, None
        else:
            self._trouble = None
        if chunk is None:
            # Where events have no ids, nobody can be asked for more of them.
            self._is_over = self._has_answer and (self._is_new or not self._is_placed)
            await self._hang_up()
            return
        for event in self._decoder.feed(chunk):
            self._accept(event)

    def _accept(self, event: "ServerSentEvent") -> None:
        if event.event != PING:
            if _precedes(event.id, self.last_event_id):
                return
            self.last_event_id = event.id
            self._is_placed = event.id is not None
            self._has_answer = event.event in TERMINAL
        self._failures = 0
        self._arrived.append(event)

    async def _hang_up(self) -> None:
        response, self._response = self._response, None
        if response is not None:
            await self._chunks.aclose()
            await response.aclose()

    @property
    def _why(self) -> str:
        return str(self._trouble or "the server ended it")


def _precedes(event_id: str | None, last: str | None) -> bool:
    """Whether an event was there already, where the ids are numbers, as those of this project's servers are."""
    if event_id is None or last is None or not (event_id.isdecimal() and last.isdecimal()):
        return event_id is not None and event_id == last
    return int(event_id) <= int(last)
