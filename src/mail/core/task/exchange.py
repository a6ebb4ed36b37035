"""Port of a durable exchange: rows of text, which change together or not at all."""

from collections.abc import Sequence
from typing import Protocol

from mail.core.protocol.values import value
from mail.core.task.documents import PutIf

RowKey = tuple[str, str]
"""The place of a row, and its name there."""


@value
class Write:
    """A change of a row.

    Attributes:
        text: the new text; None to delete the row.
        when: the condition of the change, or the text that the row must have.
    """

    key: RowKey
    text: str | None
    when: PutIf | str = PutIf.ALWAYS


class Rows(Protocol):
    """Rows in a database, which several processes may use concurrently.

    All methods raise StoreUnavailable if the database can't be reached or is too busy; a write may have happened
    nevertheless.
    """

    async def read(self, *keys: RowKey) -> dict[RowKey, str]:
        """Return the texts of those rows that exist."""

    async def find(
        self, place: str, prefix: str, *, after: str = "", limit: int | None = None
    ) -> list[tuple[str, str]]:
        """Return the names and texts of a place's rows whose name begins with `prefix`, ordered by name.

        `after` is the name after which to begin, `limit` the highest number of rows; None for all.
        """

    async def write(self, writes: Sequence[Write]) -> bool:
        """Make all changes, or none if the condition of one is false; return whether they were made.

        Raises PayloadTooLarge.
        """

    async def close(self) -> None:
        """Close the database."""
