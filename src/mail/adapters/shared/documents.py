"""Documents in SQL: one table for all kinds, and the same statements for every database."""

from collections.abc import Mapping
from typing import LiteralString

from pydantic_core import from_json, to_json

from mail.adapters.shared.statements import Dialect, Execute, Statements
from mail.core.task.documents import Document, Kind, PutIf

_COLUMNS: LiteralString = (
    "SELECT owner, name, CAST(fields AS TEXT), expires FROM {schema}documents WHERE kind = {kind}"
)
_OWNED: LiteralString = " AND owner = {owner}"
_HERE: LiteralString = _OWNED + " AND name = {name}"
_GET: LiteralString = _COLUMNS + _HERE
_LAST: LiteralString = " ORDER BY name DESC LIMIT {limit}"
_PUT: LiteralString = """
    INSERT INTO {schema}documents (kind, owner, name, fields, expires)
    SELECT {kind}, {owner}, {name}, {json}, {expires} WHERE $has_room
    ON CONFLICT (kind, owner, name) DO $action RETURNING 1
"""
_REPLACE: LiteralString = "UPDATE SET fields = {merged}, expires = excluded.expires"
_HAS_ROOM: LiteralString = """
    (SELECT count(*) FROM {schema}documents WHERE kind = {kind} AND owner = {owner} AND name <> {name}) < {limit}
"""
_UPDATE: LiteralString = "UPDATE {schema}documents SET fields = {changed} WHERE kind = {kind}" + _HERE  # noqa: S608
_DELETE: LiteralString = "DELETE FROM {schema}documents WHERE kind = {kind}"
_EXPIRED: LiteralString = _DELETE + " AND expires <= {now}"


class SQLDocuments:
    """`mail.core.task.ports.Documents` in SQL. The first of two parts of a key is the `owner` of the document."""

    def __init__(self, execute: Execute, dialect: Dialect) -> None:
        given: LiteralString = f"CAST({dialect.parameter.format('fields')} AS {dialect.json})"
        merged = dialect.merge.format("documents.fields", "excluded.fields")
        changed = dialect.merge.format("fields", given)
        self._run = Statements(execute, dialect, json=given, merged=merged, changed=changed).run

    async def get(self, kind: Kind, *key: str) -> Document | None:
        found = await self._select(_GET, **_place(kind, key))
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
        here, fields = _place(kind, document.key), to_json(dict(document.fields)).decode()
        if condition is PutIf.PRESENT:
            return await self._change(_UPDATE, where, **here, fields=fields)
        if now:
            await self._run(_EXPIRED, kind=kind.value, now=now)
        added: dict[str, object] = {"fields": fields, "expires": document.expires}
        has_room: LiteralString = "true"
        if limit is not None:
            has_room, added["limit"] = _HAS_ROOM, limit
        action: LiteralString = "NOTHING" if condition is PutIf.ABSENT else _REPLACE
        statement = _PUT.replace("$has_room", has_room).replace("$action", action)
        return bool(await self._run(statement, **here, **added))

    async def delete(self, kind: Kind, *key: str, where: Mapping[str, str] | None = None) -> bool:
        return await self._change(_DELETE + _HERE, where, **_place(kind, key))

    async def find(self, kind: Kind, *partition: str) -> list[Document]:
        if not partition:
            return await self._select(_COLUMNS, kind=kind.value)
        (owner,) = partition
        return await self._select(_COLUMNS + _OWNED, kind=kind.value, owner=owner)

    async def page(self, kind: Kind, *, limit: int, before: str = "") -> list[Document]:
        if not before:
            return await self._select(_COLUMNS + _OWNED + _LAST, kind=kind.value, owner="", limit=limit)
        statement = _COLUMNS + _OWNED + " AND name < {before}" + _LAST
        return await self._select(statement, kind=kind.value, owner="", before=before, limit=limit)

    async def _change(
        self, statement: LiteralString, where: Mapping[str, str] | None, **values: object
    ) -> bool:
        """Change a document if its fields have these values; return whether it was changed."""
        for number, (name, text) in enumerate((where or {}).items()):
            statement += f" AND fields ->> CAST({{field_{number}}} AS TEXT) = {{was_{number}}}"
            values |= {f"field_{number}": name, f"was_{number}": text}
        return bool(await self._run(statement + " RETURNING 1", **values))

    async def _select(self, statement: LiteralString, **values: object) -> list[Document]:
        return [
            Document((owner, name) if owner else (name,) if name else (), from_json(fields), expires)
            for owner, name, fields, expires in await self._run(statement, **values)
        ]


def _place(kind: Kind, key: tuple[str, ...]) -> dict[str, object]:
    """Return where a document is; of a key with less than two parts, the owner is empty."""
    *_, owner, name = ("", "", *key)
    return {"kind": kind.value, "owner": owner, "name": name}
