"""Files: stored once per caller, and deleted with the last task that refers to them."""

import asyncio
import os
from time import time

from support.engines.adapters import StoreAdapter

from mail.core.task.files import UNUSED_SECONDS, FileRef, make_reference
from mail.core.task.task import TaskKey

ALICE, BOB = "user:alice@example", "user:bob@example"
FIRST, SECOND = TaskKey(ALICE, "first"), TaskKey(ALICE, "second")
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 8


async def stored(
    adapter: StoreAdapter, data: bytes = PNG, name: str = "plan.png", age: float = 0.0
) -> FileRef:
    ref = make_reference(data, name)
    await adapter.files.put_file(ALICE, ref, data, secret="s3cret", now=time() - age)
    return ref


async def test_its_owner_finds_and_reads_a_file(adapter: StoreAdapter) -> None:
    ref = await stored(adapter)
    assert ref == FileRef(ref.id, "plan.png", "image/png", len(PNG))
    assert await adapter.files.find_file(ALICE, ref.id) == ref
    assert await adapter.files.read_file(ALICE, ref.id) == PNG
    assert await adapter.files.read_secret(ALICE, ref.id) == "s3cret"


async def test_nobody_else_does(adapter: StoreAdapter) -> None:
    ref = await stored(adapter)
    assert await adapter.files.find_file(BOB, ref.id) is None
    assert await adapter.files.read_file(BOB, ref.id) is None
    assert await adapter.files.keep_file(TaskKey(BOB, "first"), ref) is False
    assert await adapter.files.files_of(TaskKey(BOB, "first")) == []


async def test_a_file_of_some_megabytes_comes_back_byte_for_byte(adapter: StoreAdapter) -> None:
    data = os.urandom(3_000_000)
    ref = await stored(adapter, data)
    assert await adapter.files.read_file(ALICE, ref.id) == data


async def test_a_task_has_the_files_that_it_refers_to_each_once(adapter: StoreAdapter) -> None:
    ref, other = await stored(adapter), await stored(adapter, b"Buy tea.", "notes.txt")
    for each in (ref, other, ref):
        assert await adapter.files.keep_file(FIRST, each)
    assert sorted(await adapter.files.files_of(FIRST), key=lambda each: each.name) == [other, ref]
    assert await adapter.files.files_of(SECOND) == []


async def test_a_file_stays_until_the_last_task_that_refers_to_it_is_deleted(adapter: StoreAdapter) -> None:
    ref = await stored(adapter)
    assert await adapter.files.keep_file(FIRST, ref)
    assert await adapter.files.keep_file(SECOND, ref)
    await adapter.files.drop_files(FIRST)
    assert await adapter.files.read_file(ALICE, ref.id) == PNG
    assert await adapter.files.files_of(FIRST) == []
    await adapter.files.drop_files(SECOND)
    assert await adapter.files.read_file(ALICE, ref.id) is None
    assert await adapter.files.keep_file(FIRST, ref) is False
    assert await adapter.files.files_of(FIRST) == []


async def test_dropping_the_files_of_a_task_without_any_changes_nothing(adapter: StoreAdapter) -> None:
    ref = await stored(adapter)
    await adapter.files.drop_files(FIRST)
    assert await adapter.files.find_file(ALICE, ref.id) == ref


async def test_a_file_that_no_task_refers_to_is_gone_after_a_day(adapter: StoreAdapter) -> None:
    kept = await stored(adapter, b"Buy tea.", "notes.txt")
    assert await adapter.files.keep_file(FIRST, kept)
    await stored(adapter, b"Buy tea.", "notes.txt", age=UNUSED_SECONDS + 1)
    unused = await stored(adapter, age=UNUSED_SECONDS + 1)
    assert await adapter.files.find_file(ALICE, unused.id) is None
    assert await adapter.files.read_file(ALICE, unused.id) is None
    assert await adapter.files.keep_file(SECOND, unused) is False
    assert await adapter.files.files_of(SECOND) == []
    await stored(adapter, b"Buy milk.", "more.txt")
    assert await adapter.files.find_file(ALICE, unused.id) is None
    assert await adapter.files.read_file(ALICE, kept.id) == b"Buy tea."


async def test_storing_a_file_again_changes_nothing(adapter: StoreAdapter) -> None:
    ref = await stored(adapter)
    assert await adapter.files.keep_file(FIRST, ref)
    assert await stored(adapter, name="again.png") != ref
    assert await adapter.files.find_file(ALICE, ref.id) == ref
    assert await adapter.files.files_of(FIRST) == [ref]


async def test_a_reference_that_comes_while_the_file_is_deleted_is_kept_or_refused(
    adapter: StoreAdapter,
) -> None:
    for n in range(8):
        ref = await stored(adapter, f"file {n}".encode(), f"{n}.txt")
        assert await adapter.files.keep_file(FIRST, ref)
        _, is_kept = await asyncio.gather(
            adapter.files.drop_files(FIRST), adapter.files.keep_file(SECOND, ref)
        )
        assert (await adapter.files.read_file(ALICE, ref.id) is not None) is is_kept
        assert (ref in await adapter.files.files_of(SECOND)) is is_kept


async def test_what_no_task_refers_to_is_counted(adapter: StoreAdapter) -> None:
    assert await adapter.files.unused_bytes(ALICE, now=time()) == 0
    ref = await stored(adapter)
    await stored(adapter, name="again.png")
    assert await adapter.files.unused_bytes(ALICE, now=time()) == len(PNG)
    assert await adapter.files.unused_bytes(BOB, now=time()) == 0
    other = await stored(adapter, b"another", "other.txt")
    for key in (FIRST, FIRST, SECOND):
        assert await adapter.files.keep_file(key, ref)
    assert await adapter.files.unused_bytes(ALICE, now=time()) == other.size
    await stored(adapter)
    assert await adapter.files.unused_bytes(ALICE, now=time()) == other.size
