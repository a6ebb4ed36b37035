"""Port of rows of text, which change together or not at all: what exchanges and the boxes of MAIL 2.0 are made of."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Literal, Protocol

from mail.core.protocol.values import value
from mail.core.task.documents import PutIf

RowKey = tuple[str, str]
"""The place of a row, and its name there."""

Order = Literal["entered", "sent"]

Wait = Callable[[float], Awaitable[None]]
"""Waits for so many seconds at most."""


@value
class Times:
    """Where a row stands in the two orders of its place: texts that sort as the times do."""

    entered: str
    sent: str


@value
class Write:
    """A change of a row.

    Attributes:
        text: the new text; None to delete the row.
        when: the condition of the change, or the text that the row must have.
        times: for a row that pages show. It gets them by a write with the condition ABSENT, and keeps them; its
            deletion has to name them again.
    """

    key: RowKey
    text: str | None
    when: PutIf | str = PutIf.ALWAYS
    times: Times | None = None


def total_row(place: str) -> RowKey:
    """Return the row that counts the rows of a place that have times; to count them would take long."""
    return f"{place}#total", "total"


def places_of_new(writes: Sequence[Write]) -> Mapping[str, int]:
    """Return how many rows that have times come to each place by writes."""
    return Counter(write.key[0] for write in writes if write.times and write.when is PutIf.ABSENT)


def changes_of_totals(writes: Sequence[Write]) -> Mapping[str, int]:
    """Return by how much writes change the number of rows that have times, by place."""
    changes: Counter[str] = Counter()
    for write in writes:
        if write.times is not None:
            changes[write.key[0]] += -1 if write.text is None else write.when is PutIf.ABSENT
    return {place: change for place, change in changes.items() if change}


@value
class Page:
    """A part of a place: names and texts in their order, and the number of all rows of the place that have times."""

    rows: list[tuple[str, str]]
    total: int


class Rows(Protocol):
    """Rows in a database, which several processes may use concurrently.

    All methods raise StoreUnavailable if the database can't be reached or is too busy; a write may have happened
    nevertheless.
    """

    @property
    def write_limit(self) -> int:
        """The number of rows with times that one write may have, with as many others."""

    async def read(self, *keys: RowKey) -> dict[RowKey, str]:
        """Return the texts of those rows that exist."""

    async def find(
        self, place: str, prefix: str, *, after: str = "", limit: int | None = None
    ) -> list[tuple[str, str]]:
        """Return the names and texts of a place's rows whose name begins with `prefix`, ordered by name.

        `after` is the name after which to begin, `limit` the highest number of rows; None for all.
        """

    async def page(
        self,
        place: str,
        *,
        by: Order = "entered",
        newest_first: bool = False,
        since: str = "",
        limit: int,
        offset: int = 0,
    ) -> Page:
        """Return the rows of a place that have times, in the order of one of them, without the first `offset`.

        Those whose time is before `since` are left out, but counted in the total.
        """

    async def totals(self, *of: str) -> dict[str, int]:
        """Return the number of rows of each place that have times."""

    def watched(self, place: str) -> AbstractContextManager[Wait]:
        """Lend a function that waits until rows with times may have come to a place since it was called last."""

    async def write(self, writes: Sequence[Write]) -> bool:
        """Make all changes, or none if the condition of one is false; return whether they were made.

        A row may have one change. False may also mean that a write which the database has confirmed too late was
        repeated. Raises PayloadTooLarge.
        """

    async def close(self) -> None:
        """Close the database, if it was opened for these rows."""
