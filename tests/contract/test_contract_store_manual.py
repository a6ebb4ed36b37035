"""Store: what manual mode asks of it. A turn may read several messages, and no mail of a manual task is ready."""

from dataclasses import replace

import pytest
from support.engines.adapters import StoreAdapter, loaded

from mail.core.protocol.message import Tier
from mail.core.task.change import TaskChange, Turn
from mail.core.task.limits import MAIL_PER_READING
from mail.core.task.ports import Idle, Store
from mail.core.task.task import TaskKey
from mail.errors import VersionConflict
from mail.testing.changes import ANN, NOW, Mail, Maker
from mail.testing.contracts import committed, everything, first_turn, open_turn

KEY = TaskKey(ANN, "task-1")

MAIL = (
    Mail("alpha", Tier.PERSON, "one"),
    Mail("alpha", Tier.AGENT, "two"),
    Mail("beta", Tier.AGENT, "not mine"),
    Mail("alpha", Tier.SYSTEM, "three"),
    Mail("alpha", Tier.AGENT, "four"),
)


async def open_with_all(store: Store, make: Maker) -> Turn:
    """The next turn of `alpha`, which reads all of its mail but the last message."""
    turn = await open_turn(store, KEY, "alpha", make)
    others = [
        entry for entry in await store.read_inbox(KEY) if entry.mailbox == "alpha" and entry != turn.entry
    ]
    return replace(turn, also_read=tuple(others[:-1]))


async def bodies(store: Store) -> list[str]:
    return [entry.message.message.body for entry in await store.read_inbox(KEY)]


async def read_all(store: Store, make: Maker) -> TaskChange:
    await store.commit(make.begin(KEY, *MAIL))
    turn = await open_with_all(store, make)
    return await committed(
        store, make.change(turn.task, Mail("beta", Tier.AGENT, "five"), turn=turn, history=[{"role": "user"}])
    )


async def test_all_that_was_read_leaves_the_mailbox(store: Store, make: Maker) -> None:
    change = await read_all(store, make)
    assert await bodies(store) == ["not mine", "four", "five"]
    assert change.task.pending == {"alpha": (0, 0, 0, 0, 1), "beta": (0, 0, 0, 0, 2)}
    assert (await open_turn(store, KEY, "alpha", make)).entry.message.message.body == "four"


async def test_nothing_leaves_it_when_somebody_else_was_first(store: Store, make: Maker) -> None:
    await store.commit(make.begin(KEY, *MAIL))
    turn = await open_with_all(store, make)
    await store.commit(make.change(turn.task, Mail("gamma")))
    with pytest.raises(VersionConflict):
        await store.commit(make.change(turn.task, turn=turn))
    assert len(await store.read_inbox(KEY)) == 6
    task = await loaded(store, KEY)
    await store.commit(make.change(task, turn=turn))
    assert sorted(await bodies(store)) == ["four", "hello", "not mine"]


async def test_as_much_as_a_turn_may_read_leaves_room_for_what_it_sends(store: Store, make: Maker) -> None:
    crowd = [Mail("alpha", Tier.AGENT, f"line {n}") for n in range(MAIL_PER_READING)]
    turn = await first_turn(store, KEY, "alpha", make, Mail("alpha", Tier.SYSTEM, "say it"), *crowd)
    turn = replace(
        turn, also_read=tuple(entry for entry in await store.read_inbox(KEY) if entry.seq != turn.entry.seq)
    )
    sent = [Mail(f"hearer-{n}", Tier.AGENT, f"said {n}") for n in range(60)]
    await store.commit(make.change(turn.task, *sent, turn=turn, history=[{"role": "user"}]))
    assert sorted(await bodies(store)) == sorted(f"said {n}" for n in range(60))


async def test_it_is_still_gone_after_reopening(durable: StoreAdapter, make: Maker) -> None:
    await read_all(durable.store, make)
    before = await everything(durable.store, KEY)
    store = await durable.reopen()
    assert await everything(store, KEY) == before
    assert await bodies(store) == ["not mine", "four", "five"]


async def test_mail_of_manual_tasks_is_not_ready(store: Store, make: Maker) -> None:
    begun = make.begin(KEY, *MAIL)
    manual = await committed(store, replace(begun, task=replace(begun.task, manual=True)))
    assert await store.list_ready() == []
    assert await store.open_turn(KEY, "gamma", make.lease(), now=NOW, history_after=0) == Idle(manual.task)
    assert (await open_turn(store, KEY, "alpha", make)).task.manual  # the taker of the step decides
