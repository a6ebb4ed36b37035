"""Rows of text in SQL: the same statements for every database."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import LiteralString

from pydantic_core import to_json

from mail.adapters.shared.statements import Dialect, Execute, Statements
from mail.core.task.documents import PutIf
from mail.core.task.rows import Order, Page, RowKey, Write, changes_of_totals, total_row

LAST = "\U0010ffff"
"""A character that comes after all those of a name."""

_READ: LiteralString = """
    SELECT place, name, text FROM {schema}rows
    WHERE (place, name) IN (SELECT value ->> 0, value ->> 1 FROM {each}({keys}))
"""
_FIND: LiteralString = """
    SELECT name, text FROM {schema}rows WHERE place = {place} AND name > {after} AND name < {before}
    ORDER BY name LIMIT {limit}
"""
_ADD: LiteralString = """
    INSERT INTO {schema}rows (place, name, text) VALUES ({place}, {name}, {text}) ON CONFLICT (place, name)
    DO UPDATE SET text = CAST(CAST(rows.text AS INTEGER) + CAST(excluded.text AS INTEGER) AS TEXT)
"""
_PAGE: LiteralString = """
    SELECT name, text, (SELECT text FROM {schema}rows WHERE place = {counted} AND name = {total})
    FROM {schema}rows WHERE place = {place} AND $order >= {since}
    ORDER BY $order $direction, name $direction LIMIT {limit} OFFSET {offset}
"""
_INSERT: LiteralString = """
    INSERT INTO {schema}rows (place, name, text, entered, sent) VALUES ({place}, {name}, {text}, {entered}, {sent})
    ON CONFLICT (place, name) DO
"""
_HERE: LiteralString = "WHERE place = {place} AND name = {name}"
_UPDATE: LiteralString = "UPDATE {schema}rows SET text = {text} " + _HERE  # noqa: S608 - constants
_DELETE: LiteralString = "DELETE FROM {schema}rows " + _HERE  # noqa: S608 - constants

Batch = tuple[LiteralString, list[dict[str, object]], bool]
"""A statement, the values with which to run it, and whether each of them has to change a row."""


class SQLRows:
    """The reading half of `mail.core.task.rows.Rows` in SQL, and the statements of the other half."""

    write_limit = 100

    def __init__(self, execute: Execute, dialect: Dialect) -> None:
        statements = Statements(execute, dialect)
        self._run, self._written = statements.run, statements.written

    async def read(self, *keys: RowKey) -> dict[RowKey, str]:
        found = await self._run(_READ, keys=to_json(keys).decode()) if keys else []
        return {(place, name): text for place, name, text in found}

    async def find(
        self, place: str, prefix: str, *, after: str = "", limit: int | None = None
    ) -> list[tuple[str, str]]:
        most = 2**62 if limit is None else limit
        found = await self._run(
            _FIND, place=place, after=max(prefix, after), before=prefix + LAST, limit=most
        )
        return [(name, text) for name, text in found]

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
        statement = _PAGE.replace("$order", by).replace("$direction", "DESC" if newest_first else "ASC")
        counted, total = total_row(place)
        found = await self._run(
            statement, place=place, counted=counted, total=total, since=since, limit=limit, offset=offset
        )
        count = int(found[0][2]) if found else (await self.totals(place))[place]
        return Page([(name, text) for name, text, _ in found], count)

    async def totals(self, *of: str) -> dict[str, int]:
        found = await self.read(*map(total_row, of))
        return {place: int(found.get(total_row(place), "0")) for place in of}

    def batches(self, writes: Sequence[Write]) -> Iterator[Batch]:
        """Yield the statements of a write, ordered by keys, so that two writes seldom wait for each other."""
        totals = [_total(place, change) for place, change in changes_of_totals(writes).items()]
        statements = [*map(_statement, writes), *totals]
        in_order = sorted(statements, key=lambda each: (each[0], each[1]["place"], each[1]["name"]))
        for (statement, is_conditional), group in groupby(in_order, key=lambda each: (each[0], each[2])):
            values = [values for _, values, _ in group]
            yield self._written(statement, values[0]), values, is_conditional


def _total(place: str, change: int) -> tuple[LiteralString, dict[str, object], bool]:
    """Return what changes the number of rows with times; see `_statement`."""
    place, name = total_row(place)
    return _ADD, {"place": place, "name": name, "text": str(change)}, False


def _statement(write: Write) -> tuple[LiteralString, dict[str, object], bool]:
    """Return the statement of a change, its values, and whether it has to change a row."""
    place, name = write.key
    here: dict[str, object] = {"place": place, "name": name}
    if write.text is None or isinstance(write.when, str) or write.when is PutIf.PRESENT:
        statement, values = (_DELETE, here) if write.text is None else (_UPDATE, {**here, "text": write.text})
        if isinstance(write.when, str):
            statement, values = statement + " AND text = {was}", {**values, "was": write.when}
        return statement, values, write.when is not PutIf.ALWAYS
    times = write.times
    values = {
        **here,
        "text": write.text,
        "entered": None if times is None else times.entered,
        "sent": None if times is None else times.sent,
    }
    if write.when is PutIf.ABSENT:
        return _INSERT + "NOTHING", values, True
    return _INSERT + "UPDATE SET text = excluded.text", values, False
