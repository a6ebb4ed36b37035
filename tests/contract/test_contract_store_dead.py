"""Store: the tasks with dead letters, of an instance and of all."""

from dataclasses import replace

import pytest

from mail.core.task.change import TaskChange
from mail.core.task.ports import Store
from mail.core.task.task import Task, TaskKey
from mail.errors import BadRequest
from mail.testing.changes import ANN, BOB, Mail, Maker
from mail.testing.contracts import committed


def with_dead(change: TaskChange, *seqs: int) -> TaskChange:
    return replace(change, task=replace(change.task, dead_letters=seqs))


async def begin(store: Store, make: Maker, instance: str, task_id: str, *dead: int) -> Task:
    """A task, of which a second commit makes the dead letters."""
    begun = await committed(store, make.begin(TaskKey(instance, task_id), Mail("alpha")))
    change = await committed(store, with_dead(make.change(begun.task), *dead))
    return change.task


async def listed(
    store: Store, instance: str | None, *, limit: int = 100, cursor: str | None = None
) -> list[str]:
    page = await store.list_dead(instance, limit=limit, cursor=cursor)
    return [task.task_id for task in page.tasks]


async def test_only_tasks_with_dead_letters_are_listed_the_newest_first(store: Store, make: Maker) -> None:
    await begin(store, make, ANN, "one", 2)
    await begin(store, make, ANN, "two")
    await begin(store, make, ANN, "three", 2, 3)
    await begin(store, make, BOB, "four", 2)
    assert await listed(store, ANN) == ["three", "one"]
    assert await listed(store, BOB) == ["four"]
    assert sorted(await listed(store, None)) == ["four", "one", "three"]
    assert await listed(store, "user:nobody@example") == []


async def test_what_is_listed_is_the_task_itself(store: Store, make: Maker) -> None:
    task = await begin(store, make, ANN, "one", 2, 3)
    (found,) = (await store.list_dead(ANN)).tasks
    assert found == task
    assert found.dead_letters == (2, 3)


async def test_a_task_may_begin_with_one(store: Store, make: Maker) -> None:
    await store.commit(with_dead(make.begin(TaskKey(ANN, "one"), Mail("alpha")), 1))
    assert await listed(store, ANN) == ["one"]


async def test_it_leaves_the_list_with_its_last_dead_letter_and_may_come_back(
    store: Store, make: Maker
) -> None:
    task = await begin(store, make, ANN, "one", 2, 3)
    for dead, expected in (((3,), ["one"]), ((), []), ((9,), ["one"])):
        task = (await committed(store, with_dead(make.change(task), *dead))).task
        assert await listed(store, ANN) == expected
        assert await listed(store, None) == expected


@pytest.mark.parametrize("instance", [ANN, None])
async def test_pages(store: Store, make: Maker, instance: str | None) -> None:
    for number in range(5):
        await begin(store, make, ANN, f"task-{number}", 2)
    found, cursor, sizes = [], None, []
    while True:
        page = await store.list_dead(instance, limit=2, cursor=cursor)
        found += [task.task_id for task in page.tasks]
        sizes.append(len(page.tasks))
        cursor = page.cursor
        if cursor is None:
            break
    assert sizes == [2, 2, 1]
    assert found == [f"task-{number}" for number in (4, 3, 2, 1, 0)]


async def test_a_full_page_that_is_the_last_has_no_cursor(store: Store, make: Maker) -> None:
    for number in range(2):
        await begin(store, make, ANN, f"task-{number}", 2)
    assert (await store.list_dead(ANN, limit=2)).cursor is None


@pytest.mark.parametrize("cursor", ["nonsense", "-1", "9" * 40, "é"])
async def test_a_cursor_that_nobody_gave_out(store: Store, make: Maker, cursor: str) -> None:
    with pytest.raises(BadRequest, match="cursor"):
        await store.list_dead(ANN, cursor=cursor)


async def test_names_too_long_for_a_sort_key(store: Store, make: Maker) -> None:
    instance = f"user:{'a' * 900}@example"
    await begin(store, make, instance, "t" * 200, 2)
    assert await listed(store, instance) == ["t" * 200]
