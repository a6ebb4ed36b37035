"""Files in SQL: the same statements for every database."""

from typing import Any, LiteralString

from mail.adapters.shared.statements import Dialect, Execute, Statements
from mail.core.protocol.clock import Clock
from mail.core.task.files import UNUSED_SECONDS, FileRef
from mail.core.task.task import TaskKey

_PUT = """
    INSERT INTO {schema}files (instance, id, name, type, size, secret, until, kept, data)
    VALUES ({instance}, {id}, {name}, {type}, {size}, {secret}, {until}, 0, {data})
    ON CONFLICT (instance, id) DO UPDATE SET until = CASE WHEN files.until IS NULL THEN NULL ELSE excluded.until END
"""
_REFER = """
    INSERT INTO {schema}task_files (instance, task_id, id, name, type, size)
    VALUES ({instance}, {task_id}, {id}, {name}, {type}, {size})
    ON CONFLICT (instance, task_id, id) DO NOTHING
"""
_KEEP = """
    UPDATE {schema}files SET until = NULL, kept = kept + 1
    WHERE instance = {instance} AND id = {id} AND (until IS NULL OR until > {now}) RETURNING 1
"""
_FOUND: LiteralString = "instance = {instance} AND id = {id} AND (until IS NULL OR until > {now})"
_FORGET = "DELETE FROM {schema}task_files WHERE instance = {instance} AND task_id = {task_id} AND id = {id}"
_UNUSED = """
    SELECT kept FROM {schema}files AS file WHERE instance = {instance} AND id = {id} AND until IS NULL AND NOT EXISTS (
        SELECT 1 FROM {schema}task_files AS other
        WHERE other.instance = file.instance AND other.id = file.id AND other.task_id <> {task_id}
    )
"""
_DELETE = """
    DELETE FROM {schema}files WHERE instance = {instance} AND id = {id} AND kept = {kept}
"""
"""A file that a task refers to meanwhile is kept, as `kept` has changed then."""


class SQLFiles:
    """`mail.core.task.ports.Files` in SQL; `execute_large` runs a statement with the bytes of a file."""

    def __init__(self, execute: Execute, execute_large: Execute, clock: Clock, dialect: Dialect) -> None:
        self._clock = clock
        self._run = Statements(execute, dialect).run
        self._run_large = Statements(execute_large, dialect).run

    async def put_file(self, instance: str, file: FileRef, data: bytes, *, secret: str, now: float) -> None:
        await self._run("DELETE FROM {schema}files WHERE until <= {now}", now=now)
        names = {"name": file.name, "type": file.type, "size": file.size, "secret": secret}
        of_caller = {"instance": instance, "id": file.id, "until": now + UNUSED_SECONDS}
        await self._run_large(_PUT, data=data, **of_caller, **names)

    async def unused_bytes(self, instance: str, *, now: float) -> int:
        count = (
            "SELECT coalesce(sum(size), 0) FROM {schema}files WHERE instance = {instance} AND until > {now}"
        )
        ((total,),) = await self._run(count, instance=instance, now=now)
        return int(total)

    async def find_file(self, instance: str, file_id: str) -> FileRef | None:
        rows = await self._read("id, name, type, size", instance, file_id)
        return FileRef(*rows[0]) if rows else None

    async def read_secret(self, instance: str, file_id: str) -> str | None:
        rows = await self._read("secret", instance, file_id)
        return rows[0][0] if rows else None

    async def read_file(self, instance: str, file_id: str) -> bytes | None:
        rows = await self._read("data", instance, file_id, large=True)
        return bytes(rows[0][0]) if rows else None

    async def keep_file(self, key: TaskKey, file: FileRef) -> bool:
        of_task = {"instance": key.instance, "task_id": key.task_id}
        await self._run(_REFER, **of_task, id=file.id, name=file.name, type=file.type, size=file.size)
        if await self._run(_KEEP, instance=key.instance, id=file.id, now=self._now()):
            return True
        await self._run(_FORGET, **of_task, id=file.id)
        return False

    async def files_of(self, key: TaskKey) -> list[FileRef]:
        find = "SELECT id, name, type, size FROM {schema}task_files WHERE instance = {instance} AND task_id = {task_id}"
        rows = await self._run(find, instance=key.instance, task_id=key.task_id)
        return [FileRef(*row) for row in rows]

    async def drop_files(self, key: TaskKey) -> None:
        for file in await self.files_of(key):  # the references last, so that this can be repeated
            of_file = {"instance": key.instance, "id": file.id}
            for (kept,) in await self._run(_UNUSED, **of_file, task_id=key.task_id):
                await self._run(_DELETE, **of_file, kept=kept)
            await self._run(_FORGET, **of_file, task_id=key.task_id)

    async def drop_unused(self, instance: str) -> None:
        await self._run(
            "DELETE FROM {schema}files WHERE instance = {instance} AND until IS NOT NULL", instance=instance
        )

    def _now(self) -> float:
        return self._clock.now().timestamp()

    async def _read(
        self, columns: LiteralString, instance: str, file_id: str, *, large: bool = False
    ) -> list[tuple[Any, ...]]:
        """Read columns of a file, unless it has expired."""
        find: LiteralString = f"SELECT {columns} FROM {{schema}}files WHERE {_FOUND}"  # noqa: S608
        run = self._run_large if large else self._run
        return await run(find, instance=instance, id=file_id, now=self._now())
