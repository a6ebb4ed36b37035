"""A server whose requests are cut off after some time, as a Lambda function's are, answers before."""

import asyncio
from collections.abc import Callable

import pytest
from support.faults.gates import waiting_swarm
from support.processes.http_server import HTTPServer

from mail.http.preferences import Preference
from mail.http.service import RESPONSE_MARGIN

SOON = RESPONSE_MARGIN + 0.3
STREAM_URL = "https://streams.example"


def slow_server(gate: asyncio.Event, left: Callable[[], float]) -> HTTPServer:
    return HTTPServer(waiting_swarm(gate), time_left=lambda _request: left(), stream_url=STREAM_URL)


@pytest.mark.parametrize(
    ("patience", "limit", "expected"),
    [(None, None, None), (None, 5.0, 5.0), (7.0, None, 7.0), (7.0, 5.0, 5.0), (0.0, 5.0, 0.0)],
)
def test_patience_within_a_limit(patience: float | None, limit: float | None, expected: float | None) -> None:
    assert Preference(patience).within(limit) == expected


async def test_a_message_that_takes_too_long_is_accepted() -> None:
    gate = asyncio.Event()
    async with slow_server(gate, lambda: SOON) as server:
        response = await server.post(task_id="t")
        assert response.status_code == 202
        assert "preference-applied" not in response.headers
        assert response.json()["links"]["stream"].startswith(f"{STREAM_URL}/task/stream?")
        gate.set()
        assert (await server.task("t"))["task_id"] == "t"


async def test_no_time_at_all_is_no_failure() -> None:
    gate = asyncio.Event()
    gate.set()
    async with slow_server(gate, lambda: 0.0) as server:
        assert (await server.post(task_id="t")).status_code == 202


async def test_a_stream_ends_cleanly_and_the_client_goes_on() -> None:
    gate, left = asyncio.Event(), SOON
    async with slow_server(gate, lambda: left) as server:
        begun = await server.stream(task_id="t")
        assert [frame.event for frame in begun] == ["new_message"]
        gate.set()
        left = 60.0
        url = f"/task/stream?task_id=t&last_event_id={begun[-1].id}"
        async with server.frames("GET", url) as frames:
            rest = [frame async for frame in frames]
        assert [frame.event for frame in rest][-1] == "task_complete"
        assert [int(frame.id or 0) for frame in begun + rest] == list(range(1, len(begun + rest) + 1))
