"""What a turn costs on DynamoDB: how many requests, how many bytes, whatever has happened before."""

from dataclasses import replace
from os import urandom

import pytest
from support.engines.dynamodb import LONG, Calls, DynamoDBAdapter
from support.plugins.tiers import sized

from bench.aws_meter import Meter
from mail.adapters.aws.client import AwsClient
from mail.adapters.aws.documents import DynamoDBDocuments
from mail.adapters.aws.items import item_size, unpack
from mail.adapters.aws.store import DynamoDBStore
from mail.core.engine.documents import ServerDocuments
from mail.core.protocol.message import Tier
from mail.core.task.context import AgentContext, Cut
from mail.core.task.search import Search
from mail.core.task.task import TaskKey, Transition
from mail.core.task.webhooks import WebhookRecord
from mail.errors import LeaseLost, VersionConflict
from mail.testing.changes import ANN, NOW, Mail, Maker, checkpoint
from mail.testing.clock import FakeClock
from mail.testing.contracts import committed, first_turn, open_turn

KEY = TaskKey(ANN, "task-1")


@pytest.fixture
def store(table: DynamoDBAdapter, client: AwsClient, calls: Calls) -> DynamoDBStore:
    """A store whose requests are counted."""
    return table.another(client)


async def test_a_task_begins_with_one_request(store: DynamoDBStore, calls: Calls, make: Maker) -> None:
    await store.commit(make.begin(KEY, Mail("alpha"), Mail("beta")))
    assert calls.count == {"TransactWriteItems": 1}


@pytest.mark.parametrize(
    ("body", "requests"), [("hello", {"UpdateItem": 1}), (LONG, {"UpdateItem": 1, "Query": 1})]
)
async def test_a_turn_is_opened_with_two_at_most_and_committed_with_one(
    store: DynamoDBStore, calls: Calls, make: Maker, body: str, requests: dict[str, int]
) -> None:
    """A short message comes with its task."""
    await store.commit(make.begin(KEY, Mail("alpha", body=body)))
    calls.clear()
    turn = await open_turn(store, KEY, "alpha", make)
    assert calls.count == requests
    calls.clear()
    await store.commit(
        make.change(turn.task, Mail("beta"), turn=turn, history=[{"n": 1}], transition=Transition.COMPLETE)
    )
    assert calls.count == {"TransactWriteItems": 1}


@pytest.mark.parametrize(
    ("text", "save", "opening"),
    [
        ("done", {"UpdateItem": 1}, {"UpdateItem": 1}),
        (LONG, {"TransactWriteItems": 1}, {"UpdateItem": 1, "Query": 1}),
    ],
)
async def test_a_checkpoint_is_one_request_and_comes_with_the_turn(
    store: DynamoDBStore,
    calls: Calls,
    make: Maker,
    text: str,
    save: dict[str, int],
    opening: dict[str, int],
) -> None:
    turn = await first_turn(store, KEY, "alpha", make)
    calls.clear()
    await store.save_checkpoint(turn, checkpoint(text))
    assert calls.count == save
    calls.clear()
    assert (await open_turn(store, KEY, "alpha", make, now=NOW + 61)).checkpoint == checkpoint(text)
    assert calls.count == opening


async def test_a_token_for_nothing_costs_one(store: DynamoDBStore, calls: Calls, make: Maker) -> None:
    await store.commit(make.begin(KEY, Mail("alpha")))
    await open_turn(store, KEY, "alpha", make)
    calls.clear()
    for mailbox in ("alpha", "beta"):
        await store.open_turn(KEY, mailbox, make.lease(), now=NOW, history_after=0)
    assert calls.count == {"UpdateItem": 2}


async def test_a_turn_that_was_overtaken_pays_for_no_transaction(
    table: DynamoDBAdapter, client: AwsClient, calls: Calls, make: Maker
) -> None:
    """A refused one costs what one costs that goes through; only a turn beside others looks before its commit, once."""
    clock = FakeClock(run=1)
    store = table.another(client, clock=clock)
    await store.commit(make.begin(KEY, Mail("alpha"), Mail("beta")))
    alpha, beta = [await open_turn(store, KEY, name, make) for name in ("alpha", "beta")]
    calls.clear()
    await store.commit(make.change(beta.task, turn=beta))
    assert calls.count == {"TransactWriteItems": 1}, "quick turns don't look"
    clock.advance(1)
    calls.clear()
    with pytest.raises(VersionConflict) as conflict:
        await store.commit(make.change(alpha.task, turn=alpha))
    assert calls.count == {"GetItem": 1}
    assert conflict.value.current is not None
    calls.clear()
    await store.commit(make.change(conflict.value.current, Mail("beta"), turn=alpha))
    assert calls.count == {"TransactWriteItems": 1}
    last = await open_turn(store, KEY, "beta", make)
    clock.advance(1)
    calls.clear()
    await store.commit(make.change(last.task, turn=last))
    assert calls.count == {"TransactWriteItems": 1}, "a turn that is alone doesn't look"


async def test_a_turn_that_was_taken_over_pays_for_no_transaction(
    table: DynamoDBAdapter, client: AwsClient, calls: Calls, make: Maker
) -> None:
    clock = FakeClock(run=2)
    store = table.another(client, clock=clock)
    turn = await first_turn(store, KEY, "alpha", make, Mail("alpha"), Mail("beta"))
    other = await open_turn(table.store, KEY, "alpha", make, now=NOW + 61)
    await table.store.commit(make.change(other.task, turn=other))
    clock.advance(61)
    calls.clear()
    with pytest.raises(LeaseLost):
        await store.commit(make.change(turn.task, turn=turn))
    assert calls.count == {"GetItem": 1}


async def test_a_flooded_inbox_costs_nothing(
    table: DynamoDBAdapter, store: DynamoDBStore, client: AwsClient, make: Maker
) -> None:
    begun = make.begin(KEY, *(Mail("alpha", Tier.AGENT, "x" * 1000) for _ in range(90)))
    await store.commit(begun)
    received: list[int] = []
    client.botocore.meta.events.register(
        "response-received.dynamodb.Query",
        lambda response_dict, **_: received.append(len(response_dict["body"])),
    )
    turn = await open_turn(store, KEY, "alpha", make)
    assert turn.entry == begun.deliveries[0]
    assert received[0] < 3000


async def test_the_tasks_item_is_small_and_says_nothing_twice(
    table: DynamoDBAdapter, store: DynamoDBStore, make: Maker
) -> None:
    await store.commit(make.begin(KEY, Mail("alpha"), Mail("beta")))
    (item,) = table.items("META")
    assert item_size(item) < 900
    state = unpack(item["state"])
    assert not [
        name
        for name in ("version", "seq", "status", "pending", "instance", "started")
        if f'"{name}"' in state
    ]


async def test_a_conflict_tells_the_task_without_another_request(
    store: DynamoDBStore, calls: Calls, make: Maker
) -> None:
    begun = await committed(store, make.begin(KEY))
    await store.commit(make.change(begun.task))
    calls.clear()
    with pytest.raises(Exception, match="has changed since it was read"):
        await store.commit(make.change(begun.task))
    assert calls.count == {"TransactWriteItems": 1}


async def test_the_webhooks_of_many_callers_are_read_in_one_request(
    table: DynamoDBAdapter, client: AwsClient, calls: Calls
) -> None:
    records = ServerDocuments(DynamoDBDocuments(client, table.table))
    webhook = WebhookRecord(url="https://example.com/a", created="2026-01-01T00:00:00+00:00")
    for n in range(12):
        assert await records.set_webhook(f"user:{n}@s", webhook, limit=1)
    calls.clear()
    assert len(await records.all_webhooks()) == 12
    assert calls.count == {"Query": 1}


async def test_a_search_for_any_task_reads_no_more_than_a_list(
    table: DynamoDBAdapter, store: DynamoDBStore, client: AwsClient, make: Maker
) -> None:
    """The page asks for the last task every few seconds."""
    for n in range(30):
        await table.store.commit(make.begin(TaskKey(ANN, f"task-{n}"), Mail("alpha")))
    meter, paid = Meter(lambda _table, _key: {}), []
    meter.watch(client.botocore)
    for reading in (store.list_tasks(ANN, limit=1), store.search(ANN, Search(), limit=1)):
        assert len((await reading).tasks) == 1
        paid.append(meter.take().read_units)
    assert paid[0] == paid[1]


async def test_a_process_that_does_not_know_a_task_reads_its_history_from_the_cut_on(
    table: DynamoDBAdapter, store: DynamoDBStore, client: AwsClient, make: Maker
) -> None:
    """So it pays the same however long the task is."""
    meter, paid = Meter(lambda _table, _key: {}), []
    meter.watch(client.botocore)
    for turns in (30, sized(fast=60, full=60, soak=1000)):
        key = TaskKey(ANN, f"{turns} turns")
        begun = await committed(table.store, make.begin(key, Mail("alpha")))
        contexts = {"alpha": AgentContext(cut=Cut(begin=turns - 20))}
        task = replace(begun.task, contexts=contexts)
        for n in range(turns):
            change = make.change(task, history=[{"n": n, "content": urandom(400).hex()}])
            await table.store.commit(change)
            task = change.task
        meter.take()
        turn = await open_turn(store, key, "alpha", make)
        assert [entry["n"] for entry in turn.history] == list(range(turns - 21, turns))
        usage = meter.take()
        paid.append((usage.calls, usage.read_units))
    assert paid[0] == paid[1]
