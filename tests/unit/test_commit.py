"""The decide–commit–retry loop: decided again after each conflict, on the task as it is then."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from mail.core.engine.commit import Committer, load_task
from mail.core.task.change import TaskChange
from mail.core.task.draft import Draft
from mail.core.task.events import EventKind
from mail.core.task.ports import Store
from mail.core.task.task import Task, TaskKey
from mail.errors import MailboxFull, TaskNotFound
from mail.testing.agents import build_swarm, complete, turns
from mail.testing.rig import Rig


class Contested:
    """A store in which another writer commits first, so many times."""

    def __init__(self, rig: Rig, rivals: int) -> None:
        self._rig = rig
        self._rivals = rivals
        self.loads = 0

    async def load(self, key: TaskKey) -> Task | None:
        self.loads += 1
        return await self._rig.store.load(key)

    async def commit(self, change: TaskChange) -> None:
        if self._rivals:
            self._rivals -= 1
            task = await load_task(self._rig.store, change.key)
            await self._rig.store.commit(note(self._rig, task, "rival"))
        await self._rig.store.commit(change)


def note(rig: Rig, task: Task, text: str) -> TaskChange:
    draft = Draft(task, rig.swarm, rig.clock)
    draft.emit(EventKind.AWAIT_MESSAGE, text)
    return draft.seal()


async def ended(rig: Rig) -> Task:
    return (await rig.ask()).task


def rig() -> Rig:
    return Rig(build_swarm({"supervisor": turns([complete("hi")])}))


@pytest.mark.parametrize("rivals", [0, 1, 3])
async def test_a_conflict_is_decided_again_on_the_current_task(rivals: int) -> None:
    async with rig() as running:
        task = await ended(running)
        store = Contested(running, rivals)
        committer = Committer(cast(Store, store))
        decided: list[int] = []

        def decide(task: Task) -> TaskChange:
            decided.append(task.version)
            return note(running, task, "mine")

        change = await committer.commit(decide, task)
        assert decided == [task.version + n for n in range(rivals + 1)]
        assert committer.conflicts == rivals
        assert store.loads == 0  # a conflict of this store brings the current task
        assert (await load_task(running.store, task.key)).version == change.task.version


async def test_what_is_decided_for_nothing_is_not_committed() -> None:
    async with rig() as running:
        task = await ended(running)
        answers = iter([note(running, task, "mine"), None])
        committer = Committer(cast(Store, Contested(running, 1)))
        assert await committer.commit(lambda _: next(answers), task) is None
        assert committer.conflicts == 1


async def test_a_guard_refuses_every_attempt() -> None:
    seen: list[int] = []

    @asynccontextmanager
    async def guard(before: Task | None, change: TaskChange) -> AsyncIterator[None]:
        seen.append(change.expected_version)
        if len(seen) == 2:
            raise MailboxFull("full")
        yield

    async with rig() as running:
        task = await ended(running)
        committer = Committer(cast(Store, Contested(running, 5)))
        with pytest.raises(MailboxFull):
            await committer.commit(lambda task: note(running, task, "mine"), task, guard=guard)
        assert seen == [task.version, task.version + 1]


async def test_the_caller_may_say_how_the_task_is_read_again() -> None:
    async with rig() as running:
        task = await ended(running)
        seen: list[Any] = []

        async def reload() -> Task | None:
            return None

        def decide(task: Task | None) -> TaskChange | None:
            seen.append(task)
            return None if task is None else note(running, task, "mine")

        committer = Committer(cast(Store, Contested(running, 1)))
        assert await committer.commit(decide, cast("Task | None", task), reload=reload) is None
        assert seen == [task, None]


async def test_a_task_that_does_not_exist() -> None:
    async with rig() as running:
        with pytest.raises(TaskNotFound, match="there is no task 'none'"):
            await load_task(running.store, TaskKey("user:ann@swarm", "none"))
