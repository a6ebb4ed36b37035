"""Readers of conversations, which make the items of tasks out of the events that clients get."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from mail.core.engine.pacing import Paced
from mail.core.engine.watch import read_timeline
from mail.core.task.events import Event
from mail.core.task.ports import Store
from mail.core.task.size import event_size
from mail.core.task.task import Task, TaskKey

if TYPE_CHECKING:  # imported when the first conversation is read, as few functions read one
    from mail.core.decisions.conversation import Conversation
    from mail.core.decisions.items import Item

READERS = 256
"""Tasks whose reader is kept. One is small, however long its task."""


class Conversations:
    """Keeps readers between requests, so that the next page or stream need not read a task from its first event."""

    def __init__(self) -> None:
        self._kept: dict[tuple[TaskKey, str], Conversation] = {}

    async def reader(self, store: Store, task: Task, after: int, pacer: Paced) -> "Conversation":
        """Return a reader that has read the events of a task up to `after`."""
        from mail.core.decisions.conversation import Conversation

        kept = self._kept.get(_name(task))
        reader = Conversation() if kept is None or kept.seq > after else kept.copy()
        if reader.seq < after:
            async for event in read_timeline(store, task.key, pacer, after=reader.seq, upto=after):
                reader.read(event)
        return reader

    def keep(self, task: Task, reader: "Conversation") -> None:
        """Keep a reader for the next request about the task."""
        self._kept.pop(_name(task), None)
        self._kept[_name(task)] = reader.copy()
        if len(self._kept) > READERS:
            del self._kept[next(iter(self._kept))]


def _name(task: Task) -> tuple[TaskKey, str]:
    """Return what no other task has, not even a later one with the id of a deleted one."""
    return task.key, task.started


async def read_items(reader: "Conversation", events: Iterable[Event], pacer: Paced) -> "list[Item]":
    """Return the items that events add or change, as they are after the last of them; pause between events."""
    from mail.core.decisions.items import fold

    items: list[Item] = []
    for event in events:
        await pacer.pause(event_size(event))
        items += reader.read(event)
    return fold(items)
