"""Contract suites: the promises that every store and every queue has to keep, as tests of your own adapter.

Import a suite into a test module, and say how to open what is tested (with pytest-asyncio in mode `auto`):

    from mail.testing.contracts.commit import *
    from mail.testing.contracts.turns import *

    @pytest.fixture
    async def adapter(tmp_path):      # a `StoreAdapter`
        ...

`commit` and `turns` need a fixture `adapter` of a store, `queue` needs a fixture `queue` (a `QueueAdapter`).
"""

from dataclasses import asdict, dataclass
from typing import Any, Protocol

import pytest

from mail.core.task.change import TaskChange, Turn
from mail.core.task.events import Event
from mail.core.task.leases import ExpiredLease
from mail.core.task.ports import Store, TurnQueue, read_history
from mail.core.task.task import Task, TaskKey
from mail.testing.changes import NOW, SWARM, Mail, Maker

pytest.register_assert_rewrite(*(f"{__name__}.{suite}" for suite in ("commit", "turns", "queue")))


class StoreAdapter(Protocol):
    """An empty database, and the store on it.

    Attributes:
        leases_outlive_process: whether a lease is still held after `reopen`.
    """

    leases_outlive_process: bool
    store: Store

    async def reopen(self) -> Store:
        """Open the database again as a new process would, and return the new `store`: nothing in memory survives."""


class QueueAdapter(Protocol):
    """A queue, and the end that a worker takes from, which is not part of the port."""

    queue: TurnQueue

    async def take(self, seconds: float) -> tuple[TaskKey, str] | None:
        """Return the next wake-up; None if none arrives within `seconds`."""


@pytest.fixture
def store(adapter: StoreAdapter) -> Store:
    """Return the store under test."""
    return adapter.store


@pytest.fixture
def durable(adapter: StoreAdapter) -> StoreAdapter:
    """Return the same database, for tests that open it again. Override it for a database that does not survive that."""
    return adapter


@pytest.fixture
def make() -> Maker:
    """Return a maker of task changes."""
    return Maker()


async def drain(adapter: QueueAdapter, seconds: float = 0.01) -> list[tuple[TaskKey, str]]:
    """Take everything that is in the queue."""
    taken: list[tuple[TaskKey, str]] = []
    while (wake_up := await adapter.take(seconds)) is not None:
        taken.append(wake_up)
    return taken


async def committed(store: Store, change: TaskChange) -> TaskChange:
    """Commit a change, and return it."""
    await store.commit(change)
    return change


async def first_turn(store: Store, key: TaskKey, mailbox: str, make: Maker, *mail: Mail) -> Turn:
    """Begin a task with mail, by default one message, and open the first turn of a mailbox."""
    await store.commit(make.begin(key, *(mail or (Mail(mailbox),))))
    return await open_turn(store, key, mailbox, make)


async def open_turn(
    store: Store, key: TaskKey, mailbox: str, make: Maker, *, now: float = NOW, history_after: int = 0
) -> Turn:
    """Open a turn; fail if there is none."""
    turn = await store.open_turn(key, mailbox, make.lease(now + 60), now=now, history_after=history_after)
    assert isinstance(turn, Turn), turn
    return turn


async def due_tasks(store: Store, now: float) -> list[TaskKey]:
    """Return the tasks in which something must happen by now, without those that are only to be checked."""
    return [each.task.key for each in await store.list_due(now) if each.due <= now]


async def end_expired(store: Store, now: float) -> list[ExpiredLease]:
    """End the leases and parks that have expired, of all tasks: those to be checked, whenever that is, included."""
    due = await store.list_due(1e12)
    return [ended for each in due for ended in await store.end_expired(each, now=now)]


@dataclass(frozen=True)
class Everything:
    """Everything that a store returns for a task."""

    task: Task | None
    inbox: list[dict[str, Any]]
    events: list[Event]
    histories: dict[str, list[dict[str, object]]]
    responses: list[Any]


async def everything(store: Store, key: TaskKey) -> Everything:
    """Read everything that is stored for a task."""
    task = await store.load(key)
    generations = task.generation.number if task is not None else 0
    return Everything(
        task=task,
        inbox=[asdict(entry) for entry in await store.read_inbox(key)],
        events=await store.read_events(key),
        histories={name: await read_history(store, key, name) for name in SWARM.agents},
        responses=[await store.read_response(key, n) for n in range(1, generations + 1)],
    )
