"""Large answers: sent piece by piece, as they are read."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager

from fastapi.responses import Response
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from mail.auth.keys import Caller
from mail.errors import AnswerTooLarge, RateLimited

WHOLE_BYTES = 1024 * 1024
"""The size up to which an answer is sent as a whole."""

CHUNK_BYTES = 256 * 1024
"""The size of the chunks that larger answers are sent in."""

LARGE_ANSWERS = 4
"""The number of large answers that one caller may be reading."""


class LargeAnswers:
    """The large answers that a process is sending.

    Args:
        max_bytes: the largest answer that can be sent, where answers are buffered; None for any size.
    """

    def __init__(self, max_bytes: int | None = None) -> None:
        self.max_bytes = max_bytes
        self._in_flight: Counter[Caller] = Counter()
        self._alone = asyncio.Lock()

    def claim(self, caller: Caller) -> Callable[[], None]:
        """Count one more answer; return what ends it. Raises RateLimited."""
        if self._in_flight[caller] >= LARGE_ANSWERS:
            raise RateLimited(
                f"you are reading {LARGE_ANSWERS} large responses, which is the limit; finish reading one of them first"
            )
        self._in_flight[caller] += 1

        def end() -> None:
            self._in_flight[caller] -= 1
            if not self._in_flight[caller]:
                del self._in_flight[caller]

        return end

    def alone(self) -> AbstractAsyncContextManager[None]:
        """Surround work that needs much memory, so that it is needed only once."""
        return self._alone


async def answer(
    answers: LargeAnswers,
    caller: Caller | None,
    pieces: AsyncGenerator[bytes],
    headers: Mapping[str, str] | None = None,
    *,
    advice: str = "",
) -> Response:
    """Return a JSON answer that is made of pieces: as a whole if it is short, else as a stream.

    A stream counts as one of the `caller`, unless that is None. Raises RateLimited for one large answer too many, and
    AnswerTooLarge, with `advice`, if it can't be sent.
    """
    read = bytearray()
    async for piece in pieces:
        read += piece
        if len(read) > (answers.max_bytes or WHOLE_BYTES):
            break
    else:
        return Response(bytes(read), headers=headers, media_type=_LargeAnswer.media_type)
    if answers.max_bytes is not None:
        await pieces.aclose()
        raise AnswerTooLarge(f"the response is larger than {answers.max_bytes} bytes; {advice}")
    try:
        end = _nothing if caller is None else answers.claim(caller)
    except RateLimited:
        await pieces.aclose()
        raise
    return _LargeAnswer(bytes(read), pieces, end, headers)


def _nothing() -> None:
    pass


class _LargeAnswer(StreamingResponse):
    """An answer whose first part has been read."""

    media_type = "application/json"

    def __init__(
        self,
        read: bytes,
        pieces: AsyncGenerator[bytes],
        end: Callable[[], None],
        headers: Mapping[str, str] | None,
    ) -> None:
        super().__init__(_chunks(read, pieces), headers=headers)
        self._pieces = pieces
        self._end = end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._end()
            await self._pieces.aclose()


async def _chunks(read: bytes, pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    for start in range(0, len(read), CHUNK_BYTES):
        yield read[start : start + CHUNK_BYTES]
    async for piece in pieces:
        for start in range(0, len(piece), CHUNK_BYTES):
            yield piece[start : start + CHUNK_BYTES]
