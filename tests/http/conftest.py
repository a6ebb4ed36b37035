"""What the HTTP tests share.

This folder must never get an `__init__.py`: as a package on pytest's path it would hide the library's `http`.
"""

from collections.abc import AsyncIterator

import pytest
from support.processes.http_server import HTTPServer

from mail.core.task.swarm import SwarmCore
from mail.testing.agents import Call, View, build_swarm, complete


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
