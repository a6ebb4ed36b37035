"""Documents in SQL: the tables of each kind, and the same statements for every database."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, LiteralString

from pydantic_core import from_json, to_json

from mail.core.task.documents import Document, Kind, PutIf


@dataclass(frozen=True, slots=True)
class _Table:
    """A table: the columns of the key, those of the fields, and the one with the time of expiry."""

    name: LiteralString
    key: tuple[LiteralString, ...]
    fields: tuple[LiteralString, ...]
    expires: LiteralString | None = None

    @property
    def columns(self) -> tuple[LiteralString, ...]:
        """All columns that documents are read from."""
        return (*self.key, *self.fields, *((self.expires,) if self.expires else ()))


_TABLES = {
    Kind.TOKEN: _Table("tokens", ("digest",), ("role", "id", "created", "session_of"), "expires"),
    Kind.SIGN_IN_LINK: _Table("sign_in_links", ("digest",), ("role", "id", "made_with"), "expires"),
    Kind.PEER: _Table("peers", ("name",), ("record", "health")),
    Kind.FOUND_PEER: _Table("found_peers", ("name",), ("record", "health")),
    Kind.WEBHOOK: _Table("webhooks", ("caller", "id"), ("record",)),
    Kind.PERMITS: _Table("permits", ("name",), ("record", "version")),
    Kind.SWARM_VERSION: _Table("swarm_versions", ("digest",), ("specification", "used")),
    Kind.SWARM_DRAFT: _Table("swarm_drafts", ("name",), ("record",)),
    Kind.HOLD: _Table("holds", ("name",), ("record",)),
    Kind.CALLER_DELETION: _Table("caller_deletions", ("caller",), ("record",), "until"),
    Kind.DELETED_TASK: _Table("deleted_tasks", ("name",), ("deleted",), "until"),
    Kind.AUDIT: _Table("audit", ("id",), ("record", "outcome"), "expires"),
    Kind.IDEMPOTENCY_KEY: _Table("idempotency_keys", ("caller", "key"), ("digest", "task_id"), "until"),
    Kind.CALLER_TOKEN: _Table("caller_tokens", ("caller",), ("sealed",), "expires"),
}

_SETTINGS = _Table("settings", ("name",), ("value",))

_SETTING_NAMES = {
    Kind.HAD_TOKENS: "had_tokens",
    Kind.HEALTH: "health",
    Kind.LOADED_SWARM: "template",
    Kind.ISSUER_KEYS: "issuer",
}
"""The kinds of which there is one document, a row of `settings` each: a health status as it is, the others as JSON."""

_JSON = (Kind.LOADED_SWARM, Kind.ISSUER_KEYS)

Execute = Callable[[LiteralString, dict[str, object]], Awaitable[list[tuple[Any, ...]]]]


class SQLDocuments:
    """`mail.core.task.ports.Documents` in SQL.

    Args:
        execute: runs a statement and returns its rows.
        schema: what comes before the name of a table.
        parameter: a parameter, with `{}` for its name.
    """

    def __init__(self, execute: Execute, *, schema: LiteralString, parameter: LiteralString) -> None:
        self._execute = execute
        self._schema = schema
        self._parameter = parameter
        self._selects: dict[tuple[Kind, int], LiteralString] = {}

    async def get(self, kind: Kind, *key: str) -> Document | None:
        table, key = _table_of(kind, key)
        found = await self._select(kind, table, key)
        return found[0] if found else None

    async def put(
        self,
        kind: Kind,
        document: Document,
        *,
        condition: PutIf = PutIf.ALWAYS,
        now: float = 0.0,
        limit: int | None = None,
        where: Mapping[str, str] | None = None,
    ) -> bool:
        table, key = _table_of(kind, document.key)
        fields = document.fields if table is not _SETTINGS else {"value": _setting(kind, document.fields)}
        values: dict[str, object] = {**dict(zip(table.key, key, strict=True)), **fields}
        if table.expires is not None and condition is not PutIf.PRESENT:
            values[table.expires] = document.expires
        name: LiteralString = f"{self._schema}{table.name}"
        if condition is PutIf.PRESENT:
            changes = ", ".join(f"{column} = {self._named(column)}" for column in fields)
            asked = [self._equal(table.key)]
            for column, value in (where or {}).items():
                asked.append(f"{column} = {self._named(f'was_{column}')}")
                values[f"was_{column}"] = value
            statement = f"UPDATE {name} SET {changes} WHERE {' AND '.join(asked)} RETURNING 1"  # noqa: S608
            return bool(await self._execute(statement, values))
        if table.expires is not None and now:
            expired: LiteralString = f"DELETE FROM {name} WHERE {table.expires} <= {self._named('now')}"  # noqa: S608
            await self._execute(expired, {"now": now})
        has_room: LiteralString = "true"
        added: dict[str, object] = {}
        if limit is not None:
            *partition, last = table.key
            beside = f"{self._equal(partition)} AND {last} <> {self._named(last)}"
            has_room = f"(SELECT count(*) FROM {name} WHERE {beside}) < {self._named('most')}"  # noqa: S608
            added["most"] = limit
        changes = ", ".join(f"{column} = excluded.{column}" for column in values if column not in table.key)
        action = "NOTHING" if condition is PutIf.ABSENT else f"UPDATE SET {changes}"
        return bool(
            await self._execute(
                f"INSERT INTO {name} ({', '.join(values)}) SELECT {', '.join(map(self._named, values))}"
                f" WHERE {has_room} ON CONFLICT ({', '.join(table.key)}) DO {action} RETURNING 1",
                values | added,
            )
        )

    async def delete(self, kind: Kind, *key: str, where: Mapping[str, str] | None = None) -> bool:
        table, key = _table_of(kind, key)
        values: dict[str, object] = {**dict(zip(table.key, key, strict=True)), **(where or {})}
        return bool(
            await self._execute(
                f"DELETE FROM {self._schema}{table.name} WHERE {self._equal(values)} RETURNING 1",  # noqa: S608
                values,
            )
        )

    async def find(self, kind: Kind, *partition: str) -> list[Document]:
        return await self._select(kind, *_table_of(kind, partition))

    async def _select(self, kind: Kind, table: _Table, key: tuple[str, ...]) -> list[Document]:
        values: dict[str, object] = dict(zip(table.key, key, strict=False))
        statement = self._selects.get((kind, len(values)))
        if statement is None:
            columns, where = ", ".join(table.columns), self._equal(values) or "true"
            statement = f"SELECT {columns} FROM {self._schema}{table.name} WHERE {where}"  # noqa: S608
            self._selects[kind, len(values)] = statement
        return await self._read(kind, table, statement, values)

    async def page(self, kind: Kind, *, limit: int, before: str = "") -> list[Document]:
        table = _TABLES[kind]
        (key,), columns = table.key, ", ".join(table.columns)
        where = f"{key} < {self._named('before')}" if before else "true"
        statement = (
            f"SELECT {columns} FROM {self._schema}{table.name} WHERE {where}"  # noqa: S608
            f" ORDER BY {key} DESC LIMIT {self._named('most')}"
        )
        return await self._read(kind, table, statement, {"before": before, "most": limit})

    async def _read(
        self, kind: Kind, table: _Table, statement: LiteralString, values: dict[str, object]
    ) -> list[Document]:
        rows = await self._execute(statement, values)
        return [_document(kind, table, dict(zip(table.columns, row, strict=True))) for row in rows]

    def _equal(self, columns: Iterable[str]) -> str:
        return " AND ".join(f"{column} = {self._named(column)}" for column in columns)

    def _named(self, name: str) -> str:
        return self._parameter.format(name)


def _table_of(kind: Kind, key: tuple[str, ...]) -> tuple[_Table, tuple[str, ...]]:
    """Return the table of a kind, and the key there."""
    name = _SETTING_NAMES.get(kind)
    return (_TABLES[kind], key) if name is None else (_SETTINGS, (name,))


def _setting(kind: Kind, fields: Mapping[str, str]) -> str:
    return to_json(dict(fields)).decode() if kind in _JSON else fields.get("status", "")


def _document(kind: Kind, table: _Table, row: dict[str, Any]) -> Document:
    if table is _SETTINGS:
        value = row["value"]
        return Document((), from_json(value) if kind in _JSON else {"status": value})
    fields = {name: row[name] for name in table.fields if row[name] is not None}
    return Document(
        tuple(row[name] for name in table.key), fields, row[table.expires] if table.expires else None
    )
