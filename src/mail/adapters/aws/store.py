"""The store on DynamoDB, which any number of processes share. No state is in a process only.

Opening a turn is one conditional update and one query, committing it one transaction, however long the task. Every
write checks the task's version or the mailbox's lease, so that a repeated, delayed or overtaken request changes
nothing. Leases outlive the process that took them.
"""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import aclosing, suppress
from functools import partial
from operator import attrgetter
from time import monotonic

from mail.adapters.aws.blobs import Blobs
from mail.adapters.aws.client import AwsClient, back_off
from mail.adapters.aws.commit import INLINE_BYTES, ITEM_BYTES, CommitPlan, Text
from mail.adapters.aws.index import TaskIndex
from mail.adapters.aws.items import (
    DELETING,
    DELETION_SECONDS,
    META,
    WAITS,
    Item,
    ask_key,
    blob_name,
    blob_of,
    blobs_of,
    content_key,
    decode_leases,
    item_size,
    number,
    pack,
    partition,
    shard,
    string,
    wait_key,
)
from mail.adapters.aws.leases import Leases
from mail.adapters.aws.live import DynamoDBLive
from mail.adapters.aws.reader import TaskReader
from mail.adapters.aws.retention import Retention
from mail.adapters.aws.table import ConditionFailed, DynamoDBTable, key_of
from mail.adapters.aws.waits import polls
from mail.adapters.shared.snapshots import fork_slices
from mail.adapters.shared.waiters import Waiters
from mail.core.engine.watch import read_message
from mail.core.protocol.clock import SYSTEM_CLOCK, Clock
from mail.core.protocol.message import MAILMessage
from mail.core.task.change import Inheritance, TaskChange
from mail.core.task.leases import AHEAD_SECONDS, DueTask
from mail.core.task.ports import FIRST
from mail.core.task.stored import read_wait, write_wait
from mail.core.task.task import Task, TaskKey
from mail.core.task.timers import TIMER_MARK, timer_id
from mail.core.task.waits import Wait
from mail.errors import (
    LeaseLost,
    MAILError,
    PayloadTooLarge,
    StoreError,
    StoreUnavailable,
    TaskNotFound,
    TextGone,
    VersionConflict,
)

SECONDS_PER_DAY = 86_400

CONTENTION_THRESHOLD = 4
"""The number of concurrent turns of a task from which conflicting commits wait, with jitter, before they retry."""

COMMITS_APART = 2
"""They spread over the time that so many commits of each of these turns would take: a refused transaction costs as many
write units as one that goes through."""

SECONDS_PER_COMMIT, LONGEST_WAIT = 0.015, 2.0
"""The least that a commit is expected to take, and the most that one waits before it is retried."""

HELD_SECONDS = 3600.0
"""Seconds between two looks at what is on hold, which must not expire."""


class DynamoDBStore:
    """`mail.core.task.ports.Store` on a table made by `create_table` or `template.yaml`.

    Args:
        blobs: stores texts that are too large for the table; without it, such changes raise PayloadTooLarge.
        retention_days: days after which items are deleted; those of a task, after it was open last.
        keeps_latest: whether the last answer of a task that has ended is kept, and what its agents need to continue it.

    Attributes:
        live: carries live events through the table.
    """

    def __init__(
        self,
        client: AwsClient,
        table: str,
        *,
        blobs: Blobs | None = None,
        retention_days: int | None = None,
        keeps_latest: bool = False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._table = DynamoDBTable(client, table)
        self._blobs = blobs
        seconds = None if retention_days is None else retention_days * SECONDS_PER_DAY
        self._retention = Retention(self._table, blobs, clock, seconds, keeps_latest=keeps_latest)
        self._clock = clock
        self._reader = TaskReader(self._table, blobs, clock)
        self.live = DynamoDBLive(self._table, clock)
        self._turns = Leases(self._table, self._reader, blobs, clock, self.live, self._retention)
        self._index = TaskIndex(self._table, self._reader)
        self._held_at = 0.0
        self._changes = Waiters()
        self._endings = Waiters()
        reader, index, turns = self._reader, self._index, self._turns  # they have methods of the port
        self.open_turn, self.claim, self.release = turns.open_turn, turns.claim, turns.release
        self.save_checkpoint, self.park = turns.save_checkpoint, turns.park
        self.read_leases, self.renew, self.end_expired = turns.read_leases, turns.renew, turns.end_expired
        self.read_portions = reader.read_portions
        self.read_commit, self.read_snapshot = reader.read_commit, reader.read_snapshot
        self.read_inbox, self.read_events = reader.read_inbox, reader.read_events
        self.list_tasks, self.list_dead, self.list_ready = index.list_tasks, index.list_dead, index.list_ready
        self.count_running, self.usage_of = index.count_running, index.usage_of
        self.find_asks, self.search = index.find_asks, index.search
        self.count_active_instances, self.list_oldest = index.count_active_instances, index.list_oldest

    async def load(self, key: TaskKey) -> Task | None:
        item = await self._reader.find(key)
        if item is not None and "watched" in item:
            self.live.note(key, item)
        return None if item is None else await self._reader.task(item)

    async def commit(self, change: TaskChange) -> None:
        if change.turn is not None and self._turns.may_be_behind(change.turn):
            await self._check_version(change)
        plan = self._plan(change) if change.inherits is None else await self._stage(change, change.inherits)
        await self._write(change, plan)
        if change.turn is not None:
            await self._turns.end(change.turn, is_read=change.consumed is not None)
        self._changes.notify(change.key)
        if change.response is not None:
            self._endings.notify(change.key)

    async def put_content(self, key: TaskKey, ref: str, text: str) -> None:
        await self._put_content(key, content_key(ref), text)

    async def _put_content(self, key: TaskKey, sort_key: str, text: str) -> None:
        name, content = partition(key), Text(text)
        if self._blobs is not None and content.size > INLINE_BYTES:
            content.blob = blob_name(name, sort_key.removeprefix(content_key("")), 0)
            await self._blobs.put(content.blob, text)
        item = pack({**key_of((name, sort_key)), "content": content.attribute, **self._retention.expiry()})
        if item_size(item) > ITEM_BYTES:
            raise PayloadTooLarge(
                f"a text of {content.size} bytes can't be stored without a bucket (MAIL_BUCKET)"
            )
        await self._table.put_many([item])

    async def read_content(
        self, key: TaskKey, ref: str, *, offset: int, length: int
    ) -> tuple[str, int] | None:
        item = await self._table.get((partition(key), content_key(ref)))
        if item is None or self._reader.is_gone(item):
            return None
        try:
            text = await self._reader.text(item["content"])
        except TextGone:
            return None
        return text[offset : offset + length], len(text)

    async def put_wait(self, key: TaskKey, wait: Wait, *, instead_of: Wait | None = None) -> bool:
        changed = {"record": string(write_wait(wait)), **self._retention.expiry()}
        update = "SET " + ", ".join(f"#{name} = :{name}" for name in changed)
        values = {f":{name}": value for name, value in changed.items()}
        if wait.waits_until is None:
            update += " REMOVE #waits"
        else:
            update += ", #waits = :waits"
            values[":waits"] = WAITS
        condition = "attribute_not_exists(#record)"
        if instead_of is not None:
            condition = "#record = :before"
            values[":before"] = string(write_wait(instead_of))
        try:
            await self._table.update((partition(key), wait_key(wait.id)), update, condition, values)
        except ConditionFailed as refusal:
            item = refusal.item
            return refusal.repeated and item is not None and item["record"] == values[":record"]
        return True

    async def read_wait(self, key: TaskKey, wait_id: str) -> Wait | None:
        item = await self._table.get((partition(key), wait_key(wait_id)))
        return None if item is None or self._reader.is_gone(item) else read_wait(item["record"]["S"])

    async def list_waits(self, key: TaskKey, *, after: tuple[float, str] = FIRST, limit: int) -> list[Wait]:
        first = timer_id(after[0], "")
        calls = await self._waits(key, "", TIMER_MARK, after, limit)
        return _first([*calls, *await self._waits(key, first, "~", after, limit)], limit)

    async def _waits(
        self, key: TaskKey, first: str, last: str, after: tuple[float, str], limit: int
    ) -> list[Wait]:
        """Return the first of the records between two ids that wait; of calls, which have no order, all are read."""
        found: list[Wait] = []
        is_ordered = first != ""
        async with aclosing(
            self._table.pages(
                partition(key), wait_key(first), wait_key(last), limit=limit if is_ordered else None
            )
        ) as pages:
            async for page in pages:
                waits = [read_wait(item["record"]["S"]) for item in page if "waits" in item]
                found = _first([*found, *(wait for wait in waits if (wait.due, wait.id) > after)], limit)
                if is_ordered and len(found) == limit:
                    break
        return found

    async def read_response(self, key: TaskKey, generation: int) -> MAILMessage | None:
        response = await self._reader.response(key, generation)
        if response is None:
            await self._reader.seq(key)
        return response

    async def wait_for_response(self, key: TaskKey, generation: int, *, seconds: float) -> MAILMessage | None:
        response = await self.read_response(key, generation)
        if response is None:
            async for _ in polls(partial(self._endings.wait, key), seconds):
                response = await self._reader.response(key, generation)
                if response is not None:
                    break
        return response

    async def wait_for_change(self, key: TaskKey, *, after: int, seconds: float) -> int:
        seq = await self._seq(key)
        if seq <= after:
            async for _ in polls(partial(self._changes.wait, key), seconds):
                seq = await self._seq(key)
                if seq > after:
                    break
        return max(after, seq)

    async def list_due(self, until: float) -> list[DueTask]:
        due, half_deleted = await self._index.due(until)
        for name in half_deleted:
            if (item := await self._table.get((name, META))) is not None:
                with suppress(TextGone):  # its state is deleted after its asks
                    await self._delete_asks(await self._reader.task(item))
            await self._delete_items(name)
        held, now = set[TaskKey](), self._reader.now()
        looks = self._retention.is_limited and now >= self._held_at + HELD_SECONDS
        if looks or any(self._retention.drops_past(task) for task, _ in due):
            async for some in self._index.held():
                held.update(task.key for task, _ in some)
                if looks:
                    await self._retention.keep(some, until, are_held=True)
            self._held_at = now if looks else self._held_at
        await self._retention.keep([each for each in due if each[0].key not in held], until)
        return [DueTask(task, decode_leases(item)) for task, item in due]

    async def delete(self, task: Task) -> None:
        name, condition = partition(task.key), f"#version = :version AND attribute_not_exists(#{DELETING})"
        values = {
            ":version": number(task.version),
            ":yes": string("yes"),
            ":shard": string(shard(name)),
            ":resumed": number(self._reader.now() + AHEAD_SECONDS + DELETION_SECONDS),
        }
        update = f"SET #{DELETING} = :yes, #running = :shard, #due = :resumed REMOVE #dead, #dead_place"
        try:
            await self._table.update((name, META), update, condition, values)
        except ConditionFailed as refusal:
            item = refusal.item
            if item is None or not (refusal.repeated and DELETING in item):
                raise VersionConflict(await self.load(task.key)) from refusal
        await self._delete_asks(task)
        await self._delete_items(name)
        self._changes.notify(task.key)

    async def _delete_asks(self, task: Task) -> None:
        await self._table.delete_many(map(ask_key, task.asks))

    async def scrub(self, *, is_quiet: bool) -> bool:
        """Do nothing: what is deleted takes up no space."""
        return False

    async def _delete_items(self, name: str) -> None:
        """Delete the items and texts of a task that counts as gone; its own item is the last, to resume this."""
        async with aclosing(self._table.pages(name, "A", "Z")) as pages:
            async for page in pages:
                if self._blobs is not None:
                    await self._blobs.discard(blob for item in page for blob in blobs_of(item))
                keys = [(name, item["SK"]["S"]) for item in page]
                await self._table.delete_many(key for key in keys if key != (name, META))
        await self._table.delete((name, META), f"attribute_exists(#{DELETING})", {})

    async def _seq(self, key: TaskKey) -> int:
        """Return the task's seq; deliver the live events of a task that is watched here."""
        if not self.live.follows(key):
            return await self._reader.seq(key)
        task, items = await self._reader.live(key)
        unaware = self.live.unaware(key, task, items)
        found = [(agent, await self._reader.checkpoint(key, task, agent)) for agent in unaware]
        checkpoints = {agent: checkpoint for agent, checkpoint in found if checkpoint is not None}
        self.live.take(key, task, items, checkpoints)
        return int(task["seq"]["N"])

    async def _stage(self, change: TaskChange, inherits: Inheritance) -> CommitPlan:
        """Write the first commit of a fork but for its last slice; return the plan of that one."""
        commit_id, blobs, plan = self._clock.new_id(), list[str](), None
        try:
            read = partial(read_message, self, inherits.key)
            async for part in fork_slices(change, inherits, read, self._reader.pacer):
                plan = self._plan(part, commit_id, blobs)
                if not plan.is_last:
                    blobs += plan.blobs
                    await self._prepare(plan)
        except MAILError:
            if plan is not None:
                await self._clean_up(change, plan)
            raise
        assert plan is not None
        return plan

    def _plan(
        self, change: TaskChange, commit_id: str | None = None, copies: Iterable[str] = ()
    ) -> CommitPlan:
        return CommitPlan(
            change,
            commit_id or self._clock.new_id(),
            now=self._reader.now(),
            retention=self._retention,
            has_bucket=self._blobs is not None,
            is_in_task=self._turns.reads_task_mail(change),
            latest=self._turns.latest_check(change.turn),
            copies=copies,
        )

    async def _write(self, change: TaskChange, plan: CommitPlan) -> None:
        """Write a change as a whole. Raises StoreUnavailable if it is unknown whether it is written."""
        try:
            await self._prepare(plan)
            if change.inherits is not None:
                await self._copy(change.key, change.inherits, plan)
        except (StoreUnavailable, TaskNotFound, TextGone):
            await self._clean_up(change, plan)
            raise
        begin = monotonic()
        try:
            await self._table.transact(plan.actions, plan.commit_id)
        except ConditionFailed as refusal:
            seconds = monotonic() - begin
            if refusal.repeated and await self._is_written(change, plan):
                return
            await self._clean_up(change, plan)
            raise await self._refusal(change, refusal.item, seconds) from refusal
        except StoreUnavailable:
            if not await self._is_written(change, plan):
                raise

    async def _prepare(self, plan: CommitPlan) -> None:
        """Write the overflow, before the transaction."""
        if self._blobs is not None:
            await asyncio.gather(*(self._blobs.put(name, text) for name, text in plan.blobs.items()))
        await self._table.put_many(plan.staged)

    async def _copy(self, key: TaskKey, inherits: Inheritance, plan: CommitPlan) -> None:
        """Write what a fork inherits, page by page; it counts with the transaction.

        Raises TaskNotFound if the first task is deleted meanwhile.
        """
        for agent, portions in inherits.portions.items():
            async with aclosing(self._reader.history_pages(inherits.key, agent, portions)) as pages:
                async for page in pages:
                    copies = [plan.inherit(agent, item) for item in page]
                    for item, copy in zip(page, copies, strict=True):
                        if (blob := blob_of(copy["entries"])) is not None:
                            text = await self._reader.text(item["entries"])
                            assert self._blobs is not None  # which has the text
                            await self._blobs.put(blob, text)
                    await self._table.put_many(copies)
        for item in await self._reader.contents(inherits.key):
            await self._put_content(key, item["SK"]["S"], await self._reader.text(item["content"]))
        await self._reader.seq(inherits.key)

    async def _clean_up(self, change: TaskChange, plan: CommitPlan) -> None:
        """Delete the overflow of a failed transaction; leftovers do no harm."""
        name = partition(change.key)
        with suppress(StoreUnavailable):
            await self._table.delete_many([(name, item["SK"]["S"]) for item in plan.staged])
            if change.inherits is not None:
                await self._delete_copies(name, plan.commit_id)
        if self._blobs is not None:
            await self._blobs.discard([*plan.blobs, *plan.copies])

    async def _delete_copies(self, name: str, commit_id: str) -> None:
        """Delete what a failed fork has copied."""
        async with aclosing(self._table.pages(name, "A", "F")) as pages:
            async for page in pages:
                await self._table.delete_many(
                    (name, item["SK"]["S"]) for item in page if item.get("commit") == string(commit_id)
                )

    async def _is_written(self, change: TaskChange, plan: CommitPlan) -> bool:
        """Return whether the transaction went through although its response was lost."""
        item = await self._table.get((partition(change.key), plan.events_key), "commit")
        return item is not None and item["commit"]["S"] == plan.commit_id

    async def _check_version(self, change: TaskChange) -> None:
        """Refuse a change of an outdated task without paying for a transaction. Raises VersionConflict, LeaseLost."""
        item = await self._table.get((partition(change.key), META))
        if item is None or int(item["version"]["N"]) != change.expected_version:
            raise await self._refusal(change, item)

    async def _refusal(
        self, change: TaskChange, item: Item | None, seconds: float | None = None
    ) -> StoreError:
        """Return why a change was refused, by its task's item; wait if its transaction, of `seconds`, had rivals."""
        turn = change.turn
        if item is not None and DELETING in item:
            return StoreUnavailable("the task of this id is being deleted; try again in a moment")
        if item is None or self._reader.is_gone(item):
            return VersionConflict() if turn is None else LeaseLost()
        leases = decode_leases(item)
        if turn is not None:
            lease = leases.get(turn.mailbox)
            if lease is None or lease.token != turn.lease.token:
                return LeaseLost()
        if seconds is not None and len(leases) >= CONTENTION_THRESHOLD:
            each = COMMITS_APART * max(seconds, SECONDS_PER_COMMIT)
            await back_off(0, base=len(leases) * each, cap=LONGEST_WAIT)
            return VersionConflict()
        return VersionConflict(await self._reader.task(item))


def _first(waits: Sequence[Wait], limit: int) -> list[Wait]:
    return sorted(waits, key=attrgetter("due", "id"))[:limit]
