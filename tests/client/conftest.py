"""What the client's tests share."""

from collections.abc import AsyncIterator

import pytest
from support.processes.http_server import HTTPServer

from mail.testing.agents import Call, View, build_swarm, complete


def echo(view: View) -> list[Call]:
    """Answer with what was said last."""
    return [complete(f"you said: {view.mail.body}")]


@pytest.fixture
async def server() -> AsyncIterator[HTTPServer]:
    """One agent that repeats its message."""
    async with HTTPServer(build_swarm({"supervisor": echo})) as server:
        yield server


@pytest.fixture
def no_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams reconnect at once."""
    monkeypatch.setattr("mail.client.stream.DELAYS", (0.0,) * 9)
