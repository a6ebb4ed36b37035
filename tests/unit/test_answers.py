"""The writer of answers in pieces: what it writes is JSON, in pieces of bounded size, each made when it is sent."""

import json
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fastapi import Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response, StreamingResponse

from mail.core.engine.pacing import PIECE_BYTES
from mail.errors import AnswerTooLarge
from mail.http.answers import answer, array_pieces, each, object_pieces

ITEM = json.dumps("ü" * 500).encode()


async def pieces_of(pieces: AsyncGenerator[bytes]) -> list[bytes]:
    return [piece async for piece in pieces]


async def written(pieces: AsyncGenerator[bytes]) -> Any:
    return json.loads(b"".join(await pieces_of(pieces)))


def request(limit: int | None = None) -> Request:
    service = SimpleNamespace(max_answer_bytes=limit)
    return Request({"type": "http", "app": SimpleNamespace(service=service)})


@pytest.mark.parametrize("items", [[], [b"1"], [b"null", b'"a"', b"{}"], [ITEM] * 300])
async def test_an_array(items: list[bytes]) -> None:
    pieces = await pieces_of(array_pieces(each(items)))
    assert json.loads(b"".join(pieces)) == [json.loads(item) for item in items]
    assert max(map(len, pieces)) <= PIECE_BYTES + 1
    assert min(map(len, pieces[:-1]), default=PIECE_BYTES) > PIECE_BYTES - 2 * len(ITEM)


async def test_an_object_with_values_of_every_kind() -> None:
    def members(depth: int) -> AsyncGenerator[tuple[str, object]]:
        inner = object_pieces(members(depth - 1)) if depth else b'{"made": [1]}'
        return each(
            {'"quoted"\n': "text", "list": array_pieces(each([b"1", b"2"])), "inner": inner, "n": 1.5}.items()
        )

    expected: Any = {"made": [1]}
    for _ in range(3):
        expected = {'"quoted"\n': "text", "list": [1, 2], "inner": expected, "n": 1.5}
    assert await written(object_pieces(members(2))) == expected
    assert await written(object_pieces(each([]))) == {}
    assert await written(object_pieces(each([("only", array_pieces(each([])))]))) == {"only": []}


async def test_many_members_come_in_pieces() -> None:
    pieces = await pieces_of(object_pieces(each((str(n), ITEM) for n in range(300))))
    assert json.loads(b"".join(pieces)) == {str(n): json.loads(ITEM) for n in range(300)}
    assert max(map(len, pieces)) <= PIECE_BYTES + len(ITEM) + 10


class Source:
    """An array, and what became of it."""

    def __init__(self, size: int) -> None:
        self.made, self.closed = 0, False
        self._size = size

    async def items(self) -> AsyncGenerator[bytes]:
        try:
            for _ in range(self._size):
                self.made += 1
                yield ITEM
        finally:
            self.closed = True

    async def pieces(self) -> AsyncGenerator[bytes]:
        items = self.items()
        try:
            async for piece in array_pieces(items):
                yield piece
        finally:
            await items.aclose()


async def send_to_one_who_leaves(response: Response) -> None:
    """Send an answer to a client that leaves after the third message."""
    messages: list[Any] = []

    async def send(message: Any) -> None:
        messages.append(message)
        if len(messages) == 3:
            raise OSError

    with pytest.raises(ClientDisconnect):
        await response({"type": "http", "asgi": {"spec_version": "2.4"}}, cast(Any, None), send)


async def test_a_short_answer_is_whole_and_a_long_one_is_made_while_it_is_sent() -> None:
    short = await answer(request(), Source(10).pieces(), {"x-a": "b"})
    assert not isinstance(short, StreamingResponse)
    assert (json.loads(bytes(short.body)), short.headers["x-a"]) == ([json.loads(ITEM)] * 10, "b")
    source = Source(1000)
    long = await answer(request(), source.pieces(), {"x-a": "b"})
    assert isinstance(long, StreamingResponse)
    assert (long.headers["content-type"], long.headers["x-a"]) == ("application/json", "b")
    made = source.made
    assert made < 200
    await send_to_one_who_leaves(long)
    assert made <= source.made < 300
    assert source.closed


async def test_where_answers_are_buffered_they_are_whole_or_refused() -> None:
    source = Source(300)
    whole = await answer(request(1_000_000), source.pieces())
    assert json.loads(bytes(whole.body)) == [json.loads(ITEM)] * 300
    refused = Source(1000)
    with pytest.raises(AnswerTooLarge, match="ask for less"):
        await answer(request(200_000), refused.pieces(), advice="ask for less")
    assert refused.made < 300
    assert refused.closed
