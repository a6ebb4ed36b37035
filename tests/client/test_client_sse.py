"""The decoder of Server-Sent Events."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mail.client.sse import EventDecoder

Fields = tuple[str | None, str, str | None, int | None]


def decode(*chunks: bytes) -> list[Fields]:
    decoder = EventDecoder()
    return [(e.event, e.data, e.id, e.retry) for chunk in chunks for e in decoder.feed(chunk)]  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "events"),
    [
        ("data: a\n\n", [("message", "a", None, None)]),
        ("event: x\ndata:a\nid: 7\n\n", [("x", "a", "7", None)]),
        ("data: a\r\ndata: b\r\n\r\n", [("message", "a\nb", None, None)]),
        ("data: a\r\rdata: b\r\r", [("message", "a", None, None)]),  # the next byte may be a line feed
        ("data: a\r\rdata: b\r\r:", [("message", "a", None, None), ("message", "b", None, None)]),
        ("data:  two spaces\n\n", [("message", " two spaces", None, None)]),
        ("data\n\n", [("message", "", None, None)]),
        ("retry: 20\ndata: a\n\n", [("message", "a", None, 20)]),
        ("retry: soon\ndata: a\n\n", [("message", "a", None, None)]),
        ("id: a\0b\ndata: a\n\n", [("message", "a", None, None)]),
        (": a comment\n\n", []),
        ("event: ping\n\n", []),
        ("event: x\n\ndata: a\n\n", [("message", "a", None, None)]),
        ("unknown: x\ndata: a\n\n", [("message", "a", None, None)]),
        ("data: a\n\ndata: unfinished\n", [("message", "a", None, None)]),
        ("data: {\"a\": \"\u2028\x85\x0b\x1c\"}\n\n", [("message", '{"a": "\u2028\x85\x0b\x1c"}', None, None)]),
    ],
)  # fmt: skip
def test_reads(text: str, events: list[Fields]) -> None:
    assert decode(text.encode()) == events


STREAM = "event: x\r\ndata: é\r\nid: 1\r\n\r\ndata: 𝄞\ndata: b\n\n:c\rdata: ü\r\rid: 3\ndata: end\n\n"


@given(st.lists(st.integers(0, len(STREAM.encode()))))
def test_where_it_is_cut_makes_no_difference(places: list[int]) -> None:
    text = STREAM.encode()
    cuts = [0, *sorted(places), len(text)]
    assert decode(*(text[begin:end] for begin, end in pairwise(cuts))) == decode(text)
    assert len(decode(text)) == 4
