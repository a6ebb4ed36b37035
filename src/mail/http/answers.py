"""Answers in pieces: JSON that is written while it is read from the store, and sent while it is written."""

from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Mapping

from fastapi import Request
from fastapi.responses import Response
from pydantic_core import to_json
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from mail.core.engine.pacing import PIECE_BYTES, Paced
from mail.errors import AnswerTooLarge
from mail.http.bodies import JSON, chunks
from mail.http.service import service_of


async def object_pieces(members: AsyncIterable[tuple[str, object]]) -> AsyncGenerator[bytes]:
    """Yield a JSON object in pieces.

    The value of a member is JSON as bytes, an async iterator of pieces of JSON, or anything that JSON can express.
    """
    text, separator = bytearray(), b"{"
    async for name, value in members:
        text += separator + to_json(name) + b":"
        separator = b","
        if isinstance(value, AsyncIterable):
            yield bytes(text)
            text = bytearray()
            async for piece in value:
                yield piece
        else:
            text += value if isinstance(value, bytes) else to_json(value)
        if len(text) > PIECE_BYTES:
            yield bytes(text)
            text = bytearray()
    yield bytes(text) + (b"}" if separator == b"," else b"{}")


async def array_pieces(items: AsyncIterable[bytes]) -> AsyncGenerator[bytes]:
    """Yield a JSON array in pieces, given its items as JSON; short items come together."""
    text, separator = bytearray(), b"["
    async for item in items:
        text += separator
        separator = b","
        if len(text) + len(item) > PIECE_BYTES:
            yield bytes(text)
            text = bytearray()
        text += item
    yield bytes(text) + (b"]" if separator == b"," else b"[]")


async def line_pieces(lines: AsyncIterable[Mapping[str, object]]) -> AsyncGenerator[bytes]:
    """Yield lines of JSON in pieces; short lines come together."""
    text = bytearray()
    async for line in lines:
        text += to_json(line) + b"\n"
        if len(text) > PIECE_BYTES:
            yield bytes(text)
            text = bytearray()
    yield bytes(text)


async def encoded(items: Iterable[object], pacer: Paced) -> AsyncGenerator[bytes]:
    """Yield items as JSON."""
    for item in items:
        text = to_json(item)
        await pacer.pause(len(text))
        yield text


async def each[Item](items: Iterable[Item]) -> AsyncGenerator[Item]:
    """Yield items that are there already."""
    for item in items:
        yield item


async def answer(
    request: Request,
    pieces: AsyncGenerator[bytes],
    headers: Mapping[str, str] | None = None,
    *,
    advice: str = "",
) -> Response:
    """Return a JSON answer that is made of pieces: as a whole if it is short, else as a stream.

    Raises AnswerTooLarge, with `advice`, if answers are buffered and this one can't be sent.
    """
    limit = service_of(request).max_answer_bytes
    read = bytearray()
    async for piece in pieces:
        read += piece
        if len(read) > (limit or PIECE_BYTES):
            break
    else:
        return JSON(bytes(read), headers=headers)
    if limit is not None:
        await pieces.aclose()
        raise AnswerTooLarge(f"the response is larger than {limit} bytes; {advice}")
    return _AnswerInPieces(bytes(read), pieces, headers)


class _AnswerInPieces(StreamingResponse):
    """An answer whose first part has been read."""

    media_type = JSON.media_type

    def __init__(self, read: bytes, pieces: AsyncGenerator[bytes], headers: Mapping[str, str] | None) -> None:
        super().__init__(_chunks(read, pieces), headers=headers)
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._pieces.aclose()


async def _chunks(read: bytes, pieces: AsyncIterable[bytes]) -> AsyncGenerator[bytes]:
    for chunk in chunks(read):
        yield chunk
    async for piece in pieces:
        for chunk in chunks(piece):
            yield chunk
