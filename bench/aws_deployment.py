"""A deployment in small: a table and five queues, and one warm process of the function that runs turns."""

import asyncio
import os
from collections import deque
from datetime import datetime
from typing import Any, Self
from unittest.mock import patch
from uuid import uuid4

from bench import swarms
from bench.aws_meter import Meter, Usage
from bench.engine import CALLER
from mail.adapters.aws.client import Aws
from mail.adapters.aws.items import Item, is_mail, partition, string
from mail.adapters.aws.queue import SQSQueue, decode_wake_up
from mail.adapters.aws.schema import create_table
from mail.adapters.aws.store import DynamoDBStore
from mail.adapters.aws.table import DynamoDBTable
from mail.core.decisions.submit import Submission
from mail.core.engine.leased_turn import TurnReport
from mail.core.engine.runtime import Runtime
from mail.core.protocol.clock import SYSTEM_CLOCK, Clock, SystemClock
from mail.core.protocol.message import Tier
from mail.core.task.swarm import SwarmCore
from mail.local_aws.ministack import credentials

TURN_SECONDS = 600.0

QUEUE_ATTRIBUTES = {
    "FifoQueue": "true",
    "DeduplicationScope": "messageGroup",
    "FifoThroughputLimit": "perMessageGroupId",
}


class EngineAws(Aws):
    """The account of an engine."""

    def __init__(self, endpoint: str) -> None:
        super().__init__()
        self._endpoint = endpoint

    def make(self, service: str, connections: int) -> Any:
        with patch.dict(os.environ, credentials(self._endpoint)):
            return super().make(service, connections)


class StandingClock(SystemClock):
    """The clock of a store: it stands, as a task moves in the index of what is due once a minute, at whatever turn."""

    def __init__(self) -> None:
        self._now = super().now()

    def now(self) -> datetime:
        return self._now


class Deployment:
    """Runs tasks turn by turn. What its own administration asks of AWS is not counted.

    The part of the event source is played by what the process itself has sent: a message wakes a turn up once, however
    often it was sent, and is never late. An async context manager; what it has made stays, as long as the engine runs.

    Attributes:
        clock: that of the store.
    """

    def __init__(self, aws: Aws) -> None:
        self.clock: Clock = StandingClock()
        self._table = f"bench-{uuid4().hex}"
        self._dynamodb, self._sqs = aws.client("dynamodb"), aws.client("sqs")
        self.meter = Meter(self._find)
        self._metered = aws.client("dynamodb"), aws.client("sqs")
        for client in self._metered:
            self.meter.watch(client.botocore)
        self._urls: list[str] = []
        self._messages: deque[dict[str, str]] = deque()
        self._seen: set[str] = set()
        self._partition = ""
        self._aside: list[Item] = []

    async def __aenter__(self) -> Self:
        await create_table(self._dynamodb, self._table)
        name = uuid4().hex
        for tier in Tier:
            made = await self._sqs.call(
                "create_queue", QueueName=f"{name}-{tier}.fifo", Attributes=QUEUE_ATTRIBUTES
            )
            self._urls.append(made["QueueUrl"])
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in (self._dynamodb, self._sqs, *self._metered):
            client.close()

    async def begin(self, swarm: SwarmCore) -> None:
        """Start a task of the swarm, in a new process; nobody wakes up those before it any more."""
        self.restart(swarm)
        self._messages.clear()
        submitted = await self._runtime.submit(CALLER, Submission(body=swarms.BODY))
        self._partition, self._aside = partition(submitted.key), []
        self._take()

    def restart(self, swarm: SwarmCore) -> None:
        """Go on in a new process, which remembers nothing."""
        dynamodb, sqs = self._metered
        store, queue = DynamoDBStore(dynamodb, self._table, clock=self.clock), SQSQueue(sqs, self._urls)
        self._runtime = Runtime(swarm, store, queue, SYSTEM_CLOCK)

    async def set_aside(self) -> None:
        """Take out of the table what turns of a warm process never read: events, and history.

        Engines, unlike DynamoDB, get slower with every item of a task.
        """
        table = DynamoDBTable(self._dynamodb, self._table)
        found: list[Item] = []
        async for page in table.query(
            KeyConditionExpression="PK = :partition AND SK BETWEEN :first AND :last",
            ExpressionAttributeValues={
                ":partition": string(self._partition),
                ":first": string("A#"),
                ":last": string("E#~"),
            },
        ):
            found += (item for item in page if not is_mail(item))
        await table.delete_many([(item["PK"]["S"], item["SK"]["S"]) for item in found])
        self._aside += found

    async def put_back(self) -> None:
        """Undo `set_aside`."""
        await DynamoDBTable(self._dynamodb, self._table).put_many(self._aside)
        self._aside = []

    async def turn(self) -> Usage | None:
        """What the next turn uses; None when there is none."""
        while self._messages:
            report = await self._run(self._messages.popleft())
            usage = self._take()
            if report.outcome is TurnReport.Outcome.COMMITTED:
                return usage
        return None

    async def finish(self) -> tuple[Usage, list[TurnReport]]:
        """Run all turns that can be run, at once where they can; what they have used together."""
        reports: list[TurnReport] = []
        total = Usage()
        while self._messages:
            batch = [self._run(message) for message in self._messages]
            self._messages.clear()
            reports += await asyncio.gather(*batch)
            total += self._take()
        return total, reports

    async def _run(self, message: dict[str, str]) -> TurnReport:
        wake_up = decode_wake_up(message["MessageBody"])
        return await self._runtime.run_turn(wake_up.key, wake_up.mailbox, seconds=TURN_SECONDS)

    def _take(self) -> Usage:
        usage = self.meter.take()
        for message in usage.messages:
            if message["MessageDeduplicationId"] not in self._seen:
                self._seen.add(message["MessageDeduplicationId"])
                self._messages.append(message)
        return usage

    def _find(self, table: str, key: Item) -> Item:
        answer = self._dynamodb.botocore.get_item(TableName=table, Key=key, ConsistentRead=True)
        item: Item = answer.get("Item", {})
        return item
