"""A message to more mailboxes than a transaction has room for: all of them get it, or none."""

from collections.abc import Sequence

import pytest
from support.engines.dynamodb import Calls, DynamoDBAdapter
from support.faults.dynamodb import Faults, lost_answer, new_token, refusal

from mail.adapters.aws.client import AwsClient
from mail.core.protocol.message import Tier
from mail.core.task.change import TaskChange, Turn
from mail.core.task.draft import Draft
from mail.core.task.ports import Idle, Store
from mail.core.task.task import Task, TaskKey
from mail.errors import StoreUnavailable, VersionConflict
from mail.testing.changes import ANN, NOW, SWARM, Mail, Maker
from mail.testing.contracts import committed, open_turn

KEY = TaskKey(ANN, "task-1")
CROWD = [f"agent-{n:03}" for n in range(130)]
dead = refusal("ValidationException")
"""Ends a commit before its transaction, so that nothing is tidied up: as if its process had died there."""

LARGE_CROWD = [f"agent-{n:03}" for n in range(210)]


def broadcast(
    make: Maker,
    task: Task,
    *,
    turn: Turn | None = None,
    body: str = "to all",
    mailboxes: Sequence[str] = CROWD,
) -> TaskChange:
    """One message to everybody."""
    draft = Draft(task, SWARM, make.clock)
    if turn is not None:
        draft.end_turn(turn, consume=True)
        draft.remember(turn.mailbox, [{"said": body}])
    draft.send(make.message(task.task_id, Mail("all", Tier.BROADCAST, body)), mailboxes)
    return draft.seal()


async def bodies(store: Store) -> list[tuple[str, str]]:
    """What waits, by mailbox."""
    return sorted((entry.mailbox, entry.message.message.body) for entry in await store.read_inbox(KEY))


async def begin(table: DynamoDBAdapter, make: Maker) -> Task:
    change = await committed(table.store, make.begin(KEY, Mail("alpha")))
    return change.task


@pytest.mark.soak
async def test_everybody_gets_it_once(table: DynamoDBAdapter, make: Maker) -> None:
    await begin(table, make)
    turn = await open_turn(table.store, KEY, "alpha", make)
    change = await committed(table.store, broadcast(make, turn.task, turn=turn, mailboxes=LARGE_CROWD))
    assert await bodies(table.store) == [(name, "to all") for name in LARGE_CROWD]
    assert {token.mailbox for token in await table.store.list_ready()} == set(LARGE_CROWD)
    task = change.task
    for name in (LARGE_CROWD[0], LARGE_CROWD[105], LARGE_CROWD[-1]):
        turn = await open_turn(table.another(), KEY, name, make)
        assert turn.entry == next(entry for entry in change.deliveries if entry.mailbox == name)
        task = (await committed(table.store, make.change(task, turn=turn))).task
    assert len(table.items("A#agent")) == len(LARGE_CROWD) - 3
    assert table.items(f"A#{LARGE_CROWD[-1]}#I") == []


async def test_a_staged_message_costs_one_more_request_to_read(
    table: DynamoDBAdapter, client: AwsClient, calls: Calls, make: Maker
) -> None:
    await table.store.commit(broadcast(make, await begin(table, make)))
    for name, requests in ((CROWD[0], 2), (CROWD[-1], 3)):
        calls.clear()
        await open_turn(table.another(client), KEY, name, make)
        assert calls.count.total() == requests


async def test_one_large_message_to_all_is_kept_once(table: DynamoDBAdapter, make: Maker) -> None:
    """90 mailboxes of 60 KB are more than a transaction holds."""
    change = await committed(table.store, broadcast(make, await begin(table, make), body="x" * 60_000))
    blobs = {item["message"]["M"]["blob"]["S"] for item in table.items("A#agent")}
    assert len(blobs) == 1
    assert await bodies(table.store) == [*((name, "x" * 60_000) for name in CROWD), ("alpha", "hello")]
    assert (await table.store.read_events(KEY))[-1] == change.events[-1]


async def test_who_loses_takes_back_what_was_staged(table: DynamoDBAdapter, make: Maker) -> None:
    task = await begin(table, make)
    await table.store.commit(make.change(task, Mail("beta")))
    with pytest.raises(VersionConflict):
        await table.another().commit(broadcast(make, task))
    assert table.items("A#agent") == []


async def test_what_is_staged_does_not_count_before_its_commit(
    table: DynamoDBAdapter, client: AwsClient, faults: Faults, make: Maker
) -> None:
    """The process dies between the two writes."""
    task = await begin(table, make)
    faults.plan("TransactWriteItems", dead)
    with pytest.raises(StoreUnavailable):
        await table.another(client).commit(broadcast(make, task))
    assert len(table.items("A#agent")) > 30
    assert await bodies(table.store) == [("alpha", "hello")]
    assert [token.mailbox for token in await table.store.list_ready()] == ["alpha"]
    opened = await table.store.open_turn(KEY, CROWD[-1], make.lease(), now=NOW, history_after=0)
    assert opened == Idle(task)


async def test_whoever_meets_what_a_dead_commit_has_left_deletes_it(
    table: DynamoDBAdapter, client: AwsClient, faults: Faults, make: Maker
) -> None:
    task = await begin(table, make)
    faults.plan("TransactWriteItems", dead)
    with pytest.raises(StoreUnavailable):
        await table.another(client).commit(broadcast(make, task, body="never sent"))
    await table.store.commit(make.change(task, *(Mail(CROWD[-1], Tier.AGENT, f"sent {n}") for n in range(2))))
    turn = await open_turn(table.store, KEY, CROWD[-1], make)
    assert turn.entry.message.message.body == "sent 0"
    assert len(table.items(f"A#{CROWD[-1]}#I")) == 2
    assert await bodies(table.store) == [
        (CROWD[-1], "sent 0"),
        (CROWD[-1], "sent 1"),
        ("alpha", "hello"),
    ]


async def test_two_that_were_decided_on_one_version_keep_apart(
    table: DynamoDBAdapter, client: AwsClient, faults: Faults, make: Maker
) -> None:
    """Both stage mail with the same seq for the same mailboxes; the one that comes later must not touch the other's."""
    task = await begin(table, make)
    winner = broadcast(make, task, body="winner")
    loser = broadcast(make, task, body="loser")
    await table.store.commit(winner)
    faults.plan("TransactWriteItems", dead)
    with pytest.raises(StoreUnavailable):
        await table.another(client).commit(loser)
    assert await bodies(table.store) == [*((name, "winner") for name in CROWD), ("alpha", "hello")]
    turn = await open_turn(table.store, KEY, CROWD[-1], make)
    assert turn.entry.message.message.body == "winner"


async def test_it_counts_when_only_the_answer_got_lost(
    table: DynamoDBAdapter, client: AwsClient, faults: Faults, make: Maker
) -> None:
    task = await begin(table, make)
    faults.plan("TransactWriteItems", lost_answer, new_token)
    await table.another(client).commit(broadcast(make, task))
    assert len(await bodies(table.store)) == 131
