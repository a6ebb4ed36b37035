"""The adapters that the contract suites run over. A new store or queue adds one entry to a table here."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.engines.adapters import DURABLE, QUEUES, STORES, QueueAdapter, StoreAdapter

from mail.core.engine.documents import ServerDocuments
from mail.core.task.ports import Store
from mail.testing.changes import Maker


@pytest.fixture(autouse=True)
def quick_sweeps(two_shards: None) -> None:
    """Let each test have two partitions of what is due."""


@pytest.fixture(params=sorted(STORES))
async def adapter(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[StoreAdapter]:
    """A database with nothing in it."""
    made = STORES[request.param](tmp_path)
    await made.open()
    yield made
    await made.close()


@pytest.fixture(params=sorted(DURABLE))
async def durable(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[StoreAdapter]:
    """A database that outlives its connection, with nothing in it."""
    made = STORES[request.param](tmp_path)
    await made.open()
    yield made
    await made.close()


@pytest.fixture
async def store(adapter: StoreAdapter) -> Store:
    return adapter.store


@pytest.fixture
async def records(adapter: StoreAdapter) -> ServerDocuments:
    return adapter.records


@pytest.fixture(params=sorted(QUEUES))
async def queue(request: pytest.FixtureRequest) -> AsyncIterator[QueueAdapter]:
    made = QUEUES[request.param]()
    yield made
    await made.close()


@pytest.fixture
def make() -> Maker:
    return Maker()
