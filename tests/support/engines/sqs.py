"""The queues of a deployment on an engine that has SQS, and what the service refuses."""

import asyncio
import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any
from uuid import uuid4

from mail.adapters.aws.client import AwsClient
from mail.adapters.aws.queue import SQSQueue, decode_wake_up
from mail.core.protocol.message import Tier
from mail.core.task.ports import TurnQueue
from mail.core.task.task import TaskKey
from support.engines.aws import make_client

POLL_SECONDS = 0.02

QUEUE_ATTRIBUTES = {
    "FifoQueue": "true",
    "DeduplicationScope": "messageGroup",
    "FifoThroughputLimit": "perMessageGroupId",
    "VisibilityTimeout": "30",
}

_ENTRY_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")
_GROUP_OR_DEDUPLICATION_ID = re.compile(r"[A-Za-z0-9!-/:-@\[-`{-~]{1,128}")
_NOT_IN_A_BODY = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
MAX_ENTRIES = 10
MAX_BYTES = 1024 * 1024


class SQSQueueAdapter:
    """The queue, and workers that ask the five queues of turns for messages, the most urgent first.

    Attributes:
        outbound_url: that of the queue for other swarms' mail, which `deliveries` looks into.
    """

    def __init__(self, engine: str = "ministack") -> None:
        self.engine = engine
        self.client = connect(engine)
        self.urls = make_queues(self.client)
        self.outbound_url = make_delivery_queue(self.client)
        self.queue: TurnQueue = SQSQueue(self.client, self.urls, self.outbound_url)

    async def take(self, seconds: float) -> tuple[TaskKey, str] | None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while (message := await self._receive()) is None:
            if loop.time() >= deadline:
                return None
            await asyncio.sleep(POLL_SECONDS)
        url, received = message
        await self.client.call("delete_message", QueueUrl=url, ReceiptHandle=received["ReceiptHandle"])
        wake_up = decode_wake_up(received["Body"])
        return wake_up.key, wake_up.mailbox

    async def close(self) -> None:
        """Queues are left to their engine, which ends with the tests."""

    def deliveries(self) -> list[dict[str, Any]]:
        """The messages in the queue for other swarms' mail that may be taken now; they are hidden from then on."""
        found: list[dict[str, Any]] = []
        while True:
            answer = self.client.botocore.receive_message(
                QueueUrl=self.outbound_url, MaxNumberOfMessages=10, MessageSystemAttributeNames=["All"]
            )
            if not answer.get("Messages"):
                return found
            found += answer["Messages"]

    async def _receive(self) -> tuple[str, dict[str, Any]] | None:
        """The next message. One who is cancelled meanwhile hands it back at once, as its visibility would later."""
        receiving = asyncio.create_task(self._receive_now())
        try:
            return await asyncio.shield(receiving)
        except asyncio.CancelledError:
            message = await receiving
            if message is not None:
                url, received = message
                handle = received["ReceiptHandle"]
                await self.client.call(
                    "change_message_visibility", QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=0
                )
            raise

    async def _receive_now(self) -> tuple[str, dict[str, Any]] | None:
        for url in self.urls:
            answer = await self.client.call("receive_message", QueueUrl=url, MaxNumberOfMessages=1)
            for message in answer.get("Messages", ()):
                return url, message
        return None


@cache
def connect(engine: str) -> AwsClient:
    """A client of the engine's SQS that checks every request; one per process, and never closed."""
    client = make_client(engine, "sqs")
    check_requests(client.botocore)
    return client


def make_queues(client: AwsClient) -> list[str]:
    """Five new queues, tier 1 first, as `template.yaml` makes them."""
    name = uuid4().hex
    made = (
        client.botocore.create_queue(QueueName=f"{name}-{tier}.fifo", Attributes=QUEUE_ATTRIBUTES)
        for tier in Tier
    )
    return [answer["QueueUrl"] for answer in made]


def make_delivery_queue(client: AwsClient) -> str:
    """A new queue for other swarms' mail, as `template.yaml` makes it."""
    made = client.botocore.create_queue(
        QueueName=f"{uuid4().hex}-deliveries", Attributes={"VisibilityTimeout": "30"}
    )
    return str(made["QueueUrl"])


def check_requests(botocore_client: Any) -> None:
    """Let a client fail where the service would, as engines are more generous."""
    botocore_client.meta.events.register("before-parameter-build.sqs.SendMessageBatch", _check_batch)


@contextmanager
def hooked(client: AwsClient, operation: str, **hooks: Callable[..., Any]) -> Iterator[None]:
    """Call functions at moments of every request of an operation, such as `before_call`."""
    events = client.botocore.meta.events
    named = {f"{moment.replace('_', '-')}.sqs.{operation}": hook for moment, hook in hooks.items()}
    for name, hook in named.items():
        events.register(name, hook)
    try:
        yield
    finally:
        for name, hook in named.items():
            events.unregister(name, hook)


def _check_batch(params: dict[str, Any], **_: Any) -> None:
    entries: list[dict[str, Any]] = params["Entries"]
    is_fifo = ".fifo" in params["QueueUrl"]
    assert 1 <= len(entries) <= MAX_ENTRIES
    assert len({entry["Id"] for entry in entries}) == len(entries)
    assert sum(_size(map(str, entry.values())) for entry in entries) <= MAX_BYTES
    for entry in entries:
        assert _ENTRY_ID.fullmatch(entry["Id"])
        if is_fifo:
            assert entry.keys() == {"Id", "MessageBody", "MessageGroupId", "MessageDeduplicationId"}
            assert _GROUP_OR_DEDUPLICATION_ID.fullmatch(entry["MessageGroupId"])
            assert _GROUP_OR_DEDUPLICATION_ID.fullmatch(entry["MessageDeduplicationId"])
        else:
            assert entry.keys() == {"Id", "MessageBody", "DelaySeconds"}
            assert isinstance(entry["DelaySeconds"], int)
            assert 0 <= entry["DelaySeconds"] <= 900
        assert not _NOT_IN_A_BODY.search(entry["MessageBody"])
        may_have = set() if is_fifo else {"tier"}
        assert json.loads(entry["MessageBody"]).keys() - may_have == {"instance", "task_id", "mailbox", "seq"}


def _size(texts: Iterable[str]) -> int:
    return sum(len(text.encode()) for text in texts)
