"""A short message that waits alone stands in the item of its task: nothing else about it is any different."""

import pytest
from support.engines.dynamodb import LONG, Calls, DynamoDBAdapter

from mail.adapters.aws.client import AwsClient
from mail.adapters.aws.items import item_size, task_checkpoint_name, task_mail, unpack
from mail.adapters.aws.store import DynamoDBStore
from mail.core.protocol.message import Tier
from mail.core.task.ports import Idle
from mail.core.task.task import TaskKey
from mail.errors import LeaseLost
from mail.testing.changes import ANN, NOW, Mail, Maker, checkpoint
from mail.testing.contracts import committed, first_turn, open_turn

KEY = TaskKey(ANN, "task-1")


def in_task(table: DynamoDBAdapter) -> list[str]:
    """The mailboxes of the mail that stands in the task's item."""
    (item,) = table.items("META")
    return sorted(task_mail(item))


async def test_it_comes_and_goes_with_commits(table: DynamoDBAdapter, make: Maker) -> None:
    store = table.store
    begun = await committed(store, make.begin(KEY, Mail("alpha")))
    assert in_task(table) == ["alpha"]
    assert table.items("A#") == []
    assert await store.read_inbox(KEY) == list(begun.deliveries)
    turn = await open_turn(store, KEY, "alpha", make)
    change = await committed(store, make.change(turn.task, Mail("beta#%"), turn=turn))
    assert in_task(table) == ["beta#%"]
    assert await store.read_inbox(KEY) == list(change.deliveries)
    turn = await open_turn(table.another(), KEY, "beta#%", make)
    assert turn.entry == change.deliveries[0]
    await store.commit(make.change(turn.task, turn=turn))
    assert (in_task(table), table.items("A#")) == ([], [])


@pytest.mark.parametrize(
    "mail",
    [[Mail("alpha", body=LONG)], [Mail(f"agent-{n}") for n in range(20)]],
    ids=["a long message", "many messages"],
)
async def test_what_makes_the_item_larger_than_1_kb_gets_items_of_its_own(
    table: DynamoDBAdapter, make: Maker, mail: list[Mail]
) -> None:
    await table.store.commit(make.begin(KEY, *mail))
    assert in_task(table) == []
    assert len(table.items("A#")) == len(mail)


async def test_what_comes_behind_it_gets_an_item_and_all_is_read_in_order(
    table: DynamoDBAdapter, make: Maker
) -> None:
    task = (await committed(table.store, make.begin(KEY, Mail("alpha", body="first")))).task
    for mail in (Mail("alpha", body="second"), Mail("alpha", Tier.SYSTEM, "urgent"), Mail("beta")):
        change = await committed(table.store, make.change(task, mail))
        task = change.task
    assert in_task(table) == ["alpha"]
    assert len(table.items("A#")) == 3
    waiting = [
        entry.message.message.body for entry in await table.store.read_inbox(KEY) if entry.mailbox == "alpha"
    ]
    assert waiting == ["urgent", "first", "second"]
    for n, body in enumerate(waiting):
        turn = await open_turn(table.store, KEY, "alpha", make, history_after=n)
        assert (turn.entry.message.message.body, turn.history) == (body, [])
        change = await committed(table.store, make.change(turn.task, turn=turn, history=[{"n": n}]))
    assert [item["SK"]["S"][:9] for item in table.items("A#") if "message" in item] == ["A#beta#I#"]


async def test_a_checkpoint_stands_beside_it_and_goes_with_its_turn(
    table: DynamoDBAdapter, make: Maker
) -> None:
    begun = await committed(table.store, make.begin(KEY, Mail("alpha")))
    turn = await open_turn(table.store, KEY, "alpha", make)
    for text in ("one", "two"):
        await table.store.save_checkpoint(turn, checkpoint(text))
    assert (in_task(table), table.items("A#")) == (["alpha"], [])
    heir = await open_turn(table.another(), KEY, "alpha", make, now=NOW + 61)
    assert (heir.entry, heir.checkpoint) == (begun.deliveries[0], checkpoint("two"))
    with pytest.raises(LeaseLost):
        await table.store.save_checkpoint(turn, checkpoint("three"))
    with pytest.raises(LeaseLost):
        await table.store.commit(make.change(turn.task, turn=turn))
    await table.store.commit(make.change(heir.task, turn=heir))
    (item,) = table.items("META")
    assert [name for name in item if "#" in name] == []


async def test_checkpoints_of_turns_that_run_at_once_do_not_add_up_in_it(
    table: DynamoDBAdapter, make: Maker
) -> None:
    await table.store.commit(make.begin(KEY, *(Mail(f"agent-{n}") for n in range(4))))
    running = [await open_turn(table.store, KEY, f"agent-{n}", make) for n in range(4)]
    for turn in running:
        await table.store.save_checkpoint(turn, checkpoint("begun"))
    (item,) = table.items("META")
    assert [name for name in item if name.startswith("C#")] == [task_checkpoint_name(running[0].entry)]
    for turn in running:
        heir = await open_turn(table.another(), KEY, turn.mailbox, make, now=NOW + 61)
        assert heir.checkpoint == checkpoint("begun")


async def test_with_a_long_checkpoint_it_gets_an_item_and_leaves_it_with_its_turn(
    table: DynamoDBAdapter, make: Maker
) -> None:
    begun = await committed(table.store, make.begin(KEY, Mail("alpha")))
    turn = await open_turn(table.store, KEY, "alpha", make)
    for text in (LONG, "short"):
        await table.store.save_checkpoint(turn, checkpoint(text))
        assert in_task(table) == []
        assert [unpack(item["message"]) for item in table.items("A#alpha#I")] == [
            begun.deliveries[0].message.model_dump_json()
        ]
    heir = await open_turn(table.another(), KEY, "alpha", make, now=NOW + 61)
    assert (heir.entry, heir.checkpoint) == (begun.deliveries[0], checkpoint("short"))
    await table.store.commit(make.change(heir.task, turn=heir))
    assert table.items("A#alpha#I") == []
    assert await table.store.read_inbox(KEY) == []


async def test_who_has_not_opened_the_turn_ends_it_as_well(table: DynamoDBAdapter, make: Maker) -> None:
    """A process that doesn't know where the message stands removes it from both places."""
    turn = await first_turn(table.store, KEY, "alpha", make)
    await table.another().save_checkpoint(turn, checkpoint("elsewhere"))
    assert len(table.items("A#alpha#I")) == 1
    change = await committed(table.another(), make.change(turn.task, turn=turn))
    assert (in_task(table), table.items("A#alpha#I")) == ([], [])
    opened = await table.store.open_turn(KEY, "alpha", make.lease(), now=NOW, history_after=0)
    assert opened == Idle(change.task)


async def test_history_is_read_with_one_query(
    table: DynamoDBAdapter, client: AwsClient, calls: Calls, make: Maker
) -> None:
    store: DynamoDBStore = table.another(client)
    await store.commit(make.begin(KEY, Mail("alpha")))
    for n in range(5):
        turn = await open_turn(store, KEY, "alpha", make, history_after=n)
        await store.commit(make.change(turn.task, Mail("alpha"), turn=turn, history=[{"n": n}]))
    calls.clear()
    turn = await open_turn(store, KEY, "alpha", make, history_after=2)
    assert calls.count == {"UpdateItem": 1, "Query": 1}
    assert [entry["n"] for entry in turn.history] == [2, 3, 4]


async def test_the_item_remains_within_1_kb_while_it_is_leased(table: DynamoDBAdapter, make: Maker) -> None:
    await table.store.commit(make.begin(KEY, Mail("alpha", body=LONG[:1000])))
    assert in_task(table) == ["alpha"]
    await open_turn(table.store, KEY, "alpha", make)
    (item,) = table.items("META")
    assert 900 < item_size(item) <= 1024
