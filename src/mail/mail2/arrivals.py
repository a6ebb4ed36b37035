"""The inbox as a stream: its entries as they come, after a cursor.

Entries are ordered by `received_at`, which is older than the commit that brings them by what that took. So a stream
looks some seconds back for entries that it hasn't had; a cursor names those that it has had in these seconds.
"""

import re
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any, Self

from mail.core.engine.pacing import Paced
from mail.core.protocol.values import value
from mail.core.task.rows import Rows, Wait
from mail.errors import BadRequest
from mail.mail2.boxes import summary
from mail.mail2.records import InboxRow, box, format_utc

LATE = timedelta(seconds=60)
"""How much older the time of an entry may be than its commit."""

NAMED = 100
"""The most entries that a cursor names; of further ones in these seconds, some come again after it."""

PAGE = 100

_CURSOR = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z(~[0-9a-f]{8})*")


@value
class Cursor:
    """A place in a stream.

    Attributes:
        time: that of the newest entry before it.
        had: the last entries before it that may be followed by older ones, by the beginning of their ids, with their
            times.
    """

    time: str
    had: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return "~".join((self.time, *(name for name, _ in self.had)))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the cursor that a text stands for. Raises BadRequest."""
        if not _CURSOR.fullmatch(text):
            raise BadRequest("Last-Event-ID is not the id of an event of this stream; leave it out")
        time, *names = text.split("~")
        return cls(time, tuple((name, time) for name in names))

    @property
    def since(self) -> str:
        """The time from which entries may still come."""
        try:
            return format_utc(datetime.fromisoformat(self.time) - LATE)
        except (ValueError, OverflowError):
            raise BadRequest(f"Last-Event-ID: {self.time} isn't a time") from None

    def after(self, name: str, time: str) -> "Cursor":
        """Return the cursor after an entry."""
        after = Cursor(max(self.time, time))
        since = after.since
        had = (each for each in self.had[1 - NAMED :] if each[1] >= since)
        return Cursor(after.time, (*had, (name[:8], time)))


class Reader:
    """Reads an inbox after a cursor, as entries come; `of` is `Account.box`.

    Attributes:
        cursor: the place after what `next` has returned.
    """

    def __init__(self, rows: Rows, of: str, cursor: Cursor, pacer: Paced) -> None:
        self._rows = rows
        self._place = box("inbox", of)
        self._pacer = pacer
        self._since = cursor.since
        self._had = dict(cursor.had)
        self._most_had = PAGE
        self.cursor = cursor

    def watched(self) -> AbstractContextManager[Wait]:
        """Lend a function that waits for new entries; see `Rows.watched`."""
        return self._rows.watched(self._place)

    async def next(self) -> list[tuple[dict[str, Any], Cursor]]:
        """Return the next summaries, the oldest first, each with the cursor after it; none if nothing has come."""
        while True:
            page = await self._rows.page(self._place, since=self._since, limit=PAGE)
            await self._pacer.pause(sum(len(text) for _, text in page.rows))
            before, found = self._since, list[tuple[dict[str, Any], Cursor]]()
            for name, text in page.rows:
                self._since = InboxRow.read(text).received_at
                if name[:8] not in self._had:
                    self._had[name[:8]] = self._since
                    self.cursor = self.cursor.after(name, self._since)
                    found.append((summary("inbox", name, text), self.cursor))
            if len(self._had) > self._most_had:
                since = self.cursor.since
                self._had = {name: time for name, time in self._had.items() if time >= since}
                self._most_had = 2 * len(self._had) + PAGE
            is_last = len(page.rows) < PAGE or self._since == before
            if is_last:
                self._since = self.cursor.since
            if found or is_last:
                return found
