"""Retention: stored data expires some time after it was written, but not while its task runs, waits or is paused.

An item gets its `expires_at` when it is written, and no turn ever changes it: that would cost a write for each. A task
that is still open when the time of its first items is half over is *due*, so that a sweep finds it, and lets all of
them expire later. It notes in META until when all of them are `kept`; before the first time, that is a retention after
the task began. The bucket deletes objects by their age, so they are copied onto themselves.

If a retention keeps the latest of a task, one that has ended is due, too; then its past is left to expire.
"""

import asyncio
import logging
from collections.abc import Iterable
from datetime import datetime
from itertools import batched
from math import ceil

from mail.adapters.aws.blobs import TEXT_TYPE, Blobs
from mail.adapters.aws.documents import document_key
from mail.adapters.aws.files import REFERENCE_START, file_key, references
from mail.adapters.aws.items import (
    LIVE_START,
    META,
    NEVER,
    Item,
    blobs_of,
    events_after,
    history_key,
    is_expired,
    number,
    partition,
    response_key,
)
from mail.adapters.aws.table import ConditionFailed, DynamoDBTable, Key
from mail.core.protocol.clock import Clock
from mail.core.task.documents import Kind
from mail.core.task.task import ENDED, Task
from mail.errors import StoreUnavailable, TextGone

OUTLIVES_BY = 60
"""Seconds by which a task outlives its other items, so that none of them is found after it has expired."""

KEPT_IN_A_SWEEP = 5_000
"""How many items a sweep lets expire later; it leaves the rest to the next one."""

AT_ONCE = 50
"""How many of them are written at the same time."""

logger = logging.getLogger(__name__)


class Retention:
    """Says when items expire, and keeps those of open tasks from it.

    Args:
        seconds: how long items are stored; None for ever.
        keeps_latest: whether tasks that have ended are kept without their past.
    """

    def __init__(
        self,
        table: DynamoDBTable,
        blobs: Blobs | None,
        clock: Clock,
        seconds: int | None,
        *,
        keeps_latest: bool = False,
    ) -> None:
        self._table = table
        self._blobs = blobs
        self._clock = clock
        self._seconds = seconds
        self.keeps_latest = keeps_latest

    @property
    def is_limited(self) -> bool:
        """Whether anything expires."""
        return self._seconds is not None

    def expiry(self) -> Item:
        """Return the attribute of an item that is written now."""
        return {} if self._seconds is None else {"expires_at": number(self._from_now(self._seconds))}

    def task_expiry(self, task: Task) -> Item:
        """Return the attribute of the item of a task that is written now; a schedule stays."""
        if self._seconds is None or task.schedule is not None:
            return {}
        return {"expires_at": number(self._from_now(self._seconds) + OUTLIVES_BY)}

    def keep_by(self, task: Task, item: Item | None = None) -> float:
        """Return when a sweep must keep what a task has stored, if it is open then; NEVER without retention.

        For a task that is older than its items may be, that is now, unless its present `item` says otherwise.
        """
        if self._seconds is None or task.schedule is not None:
            return NEVER
        if item is not None and "kept" in item:
            until = float(item["kept"]["N"])
        else:
            until = datetime.fromisoformat(task.started).timestamp() + self._seconds
        return max(until - self._seconds / 2, self._now())

    async def read_keep_by(self, task: Task) -> float:
        """Return `keep_by`, as the item of the task has it if that matters."""
        by = self.keep_by(task)
        if by > self._now():
            return by
        return self.keep_by(task, await self._table.get((partition(task.key), META), "kept"))

    def drops_past(self, task: Task) -> bool:
        """Return whether only the latest of a task is kept."""
        return self.keeps_latest and task.status in ENDED

    async def keep(self, tasks: Iterable[tuple[Task, Item]], until: float, *, are_held: bool = False) -> None:
        """Keep what tasks have stored that would expire soon, of those that must be looked after by `until`.

        The past of those that are on hold is kept, too, whatever was kept before.
        """
        left = KEPT_IN_A_SWEEP
        for task, item in tasks:
            if left <= 0:
                return
            drops_past = self.drops_past(task)
            if self.keep_by(task, item) <= until or (are_held and drops_past):
                try:
                    left -= await self._keep(task, item, left, drops_past and not are_held)
                except StoreUnavailable:  # the sweep has other tasks, and the next one tries it again
                    logger.exception("what task %s has stored could not be kept", task.task_id)

    async def _keep(self, task: Task, item: Item, most: int, drops_past: bool) -> int:
        """Let the items of a task expire later, `most` of them, and then itself; return how many."""
        assert self._seconds is not None
        name, now = partition(task.key), self._now()
        soon, later = now + self._seconds * 3 / 4, self._from_now(self._seconds)
        kept, count = later, 0
        pages = self._table.query(
            KeyConditionExpression="PK = :partition",
            ExpressionAttributeValues={":partition": {"S": name}},
            ConsistentRead=True,
        )
        async for page in pages:
            of_task = [
                each
                for each in page
                if self._is_kept(each, now) and not (drops_past and _is_past(task, each))
            ]
            ends = [int(each["expires_at"]["N"]) for each in of_task]
            ending = [each for each, end in zip(of_task, ends, strict=True) if end < soon][: most - count]
            for some in batched(ending, AT_ONCE):
                await asyncio.gather(*(self._keep_item(task, each, later) for each in some))
            count += len(ending)
            if count == most:
                return count
            kept = min(kept, *(end for end in ends if end >= soon), later)
        await self._keep_objects(item)
        for version in task.generation.versions:
            await self._postpone(document_key(Kind.SWARM_VERSION, (version,)), later + self._seconds)
        try:
            await self._table.update(
                (name, META),
                "SET #kept = :kept, #expires_at = :end",
                "attribute_exists(#expires_at)",
                {":kept": number(kept), ":end": number(later + OUTLIVES_BY)},
            )
        except ConditionFailed:
            logger.debug("task %s is gone, or nothing expires any more", task.task_id)
        return count

    def _is_kept(self, item: Item, now: float) -> bool:
        name = item["SK"]["S"]
        is_other = name == META or name.startswith(LIVE_START)
        return not is_other and "expires_at" in item and not is_expired(item, now)

    async def _keep_item(self, task: Task, item: Item, until: int) -> None:
        """Let an item expire later, after the objects that it refers to."""
        await self._keep_objects(item)
        name = item["SK"]["S"]
        if name.startswith(REFERENCE_START):
            file_id = name.removeprefix(REFERENCE_START)
            await self._keep_file(file_key(task.instance, file_id), until)
            for key in references(task.key, file_id):
                await self._postpone(key, until)
        else:
            await self._postpone((partition(task.key), name), until)

    async def _keep_file(self, key: Key, until: int) -> None:
        file = await self._table.get(key)
        if file is not None and "place" in file:
            await self._renew(file["place"]["S"], file["type"]["S"])
        await self._postpone(key, until)

    async def _keep_objects(self, item: Item) -> None:
        for blob in blobs_of(item):
            await self._renew(blob)

    async def _renew(self, name: str, media_type: str = TEXT_TYPE) -> None:
        if self._blobs is not None:
            try:
                await self._blobs.renew(name, media_type)
            except TextGone:
                logger.warning("an object is not in the bucket any more: %s", name)

    async def _postpone(self, key: Key, until: int) -> None:
        """Let an item expire later, if it is there and would expire before."""
        condition, values = "attribute_exists(#PK) AND #expires_at < :until", {":until": number(until)}
        try:
            await self._table.update(key, "SET #expires_at = :until", condition, values)
        except ConditionFailed:
            return

    def _now(self) -> float:
        return self._clock.now().timestamp()

    def _from_now(self, seconds: int) -> int:
        return ceil(self._now()) + seconds


def _is_past(task: Task, item: Item) -> bool:
    """Return whether nobody needs an item to continue a task: of earlier events and answers, or behind a cut."""
    name: str = item["SK"]["S"]
    if name.startswith("E#"):
        return name < events_after(task.seq - 1)
    if name.startswith("R#"):
        return name != response_key(task.generation.number)
    return any(
        history_key(agent, 0) <= name < history_key(agent, each.cut.begin)
        for agent, each in task.contexts.items()
    )
