"""What the tests of `mail.net` share: a peer on a loopback port, and a registry that knows nobody yet."""

from collections.abc import AsyncIterator

import pytest
from support.services.peer_server import PeerServer

from mail.net import SwarmRegistry

HOME = "http://127.0.0.1:8000"


@pytest.fixture
async def beta() -> AsyncIterator[PeerServer]:
    async with PeerServer("beta") as peer:
        yield peer


@pytest.fixture
async def registry() -> AsyncIterator[SwarmRegistry]:
    made = SwarmRegistry("alpha", HOME)
    yield made
    await made.stop()
