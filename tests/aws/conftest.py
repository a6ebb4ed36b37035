"""A table on every engine that runs here, and what the tests of it share."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from support.engines.aws import sqs_engines
from support.engines.dynamodb import ENGINES, Calls, DynamoDBAdapter, make_client
from support.engines.sqs import SQSQueueAdapter, hooked
from support.faults.dynamodb import Faults

from mail.adapters.aws.client import AwsClient
from mail.testing.changes import Maker


@pytest.fixture(params=ENGINES)
async def table(request: pytest.FixtureRequest) -> AsyncIterator[DynamoDBAdapter]:
    """A table with nothing in it, and a store on it."""
    adapter = DynamoDBAdapter(request.param)
    await adapter.open()
    yield adapter
    await adapter.close()


@pytest.fixture
def client(table: DynamoDBAdapter) -> Iterator[AwsClient]:
    """A client of the table's engine that no other test uses."""
    made = make_client(table.engine, "dynamodb")
    yield made
    made.close()


@pytest.fixture
def faults(client: AwsClient) -> Iterator[Faults]:
    """What goes wrong between `client` and the engine."""
    with Faults(client) as made:
        yield made


@pytest.fixture
def calls(client: AwsClient) -> Calls:
    """What `client` sends."""
    made = Calls()
    made.watch(client)
    return made


@pytest.fixture
def make() -> Maker:
    return Maker()


@pytest.fixture(params=sqs_engines())
def sqs(request: pytest.FixtureRequest) -> SQSQueueAdapter:
    return SQSQueueAdapter(request.param)


@pytest.fixture
def requests(sqs: SQSQueueAdapter) -> Iterator[list[dict[str, Any]]]:
    """The parameters of every SendMessageBatch."""
    seen: list[dict[str, Any]] = []

    def note(params: dict[str, Any], **_: Any) -> None:
        seen.append(dict(params))

    with hooked(sqs.client, "SendMessageBatch", provide_client_params=note):
        yield seen
