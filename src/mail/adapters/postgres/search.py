"""The index that tasks are searched by, in tables of their own, which each server writes beside its turns.

Texts are found by trigrams, the lexemes of a `tsvector`: `pg_trgm` would be an extension, which not everyone may
create, and PostgreSQL's own parser knows the words of few languages, and no signs.
"""

import asyncio
from collections.abc import Iterable, Sequence
from time import monotonic
from typing import Any, LiteralString
from uuid import UUID

from psycopg.errors import QueryCanceled

from mail.adapters.postgres.pool import Connection, Postgres, Row, transaction
from mail.adapters.shared.search import (
    GRAM,
    LONGEST_SEARCH,
    MOST_PARTS,
    NEWEST_PARTS,
    Behind,
    by_length,
    grams_of,
    head_of,
    parts_of,
    read_place,
    search_too_long,
    texts_of,
)
from mail.core.task.ports import PAGE_BYTES
from mail.core.task.search import Search, cost_of, fold
from mail.core.task.stored import read_task
from mail.core.task.task import listings_of
from mail.errors import WrittenLater

WORK_SECONDS = 0.1
COMPARED_AT_ONCE = 2_000

COMPARE_AGAIN_SECONDS = 600.0
"""Seconds after which a server looks for tasks of others that have died before these were written."""

COMMITS_AT_ONCE = 256

SEARCHES_AT_ONCE = 2
"""Searches of a server that have a connection at the same time; turns need the others."""

WRITTEN_AT_ONCE = 1024 * 1024
"""Bytes of the commits of a task that are written at once."""

FEW = 5_000
"""Up to so many places of a word, its tasks are looked at; otherwise the tasks as they are listed."""

_COUNT: LiteralString = (
    "SELECT count(*) FROM (SELECT FROM mail.texts WHERE grams @@ %s::tsquery LIMIT %s) AS places"
)

_LIMIT_TIME: LiteralString = "SELECT set_config('statement_timeout', %s, true)"

_FIND: LiteralString = """
SELECT state, tasks.born, searched.seq, searched.last_part, (
    SELECT original FROM mail.texts WHERE texts.task = id AND part = greatest(searched.last_part, 1)
) FROM mail.tasks LEFT JOIN mail.searched ON searched.task = id WHERE id = %s
"""

_READ: LiteralString = """
SELECT seq, events FROM (
    SELECT seq, events, sum(octet_length(events)) OVER (ORDER BY seq) - octet_length(events) AS bytes_before
    FROM mail.commits WHERE task = %s AND seq > %s AND seq <= %s ORDER BY seq LIMIT %s
) AS measured WHERE bytes_before < %s ORDER BY seq
"""
"""Returns commits up to the one with which they reach a size; PostgreSQL knows the sizes without reading the texts."""

_LOCK: LiteralString = "SELECT FROM mail.tasks WHERE id = %s FOR KEY SHARE"
"""Keeps a task from being deleted, and its past from being dropped, until it is written; turns don't wait for it."""

_WRITE: LiteralString = """
WITH known AS (
    INSERT INTO mail.searched (task, instance, born, seq, last_part, updated, status, cost)
    VALUES (%(task)s, %(instance)s, %(born)s, %(seq)s, %(last_part)s, %(updated)s, %(status)s, %(cost)s)
    ON CONFLICT (task) DO UPDATE SET born = excluded.born, seq = excluded.seq, last_part = excluded.last_part,
        updated = excluded.updated, status = excluded.status, cost = excluded.cost
        WHERE searched.seq = %(before)s::integer
    RETURNING task
), written AS (
    INSERT INTO mail.texts (task, part, original, text, grams)
    SELECT known.task, found.part, found.original, found.text, found.grams::tsvector
    FROM known, unnest(%(numbers)s::integer[], %(originals)s::text[], %(texts)s::text[], %(grams)s::text[])
        AS found (part, original, text, grams)
    ON CONFLICT (task, part) DO UPDATE SET original = excluded.original, text = excluded.text, grams = excluded.grams
        WHERE (texts.original, texts.text) <> (excluded.original, excluded.text)
)
SELECT FROM known
"""
"""Writes parts of a task, unless another server has written it since it was read; then it returns no row."""

_COMPARE: LiteralString = """
SELECT id FROM mail.tasks LEFT JOIN mail.searched ON task = id
WHERE id > %s AND searched.seq IS DISTINCT FROM tasks.seq ORDER BY id LIMIT %s
"""

_NO_TASK = UUID(int=0)


class SearchIndex:
    """The index, for the store. All methods raise StoreUnavailable."""

    def __init__(self, sql: Postgres) -> None:
        self._sql = sql
        self._compared = _NO_TASK
        self._behind = Behind(self._write, self._compare, compare_again=COMPARE_AGAIN_SECONDS)
        self.note = self._behind.note
        self._at_once = asyncio.Semaphore(SEARCHES_AT_ONCE)
        sql.at_close.append(self._behind.close)

    async def _compare(self) -> tuple[list[UUID], bool]:
        rows = await self._sql.fetch(_COMPARE, (self._compared, COMPARED_AT_ONCE))
        has_more = len(rows) == COMPARED_AT_ONCE
        self._compared = rows[-1][0] if has_more else _NO_TASK
        return [task for (task,) in rows], has_more

    async def _write(self, tasks: Sequence[UUID]) -> int:
        end, done = monotonic() + WORK_SECONDS, 0
        while done < len(tasks):
            done += await self._write_task(tasks[done])
            if monotonic() > end:
                break
        return done

    async def _write_task(self, number: UUID) -> bool:
        """Write some of what is new in a task; return whether that is all."""

        async def work(connection: Connection, _is_retry: bool) -> bool:
            async with transaction(connection):
                await connection.execute(_LOCK, (number,))
                return await self._write_on(connection, number)

        return await self._sql.run(work)

    async def _write_on(self, connection: Connection, number: UUID) -> bool:
        found = await (await connection.execute(_FIND, (number,))).fetchall()
        if not found:
            return True
        ((state, born, before, last_part, begun),) = found
        try:
            task = read_task(state)
        except WrittenLater:  # by a newer version, which writes the index, too
            return True
        seq = before or 0
        read = await connection.execute(_READ, (number, seq, task.seq, COMMITS_AT_ONCE, WRITTEN_AT_ONCE))
        commits = await read.fetchall()
        seq = commits[-1][0] if commits else seq
        first = max(last_part or 0, 1)
        head = head_of(task)
        pieces = [("", head, _grams(head)), *await asyncio.to_thread(_pieces, begun or "", commits)]
        originals, texts, grams = map(list, zip(*pieces[: MOST_PARTS - first], strict=True))
        numbers = [0, *range(first, first + len(texts) - 1)]
        values = {
            "task": number,
            "instance": task.instance,
            "born": born,
            "before": before,
            "seq": seq,
            "last_part": numbers[-1],
            "updated": task.updated,
            "status": task.listed_as,
            "cost": cost_of(task),
            "numbers": numbers,
            "originals": originals,
            "texts": texts,
            "grams": grams,
        }
        is_written = await (await connection.execute(_WRITE, values)).fetchone() is not None
        return is_written and bool(seq >= task.seq)

    async def find(
        self, instance: str, search: Search, *, limit: int, cursor: str | None
    ) -> tuple[list[Row], bool]:
        """Return number, last change, state and a part with words of the tasks found, and whether all are searched.

        Raises BadRequest for a search that takes too long.
        """
        updated, born = read_place(cursor)
        is_complete = await self._behind.catch_up()
        values: dict[str, Any] = {
            "instance": instance,
            "updated": updated,
            "born": born,
            "since": search.since,
            "until": search.until,
            "statuses": search.status and list(listings_of(search.status)),
            "cost": search.min_cost,
            "words": by_length(search.words),
            "newest": NEWEST_PARTS,
            "limit": limit,
            "page_bytes": PAGE_BYTES,
        }

        async def work(connection: Connection, _is_retry: bool) -> list[Row]:
            timed = _Timed(connection)
            try:
                async with transaction(connection):
                    values["match"] = await _rarest(timed, search.words)
                    return await timed.fetch(_found(values["match"]), values)
            except QueryCanceled:
                raise search_too_long() from None

        async with self._at_once:
            return await self._sql.run(work), is_complete


class _Timed:
    """Runs the statements of a search, which have `LONGEST_SEARCH` together. Raises QueryCanceled and BadRequest."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._end = monotonic() + LONGEST_SEARCH

    async def fetch(self, statement: LiteralString, values: Any) -> list[Row]:
        left = round((self._end - monotonic()) * 1000)
        if left <= 0:
            raise search_too_long()
        await self._connection.execute(_LIMIT_TIME, (str(left),))
        return await (await self._connection.execute(statement, values)).fetchall()


def _found(match: str | None) -> LiteralString:
    """Return the statement that finds tasks, by the places of a word if it has few."""
    source: LiteralString = "mail.searched"
    if match is not None:
        source = (
            "(SELECT DISTINCT task FROM mail.texts WHERE grams @@ %(match)s::tsquery) AS hit"
            " JOIN mail.searched ON searched.task = hit.task"
        )
    return (
        f"SELECT found.born, found.updated, {page_state('found.updated DESC, found.born DESC')}, ("
        "  SELECT hit.original FROM unnest(%(words)s::text[]) WITH ORDINALITY AS asked (word, n), LATERAL ("
        "   SELECT original FROM (SELECT part, text, original FROM mail.texts WHERE texts.task = found.task"
        "    AND part > 0 ORDER BY part DESC LIMIT %(newest)s) AS newest"
        "   WHERE position(asked.word IN text) > 0 ORDER BY part DESC LIMIT 1"
        "  ) AS hit ORDER BY n LIMIT 1) FROM"
        f" (SELECT searched.* FROM {source} WHERE instance = %(instance)s"
        " AND (updated, born) < (%(updated)s::text, %(born)s::bigint) AND updated >= %(since)s"
        " AND (%(until)s::text = '' OR updated < %(until)s::text) AND cost >= %(cost)s"
        " AND (%(statuses)s::text[] IS NULL OR status = ANY(%(statuses)s::text[]))"
        " AND NOT EXISTS (SELECT FROM unnest(%(words)s::text[]) AS word WHERE NOT EXISTS ("
        "  SELECT FROM mail.texts WHERE texts.task = searched.task AND position(word IN texts.text) > 0))"
        " ORDER BY updated DESC, born DESC LIMIT %(limit)s) AS found JOIN mail.tasks ON tasks.id = found.task"
        " ORDER BY found.updated DESC, found.born DESC"
    )


async def _rarest(timed: _Timed, words: Iterable[str]) -> str | None:
    """Return what finds the places of the rarest word; None if all words have many."""
    found: list[tuple[int, str]] = []
    for word in words:
        match = " & ".join(map(_quoted, grams_of(word))) if len(word) >= GRAM else f"{_quoted(word)}:*"
        ((count,),) = await timed.fetch(_COUNT, (match, FEW + 1))
        if count <= FEW:
            found.append((count, match))
    return min(found, default=(0, None))[1]


def page_state(order: LiteralString) -> LiteralString:
    """Return the column of the states of a page in this order: null behind the first `page_bytes`."""
    before: LiteralString = f"(ORDER BY {order} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    return f"CASE WHEN coalesce(sum(octet_length(state)) OVER {before}, 0) < %(page_bytes)s THEN state END AS state"


async def rebuild(sql: Postgres) -> int:
    """Make the index again; return the number of its tasks."""
    await sql.fetch("TRUNCATE mail.searched, mail.texts")
    index = SearchIndex(sql)
    while not await index._behind.catch_up():
        pass
    ((count,),) = await sql.fetch("SELECT count(*) FROM mail.searched")
    return int(count)


def _pieces(begun: str, commits: Sequence[Row]) -> list[tuple[str, str, str]]:
    """Return the parts that commits add to a task: as they are written, folded, and the entries of each."""
    pieces = parts_of(begun, (text for _, events in commits for text in texts_of(events)))
    return [(piece, folded := fold(piece), _grams(folded)) for piece in pieces]


def _grams(text: str) -> str:
    return " ".join(map(_quoted, grams_of(text)))


def _quoted(text: str) -> str:
    """Return a text as PostgreSQL reads it in a tsvector or tsquery."""
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
