"""Files: their bytes in the bucket, and an item for each file and for each task that refers to it.

    FILE#instance#id  FILE       the file: its name, type and size, and where its bytes are
    FILE#instance#id  T#task_id  a task that refers to it
    FILE#instance     UPLOADED#day  the bytes that a caller has uploaded on a day, and that no task refers to
    FILE#instance     U#id       a file that the caller has uploaded within a day
    T                 file#id    the same, in the partition of the task, behind all that its deletion deletes

A new object is below `uploads/`, where the bucket's lifecycle deletes it, until a task refers to the file.
"""

from collections.abc import Iterable
from contextlib import suppress
from math import ceil
from uuid import uuid4

from mail.adapters.aws.blobs import Blobs
from mail.adapters.aws.client import AwsClient
from mail.adapters.aws.items import Item, number, partition, string
from mail.adapters.aws.table import ConditionFailed, DynamoDBTable, Key, key_of
from mail.core.protocol.clock import Clock
from mail.core.task.files import UNUSED_SECONDS, FileRef
from mail.core.task.task import TaskKey
from mail.errors import PayloadTooLarge, TextGone

UPLOADS, KEPT = "uploads/", "files/"

FILE = "FILE"
TASK_START, TASK_END = "T#", "T$"
UPLOAD_START, UPLOAD_END = "U#", "U$"
REFERENCE_START, REFERENCE_END = "file#", "file$"

INLINE_BYTES = 300_000
"""Bytes of a file that its item has where there is no bucket."""


class DynamoDBFiles:
    """`mail.core.task.ports.Files` in a table, and in a bucket if there is one.

    References expire `retention` seconds after a task has got a file; None for never.
    """

    def __init__(
        self, client: AwsClient, table: str, blobs: Blobs | None, clock: Clock, retention: int | None
    ) -> None:
        self._table = DynamoDBTable(client, table)
        self._blobs = blobs
        self._clock = clock
        self._retention = retention

    async def put_file(self, instance: str, file: FileRef, data: bytes, *, secret: str, now: float) -> None:
        key = file_key(instance, file.id)
        if (item := await self._find(key)) is not None and int(item["kept"]["N"]):
            return
        values = {f":{name}": value for name, value in _attributes(file).items()}
        values |= {
            ":expires_at": number(ceil(now + UNUSED_SECONDS)),
            ":kept": number(0),
            ":secret": string(secret),
        }
        if self._blobs is not None:
            place = f"{UPLOADS}{uuid4().hex}"
            await self._blobs.put_bytes(place, data, file.type)
            values[":place"] = string(place)
        elif len(data) <= INLINE_BYTES:
            values[":data"] = {"B": data}
        else:
            raise PayloadTooLarge(
                f"a file of {len(data)} bytes can't be stored without a bucket (MAIL_BUCKET)"
            )
        listed = {
            **key_of((_of_caller(instance), UPLOAD_START + file.id)),
            "expires_at": values[":expires_at"],
        }
        await self._table.put_many([listed])
        before = await self._table.update(key, _setting(values), "", values, returning="ALL_OLD")
        if not _is_unused_of(before, now):
            await self._count_unused(instance, file.size, now)

    async def _count_unused(self, instance: str, size: int, now: float) -> None:
        values = {":size": number(size), ":expires_at": number(ceil(now + UNUSED_SECONDS))}
        change = "ADD #size :size SET #expires_at = :expires_at"
        await self._table.update(_uploads_of(instance, now), change, "", values)

    async def unused_bytes(self, instance: str, *, now: float) -> int:
        item = await self._table.get(_uploads_of(instance, now))
        return 0 if item is None else int(item["size"]["N"])

    async def find_file(self, instance: str, file_id: str) -> FileRef | None:
        item = await self._find(file_key(instance, file_id))
        return None if item is None else _read(file_id, item)

    async def read_secret(self, instance: str, file_id: str) -> str | None:
        item = await self._find(file_key(instance, file_id))
        return None if item is None else str(item["secret"]["S"])

    async def read_file(self, instance: str, file_id: str) -> bytes | None:
        item = await self._find(file_key(instance, file_id))
        if item is None:
            return None
        if self._blobs is not None and "place" in item:
            with suppress(TextGone):
                return await self._blobs.get_bytes(item["place"]["S"])
            return None
        data: bytes = item["data"]["B"]
        return data

    async def keep_file(self, key: TaskKey, file: FileRef) -> bool:
        of_file = file_key(key.instance, file.id)
        item = await self._find(of_file)
        if item is None:
            return False
        values, changes = {":one": number(1)}, "ADD #kept :one "
        place = item["place"]["S"] if "place" in item else KEPT
        if self._blobs is not None and place.startswith(UPLOADS):
            values[":place"] = string(KEPT + place.removeprefix(UPLOADS))
            try:
                await self._blobs.copy(place, values[":place"]["S"])
            except TextGone:
                return False
        expiry = self._expiry()
        if self._blobs is not None and "place" in item and expiry and ":place" not in values:
            try:  # the bucket counts from when the first task got the file
                await self._blobs.renew(place, file.type)
            except TextGone:
                return False
        values |= {f":{name}": value for name, value in expiry.items()}
        if set_now := [name for name in (":place", ":expires_at") if name in values]:
            changes += _setting(set_now)
        if not expiry:
            changes += " REMOVE #expires_at"
        both = references(key, file.id)
        # before `kept` changes, by which a deletion notices that
        await self._table.put_many([{**key_of(each), **_attributes(file), **expiry} for each in both])
        try:
            before = await self._table.update(
                of_file, changes, "attribute_exists(#PK)", values, returning="ALL_OLD"
            )
        except ConditionFailed:
            await self._table.delete_many(both)
            return False
        now = self._clock.now().timestamp()
        if _is_unused_of(before, now):
            await self._count_unused(key.instance, -file.size, now)
        return True

    async def files_of(self, key: TaskKey) -> list[FileRef]:
        found = self._table.pages(partition(key), REFERENCE_START, REFERENCE_END)
        return [
            _read(item["SK"]["S"].removeprefix(REFERENCE_START), item)
            async for page in found
            for item in page
        ]

    async def drop_files(self, key: TaskKey) -> None:
        for file in await self.files_of(key):
            of_file = file_key(key.instance, file.id)
            item = await self._find(of_file)
            in_task, in_file = references(key, file.id)
            await self._table.delete_many([in_file])
            others = self._table.pages(of_file[0], TASK_START, TASK_END, limit=1)
            if item is not None and not [one async for page in others for one in page]:
                await self._delete(of_file, item)
            await self._table.delete_many([in_task])

    async def drop_unused(self, instance: str) -> None:
        async for page in self._table.pages(_of_caller(instance), UPLOAD_START, UPLOAD_END):
            for upload in page:
                of_file = file_key(instance, upload["SK"]["S"].removeprefix(UPLOAD_START))
                item = await self._table.get(of_file)
                if item is not None and not int(item["kept"]["N"]):
                    await self._delete(of_file, item)
            await self._table.delete_many((_of_caller(instance), upload["SK"]["S"]) for upload in page)

    async def _delete(self, of_file: Key, item: Item) -> None:
        """Delete a file, unless a task has begun to refer to it since its item was read."""
        is_deleted = await self._table.delete(of_file, "#kept = :kept", {":kept": item["kept"]})
        if is_deleted and self._blobs is not None and "place" in item:
            await self._blobs.discard([item["place"]["S"]])

    async def _find(self, key: Key) -> Item | None:
        item = await self._table.get(key)
        if item is None or float(item.get("expires_at", {"N": "inf"})["N"]) <= self._clock.now().timestamp():
            return None
        return item

    def _expiry(self) -> Item:
        if self._retention is None:
            return {}
        return {"expires_at": number(ceil(self._clock.now().timestamp()) + self._retention)}


def file_key(instance: str, file_id: str) -> Key:
    return f"FILE#{instance}#{file_id}", FILE


def _uploads_of(instance: str, now: float) -> Key:
    """Return the key of the sum of what a caller has uploaded on a day."""
    return _of_caller(instance), f"UPLOADED#{int(now // UNUSED_SECONDS)}"


def _of_caller(instance: str) -> str:
    """Return the partition of a caller's uploads."""
    return f"FILE#{instance}"


def _is_unused_of(file: Item, now: float) -> bool:
    """Return whether the item of a file is that of an upload of this day to which no task refers."""
    if not file or int(file["kept"]["N"]):
        return False
    uploaded = float(file["expires_at"]["N"]) - UNUSED_SECONDS
    return uploaded // UNUSED_SECONDS == now // UNUSED_SECONDS


def references(key: TaskKey, file_id: str) -> tuple[Key, Key]:
    """Return the keys of the reference of a task: among the items of the task, and of the file."""
    file, _ = file_key(key.instance, file_id)
    return (partition(key), REFERENCE_START + file_id), (file, TASK_START + key.task_id)


def _attributes(file: FileRef) -> Item:
    return {"name": string(file.name), "type": string(file.type), "size": number(file.size)}


def _setting(values: Iterable[str]) -> str:
    return "SET " + ", ".join(f"#{name[1:]} = {name}" for name in values)


def _read(file_id: str, item: Item) -> FileRef:
    return FileRef(file_id, item["name"]["S"], item["type"]["S"], int(item["size"]["N"]))
