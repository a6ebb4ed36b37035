"""What `SQSQueue` asks of SQS: how many requests, of which size, and what it does where they fail."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from typing import Any, cast

import pytest
from support.engines.dynamodb import DynamoDBAdapter
from support.engines.sqs import SQSQueueAdapter, hooked

from mail.adapters.aws.client import Aws
from mail.adapters.aws.queue import (
    ATTEMPTS,
    BATCH,
    REFUSED_SECONDS,
    RETRY_SECONDS,
    SQSQueue,
    decode_wake_up,
)
from mail.core.decisions.submit import Submission
from mail.core.engine import leased_turn
from mail.core.engine.attempts import MAX_ATTEMPTS
from mail.core.engine.heartbeat import OnRenewal
from mail.core.engine.runtime import Runtime
from mail.core.protocol.address import Principal
from mail.core.protocol.clock import SYSTEM_CLOCK
from mail.core.protocol.message import Tier
from mail.core.task.ports import Store, WakeUp
from mail.core.task.task import TaskKey
from mail.errors import ConfigurationError, StoreUnavailable
from mail.testing.agents import build_swarm, complete, turns
from mail.testing.contracts import drain
from mail.testing.faults import FaultyPort, Points, at_name

KEY = TaskKey("user:ann@bench", "task")
LONGEST_KEY = TaskKey("\x01" * 1000, "\x01" * 1000)
LONGEST_MAILBOX = "\x01" * 1000
"""Past what a table's keys hold (2,048 and 1,024 bytes), of what takes the most room in JSON."""


@contextmanager
def refusals(sqs: SQSQueueAdapter, refused: Callable[[str, int], bool]) -> Iterator[Counter[str]]:
    """Lets the service refuse messages, by making them bad on their way. Counts how often each was sent.

    `refused` says so of a mailbox, and of how often it was refused or accepted before.
    """
    if sqs.engine == "moto":
        pytest.skip("moto accepts a message without a body: see test_moto.py")
    sent: Counter[str] = Counter()

    def spoil(params: dict[str, Any], **_: Any) -> None:
        entries = []
        for entry in params["Entries"]:
            mailbox = decode_wake_up(entry["MessageBody"]).mailbox
            entries.append({**entry, "MessageBody": ""} if refused(mailbox, sent[mailbox]) else entry)
            sent[mailbox] += 1
        params["Entries"] = entries

    with hooked(sqs.client, "SendMessageBatch", before_parameter_build=spoil):
        yield sent


def tokens(count: int, tier: Tier = Tier.AGENT, cause: str = "1") -> list[WakeUp]:
    return [WakeUp(KEY, f"agent-{n}", tier, cause) for n in range(count)]


def names(taken: list[tuple[TaskKey, str]]) -> list[str]:
    return [mailbox for _, mailbox in taken]


async def test_nothing_is_sent_for_nothing(sqs: SQSQueueAdapter, requests: list[dict[str, Any]]) -> None:
    await sqs.queue.publish([])
    assert requests == []


@pytest.mark.parametrize("count", [1, 9, 10, 11, 32])
async def test_tokens_go_in_as_few_requests_as_can_be_and_in_order(
    sqs: SQSQueueAdapter, requests: list[dict[str, Any]], count: int
) -> None:
    await sqs.queue.publish(tokens(count))
    assert [len(request["Entries"]) for request in requests] == [
        min(BATCH, count - begin) for begin in range(0, count, BATCH)
    ]
    assert names(await drain(sqs)) == [f"agent-{n}" for n in range(count)]


async def test_each_tier_has_its_queue(sqs: SQSQueueAdapter, requests: list[dict[str, Any]]) -> None:
    await sqs.queue.publish([WakeUp(KEY, tier.name, tier) for tier in reversed(Tier)])
    assert sorted(request["QueueUrl"] for request in requests) == sorted(sqs.urls)
    assert names(await drain(sqs)) == [tier.name for tier in Tier]


async def test_the_longest_tokens_fit_into_requests(
    sqs: SQSQueueAdapter, requests: list[dict[str, Any]]
) -> None:
    """The checks of `support.engines.sqs` fail where a request is larger than 1 MiB."""
    await sqs.queue.publish([WakeUp(LONGEST_KEY, f"{LONGEST_MAILBOX}{n}", Tier.AGENT) for n in range(BATCH)])
    assert len(requests) == 1
    assert {key for key, _ in await drain(sqs)} == {LONGEST_KEY}


def entry_ids(requests: list[dict[str, Any]], which: str) -> list[str]:
    return [entry[which] for request in requests for entry in request["Entries"]]


async def test_a_mailbox_is_a_message_group(sqs: SQSQueueAdapter, requests: list[dict[str, Any]]) -> None:
    same = [WakeUp(KEY, "agent", Tier.AGENT, "1"), WakeUp(KEY, "agent", Tier.AGENT, "2")]
    others = [
        WakeUp(TaskKey("user:ann@bench", "task2"), "agent", Tier.AGENT, "1"),
        WakeUp(TaskKey("user:ann@benc", "htask"), "agent", Tier.AGENT, "1"),
        WakeUp(TaskKey("user:ann@bench", "taska"), "gent", Tier.AGENT, "1"),
    ]
    await sqs.queue.publish([*same, *others])
    groups = entry_ids(requests, "MessageGroupId")
    assert groups[0] == groups[1]
    assert len(set(groups)) == 1 + len(others)


async def test_one_cause_is_one_wake_up(sqs: SQSQueueAdapter, requests: list[dict[str, Any]]) -> None:
    for cause in ("1", "1", "2", "1", "2"):
        await sqs.queue.publish(tokens(1, cause=cause))
    once, again, other, *_ = entry_ids(requests, "MessageDeduplicationId")
    assert once == again != other
    assert names(await drain(sqs)) == ["agent-0", "agent-0"]


async def test_without_a_cause_every_token_is_a_wake_up(sqs: SQSQueueAdapter) -> None:
    for _ in range(2):
        await sqs.queue.publish(tokens(1, cause=""))
        assert names(await drain(sqs)) == ["agent-0"]


@pytest.mark.soak(on="ministack")
async def test_what_is_refused_is_sent_again_and_only_that(sqs: SQSQueueAdapter) -> None:
    odd = [f"agent-{n}" for n in range(1, 15, 2)]
    with refusals(sqs, lambda mailbox, before: mailbox in odd and before < 2) as sent:
        await sqs.queue.publish(tokens(15))
    assert {mailbox for mailbox, times in sent.items() if times == 3} == set(odd)
    assert sent.total() == 8 + 3 * 7
    assert sorted(names(await drain(sqs))) == sorted(sent)


@pytest.mark.full(on="ministack")
async def test_what_is_refused_again_and_again_is_given_up(sqs: SQSQueueAdapter) -> None:
    with (
        refusals(sqs, lambda mailbox, _: mailbox == "agent-1") as sent,
        pytest.raises(StoreUnavailable),
    ):
        await sqs.queue.publish(tokens(3))
    assert sent == {"agent-0": 1, "agent-1": ATTEMPTS, "agent-2": 1}
    assert names(await drain(sqs)) == ["agent-0", "agent-2"]


async def test_a_queue_that_fails_keeps_nothing_from_the_others(sqs: SQSQueueAdapter) -> None:
    queue = SQSQueue(sqs.client, [f"{sqs.urls[0]}-is-gone", *sqs.urls[1:]])
    with pytest.raises(StoreUnavailable):
        await queue.publish([WakeUp(KEY, tier.name, tier) for tier in Tier])
    assert names(await drain(sqs)) == [tier.name for tier in Tier][1:]


async def test_queues_are_sent_to_at_once(sqs: SQSQueueAdapter) -> None:
    """None of the five requests ends before all have begun."""
    begun = asyncio.Barrier(len(Tier))
    loop = asyncio.get_running_loop()

    def add_peer(**_: Any) -> None:
        asyncio.run_coroutine_threadsafe(_meet(), loop).result(timeout=10)

    async def _meet() -> None:
        await begun.wait()

    with hooked(sqs.client, "SendMessageBatch", before_call=add_peer):
        await sqs.queue.publish([WakeUp(KEY, "agent", tier) for tier in Tier])
    assert len(await drain(sqs)) == len(Tier)


async def test_a_process_without_queues_may_not_publish() -> None:
    queue = SQSQueue(Aws().client("sqs"), [])
    await queue.publish([])
    with pytest.raises(ConfigurationError, match="MAIL_TURN_QUEUES"):
        await queue.publish(tokens(1))


def test_there_is_a_queue_per_tier() -> None:
    with pytest.raises(ValueError, match="zip"):
        SQSQueue(Aws().client("sqs"), ["one", "two"])


class TestRetrySoon:
    """A message whose turn has failed comes back before its visibility ends."""

    @pytest.fixture
    async def record(self, sqs: SQSQueueAdapter) -> dict[str, Any]:
        """A message that was taken, as an event source brings it."""
        await sqs.queue.publish(tokens(1, Tier.INTERRUPT))
        url = sqs.urls[Tier.INTERRUPT - 1]
        answer = await sqs.client.call(
            "receive_message", QueueUrl=url, MessageSystemAttributeNames=["ApproximateReceiveCount"]
        )
        attributes = await sqs.client.call("get_queue_attributes", QueueUrl=url, AttributeNames=["QueueArn"])
        (message,) = answer["Messages"]
        return {
            "body": message["Body"],
            "receiptHandle": message["ReceiptHandle"],
            "attributes": message["Attributes"],
            "eventSourceARN": attributes["Attributes"]["QueueArn"],
        }

    async def pauses(
        self, sqs: SQSQueueAdapter, record: dict[str, Any], error: Exception, point: str, count: int
    ) -> list[int]:
        """Let so many attempts at a turn fail at a point, after 1,000 throttled receipts; return its pauses."""
        table = DynamoDBAdapter("moto")
        await table.open()
        store = cast(Store, FaultyPort(table.store, "store", Points(at_name(point, error))))
        queue = SQSQueue(sqs.client, sqs.urls, sqs.outbound_url, store=store)
        swarm = build_swarm({"agent-0": turns([complete("done")])})
        await Runtime(swarm, table.store, queue, SYSTEM_CLOCK).submit(
            Principal.parse(KEY.instance), Submission(body="hello", task_id=KEY.task_id)
        )
        runtime = Runtime(swarm, store, queue, SYSTEM_CLOCK)
        record["attributes"]["ApproximateReceiveCount"] = "1000"
        asked: list[int] = []

        def note(params: dict[str, Any], **_: Any) -> None:
            asked.append(params["VisibilityTimeout"])

        async def run(key: TaskKey, mailbox: str, _: OnRenewal) -> None:
            await runtime.run_turn(key, mailbox)

        with hooked(sqs.client, "ChangeMessageVisibility", provide_client_params=note):
            for _ in range(count):
                with pytest.raises(type(error)):
                    await queue.handle(record, run, is_hidden=True)
        await table.close()
        return asked

    async def test_each_failed_attempt_lengthens_its_pause_however_often_it_was_received(
        self, sqs: SQSQueueAdapter, record: dict[str, Any]
    ) -> None:
        found = await self.pauses(sqs, record, KeyError("a bug"), "before store.commit", MAX_ATTEMPTS - 1)
        assert found == list(RETRY_SECONDS)

    @pytest.mark.parametrize("point", ["before store.open_turn", "before store.commit", "before store."])
    async def test_failures_of_services_do_not(
        self, sqs: SQSQueueAdapter, record: dict[str, Any], point: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(leased_turn, "FIRST_PAUSE", inf)
        found = await self.pauses(sqs, record, StoreUnavailable(), point, 5)
        assert len(found) == 5
        assert set(found) <= {*range(REFUSED_SECONDS[0], REFUSED_SECONDS[1] + 1)}

    @pytest.mark.parametrize(("receives", "seconds"), [(1, 2), (2, 15), (3, 300), (4, 1800), (5, 1800)])
    async def test_deliveries_which_are_received_a_few_times_wait_longer_after_each(
        self, sqs: SQSQueueAdapter, receives: int, seconds: int
    ) -> None:
        asked: list[int] = []

        def note(params: dict[str, Any], **_: Any) -> None:
            asked.append(params["VisibilityTimeout"])

        await sqs.queue.publish([WakeUp(KEY, "@beta", Tier.AGENT)])
        (message,) = sqs.deliveries()
        record = {
            "body": message["Body"],
            "receiptHandle": message["ReceiptHandle"],
            "attributes": {"ApproximateReceiveCount": str(receives)},
            "eventSourceARN": sqs.outbound_url.rpartition("/")[2],
        }
        with hooked(sqs.client, "ChangeMessageVisibility", provide_client_params=note):
            await SQSQueue(sqs.client, sqs.urls, sqs.outbound_url).retry_soon(record)
        assert asked == [seconds]

    async def test_it_comes_back(
        self, sqs: SQSQueueAdapter, record: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert await drain(sqs) == []
        monkeypatch.setattr("mail.adapters.aws.queue.REFUSED_SECONDS", (0, 0))
        await SQSQueue(sqs.client, sqs.urls).retry_soon(record)
        assert names(await drain(sqs)) == ["agent-0"]

    async def test_where_it_fails_the_message_only_comes_later(
        self, sqs: SQSQueueAdapter, record: dict[str, Any]
    ) -> None:
        await SQSQueue(sqs.client, sqs.urls).retry_soon({**record, "receiptHandle": "expired"})
        assert await drain(sqs) == []

    async def test_a_queue_that_is_none_of_ours_is_a_mistake_of_the_deployment(
        self, sqs: SQSQueueAdapter, record: dict[str, Any]
    ) -> None:
        with pytest.raises(ConfigurationError, match=r"other\.fifo"):
            await SQSQueue(sqs.client, sqs.urls).retry_soon(
                {**record, "eventSourceARN": "arn:aws:sqs:us-east-1:000000000000:other.fifo"}
            )

    def test_a_version_whose_turns_fail_can_be_rolled_back_for_half_an_hour(self) -> None:
        assert 1800 < sum(RETRY_SECONDS) < 3600
