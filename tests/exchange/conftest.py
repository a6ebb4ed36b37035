"""The exchanges that tests run on."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from exchange_worlds import DURABLE, World


async def _world(kind: str, folder: Path) -> World:
    world = World(kind, folder)
    await world.prepare()
    return world


@pytest.fixture(params=["memory", *DURABLE])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """A place with nothing in it."""
    return await _world(request.param, tmp_path)


@pytest.fixture(params=DURABLE)
async def durable(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """A place that outlives processes, with nothing in it."""
    return await _world(request.param, tmp_path)


@pytest.fixture
async def exchange(world: World) -> AsyncIterator[Any]:
    """An exchange with nobody in it; its methods are coroutines."""
    async with world.open() as exchange:
        yield exchange
