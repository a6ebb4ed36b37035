"""Several functions work on one task, each with a store of its own: nothing gets lost, and nothing happens twice."""

import asyncio

import pytest
from support.engines.dynamodb import LONG, Calls, DynamoDBAdapter, make_client

from mail.core.protocol.message import Tier
from mail.core.task.task import TaskKey, Transition
from mail.testing.changes import ANN, Mail, Maker
from mail.testing.contracts import committed, open_turn

KEY = TaskKey(ANN, "task-1")


async def test_what_comes_in_while_a_turn_is_opened_waits_for_the_next_one(
    table: DynamoDBAdapter, make: Maker
) -> None:
    """A commit between the lease and the query: its mail may sort before the head, its history before the mail."""
    begun = await committed(table.store, make.begin(KEY, Mail("alpha", body=LONG)))
    client = make_client(table.engine, "dynamodb")
    loop = asyncio.get_running_loop()
    late = make.change(
        begun.task, Mail("alpha", Tier.SYSTEM, "came in"), history=[{"came": "in"}], agent="alpha"
    )

    def commit_meanwhile(**_: object) -> None:
        client.botocore.meta.events.unregister("before-send.dynamodb.Query", commit_meanwhile)
        asyncio.run_coroutine_threadsafe(table.store.commit(late), loop).result(10)

    client.botocore.meta.events.register("before-send.dynamodb.Query", commit_meanwhile)
    turn = await open_turn(table.another(client), KEY, "alpha", make)
    assert (turn.task, turn.history) == (begun.task, [])
    assert turn.entry.message.message.body == LONG
    await table.store.commit(make.change(late.task, turn=turn))
    turn = await open_turn(table.store, KEY, "alpha", make)
    assert turn.entry.message.message.body == "came in"
    assert turn.history == [{"came": "in"}]
    client.close()


async def test_a_waiter_sees_what_another_function_commits(table: DynamoDBAdapter, make: Maker) -> None:
    begun = await committed(table.store, make.begin(KEY))
    watching = asyncio.create_task(table.another().wait_for_change(KEY, after=begun.task.seq, seconds=30))
    await asyncio.sleep(0.1)
    change = await committed(table.store, make.change(begun.task))
    async with asyncio.timeout(25):  # less than it would wait
        assert await watching == change.task.seq


async def test_what_is_committed_here_is_seen_at_once(
    table: DynamoDBAdapter, make: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mail.adapters.aws.waits.FIRST_POLL", 60.0)
    begun = await committed(table.store, make.begin(KEY))
    waiting = [
        asyncio.create_task(table.store.wait_for_change(KEY, after=begun.task.seq, seconds=60)),
        asyncio.create_task(table.store.wait_for_response(KEY, 1, seconds=60)),
    ]
    await asyncio.sleep(0.5)
    change = await committed(table.store, make.change(begun.task, transition=Transition.COMPLETE))
    async with asyncio.timeout(50):  # less than its first pause
        assert await asyncio.gather(*waiting) == [change.task.seq, change.response]


async def test_a_waiter_looks_ever_more_seldom(
    table: DynamoDBAdapter, calls: Calls, client: object, make: Maker
) -> None:
    await table.store.commit(make.begin(KEY))
    store = table.another(client)  # type: ignore[arg-type]
    assert await store.wait_for_change(KEY, after=1, seconds=1.5) == 1
    assert 2 <= calls.count["GetItem"] <= 9
    assert calls.count.total() == calls.count["GetItem"]
