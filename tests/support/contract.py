"""What the contract suites ask a store for in one line."""

from dataclasses import asdict, dataclass
from typing import Any

from mail.core.task.change import Turn
from mail.core.task.events import Event
from mail.core.task.ports import Store
from mail.core.task.task import Task, TaskKey
from support.changes import NOW, SWARM, Maker


async def open_turn(
    store: Store, key: TaskKey, mailbox: str, make: Maker, *, now: float = NOW, history_after: int = 0
) -> Turn:
    """Open a turn that must be there."""
    turn = await store.open_turn(key, mailbox, make.lease(now + 60), now=now, history_after=history_after)
    assert isinstance(turn, Turn), turn
    return turn


@dataclass(frozen=True)
class Everything:
    """All that a store says of a task."""

    task: Task | None
    inbox: list[dict[str, Any]]
    events: list[Event]
    histories: dict[str, list[dict[str, object]]]
    responses: list[Any]


async def everything(store: Store, key: TaskKey) -> Everything:
    """Read all that there is of a task."""
    task = await store.load(key)
    generations = task.generation.number if task is not None else 0
    return Everything(
        task=task,
        inbox=[asdict(entry) for entry in await store.read_inbox(key)],
        events=await store.read_events(key),
        histories={name: await store.read_history(key, name) for name in SWARM.agents},
        responses=[await store.read_response(key, n) for n in range(1, generations + 1)],
    )
