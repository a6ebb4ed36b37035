"""Store: deleting a task, and how much an instance stores."""

from dataclasses import replace

import pytest
from support.engines.adapters import StoreAdapter

from mail.core.decisions.schedules import save
from mail.core.engine.versions import Versions
from mail.core.task.change import Inheritance
from mail.core.task.ports import Idle, Store, read_history
from mail.core.task.schedules import Schedule
from mail.core.task.task import Task, TaskKey, Transition
from mail.errors import LeaseLost, TaskNotFound, VersionConflict
from mail.testing.changes import ANN, BOB, NOW, SWARM, Mail, Maker, checkpoint
from mail.testing.clock import FakeClock
from mail.testing.contracts import committed, everything, first_turn, open_turn

DAY = 86_400
KEY, OTHER = TaskKey(ANN, "task-1"), TaskKey(ANN, "task-2")


async def stopped(store: Store, make: Maker, key: TaskKey = KEY, *, bodies: int = 1) -> Task:
    """A task that has stopped, with events, mail, a history and an answer."""
    await store.commit(
        make.begin(key, *(Mail("alpha", body="x" * 300_000) for _ in range(bodies)), Mail("beta"))
    )
    turn = await open_turn(store, key, "alpha", make)
    await store.save_checkpoint(turn, checkpoint())
    ended = make.change(turn.task, turn=turn, history=[{"role": "user"}], transition=Transition.COMPLETE)
    await store.commit(ended)
    return ended.task


async def test_everything_is_gone_and_the_id_is_free(store: Store, make: Maker) -> None:
    task, other = await stopped(store, make, bodies=4), await stopped(store, make, OTHER)
    kept = await everything(store, OTHER)
    await store.delete(task)
    assert await store.load(KEY) is None
    assert [each.key for each in (await store.list_tasks(ANN)).tasks] == [OTHER]
    assert [each.key for each in (await store.list_tasks(None)).tasks] == [OTHER]
    assert await store.open_turn(KEY, "beta", make.lease(), now=NOW, history_after=0) == Idle(None)
    again = await committed(store, make.begin(KEY, Mail("alpha", body="again")))
    assert await store.read_events(KEY) == list(again.events)
    assert await read_history(store, KEY, "alpha") == []
    assert len(await store.read_inbox(KEY)) == 1
    assert await everything(store, OTHER) == kept
    assert other.key == OTHER


async def oldest(store: Store, cursor: str | None = None) -> list[str]:
    page = await store.list_oldest(limit=1, cursor=cursor)
    found = [task.task_id for task in page.tasks]
    return found if page.cursor is None else [*found, *await oldest(store, page.cursor)]


async def test_the_oldest_tasks_are_those_of_callers(adapter: StoreAdapter) -> None:
    """Schedules, which are tasks of the server, may be older. A store whose data expires has no such order."""
    clock = FakeClock()
    make, store = Maker(clock), adapter.store
    scheduled = save(
        None, SWARM, Schedule(name="daily", cron="0 8 * * *", body="look", caller=ANN), ANN, clock
    )
    assert scheduled is not None
    await store.commit(scheduled)
    clock.advance(3600)
    first = await stopped(store, make)
    clock.advance(3600)
    await stopped(store, make, OTHER)
    is_ordered = (await store.list_oldest(limit=1)).is_ordered
    assert await oldest(store) == [KEY.task_id, OTHER.task_id] * is_ordered
    await store.delete(first)
    assert await oldest(store) == [OTHER.task_id] * is_ordered


async def test_a_version_is_deleted_with_the_last_task_that_may_refer_to_it(adapter: StoreAdapter) -> None:
    clock = FakeClock()
    make, store = Maker(clock), adapter.store
    old, new = replace(SWARM, version="1"), replace(SWARM, version="2")
    versions = Versions(adapter.records._documents, clock)

    async def kept() -> list[bool]:
        await versions.delete_unused(store)
        return [await versions.read(swarm.digest) is not None for swarm in (old, new)]

    await versions.keep(old)
    clock.advance(DAY)
    assert versions.needs(old) is False
    clock.advance(1)
    assert versions.needs(old) is True
    first = await stopped(store, make)
    clock.advance(9 * DAY)
    await versions.keep(new)
    await stopped(store, make, OTHER)
    assert await kept() == [True, True]
    await store.delete(first)
    assert await kept() == [True, True], "it looks once a day"
    clock.advance(DAY)
    assert await kept() == [not (await store.list_oldest(limit=1)).is_ordered, True]


async def test_a_task_that_has_changed_stays(store: Store, make: Maker) -> None:
    task = await stopped(store, make)
    resumed = await committed(store, make.change(task, Mail("alpha"), transition=Transition.RESUME))
    with pytest.raises(VersionConflict):
        await store.delete(task)
    assert await store.load(KEY) == resumed.task


async def test_what_is_gone_can_neither_be_changed_nor_deleted(store: Store, make: Maker) -> None:
    task = await stopped(store, make)
    await store.delete(task)
    for refused in (
        store.delete(task),
        store.commit(make.change(task, Mail("alpha"), transition=Transition.RESUME)),
    ):
        with pytest.raises(VersionConflict) as refusal:
            await refused
        assert refusal.value.current is None


async def test_a_turn_of_a_deleted_task_has_lost_its_lease(store: Store, make: Maker) -> None:
    turn = await first_turn(store, KEY, "alpha", make)
    await store.delete(turn.task)
    with pytest.raises(LeaseLost):
        await store.commit(make.change(turn.task, turn=turn))
    await store.release(turn)


async def test_nothing_is_inherited_from_a_task_that_is_gone(store: Store, make: Maker) -> None:
    task, fork = await stopped(store, make), make.begin(OTHER)
    await store.delete(task)
    with pytest.raises(TaskNotFound):
        await store.commit(replace(fork, inherits=Inheritance(KEY, {"alpha": 1}, 10)))
    assert await store.load(OTHER) is None


async def test_the_bytes_of_an_instance_are_those_of_its_tasks(durable: StoreAdapter, make: Maker) -> None:
    store = durable.store
    assert (await store.usage_of(ANN)).bytes == 0
    tasks = [await stopped(store, make, key) for key in (KEY, OTHER, TaskKey(BOB, "task-1"))]
    total = sum(task.stored_bytes for task in tasks[:2])
    assert total > 600_000
    assert (await store.usage_of(ANN)).bytes == total
    await store.delete(tasks[0])
    assert (await store.usage_of(ANN)).bytes == tasks[1].stored_bytes
    store = await durable.reopen()
    assert (await store.usage_of(ANN)).bytes == tasks[1].stored_bytes
    assert (await store.usage_of(BOB)).bytes == tasks[2].stored_bytes
    await store.commit(make.change(tasks[1], Mail("alpha", body="y" * 5000), transition=Transition.RESUME))
    assert (await store.usage_of(ANN)).bytes >= tasks[1].stored_bytes
