"""Reads tasks from the table. Reads are consistent, and skip items that are past their retention."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing, suppress
from itertools import batched, chain

from mail.adapters.aws.blobs import Blobs
from mail.adapters.aws.items import (
    DELETING,
    EVENTS_END,
    LIVE_START,
    META,
    Item,
    Value,
    blob_of,
    content_key,
    decode_mail,
    decode_task,
    events_after,
    history_end,
    history_key,
    history_number,
    inbox_end,
    inbox_start,
    is_expired,
    is_mail,
    item_size,
    mail_position,
    partition,
    response_key,
    task_checkpoint,
    task_mail,
    unpack,
)
from mail.adapters.aws.table import DynamoDBTable
from mail.adapters.shared.codec import decode_portion, decoding, upto_bytes
from mail.adapters.shared.snapshots import (
    Waiting,
    check_snapshot,
    decode_read,
    follow_mail,
    take_snapshot,
)
from mail.core.engine.pacing import Pacer, in_slices
from mail.core.protocol.clock import Clock
from mail.core.protocol.message import MAILMessage
from mail.core.protocol.values import value
from mail.core.task.change import Commit, InboxEntry, Snapshot
from mail.core.task.context import Portion
from mail.core.task.events import Event
from mail.core.task.size import event_size, text_size
from mail.core.task.stored import read_checkpoint, read_message
from mail.core.task.task import Task, TaskKey
from mail.core.task.turn_state import Checkpoint
from mail.errors import ConfigurationError, SnapshotExpired, StoreUnavailable, TaskNotFound

_MAIL_CHANGES = ("delivered", "read")

COMMITS_PER_SLICE = 256
"""The number of commits that are queried for one slice of a timeline."""

READ_CONCURRENCY = 8
"""The number of texts of a slice that are fetched from the bucket at the same time."""


@value
class NextMail:
    """The items that a turn starts from: the history that is new to its worker, and the head of the inbox.

    Attributes:
        is_in_task: whether the head stands in the item of the task.
    """

    history: list[Item]
    head: Item
    is_in_task: bool = False


class TaskReader:
    """Reads tasks. All methods raise StoreUnavailable."""

    def __init__(self, table: DynamoDBTable, blobs: Blobs | None, clock: Clock) -> None:
        self._table = table
        self._blobs = blobs
        self._clock = clock
        self.pacer = Pacer()

    def now(self) -> float:
        """Return the present time, in seconds since the epoch."""
        return self._clock.now().timestamp()

    async def text(self, value: Value) -> str:
        """Return a text, from the item or the bucket."""
        blob = blob_of(value)
        if blob is None:
            return unpack(value)
        if self._blobs is None:
            raise ConfigurationError("a part of this task is in a bucket; set MAIL_BUCKET to its name")
        return await self._blobs.get(blob)

    async def texts(self, values: Iterable[Value]) -> list[str]:
        """Return several texts, in order; duplicates are fetched only one time."""
        values = list(values)
        fetched = {blob: value for value in values if (blob := blob_of(value)) is not None}
        found = dict(zip(fetched, await asyncio.gather(*map(self.text, fetched.values())), strict=True))
        return [unpack(value) if (blob := blob_of(value)) is None else found[blob] for value in values]

    async def find(self, key: TaskKey) -> Item | None:
        """Return the item of the task, None if there is none."""
        item = await self._table.get((partition(key), META))
        return None if item is None or self.is_gone(item) else item

    async def load(self, key: TaskKey) -> Task | None:
        """Return the task, None if there is none."""
        item = await self.find(key)
        return None if item is None else await self.task(item)

    async def seq(self, key: TaskKey) -> int:
        """Return the task's seq. Raises TaskNotFound."""
        item = await self._table.get((partition(key), META), "seq", "expires_at", DELETING)
        if item is None or self.is_gone(item):
            raise _not_found(key)
        return int(item["seq"]["N"])

    async def live(self, key: TaskKey) -> tuple[Item, list[Item]]:
        """Return the item of a task, and those with live events of its turns. Raises TaskNotFound."""
        items = await self._items(key, LIVE_START, META)
        if not items or items[-1]["SK"]["S"] != META:
            raise _not_found(key)
        return items[-1], items[:-1]

    async def checkpoint(self, key: TaskKey, task: Item, mailbox: str) -> Checkpoint | None:
        """Return the checkpoint of the turn that runs for a mailbox of this item's task; None if it has none yet."""
        in_task = task_checkpoint(task, mailbox)
        if in_task is not None:
            return read_checkpoint(await self.text(in_task))
        for item in await self._items(key, inbox_start(mailbox), inbox_end(mailbox)):
            if "checkpoint" in item:
                return read_checkpoint(await self.text(item["checkpoint"]))
        return None

    async def task(self, item: Item) -> Task:
        return decode_task(item, await self.text(item["state"]))

    def is_gone(self, item: Item) -> bool:
        """Return whether the item counts as deleted."""
        return DELETING in item or is_expired(item, self.now())

    async def read_portions(
        self, key: TaskKey, agent: str, *, after: int = 0, upto: int | None = None, at: int | None = None
    ) -> list[Portion]:
        """Return an agent's history after its `after`-th part, up to its `upto`-th if given. Raises TaskNotFound."""
        end = history_end(agent) if upto is None else history_key(agent, upto + 1)
        items = await self._proven(await self._items(key, history_key(agent, after + 1), end))
        items = [item for item in items if upto is None or history_number(item) <= upto]
        if not items:
            await self.seq(key)
        return await self.portions(items)

    async def history_pages(self, key: TaskKey, agent: str, upto: int) -> AsyncGenerator[list[Item]]:
        """Yield the items of an agent's history up to its `upto`-th part, in pages."""
        pages = self._table.pages(partition(key), history_key(agent, 1), history_key(agent, upto + 1))
        async with aclosing(pages):
            async for page in pages:
                yield await self._counting_history(page, upto)

    async def _counting_history(self, page: list[Item], upto: int) -> list[Item]:
        """Return the items of a history up to a part, without leftovers of failed commits."""
        return await self._proven(
            [item for item in page if history_number(item) <= upto and not self.is_gone(item)]
        )

    async def read_commit(self, key: TaskKey, at: int) -> Commit:
        """Return the commit with an event. Raises TaskNotFound, BadRequest, SnapshotExpired."""
        item = await self._commit_at(key, at)
        task, events = await self.task(item), await self._batch(item)
        _check_begin(task, events, at)
        read = item["read"]["S"] if "read" in item else None
        return Commit(task, events, decode_read(read))

    async def _commit_at(self, key: TaskKey, at: int) -> Item:
        """Return the first commit that ends at an event or after it, as an item of the task; raises as `commit`."""
        present = await self._item(key)
        check_snapshot(await self.task(present), at)
        commit = await self._commit_of(key, at)
        if commit is None or "state" not in commit:
            raise SnapshotExpired
        return {**commit, "started": present["started"]}

    async def read_snapshot(self, key: TaskKey, at: int) -> Snapshot:
        """Return the task as it was. Raises TaskNotFound, BadRequest, SnapshotExpired."""
        commit = await self._commit_at(key, at)
        task = await self.task(commit)
        _check_begin(task, await self._batch(commit), at)
        waiting: Waiting = {}
        if any(map(sum, task.pending.values())):
            commits = await self._items(key, events_after(0), commit["SK"]["S"])
            follow_mail(
                waiting,
                ([item[name]["S"] if name in item else None for name in _MAIL_CHANGES] for item in commits),
            )
        return take_snapshot(task, waiting)

    async def portions(self, items: Sequence[Item]) -> list[Portion]:
        texts = await self.texts(item["entries"] for item in items)
        return list(map(decode_portion, map(history_number, items), texts))

    async def contents(self, key: TaskKey) -> list[Item]:
        """Return the items of a task's long texts."""
        return await self._items(key, content_key(""), content_key("~"))

    async def next_mail(self, task: Task, item: Item, mailbox: str, after: int) -> NextMail | None:
        """Read the input of the next turn of a leased mailbox, whose task has this item; None without mail.

        The caller knows the history up to its `after`-th part. Mail of commits after `task` was read is skipped. Older
        mail is still there, as only the owner of the lease consumes any. Nothing is read if it is all in the item.
        """
        known, context = task.histories.get(mailbox, 0), task.contexts.get(mailbox)
        if context is not None:
            after = max(after, min(context.cut.begin - 1, known))
        in_task = sorted(task_mail(item).get(mailbox, ()), key=mail_position)
        has_more_mail = sum(task.pending.get(mailbox, ())) > len(in_task)
        history: list[Item] = []
        head: Item | None = None
        if has_more_mail or known > after:
            pages = self._table.pages(
                partition(task.key),
                history_key(mailbox, after + 1),
                inbox_end(mailbox) if has_more_mail else history_end(mailbox),
                limit=max(known - after, 0) + has_more_mail,
            )
            async with aclosing(pages):
                async for page in pages:
                    past = [found for found in page if not is_mail(found)]
                    history += await self._counting_history(past, known)
                    head = await self._first_mail(page[len(past) :], task)
                    is_whole = bool(history) and history_number(history[-1]) == known
                    if head is not None or (is_whole and not has_more_mail):
                        break
        if in_task and (head is None or mail_position(in_task[0]) < mail_position(head)):
            return NextMail(history, in_task[0], is_in_task=True)
        return None if head is None else NextMail(history, head)

    async def _first_mail(self, items: list[Item], task: Task) -> Item | None:
        """Return the first message that was there when `task` was read, and delete leftovers before it."""
        for found in items:
            if await self._counting([found], task):
                return found
            await self._clear_away(found, task)
        return None

    async def read_inbox(
        self, key: TaskKey, *, after: InboxEntry | None = None, max_bytes: int | None = None
    ) -> list[InboxEntry]:
        """Return waiting mail, by (tier, seq, mailbox) (`Store.read_inbox`). Raises TaskNotFound."""
        present = await self._item(key)
        task, in_task = await self.task(present), task_mail(present)
        names = [name for name, counts in task.pending.items() if sum(counts) > len(in_task.get(name, ()))]
        mailboxes = await asyncio.gather(
            *(self._items(key, inbox_start(name), inbox_end(name)) for name in names)
        )
        owners = {
            item["SK"]["S"]: name for name, items in zip(names, mailboxes, strict=True) for item in items
        }
        placed = {
            (*mail_position(item), owners[item["SK"]["S"]]): item
            for item in await self._counting(list(chain.from_iterable(mailboxes)), task)
        }
        placed |= {(*mail_position(item), name): item for name, items in in_task.items() for item in items}
        start = (0, 0, "") if after is None else (after.tier, after.seq, after.mailbox)
        positions = sorted(position for position in placed if position > start)
        mail: list[InboxEntry] = []
        async for texts in self._in_slices([placed[each]["message"] for each in positions], max_bytes):
            mail += [
                decode_mail(position[2], placed[position], text)
                for position, text in zip(positions[len(mail) :], texts, strict=False)
            ]
        return mail

    async def mail(self, mailbox: str, item: Item) -> InboxEntry:
        return decode_mail(mailbox, item, await self.text(item["message"]))

    async def read_events(
        self, key: TaskKey, *, after: int = 0, limit: int | None = None, max_bytes: int | None = None
    ) -> list[Event]:
        """Return the first events after `after` (`Store.read_events`), without a gap. Raises TaskNotFound.

        A query may miss a commit and find the next one, if both are made while it runs. So a gap is read again, and
        events after a gap that remains are left to the next call; only before the first event there may be one, if
        older events have expired.
        """
        events = await self._events(key, after, limit, max_bytes)
        if events and events[-1].seq - after != len(events):
            events = await self._events(key, after, limit, max_bytes)
            events = [event for n, event in enumerate(events) if event.seq == events[0].seq + n]
        if not events:
            await self.seq(key)
        return events

    async def response(self, key: TaskKey, generation: int) -> MAILMessage | None:
        """Return the message that ended a generation."""
        item = await self._table.get((partition(key), response_key(generation)))
        if item is None or self.is_gone(item):
            return None
        return read_message(await self.text(item["message"]))

    async def _item(self, key: TaskKey) -> Item:
        """Return the task's own item. Raises TaskNotFound."""
        item = await self._table.get((partition(key), META))
        if item is None or self.is_gone(item):
            raise _not_found(key)
        return item

    async def _items(
        self, key: TaskKey, low: str, high: str, limit: int | None = None, max_bytes: int | None = None
    ) -> list[Item]:
        items: list[Item] = []
        size = 0
        pages = self._table.pages(partition(key), low, high, limit=limit)
        async with aclosing(pages):
            async for page in pages:
                items += await self._proven([item for item in page if not self.is_gone(item)])
                if limit is not None and len(items) >= limit:
                    break
                size += 0 if max_bytes is None else sum(map(item_size, page))
                if max_bytes is not None and size >= max_bytes:
                    break
        return items[:limit]

    async def _counting(self, items: list[Item], task: Task) -> list[Item]:
        """Return the messages that were in mailboxes when `task` was read, without leftovers of failed commits."""
        return await self._proven(
            [item for item in items if mail_position(item)[1] <= task.seq and not self.is_gone(item)]
        )

    async def _proven(self, there: list[Item]) -> list[Item]:
        """Return the items of a task without staged ones whose commit did not go through."""
        proofs = {item["proof"]["S"]: item["PK"]["S"] for item in there if "proof" in item}
        if not proofs:
            return there
        found = await asyncio.gather(
            *(self._table.get((name, proof), "commit") for proof, name in proofs.items())
        )
        commits = {
            proof: item["commit"] for proof, item in zip(proofs, found, strict=True) if item is not None
        }
        return [
            item for item in there if "proof" not in item or commits.get(item["proof"]["S"]) == item["commit"]
        ]

    async def _clear_away(self, item: Item, task: Task) -> None:
        """Delete a leftover message, unless its commit may still go through."""
        if mail_position(item)[1] <= task.seq and not self.is_gone(item):
            key = (partition(task.key), item["SK"]["S"])
            with suppress(StoreUnavailable):
                await self._table.delete(key, "#commit = :commit", {":commit": item["commit"]})

    async def _commit_of(self, key: TaskKey, seq: int) -> Item | None:
        """Return the commit of an event, or the next one that exists; of a fork's first one, the last slice."""
        pages = self._table.pages(partition(key), events_after(seq - 1), EVENTS_END, limit=1)
        async with aclosing(pages):
            async for item in (item async for page in pages for item in page):
                if "proof" not in item and not self.is_gone(item):
                    return item
        return None

    async def _events(
        self, key: TaskKey, after: int, limit: int | None, max_bytes: int | None
    ) -> list[Event]:
        at_most = limit if max_bytes is None else min(limit or COMMITS_PER_SLICE, COMMITS_PER_SLICE)
        items = await self._items(key, events_after(after), EVENTS_END, at_most, max_bytes)
        events: list[Event] = []
        size = 0
        for some in batched(items, len(items) or 1 if max_bytes is None else READ_CONCURRENCY):
            for batch in await asyncio.gather(*map(self._batch, some)):
                if max_bytes is not None and size >= max_bytes:
                    break
                events += (event for event in batch if event.seq > after)
                size += sum(map(event_size, batch))
        return events[:limit]

    async def _in_slices(self, values: list[Value], max_bytes: int | None) -> AsyncGenerator[list[str]]:
        """Yield texts, some at a time, up to the one with which they reach `max_bytes`."""
        size = 0
        for some in batched(values, len(values) or 1 if max_bytes is None else READ_CONCURRENCY):
            texts = await self.texts(some)
            found = list(upto_bytes(texts, text_size, None if max_bytes is None else max_bytes - size))
            yield found
            size += sum(map(text_size, found))
            if max_bytes is not None and size >= max_bytes:
                return

    async def _batch(self, item: Item) -> tuple[Event, ...]:
        """Return the events of a commit, with the messages that are in the bucket."""
        events = tuple(await in_slices(decoding([await self.text(item["events"])]), self.pacer))
        moved = item.get("messages", {"M": {}})["M"]
        if not moved:
            return events
        texts = await self.texts(moved.values())
        messages = {int(seq): read_message(text) for seq, text in zip(moved, texts, strict=True)}
        return tuple(event._replace(message=messages.get(event.seq, event.message)) for event in events)


def _check_begin(task: Task, events: Sequence[Event], at: int) -> None:
    """Raise SnapshotExpired if the commit of an event is no longer stored, but a later one is."""
    if events[0].seq > at and task.version > 1:  # the first commit of a fork may have further items
        raise SnapshotExpired


def _not_found(key: TaskKey) -> TaskNotFound:
    return TaskNotFound(f"there is no task {key.task_id!r}")
