"""What the HTTP tests share.

This folder must never get an `__init__.py`: as a package on pytest's path it would hide the library's `http`.
"""

from collections.abc import AsyncIterator, Iterator

import pytest
from desk_swarm import desk_swarm
from support.faults.gates import Gate
from support.processes.http_server import HTTPServer
from support.services.webhook_receiver import WebhookReceiver

from mail.core.task.swarm import SwarmCore
from mail.testing.agents import Call, View, build_swarm, complete
from mail.testing.clock import FakeClock


def echo(view: View) -> list[Call]:
    """Answer with what was said last."""
    return [complete(f"you said: {view.mail.body}")]


def echo_swarm() -> SwarmCore:
    return build_swarm({"supervisor": echo}, description="It echoes.", keywords=("echo",), public=True)


@pytest.fixture
async def server() -> AsyncIterator[HTTPServer]:
    """One agent that repeats its message."""
    async with HTTPServer(echo_swarm()) as server:
        yield server


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
async def desk(gate: Gate) -> AsyncIterator[HTTPServer]:
    """The swarm that other protocols call."""
    async with HTTPServer(desk_swarm(gate)) as server:
        yield server
        gate.opened.set()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with WebhookReceiver() as receiver:
        yield receiver
