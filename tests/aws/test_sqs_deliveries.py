"""Tokens of other swarms' mailboxes and of parked turns: their queue, and how long it holds each of them back."""

import json
import time
from typing import Any

import pytest
from support.engines.sqs import SQSQueueAdapter

from mail.adapters.aws.queue import BATCH, LONGEST_DELAY, SQSQueue
from mail.core.protocol.message import Tier
from mail.core.task.mailboxes import ALL_PEERS, peer_mailbox
from mail.core.task.ports import WakeUp
from mail.core.task.task import TaskKey
from mail.errors import ConfigurationError
from mail.testing.contracts import drain

KEY = TaskKey("user:ann@here", "task")
NOW = 1_000_000.0


def token(swarm: str, not_before: float = 0.0, cause: str = "1") -> WakeUp:
    return WakeUp(KEY, peer_mailbox(swarm), Tier.AGENT, cause, not_before=not_before)


def mailboxes(messages: list[dict[str, Any]]) -> list[str]:
    return sorted(json.loads(message["Body"])["mailbox"] for message in messages)


async def test_they_have_a_queue_of_their_own(sqs: SQSQueueAdapter) -> None:
    await sqs.queue.publish([token("b"), WakeUp(KEY, "b", Tier.AGENT), token(""), token("c")])
    assert [mailbox for _, mailbox in await drain(sqs)] == ["b"]
    assert mailboxes(sqs.deliveries()) == [ALL_PEERS, "@b", "@c"]


@pytest.mark.parametrize(
    ("not_before", "delay"),
    [
        (0.0, 0),
        (NOW - 1, 0),
        (NOW, 0),
        (NOW + 0.2, 1),
        (NOW + 60, 60),
        (NOW + LONGEST_DELAY + 1, LONGEST_DELAY),
    ],
)
async def test_they_are_held_back_until_it_is_time_and_never_come_before(
    sqs: SQSQueueAdapter, requests: list[dict[str, Any]], not_before: float, delay: int
) -> None:
    queue = SQSQueue(sqs.client, sqs.urls, sqs.outbound_url, clock=lambda: NOW)
    await queue.publish([token("b", not_before)])
    ((entry,),) = [request["Entries"] for request in requests]
    assert entry["DelaySeconds"] == delay


async def test_the_wake_up_of_a_parked_turn_waits_there_and_is_sent_on(
    sqs: SQSQueueAdapter, requests: list[dict[str, Any]]
) -> None:
    queue = SQSQueue(sqs.client, sqs.urls, sqs.outbound_url, clock=lambda: NOW)
    await queue.publish([WakeUp(KEY, "b", Tier.PERSON, "lease/parked", not_before=NOW + 0.5, seq=7)])
    assert await drain(sqs) == []
    (request,) = requests
    assert (request["QueueUrl"], request["Entries"][0]["DelaySeconds"]) == (sqs.outbound_url, 1)
    delayed = queue.read(request["Entries"][0]["MessageBody"])
    assert (delayed.key, delayed.mailbox, delayed.seq, delayed.tier) == (KEY, "b", 7, Tier.PERSON)
    await queue.forward(delayed, Tier.PERSON)
    assert requests[1]["QueueUrl"] == sqs.urls[Tier.PERSON - 1]
    assert await drain(sqs) == [(KEY, "b")]


async def test_one_that_rests_keeps_no_other_waiting(sqs: SQSQueueAdapter) -> None:
    until = time.time() + 1
    await sqs.queue.publish([token("resting", until), token("ready")])
    assert mailboxes(sqs.deliveries()) == ["@ready"]
    found: list[dict[str, Any]] = []
    deadline = time.monotonic() + 60
    while not found:
        assert time.monotonic() < deadline
        found = sqs.deliveries()
    assert mailboxes(found) == ["@resting"]
    assert time.time() >= until


async def test_they_go_in_as_few_requests_as_can_be(
    sqs: SQSQueueAdapter, requests: list[dict[str, Any]]
) -> None:
    await sqs.queue.publish([token(f"b{n:02}") for n in range(BATCH + 1)])
    assert [len(request["Entries"]) for request in requests] == [BATCH, 1]
    assert mailboxes(sqs.deliveries()) == [f"@b{n:02}" for n in range(BATCH + 1)]


async def test_without_their_queue_others_are_sent_all_the_same(sqs: SQSQueueAdapter) -> None:
    queue = SQSQueue(sqs.client, sqs.urls)
    with pytest.raises(ConfigurationError, match="MAIL_DELIVERY_QUEUE"):
        await queue.publish([token("b"), WakeUp(KEY, "agent", Tier.AGENT)])
    assert [mailbox for _, mailbox in await drain(sqs)] == ["agent"]


async def test_what_failed_comes_back_soon(sqs: SQSQueueAdapter, monkeypatch: pytest.MonkeyPatch) -> None:
    await sqs.queue.publish([token("b")])
    (message,) = sqs.deliveries()
    assert sqs.deliveries() == []
    monkeypatch.setattr("mail.adapters.aws.queue.RETRY_SECONDS", (0,))
    arn = f"arn:aws:sqs:us-east-1:000000000000:{sqs.outbound_url.rpartition('/')[2]}"
    await SQSQueue(sqs.client, sqs.urls, sqs.outbound_url).retry_soon(
        {
            "eventSourceARN": arn,
            "receiptHandle": message["ReceiptHandle"],
            "attributes": message["Attributes"],
        }
    )
    assert mailboxes(sqs.deliveries()) == ["@b"]
