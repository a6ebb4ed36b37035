"""The event stream of a task, which survives broken connections."""

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Self

import httpx2

from mail.client.connection import translated
from mail.client.errors import BadAnswer, ConnectionLost, MAILClientError, RequestTimedOut, ServerUnreachable
from mail.client.sse import EventDecoder
from mail.core.task.live import LiveKind

if TYPE_CHECKING:
    from sse_starlette import ServerSentEvent

PING = "ping"
TERMINAL = frozenset({"task_complete", "task_error"})
"""The kinds of event that contain an answer."""


def status_of(kind: str, data: Mapping[str, Any]) -> str | None:
    """Return the status that an event with an answer gives its task; None for another event."""
    if kind not in TERMINAL:
        return None
    return "failed" if kind == "task_error" else "paused" if "question" in data else "completed"


LIVE = frozenset(kind.value for kind in LiveKind)
"""The kinds of live event: they come on request, have no id, and may be lost."""

ITEM = "item"
"""The kind of what an event adds to the conversation or changes in it."""

UNNUMBERED = LIVE | {PING, ITEM}
"""The kinds without an id, which are not events of the record."""

DELAYS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0)
"""Seconds before each attempt to reconnect, minus a random share of up to a half; their sum outlasts a restart."""

CONNECTION_ERRORS = (ServerUnreachable, ConnectionLost, RequestTimedOut)
"""Errors that the next attempt may not meet."""

_TRANSIENT = frozenset({408, 425, 429})
"""Transient error statuses, besides all from 500 up."""


def is_transient(refusal: BadAnswer) -> bool:
    """Return whether a later attempt may succeed."""
    return refusal.status >= 500 or refusal.status in _TRANSIENT


async def pause_before(attempt: int) -> None:
    """Wait before an attempt, counted from 0."""
    await asyncio.sleep(DELAYS[attempt] * random.uniform(0.5, 1.0))  # noqa: S311


async def attempts() -> AsyncIterator[int]:
    """Count the attempts, one for each of `DELAYS`, and wait before each."""
    for attempt in range(len(DELAYS)):
        await pause_before(attempt)
        yield attempt


Reopen = Callable[[str | None], Awaitable[httpx2.Response | None]]
"""Requests the events after the one with this id; returns None if there are and will be none."""


class EventStream:
    """An async iterator over every event of a task, in order and without duplicates, and the pings between them.

    With live events, if these were asked for; see `LIVE`.

    When a connection breaks, is silent for too long, or is closed before the task has stopped, the stream reconnects
    and continues after the last event. After as many failed attempts as there are `DELAYS` it raises ConnectionLost
    with the reason; reading on retries.

    Close it with `aclose()`, or by `async with`, unless it is read to its end.

    Attributes:
        task_id: the task.
        last_event_id: the id of the last event that arrived; pass it as `after` to `MAILClient.watch_task`.
        warnings: what the server has ignored of the message that the stream answers; empty if nothing.
    """

    def __init__(
        self,
        task_id: str,
        reopen: Reopen,
        *,
        after: str | None = None,
        is_resumable: bool = True,
        is_new: bool = False,
    ) -> None:
        """Create a stream without a connection; the first read opens one, unless `attach` sets it.

        Args:
            is_resumable: whether `reopen(after)` is known to begin at the position of this stream.
            is_new: whether no other client writes to the task, so that its first answer is the last one. Otherwise,
                when a server closes the stream after an answer, one more request checks for further events.
        """
        self.task_id = task_id
        self.last_event_id = after
        self.warnings = ""
        self._reopen = reopen
        self._is_resumable = is_resumable
        self._is_new = is_new
        self._arrived: deque[ServerSentEvent] = deque()
        self._response: httpx2.Response | None = None
        self._failures = 0
        self._error: MAILClientError | None = None
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

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connection and end the iteration; the task keeps running."""
        self._is_over = True
        self._arrived.clear()
        await self._disconnect()

    def attach(self, response: httpx2.Response | None) -> None:
        """Read from this response; None means that there are no more events."""
        self._response = response
        self._is_over = response is None
        self._was_open = True
        if response is not None:
            self._has_answer = False
            self._chunks = response.aiter_bytes()
            self._decoder = EventDecoder()

    async def connect(self, error: MAILClientError | None = None) -> None:
        """Reconnect after `error`. Raises ConnectionLost after the last attempt, or BadAnswer."""
        self._error = error or self._error
        if not self._is_resumable:
            raise ConnectionLost(
                f"the stream of task {self.task_id!r} broke off at an unknown position: {self._why}; "
                "read the task with get_task or watch_task"
            ) from self._error
        while self._response is None and not self._is_over:
            if self._failures == len(DELAYS):
                self._failures = 0
                raise ConnectionLost(
                    f"the stream of task {self.task_id!r} broke off and could not be resumed: {self._why}"
                ) from self._error
            await pause_before(self._failures)
            self._failures += 1
            try:
                self.attach(await self._reopen(self.last_event_id))
            except CONNECTION_ERRORS as failure:
                self._error = failure
            except BadAnswer as refusal:
                # A task that was just created may not be stored yet.
                is_on_its_way = refusal.status == httpx2.codes.NOT_FOUND and not self._was_open
                if not (self._has_answer or is_on_its_way or is_transient(refusal)):
                    raise
                self._error = refusal
            if self._response is None and self._has_answer:
                self._is_over = True  # the request only checked for further events

    async def _receive(self, response: httpx2.Response) -> None:
        try:
            with translated(f"GET {response.request.url.path}"):
                chunk = await anext(self._chunks, None)
        except CONNECTION_ERRORS as error:
            self._error, chunk = error, None
        else:
            self._error = None
        if chunk is None:
            # A stream whose events have no ids can't be resumed.
            self._is_over = self._has_answer and (self._is_new or not self._is_resumable)
            await self._disconnect()
            return
        for event in self._decoder.feed(chunk):
            self._accept(event)

    def _accept(self, event: "ServerSentEvent") -> None:
        if event.event not in UNNUMBERED:
            if _precedes(event.id, self.last_event_id):
                return
            self.last_event_id = event.id
            self._is_resumable = event.id is not None
            self._has_answer = event.event in TERMINAL
        self._failures = 0
        self._arrived.append(event)

    async def _disconnect(self) -> None:
        response, self._response = self._response, None
        if response is not None:
            await self._chunks.aclose()
            await response.aclose()

    @property
    def _why(self) -> str:
        return str(self._error or "the server closed it")


def _precedes(event_id: str | None, last: str | None) -> bool:
    """Return whether an event has already arrived; ids that are numbers, as in this project, are compared as such."""
    if event_id is None or last is None or not (event_id.isdecimal() and last.isdecimal()):
        return event_id is not None and event_id == last
    return int(event_id) <= int(last)
