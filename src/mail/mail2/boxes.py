"""The boxes of an account: their pages and entries, as JSON."""

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence, Set
from dataclasses import asdict, replace
from typing import Any
from uuid import uuid4

from mail.core.engine.pacing import Paced
from mail.core.protocol.values import value
from mail.core.task.documents import PutIf
from mail.core.task.rows import Order, Rows, Write
from mail.errors import Conflict, NotFound, StorageFull
from mail.mail2 import WORK
from mail.mail2.records import (
    MESSAGES,
    REFERENCES,
    THREADS,
    Account,
    BoxName,
    DraftRow,
    InboxRow,
    Message,
    OutboxRow,
    Purge,
    Row,
    Stamps,
    box,
    sessions,
)

TRIES = 5
"""Attempts at a change while others change the same row."""


type _Entry = InboxRow | OutboxRow | DraftRow

_ROWS: Mapping[BoxName, type[_Entry]] = {
    "inbox": InboxRow,
    "outbox": OutboxRow,
    "drafts": DraftRow,
    "trash": InboxRow,
}
_HIDDEN: Mapping[BoxName, tuple[str, ...]] = {
    "inbox": ("trashed_at",),
    "outbox": ("digest",),
    "drafts": ("body", "reply_to"),
    "trash": (),
}
"""What rows have besides the summaries of their box."""


PAGE = 100
"""Entries that are read at once."""

LOOKED_AT = 1_000
"""Entries that a request with filters looks at, at most."""


@value
class Query:
    """A part of a box: of those entries that have all of these."""

    limit: int
    offset: int
    sort_by: Order
    newest_first: bool
    unread: bool | None = None
    tag: str | None = None
    thread: str | None = None

    @property
    def has_filters(self) -> bool:
        """Whether it leaves out entries."""
        return (self.unread, self.tag, self.thread) != (None, None, None)

    @property
    def at_once(self) -> int:
        """How many entries are read at once."""
        return PAGE if self.has_filters else self.limit

    def takes(self, entry: Mapping[str, Any]) -> bool:
        """Return whether the summary of an entry has what is asked for."""
        return (
            self.unread in (None, not entry.get("is_read"))
            and (self.tag is None or self.tag in entry["tags"])
            and self.thread in (None, entry.get("thread"))
        )


ENTRY_BYTES = 64 * 1024
"""The size of a draft with a long body, or of mail with many recipients."""


class Quota:
    """The number of entries that a box may have: each counts as `ENTRY_BYTES` of those that a caller may store."""

    def __init__(self, rows: Rows, caller_bytes: int | None) -> None:
        self._rows = rows
        self._entries = caller_bytes and caller_bytes // ENTRY_BYTES

    async def full(self, *of: str) -> set[str]:
        """Return which of some boxes may have no more entries."""
        if self._entries is None or not of:
            return set()
        return {place for place, total in (await self._rows.totals(*of)).items() if total >= self._entries}

    def error(self, account: Account, name: BoxName) -> StorageFull:
        """Return what refuses an entry of a box that is full."""
        return StorageFull(f"the {name} of {account.key} may have {self._entries} entries; delete some")


Awaited = Callable[[Sequence[str]], Awaitable[Set[str]]]
"""Returns those of some messages whose answers are awaited."""


@value
class Boxes:
    """The boxes of the accounts of a host."""

    _rows: Rows
    _stamps: Stamps
    _quota: Quota
    _pacer: Paced

    async def page(
        self, account: Account, name: BoxName, query: Query
    ) -> tuple[list[dict[str, Any]], int, int | None]:
        """Return the summaries of a part of a box, the number of all its entries, and the offset of what follows."""
        offset, found = query.offset, list[dict[str, Any]]()
        while True:
            page = await self._rows.page(
                box(name, account.box),
                by=query.sort_by,
                newest_first=query.newest_first,
                limit=query.at_once,
                offset=offset,
            )
            for entry, text in page.rows:
                await self._pacer.pause(len(text))  # drafts have bodies, and mail may have many recipients
                offset, shown = offset + 1, summary(name, entry, text)
                if query.takes(shown):
                    found.append(shown)
                if len(found) == query.limit:
                    break
            is_end = offset >= page.total or not page.rows
            if is_end or len(found) == query.limit or offset - query.offset >= LOOKED_AT:
                return found, page.total, None if is_end else offset

    async def export(self, account: Account) -> AsyncGenerator[dict[str, Any]]:
        """Yield the entries of all boxes, the oldest of each first, as `open` returns them; they don't become read."""
        for name in _ROWS:
            since, had = "", set[str]()
            while True:
                rows = (await self._rows.page(box(name, account.box), since=since, limit=PAGE)).rows
                new = [(entry, text) for entry, text in rows if entry not in had]
                messages = await self._rows.read(*((MESSAGES, entry) for entry, _ in new))
                for entry, text in new:
                    message = messages.get((MESSAGES, entry))
                    await self._pacer.pause(len(message or text))
                    yield {"box": name, "entry": _shown(name, entry, text, message)}
                if not new:
                    break
                since, had = _ROWS[name].read(rows[-1][1]).times.entered, {entry for entry, _ in rows}

    async def open(self, account: Account, name: BoxName, entry: str) -> dict[str, Any]:
        """Return an entry with its message, or a draft. An entry of an inbox is read from now on. Raises NotFound."""
        place = (box(name, account.box), entry)
        found = await self._rows.read(place, (MESSAGES, entry))
        if place not in found or (name != "drafts" and (MESSAGES, entry) not in found):
            raise NotFound(f"there is no {entry[:64]!r} in this box")
        await self._pacer.pause(sum(map(len, found.values())))
        if name == "inbox" and not (row := InboxRow.read(found[place])).is_read:
            read = Write(place, replace(row, is_read=True).text, found[place])
            await self._rows.write([read])  # if it is moved or read at the same time, that is as well
        return _shown(name, entry, found[place], found.get((MESSAGES, entry)))

    async def move(self, account: Account, entry: str, source: BoxName, target: BoxName) -> dict[str, Any]:
        """Move an entry from the inbox to the trash or back; return it as `open` does.

        Raises NotFound, and StorageFull if the target is full.
        """
        if await self._quota.full(box(target, account.box)):
            raise self._quota.error(account, target)
        for _ in range(TRIES):
            shown = await self.open(account, source, entry)
            row, text = await self._read(account, source, entry, InboxRow)
            moved = replace(row, trashed_at=self._stamps.now() if target == "trash" else "")
            writes = [
                Write((box(source, account.box), entry), None, text, row.times),
                Write((box(target, account.box), entry), moved.text, PutIf.ABSENT, moved.times),
            ]
            if await self._rows.write(writes):
                return shown
        raise Conflict("the entry is being changed by other requests; try again")

    async def delete(self, account: Account, name: BoxName, entry: str) -> dict[str, Any]:
        """Delete an entry for good; return it as `open` does. Raises NotFound."""
        for _ in range(TRIES):
            shown = await self.open(account, name, entry)
            _, text = await self._read(account, name, entry, _ROWS[name])
            if await self._remove(name, account.box, [(entry, text)]):
                return shown
        raise Conflict("the entry is being changed by other requests; try again")

    async def clear(self, account: Account, name: BoxName) -> list[dict[str, Any]]:
        """Empty a box; return the summaries of what it had."""
        gone: list[dict[str, Any]] = []
        async for found in self._emptied(name, account.box):
            gone += [summary(name, entry, text) for entry, text in found]
        return gone

    async def _emptied(self, name: BoxName, of: str) -> AsyncGenerator[list[tuple[str, str]]]:
        """Empty a box; yield what it had."""
        at_once = (
            self._rows.write_limit // 2
        )  # their messages and the counts of references are changed with them
        while found := (await self._rows.page(box(name, of), limit=at_once)).rows:
            if await self._remove(name, of, found):
                yield found

    async def _remove(self, name: BoxName, of: str, entries: Sequence[tuple[str, str]]) -> bool:
        """Delete entries, with messages that no other refers to; return False if some are changed meanwhile."""
        place, read = box(name, of), _ROWS[name].read
        writes = [Write((place, entry), None, text, read(text).times) for entry, text in entries]
        if name != "drafts":
            writes += await release(self._rows, Counter(entry for entry, _ in entries))
        return await self._rows.write(writes)

    async def expire(self, of: str, before: str, awaited: Awaited | None) -> None:
        """Delete what has come into boxes before a time, unless an answer to it is awaited.

        Of drafts, delete what nobody has changed since.
        """
        at_once = self._rows.write_limit // 2
        for name in _ROWS:
            kept = 0
            while True:
                found = (await self._rows.page(box(name, of), limit=at_once, offset=kept)).rows
                old = [each for each in found if _last_change(_ROWS[name].read(each[1])) < before]
                if not old:
                    break
                open_ones = await awaited([entry for entry, _ in old]) if awaited else ()
                gone = [each for each in old if each[0] not in open_ones]
                if not gone or await self._remove(name, of, gone):
                    kept += len(old) - len(gone)

    async def purge(self, row: str, purge: Purge) -> None:
        """Empty the boxes of a deleted account, and delete the row of `WORK` that says so."""
        for name in _ROWS:
            async for _ in self._emptied(name, purge.box):
                pass
        place = sessions(purge.box)
        while rest := await self._rows.find(place, "", limit=self._rows.write_limit):
            await self._rows.write([Write((place, name), None) for name, _ in rest])
        await self._rows.write([Write((WORK, row), None)])

    # ---------------------------------------------------------------------------------------------------- drafts

    async def add_draft(
        self, account: Account, subject: str, body: str, reply_to: str | None, tags: tuple[str, ...]
    ) -> dict[str, Any]:
        """Store a draft, and return it. Raises StorageFull."""
        if await self._quota.full(box("drafts", account.box)):
            raise self._quota.error(account, "drafts")
        now, entry = self._stamps.now(), str(uuid4())
        row = DraftRow(subject, body, now, now, reply_to, tags)
        await self._rows.write(
            [Write((box("drafts", account.box), entry), row.text, PutIf.ABSENT, row.times)]
        )
        return _draft(entry, row)

    async def draft(self, account: Account, entry: str) -> DraftRow:
        """Return a draft. Raises NotFound."""
        return (await self._read(account, "drafts", entry, DraftRow))[0]

    async def change_draft(
        self,
        account: Account,
        entry: str,
        *,
        subject: str | None,
        body: str | None,
        reply_to: str | None,
        tags: tuple[str, ...] | None,
    ) -> dict[str, Any]:
        """Change what is given of a draft, and return it. Raises NotFound."""
        for _ in range(TRIES):
            row, text = await self._read(account, "drafts", entry, DraftRow)
            if (subject, body, reply_to, tags) == (None, None, None, None):
                return _draft(entry, row)
            changed = replace(
                row,
                subject=row.subject if subject is None else subject,
                body=row.body if body is None else body,
                reply_to=row.reply_to if reply_to is None else reply_to,
                tags=row.tags if tags is None else tags,
                updated_at=self._stamps.now(),
            )
            place = (box("drafts", account.box), entry)
            if await self._rows.write([Write(place, changed.text, text, row.times)]):
                return _draft(entry, changed)
        raise Conflict("the draft is being changed by other requests; try again")

    async def _read[R: Row](
        self, account: Account, name: BoxName, entry: str, kind: type[R]
    ) -> tuple[R, str]:
        """Return a row of a box, and its text. Raises NotFound."""
        found = await kind.find(self._rows, (box(name, account.box), entry))
        if found is None:
            raise NotFound(f"there is no {entry[:64]!r} in this box")
        return found


def arrivals(message: Message, received: str, by: str, boxes: Sequence[str], thread: str) -> list[Write]:
    """Return the entries of a message in inboxes, which come `by` an address; each is made once."""
    row = InboxRow(
        message.sender,
        message.subject,
        len(message.body),
        message.sent_at,
        received,
        by,
        tags=message.tags,
        thread=thread,
    )
    return [
        Write((box("inbox", each), message.message_id), row.text, PutIf.ABSENT, row.times) for each in boxes
    ]


async def release(rows: Rows, messages: Mapping[str, int]) -> list[Write]:
    """Return what takes back so many references to messages, and deletes those that nothing refers to any more."""
    writes: list[Write] = []
    for row, count in (await rows.read(*((REFERENCES, each) for each in messages))).items():
        left = int(count) - messages[row[1]]
        writes.append(Write(row, str(left), count))
        if not left:
            writes += [Write((MESSAGES, row[1]), None), Write((THREADS, row[1]), None)]
    return writes


def _last_change(row: _Entry) -> str:
    return row.updated_at if isinstance(row, DraftRow) else row.times.entered


def summary(name: BoxName, entry: str, text: str) -> dict[str, Any]:
    """Return what a page of a box shows of an entry."""
    row = _ROWS[name].read(text)
    shown = {key: each for key, each in asdict(row).items() if key not in _HIDDEN[name]}
    if isinstance(row, DraftRow):
        return {"draft_id": entry, **shown, "body_size": len(row.body)}
    return {"message_id": entry, **shown, "thread": shown["thread"] or entry}


def _shown(name: BoxName, entry: str, text: str, message: str | None) -> dict[str, Any]:
    """Return an entry with its message, or a draft."""
    if name == "drafts":
        return _draft(entry, DraftRow.read(text))
    shown: dict[str, Any] = {"message": message and asdict(Message.read(message))}
    if name == "outbox":
        sent = OutboxRow.read(text)
        shown |= {"delivered_at": sent.delivered_at, "delivered_by": sent.delivered_by}
        return {
            **shown,
            "thread": sent.thread or entry,
            "undelivered": [asdict(each) for each in sent.undelivered],
        }
    row = InboxRow.read(text)
    shown["thread"] = row.thread or entry
    if name == "trash":
        return {**shown, "trashed_at": row.trashed_at}
    return {**shown, "received_at": row.received_at, "delivered_by": row.delivered_by}


def _draft(entry: str, row: DraftRow) -> dict[str, Any]:
    return {"draft": {"draft_id": entry, **asdict(row)}, "sent_at": None, "sent_by": None}
