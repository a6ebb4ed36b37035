"""The exchanges that the contract suite runs on: in memory, in an SQLite file, in a table of each DynamoDB engine.

Other processes reach those of `SHARED`, as they have a file or a server; moto is in this process.
"""

import asyncio
import inspect
import os
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import urlencode
from uuid import UUID

from support.engines.aws import aws_environment, endpoint, servers
from support.engines.dynamodb import shared_client
from support.engines.moto import MotoAws

from mail.adapters.aws import backend
from mail.adapters.aws.client import Aws
from mail.adapters.aws.schema import create_table
from mail.exchange import DurableExchange, Exchange, open_exchange

ENGINES = [name for name in servers() if name in ("ministack", "dynoxide", "custom")]

SHARED = ["sqlite", *(f"dynamodb-{name}" for name in ENGINES)]

DURABLE = [*SHARED[:1], "dynamodb-moto", *SHARED[1:]]

REGION = "us-east-1"

IN_URL = ("AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION")


@cache
def _account(region: str, endpoint_url: str) -> Aws:
    """The account of a URL, shared by exchanges, as it remembers what it has read of botocore's files."""
    return Aws(region, endpoint_url) if endpoint_url else MotoAws(region)


class Awaited:
    """An exchange in memory, with the methods of a durable one."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange

    async def owner_ids(self) -> list[UUID]:
        return self.exchange.owner_ids

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.exchange, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            result = method(*args, **kwargs)
            return await result if inspect.isawaitable(result) else result

        return method if name == "stop" else call


AnyExchange = Awaited | DurableExchange


class World:
    """A place for exchanges; what is opened in it again is the same exchange."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self._name = uuid.uuid4().hex
        self._folder = folder
        self._memory = Awaited(Exchange())

    @property
    def is_durable(self) -> bool:
        return self.kind != "memory"

    @property
    def environment(self) -> Mapping[str, str]:
        """What a process needs to open it: keys. Where the table is, the URL says."""
        engine = self.kind.removeprefix("dynamodb-")
        if engine in (self.kind, "moto"):
            return {}
        given = aws_environment(endpoint(engine))
        return {name: value for name, value in given.items() if name not in IN_URL}

    async def prepare(self) -> None:
        """Make what is to be there before an exchange is opened."""
        if self.kind.startswith("dynamodb-"):
            await make_table(self.kind.removeprefix("dynamodb-"))

    @property
    def url(self) -> str:
        if self.kind == "sqlite":
            return f"sqlite:///{self._folder / 'exchange.db'}"
        engine = self.kind.removeprefix("dynamodb-")
        options = {"exchange": self._name, "region": REGION}
        if engine != "moto":
            options["endpoint_url"] = endpoint(engine)
        return f"dynamodb://{table_of(engine)}?{urlencode(options)}"

    @contextmanager
    def credentials(self) -> Iterator[None]:
        """Let this process open it by its URL."""
        with patch.dict(os.environ, self.environment), patch.object(backend, "Aws", _account):
            yield

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Any]:
        if not self.is_durable:
            yield self._memory
            return
        with self.credentials():
            opening = open_exchange(self.url)
            exchange = await opening.__aenter__()
        try:
            yield exchange
        finally:
            await opening.__aexit__(None, None, None)


async def arrives(exchange: Any, owner: UUID, *sender: UUID) -> None:
    """Return once there is mail in an inbox."""
    async with asyncio.timeout(60):
        while not await exchange.receive(owner, *sender):  # noqa: ASYNC110 - nobody tells us
            await asyncio.sleep(0.01)


@cache
def table_of(engine: str) -> str:
    return f"exchange-{uuid.uuid4().hex}"


_MADE: set[str] = set()


async def make_table(engine: str) -> None:
    if engine not in _MADE:
        assert await create_table(shared_client(engine), table_of(engine))
        _MADE.add(engine)
