"""Leases and checkpoints of turns on DynamoDB.

A worker that was taken for dead may still be alive. Its writes have no effect: all writes of a turn check the lease,
which the worker that took over has replaced.

The rules, each kept by a condition of one request on the item of the task (`META`):

1.  A turn is opened by the update that sets its lease, if no lease of the mailbox is live and the mailbox has mail.
    Only then are the mail and the history read. A repeated update finds its own token, and succeeds.
2.  The message of a turn stands in `META` (`commit` has put it there) or in an item of its own, never in both: the
    transaction that writes one removes the other.
3.  A checkpoint is stored beside the message of its turn. Only a turn that runs alone saves in `META`, and only up to
    `TASK_CHECKPOINT_BYTES`; the first save that doesn't fit takes message and checkpoint out, and later ones follow it.
4.  Saves of a turn are numbered, and the number stands in the lease. A save with a lower number than that is late, and
    is refused; a worker that doesn't remember its turn counts from above all numbers that are remembered.
5.  What is remembered of a turn here only spares writes. Without it, a turn writes to the item of its message, which
    the commit deletes, whether it is there or not.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any

from mail.adapters.aws.blobs import Blobs
from mail.adapters.aws.commit import INLINE_BYTES, ITEM_BYTES, LEASE_BYTES, Text, may_be_task_mail
from mail.adapters.aws.items import (
    LONGEST_QUIET,
    META,
    NEVER,
    Item,
    blob_name,
    blob_of,
    check_after,
    decode_leases,
    encode_lease,
    inbox_key,
    item_size,
    mail_position,
    names,
    next_due,
    number,
    pack,
    partition,
    size_in_bytes,
    string,
    task_checkpoint_name,
    task_mail_name,
)
from mail.adapters.aws.live import DynamoDBLive
from mail.adapters.aws.reader import NextMail, TaskReader
from mail.adapters.aws.retention import Retention
from mail.adapters.aws.table import ConditionFailed, DynamoDBTable, key_of
from mail.core.protocol.clock import Clock
from mail.core.protocol.values import value
from mail.core.task.change import TaskChange, Turn
from mail.core.task.leases import (
    AHEAD_SECONDS,
    QUIET_SECONDS,
    Claim,
    DueTask,
    ExpiredLease,
    Lease,
    WebhookClaim,
)
from mail.core.task.mailboxes import goes_out, has_no_messages
from mail.core.task.ports import Busy, Idle
from mail.core.task.stored import read_checkpoint, write_checkpoint
from mail.core.task.task import Task, TaskKey, TaskStatus
from mail.core.task.turn_state import Checkpoint
from mail.errors import LeaseLost, PayloadTooLarge, StoreUnavailable

MAY_CLAIM = (
    "attribute_exists(#running)"
    " AND (attribute_not_exists(#expires_at) OR #expires_at > :present)"
    " AND (attribute_not_exists(#leases.#mailbox) OR #leases.#mailbox.#expires <= :now"
    " OR #leases.#mailbox.#token = :token OR #leases.#mailbox.#token = :over)"
)
"""The third condition is for a repeated request, which finds its own lease, the last for a park that mail has ended."""

AND_HAS_MAIL = " AND attribute_exists(#pending.#mailbox)"
"""For turns; the mail of webhooks is not in the inbox."""

AND_RUNS = " AND #status = :status"
"""For agents; outbound mail is delivered even after the task has stopped."""

IS_OURS = "#leases.#mailbox.#token = :token"

IS_OURS_OR_PARKED = f"({IS_OURS} OR #leases.#mailbox.#token = :parked)"
"""For a request that parks a turn; the last condition is for a repeated one."""

IS_LAST_SAVE = (
    f"{IS_OURS} AND (attribute_not_exists(#leases.#mailbox.#saves) OR #leases.#mailbox.#saves <= :saves)"
)
"""A request that is late must not replace the checkpoint of a later one of the same turn."""

OPENINGS = 3
"""The number of attempts to open a turn whose mail has expired."""

TASK_CHECKPOINT_BYTES = 2048
"""The size up to which the item of a task takes the checkpoint of its only turn: each save writes all of it."""

BEHIND_SECONDS = 0.2
"""The age from which a turn that is not alone in its task looks at the task before it commits: a read costs less than a
hundredth of the transaction that would be refused."""

REMEMBERED_TURNS = 10_000
"""The most open turns that are remembered. To forget one makes it write more than it has to, and nothing else."""

logger = logging.getLogger(__name__)


@value
class OpenTurn:
    """What is remembered of a turn.

    Attributes:
        size: the size of the task's item when it was opened, with the turn's lease; None if other turns ran.
        in_task: the tier and seq of its message if that stands in the item.
        saves: the number of its checkpoints.
        shared_since: when it was opened, in seconds since the epoch, if other mailboxes had a turn or mail; None once
            the task has been looked at.
        latest: when the task must be checked at the latest, if the turn of another mailbox had died by then.
    """

    size: int | None
    in_task: tuple[int, int] | None
    saves: int = 0
    shared_since: float | None = None
    latest: float = NEVER


NOT_REMEMBERED = OpenTurn(None, None, saves=10**9)
"""Its saves go to the item of the message, and count as later than those that are remembered."""


class Leases:
    """Leases mailboxes. All methods raise StoreUnavailable."""

    def __init__(
        self,
        table: DynamoDBTable,
        reader: TaskReader,
        blobs: Blobs | None,
        clock: Clock,
        live: DynamoDBLive,
        retention: Retention,
    ) -> None:
        self._table = table
        self._reader = reader
        self._blobs = blobs
        self._clock = clock
        self._live = live
        self._retention = retention
        self._spilled: dict[str, str] = {}
        """The names of checkpoints in the bucket, by lease."""
        self._open_turns: dict[str, OpenTurn] = {}
        """By lease."""

    async def open_turn(
        self, key: TaskKey, mailbox: str, lease: Lease, *, now: float, history_after: int
    ) -> Turn | Busy | Idle:
        """Lease a mailbox and read the input of its next turn, in two requests at most."""
        try:
            return await self._open(key, mailbox, lease, now, history_after)
        except BaseException:  # the turn will not be run, so that the lease must not have to expire
            with suppress(StoreUnavailable):
                await self._release(key, mailbox, lease)
            raise

    async def claim(
        self, key: TaskKey, mailbox: str, lease: Lease, *, now: float
    ) -> WebhookClaim | Busy | Idle:
        """Lease a mailbox without messages, in one request."""
        try:
            item = await self._take(key, mailbox, lease, now)
            replaced = _replaced(item, mailbox, lease)
            return WebhookClaim(await self._reader.task(item), mailbox, lease, replaced)
        except ConditionFailed as refusal:
            return await self._why_not(refusal.item, mailbox, now)
        except BaseException:  # as in `open_turn`
            with suppress(StoreUnavailable):
                await self._release(key, mailbox, lease)
            raise

    async def save_checkpoint(self, turn: Turn, checkpoint: Checkpoint, *, on_disk: bool = False) -> None:
        """Store a checkpoint.

        Raises LeaseLost, and PayloadTooLarge if it doesn't fit into the table and there is no bucket.
        """
        await self._keep(turn, checkpoint, None)

    async def _keep(self, turn: Turn, checkpoint: Checkpoint, parked: Lease | None) -> None:
        """Store a checkpoint, and with a park replace the lease by it."""
        save_id = self._clock.new_id()
        text = await self._spill(turn, write_checkpoint(checkpoint), save_id)
        try:
            await self._save(turn, text, save_id, parked)
        except ConditionFailed as refusal:
            await self._discard(text.blob)
            raise LeaseLost from refusal
        await self._discard_checkpoint(turn)
        if text.blob is not None:
            self._spilled[turn.lease.token] = text.blob

    async def park(self, turn: Turn, parked: Lease, checkpoint: Checkpoint | None) -> None:
        """Replace the lease of a turn by a park. Raises as `save_checkpoint`.

        The task is then due at its end, as far as this worker knows: a commit of another agent may bring that forward
        to a check, which puts it back. Its own message in the queue wakes the turn, unless it is parked for too long.
        """
        if checkpoint is not None:
            await self._keep(turn, checkpoint, parked)
        else:
            change, values = self._lease_change(turn, parked)
            try:
                await self._table.update(
                    (partition(turn.task.key), META),
                    f"SET {change}",
                    IS_OURS_OR_PARKED,
                    values,
                    mailbox=turn.mailbox,
                )
            except ConditionFailed as refusal:
                raise LeaseLost from refusal
        self._forget(turn.lease)

    async def end_expired(self, due: DueTask, *, now: float) -> list[ExpiredLease]:
        """End the leases and parks of a task that have expired, and return them, each to one caller only.

        The longer its mail has waited already, the later it is checked again.
        """
        expired = due.expired(now)
        condition = f"{IS_OURS} AND #leases.#mailbox.#expires <= :now AND #leases.#mailbox.#expires > :ended"
        taken = await asyncio.gather(*(self._set_expiry(each, 0.0, condition, now) for each in expired))
        waits = now - datetime.fromisoformat(due.task.updated).timestamp()
        check = now + AHEAD_SECONDS + min(max(waits, QUIET_SECONDS), LONGEST_QUIET)
        ended = {each.mailbox: replace(each.lease, expires=0.0) for each in expired}
        keep_by = await self._retention.read_keep_by(due.task)
        await self._put_off(due.task, {**due.leases, **ended}, check, now, keep_by)
        return [each for each, item in zip(expired, taken, strict=True) if item is not None]

    async def _put_off(
        self, task: Task, leases: Mapping[str, Lease], check: float, now: float, keep_by: float
    ) -> None:
        """Set when a task with these leases is due: not before it is to be checked, unless something must happen."""
        due = min(next_due(task, leases, check), keep_by)
        if due <= now + AHEAD_SECONDS:  # the next sweep finds it again
            return
        with suppress(ConditionFailed):  # another commit has set it
            await self._table.update(
                (partition(task.key), META),
                "SET #due = :due",
                "#version = :version AND attribute_exists(#running)",
                {":due": number(due), ":version": number(task.version)},
            )

    async def _save(self, turn: Turn, text: Text, save_id: str, parked: Lease | None) -> None:
        """Store a checkpoint in the item of the task, which takes no transaction, or else with its message."""
        opened = self._open_turns.get(turn.lease.token, NOT_REMEMBERED)
        opened = replace(opened, saves=opened.saves + 1)
        name = task_checkpoint_name(turn.entry)
        item = pack({name: text.attribute})
        if opened.size is None or opened.size + item_size(item) > TASK_CHECKPOINT_BYTES:
            self._open_turns[turn.lease.token] = replace(opened, in_task=None)
            await self._table.transact(self._saving(turn, text, opened.saves, parked), save_id)
            return
        self._open_turns[turn.lease.token] = opened
        change, values = self._lease_change(turn, parked, opened.saves)
        await self._table.update(
            (partition(turn.task.key), META),
            f"SET #checkpoint = :checkpoint, {change}",
            IS_LAST_SAVE if parked is None else IS_OURS_OR_PARKED,
            {":checkpoint": item[name], **values},
            mailbox=turn.mailbox,
            checkpoint=name,
        )

    async def read_leases(self, key: TaskKey, *, now: float) -> dict[str, Lease]:
        """Return the leases that have not expired, by mailbox."""
        item = await self._table.get((partition(key), META), "leases")
        leases = {} if item is None else decode_leases(item)
        return {mailbox: lease for mailbox, lease in leases.items() if lease.expires > now}

    async def renew(self, turns: Sequence[Claim], *, expires: float) -> set[str]:
        """Let leases expire at a time, in one request each; return the tokens of those that are lost.

        Once a minute, it takes another one to put off the check of the task.
        """
        renewed = await asyncio.gather(*(self._set_expiry(turn, expires, IS_OURS) for turn in turns))
        now = self._reader.now()
        for item in renewed:
            if (
                item is not None
                and "due" in item
                and float(item["due"]["N"]) <= now + AHEAD_SECONDS + QUIET_SECONDS
            ):
                leases = decode_leases(item)
                if not _have_expired(leases, now):
                    task = await self._reader.task(item)
                    keep_by = self._retention.keep_by(task, item)
                    await self._put_off(task, leases, check_after(task, now), now, keep_by)
        return {turn.lease.token for turn, item in zip(turns, renewed, strict=True) if item is None}

    async def _set_expiry(self, turn: Claim, expires: float, condition: str, now: float = 0.0) -> Item | None:
        """Let a lease expire at a time, on a condition; return the item of its task, or None if it doesn't hold."""
        values = {":expires": number(expires), ":token": string(turn.lease.token)}
        if ":now" in condition:
            values |= {":now": number(now), ":ended": number(0)}
        try:
            item = await self._table.update(
                (partition(turn.task.key), META),
                "SET #leases.#mailbox.#expires = :expires",
                condition,
                values,
                mailbox=turn.mailbox,
            )
        except ConditionFailed:
            return None
        if "watched" in item:
            self._live.note(turn.task.key, item)
        return item

    async def release(self, turn: Claim, *, left: Lease | None = None) -> None:
        """Release a lease, if it is still there, and leave another in its place."""
        await self._release(turn.task.key, turn.mailbox, turn.lease, left)

    async def _release(self, key: TaskKey, mailbox: str, lease: Lease, left: Lease | None = None) -> None:
        self._forget(lease)
        values = {":token": string(lease.token)}
        with suppress(ConditionFailed):
            await self._table.update(
                (partition(key), META),
                "REMOVE #leases.#mailbox" if left is None else "SET #leases.#mailbox = :left",
                IS_OURS,
                values if left is None else {**values, ":left": encode_lease(left)},
                mailbox=mailbox,
            )

    def reads_task_mail(self, change: TaskChange) -> bool:
        """Return whether the message that a turn consumes is known to have no item of its own."""
        turn, consumed = change.turn, change.consumed
        if turn is None or consumed is None:
            return False
        opened = self._open_turns.get(turn.lease.token)
        return opened is not None and opened.in_task == (consumed.tier, consumed.seq)

    def may_be_behind(self, turn: Claim) -> bool:
        """Return whether others are likely to have committed since a turn was opened; False once it was asked."""
        opened = self._open_turns.get(turn.lease.token, NOT_REMEMBERED)
        if opened.shared_since is None:
            return False
        self._open_turns[turn.lease.token] = replace(opened, shared_since=None)
        return self._reader.now() - opened.shared_since >= BEHIND_SECONDS

    def latest_check(self, turn: Claim | None) -> float:
        """Return when a sweep must look at a task at the latest, although this turn commits."""
        return NEVER if turn is None else self._open_turns.get(turn.lease.token, NOT_REMEMBERED).latest

    async def end(self, turn: Claim, *, is_read: bool) -> None:
        """Forget a turn that is committed; delete its last checkpoint from the bucket if its message is read."""
        self._open_turns.pop(turn.lease.token, None)
        if is_read:
            await self._discard_checkpoint(turn)

    def _forget(self, lease: Lease) -> None:
        self._spilled.pop(lease.token, None)
        self._open_turns.pop(lease.token, None)

    async def _discard_checkpoint(self, turn: Claim) -> None:
        """Delete the turn's last checkpoint from the bucket."""
        await self._discard(self._spilled.pop(turn.lease.token, None))

    async def _open(
        self, key: TaskKey, mailbox: str, lease: Lease, now: float, history_after: int
    ) -> Turn | Busy | Idle:
        over = ""
        for _ in range(OPENINGS):
            try:
                item = await self._take(key, mailbox, lease, now, over)
            except ConditionFailed as refusal:
                over = await self._find_over(refusal.item, mailbox, now)
                if over:
                    continue
                return await self._why_not(refusal.item, mailbox, now)
            task = await self._reader.task(item)
            mail = await self._reader.next_mail(task, item, mailbox, history_after)
            if mail is not None:
                leases = decode_leases(item)
                running_turns = sum(
                    each.expires > now
                    for name, each in leases.items()
                    if name != mailbox and not goes_out(name)
                )
                turn = await self._turn(item, task, mailbox, lease, mail, running_turns)
                return replace(turn, replaced=_replaced(item, mailbox, lease))
            if await self._forget_mail(item, task, mailbox, lease):
                return Idle(await self._reader.load(key))
        raise StoreUnavailable

    async def _find_over(self, item: Item | None, mailbox: str, now: float) -> str:
        """Return the token of the park that keeps a mailbox closed, if mail has ended it; else an empty text."""
        if item is None or self._reader.is_gone(item):
            return ""
        lease = decode_leases(item).get(mailbox)
        if lease is None or lease.park is None or lease.expires <= now:
            return ""
        return lease.token if lease.is_over(await self._reader.task(item), mailbox) else ""

    async def _take(self, key: TaskKey, mailbox: str, lease: Lease, now: float, over: str = "") -> Item:
        """Lease a mailbox; return the item of its task as it was before. A park with the token `over` doesn't count."""
        condition = MAY_CLAIM if has_no_messages(mailbox) else MAY_CLAIM + AND_HAS_MAIL
        values = {
            ":lease": encode_lease(lease),
            ":now": number(now),
            ":token": string(lease.token),
            ":over": string(over or lease.token),
            ":present": number(self._reader.now()),
        }
        if not goes_out(mailbox):
            condition += AND_RUNS
            values[":status"] = string(TaskStatus.RUNNING)
        item = await self._table.update(
            (partition(key), META),
            "SET #leases.#mailbox = :lease",
            condition,
            values,
            returning="ALL_OLD",
            mailbox=mailbox,
        )
        if "watched" in item:
            self._live.note(key, item)
        return item

    async def _why_not(self, item: Item | None, mailbox: str, now: float) -> Busy | Idle:
        if item is None or self._reader.is_gone(item):
            return Idle(None)
        lease = decode_leases(item).get(mailbox)
        if lease is not None and lease.expires > now:
            return Busy()
        return Idle(await self._reader.task(item))

    async def _turn(
        self, item: Item, task: Task, mailbox: str, lease: Lease, mail: NextMail, running_turns: int
    ) -> Turn:
        entry = await self._reader.mail(mailbox, mail.head)
        history = await self._reader.portions(mail.history)
        if len(self._open_turns) >= REMEMBERED_TURNS:  # of turns that were lost
            self._open_turns.clear()
        others = {name: each for name, each in decode_leases(item).items() if name != mailbox}
        is_alone = not others
        is_shared = not is_alone or bool(task.pending.keys() - {mailbox})
        self._open_turns[lease.token] = OpenTurn(
            item_size(item) + LEASE_BYTES if is_alone else None,
            mail_position(mail.head) if mail.is_in_task else None,
            shared_since=self._reader.now() if is_shared else None,
            latest=float(item["due"]["N"]) if _have_expired(others, self._reader.now()) else NEVER,
        )
        checkpoint = None
        stored = item.get(task_checkpoint_name(entry), mail.head.get("checkpoint"))
        if stored is not None:
            checkpoint = read_checkpoint(await self._reader.text(stored))
            if (blob := blob_of(stored)) is not None:
                self._spilled[lease.token] = blob
        return Turn(task, entry, lease, history, checkpoint, running_turns)

    async def _forget_mail(self, item: Item, task: Task, mailbox: str, lease: Lease) -> bool:
        """Subtract mail that has expired, and release the lease; return False if the task has changed meanwhile.

        Raises StoreUnavailable if mail without retention is missing.
        """
        if "expires_at" not in item:
            try:
                await self._table.update(
                    (partition(task.key), META),
                    "REMOVE #leases.#mailbox",
                    IS_OURS,
                    {":token": string(lease.token)},
                    mailbox=mailbox,
                )
            except ConditionFailed:  # the lease has expired, and another worker has read the mail
                return False
            logger.error("task %s: the mail of %s is not in the table", task.task_id, mailbox)
            raise StoreUnavailable
        logger.warning("task %s: mail of %s was not read before it expired", task.task_id, mailbox)
        try:
            await self._table.update(
                (partition(task.key), META),
                "SET #version = :next REMOVE #pending.#mailbox, #leases.#mailbox",
                f"#version = :version AND {IS_OURS}",
                {
                    ":next": number(task.version + 1),
                    ":version": number(task.version),
                    ":token": string(lease.token),
                },
                mailbox=mailbox,
            )
        except ConditionFailed:
            return False
        return True

    async def _spill(self, turn: Turn, value: str, save_id: str) -> Text:
        """Return the text of a checkpoint, after moving a large one to the bucket. Raises PayloadTooLarge."""
        text = Text(value)
        if self._blobs is not None:
            if text.size > INLINE_BYTES:
                text.blob = blob_name(partition(turn.task.key), save_id, 0)
                await self._blobs.put(text.blob, text.value)
        elif text.size + size_in_bytes(turn.entry.message.model_dump_json()) > ITEM_BYTES:
            raise PayloadTooLarge(
                f"the output of the turn is too large to be stored: it has {text.size} bytes with its results; "
                f"without a bucket (MAIL_BUCKET), a message and what is made of it may have {ITEM_BYTES} bytes"
            )
        return text

    def _saving(self, turn: Turn, text: Text, saves: int, parked: Lease | None) -> list[dict[str, Any]]:
        """Return the actions that store a checkpoint with its message, unless the lease is lost and it may be consumed.

        What the item of the task has of them leaves it.
        """
        name = partition(turn.task.key)
        change, compared = self._lease_change(turn, parked, saves)
        condition = IS_LAST_SAVE if parked is None else IS_OURS_OR_PARKED
        leave_task = f"SET {change} REMOVE #mail, #checkpoint"
        given = {
            "mailbox": turn.mailbox,
            "mail": task_mail_name(turn.entry),
            "checkpoint": task_checkpoint_name(turn.entry),
        }
        leave = {
            "Key": key_of((name, META)),
            "UpdateExpression": leave_task,
            "ConditionExpression": condition,
            "ExpressionAttributeNames": names(leave_task + condition, **given),
            "ExpressionAttributeValues": compared,
        }
        values = {"checkpoint": text.attribute}
        message = Text(turn.entry.message.model_dump_json())
        update: dict[str, Any] = {"Key": key_of((name, inbox_key(turn.entry)))}
        if may_be_task_mail(message):
            values["message"] = message.attribute
            values |= self._retention.expiry()
        else:
            update["ConditionExpression"] = "attribute_exists(PK)"
        update["UpdateExpression"] = "SET " + ", ".join(f"{name} = :{name}" for name in values)
        update["ExpressionAttributeValues"] = {f":{name}": value for name, value in pack(values).items()}
        return [{"Update": leave}, {"Update": update}]

    def _lease_change(self, turn: Turn, parked: Lease | None, saves: int = 0) -> tuple[str, Item]:
        """Return the change of a turn's lease: it counts a save, or a park replaces it; with the request's values."""
        values = {":token": string(turn.lease.token)}
        if parked is None:
            return "#leases.#mailbox.#saves = :saves", {**values, ":saves": number(saves)}
        check = check_after(turn.task, self._reader.now())
        due = min(next_due(turn.task, {turn.mailbox: parked}, check), self._retention.keep_by(turn.task))
        values |= {":park": encode_lease(parked), ":parked": string(parked.token), ":due": number(due)}
        return "#leases.#mailbox = :park, #due = :due", values

    async def _discard(self, blob: str | None) -> None:
        if blob is not None and self._blobs is not None:
            await self._blobs.discard([blob])


def _have_expired(leases: Mapping[str, Lease], now: float) -> bool:
    """Return whether a worker has not renewed one of these leases in time."""
    return any(0.0 < lease.expires <= now and lease.park is None for lease in leases.values())


def _replaced(item: Item, mailbox: str, lease: Lease) -> Lease | None:
    """Return the lease that another one has replaced; None if there was none."""
    found = decode_leases(item).get(mailbox)
    return None if found is None or found.token == lease.token else found
