"""Tables on the engines that run here, for tests of what is kept on DynamoDB."""

import asyncio
import atexit
import os
import uuid
from collections import Counter
from functools import cache
from hashlib import sha256
from typing import Any

from mail.adapters.aws.blobs import Blobs
from mail.adapters.aws.client import AwsClient
from mail.adapters.aws.documents import DynamoDBDocuments
from mail.adapters.aws.files import DynamoDBFiles
from mail.adapters.aws.items import item_size
from mail.adapters.aws.rows import DynamoDBRows
from mail.adapters.aws.schema import create_table
from mail.adapters.aws.store import DynamoDBStore
from mail.core.engine.documents import ServerDocuments
from mail.core.protocol.clock import SYSTEM_CLOCK, Clock
from mail.core.task.ports import Files, Store
from mail.core.task.rows import Rows
from support.engines import aws, dynamodb_limits, moto
from support.engines.aws import servers

HAVE_BUCKETS = ("moto", "ministack", "custom")
BUCKET = "mail-tests"

LONG = "".join(sha256(bytes([n])).hexdigest() for n in range(80))
"""The body of a message that has more than 2 KB, even compressed, and so has an item of its own."""

WHERE_ASKED_FOR = {"dynamodb-local": "MAIL_DYNAMODB_LOCAL"}
"""DynamoDB Local can't be kept from listening on all addresses, so it runs only where the variable names it."""

SERVERS = [name for name in servers() if os.environ.get(WHERE_ASKED_FOR.get(name, "PATH"))]
ENGINES = ["moto", *SERVERS]
"""The engines to test on; those without buckets borrow moto's."""


class Calls:
    """What was sent to AWS: by operation, how often and how many bytes."""

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()
        self.sent: Counter[str] = Counter()

    def clear(self) -> None:
        self.count.clear()
        self.sent.clear()

    def watch(self, client: AwsClient) -> None:
        """Count the requests of a client, retries included."""
        client.botocore.meta.events.register("before-send", self._note)

    def _note(self, request: Any, event_name: str, **_: Any) -> None:
        operation = event_name.rpartition(".")[2]
        self.count[operation] += 1
        self.sent[operation] += int(request.headers.get("Content-Length", 0))


def make_client(engine: str, service: str, **settings: Any) -> AwsClient:
    """Return a client of an engine that checks requests to DynamoDB against the service's limits."""
    client = aws.make_client(engine, service, **settings)
    client.botocore.meta.events.register("provide-client-params.dynamodb", _check_limits)
    return client


def _check_limits(params: dict[str, Any], model: Any, **_: Any) -> None:
    dynamodb_limits.check(model.name, params)


@cache
def shared_client(engine: str) -> AwsClient:
    """The client of DynamoDB that most tests share: it takes a while to make one."""
    client = make_client(engine, "dynamodb")
    atexit.register(client.close)
    return client


@cache
def shared_blobs(engine: str) -> Blobs:
    """A bucket that all tests share; nobody gives out a name twice."""
    client = make_client(engine if engine in HAVE_BUCKETS else "moto", "s3")
    atexit.register(client.close)
    client.botocore.create_bucket(Bucket=BUCKET)
    return Blobs(client, BUCKET)


_EMPTY: list[str] = []
"""Tables on moto for the next tests: to make one takes longer than most of them."""


class DynamoDBAdapter:
    """A fresh table on an engine, and one store on it; `another` gives more."""

    leases_outlive_process = True

    def __init__(self, engine: str, **settings: Any) -> None:
        self.engine = engine
        self.table = f"mail-{uuid.uuid4().hex}"
        self._settings = settings

    async def open(self) -> None:
        self.client = await asyncio.to_thread(shared_client, self.engine)
        self.blobs = await asyncio.to_thread(shared_blobs, self.engine)
        if self.engine == "moto" and _EMPTY:
            self.table = _EMPTY.pop()
        else:
            await create_table(self.client, self.table)
        await self.reopen()

    async def close(self) -> None:
        if self.engine == "moto":
            moto.empty_table(self.table)
            _EMPTY.append(self.table)
        else:
            await self.client.call("delete_table", TableName=self.table)

    async def size(self) -> int:
        client = self.blobs._client.botocore
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
        objects = sum(each["Size"] for page in pages for each in page.get("Contents", ()))
        return objects + sum(map(item_size, self.items()))

    async def reopen(self) -> Store:
        self.store: Store = self.another()
        self.records: ServerDocuments = ServerDocuments(DynamoDBDocuments(self.client, self.table))
        self.files: Files = DynamoDBFiles(self.client, self.table, self.blobs, SYSTEM_CLOCK, None)
        self.rows: Rows = DynamoDBRows(self.client, self.table)
        return self.store

    def another(
        self, client: AwsClient | None = None, *, clock: Clock = SYSTEM_CLOCK, **settings: Any
    ) -> DynamoDBStore:
        """Another store on the table, as another function has one."""
        settings = {"blobs": self.blobs, "clock": clock, **self._settings, **settings}
        return DynamoDBStore(client or self.client, self.table, **settings)

    def items(self, prefix: str = "") -> list[dict[str, Any]]:
        """All that is in the table, or all with a sort key that begins so."""
        pages = self.client.botocore.get_paginator("scan").paginate(TableName=self.table, ConsistentRead=True)
        return [item for page in pages for item in page["Items"] if item["SK"]["S"].startswith(prefix)]
