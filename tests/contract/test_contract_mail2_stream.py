"""The inbox of MAIL 2.0 as a stream, on every store: each entry comes once, whatever breaks off."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from support.engines.adapters import StoreAdapter
from support.engines.dynamodb import DynamoDBAdapter
from support.engines.postgres import PostgresAdapter
from support.mail2 import HOST, Person, Stage
from support.processes.http_server import Frame

from mail.adapters.aws.rows import DynamoDBRows
from mail.adapters.postgres.rows import PostgresRows
from mail.core.task.documents import PutIf
from mail.core.task.rows import Rows, Times, Write
from mail.mail2.arrivals import NAMED, PAGE, Cursor, Reader
from mail.mail2.records import MESSAGES, InboxRow, box, format_utc

NOBODY = "aaaaaaaa"


@pytest.fixture
async def stage(adapter: StoreAdapter, cheap_passwords: None) -> AsyncIterator[Stage]:
    async with Stage(adapter.rows) as stage:
        yield stage


@pytest.fixture
async def ann(stage: Stage) -> Person:
    return await stage.person("ann")


@asynccontextmanager
async def streaming(
    stage: Stage, person: Person, after: str | None = None
) -> AsyncGenerator[AsyncIterator[Frame]]:
    """The events of a person's stream but pings, past `ready`."""
    headers = {"Authorization": f"Bearer {person.token}"} | (
        {} if after is None else {"Last-Event-ID": after}
    )
    async with stage.server.frames("GET", "/v2/inbox/stream", headers=headers) as frames:
        ready = await anext(frames)
        assert ready.event == "ready"
        assert ready.id is not None
        yield frames


async def next_message(frames: AsyncIterator[Frame]) -> Frame:
    while (frame := await anext(frames)).event == "ping":
        pass
    assert frame.event == "message"
    return frame


async def test_mail_comes_as_it_is_sent(stage: Stage, ann: Person) -> None:
    bob = await stage.person("bob")
    await bob.send(ann.address, subject="Before")
    async with streaming(stage, ann) as frames:
        sent = [await bob.send(ann.address, subject=subject) for subject in ("One", "Two")]
        for message in sent:
            frame = await next_message(frames)
            assert frame.data["message_id"] == message["message_id"]
    newest = await ann.box("inbox")
    assert frame.data == newest[0]
    missed = await bob.send(ann.address, subject="Three")
    async with streaming(stage, ann, after=frame.id) as frames:
        assert (await next_message(frames)).data["message_id"] == missed["message_id"]
        last = await bob.send(ann.address, subject="Four")
        assert (await next_message(frames)).data["message_id"] == last["message_id"]
    await bob.send(bob.address)  # to nobody else
    async with streaming(stage, ann, after=frame.id) as frames:
        subjects = [(await next_message(frames)).data["subject"] for _ in range(2)]
    assert subjects == ["Three", "Four"]


async def rows_of_another_process(adapter: StoreAdapter) -> Rows:
    """Rows as another process has them; those of SQLite, which serves one only."""
    if isinstance(adapter, DynamoDBAdapter):
        return DynamoDBRows(adapter.client, adapter.table)
    if isinstance(adapter, PostgresAdapter):
        await adapter.another()
        return PostgresRows(*adapter._open[-1])
    return adapter.rows


async def test_what_another_process_files_comes_as_well(
    stage: Stage, ann: Person, adapter: StoreAdapter
) -> None:
    account = (await stage.host.accounts.find("user:ann"))["user:ann"]
    other = stage.another(await rows_of_another_process(adapter))
    async with streaming(stage, ann) as frames:
        draft = await other.boxes.draft(account, await ann.draft())
        sent, _ = await other.deliveries.send(account, draft, (ann.address,), (), None)
        assert (await next_message(frames)).data["message_id"] == sent.message_id


async def test_an_entry_that_is_committed_late_is_not_missed(stage: Stage, ann: Person) -> None:
    """Its time is before that of others that came earlier."""
    sent = await ann.send(ann.address)
    account = (await stage.host.accounts.find("user:ann"))["user:ann"]
    place = box("inbox", account.box)
    ((name, text),) = (await stage.rows.page(place, limit=10)).rows
    row = InboxRow.read(text)
    async with streaming(stage, ann) as frames:
        newest = await ann.send(ann.address)
        frame = await next_message(frames)
        assert frame.data["message_id"] == newest["message_id"]
        late = replace(row, received_at=sent["sent_at"])
        times = Times(late.received_at, late.sent_at)
        for number in range(2):
            entry = f"{NOBODY[:7]}{number}{name[8:]}"
            assert await stage.rows.write([Write((place, entry), late.text, PutIf.ABSENT, times)])
            frame = await next_message(frames)
            assert frame.data["message_id"] == entry
    async with streaming(stage, ann, after=frame.id) as frames:
        following = await ann.send(ann.address)
        assert (await next_message(frames)).data["message_id"] == following["message_id"]
    assert (MESSAGES, name) in await stage.rows.read((MESSAGES, name))


async def test_a_long_absence_is_made_up_for(stage: Stage, ann: Person) -> None:
    account = (await stage.host.accounts.find("user:ann"))["user:ann"]
    place, count = box("inbox", account.box), PAGE + 3
    row = InboxRow("user:bob@x", "Hi", 1, "2026-01-01T00:00:00.000000Z", "2026-01-01T00:00:00.000000Z", "d")
    written = 0
    while written < count:
        writes = []
        for number in range(written, min(count, written + stage.rows.write_limit)):
            each = replace(row, received_at=f"2026-01-01T{number // 60:02}:{number % 60:02}:00.000000Z")
            writes.append(Write((place, f"{number:08x}-0"), each.text, PutIf.ABSENT, each.times))
        assert await stage.rows.write(writes)
        written += len(writes)
    async with streaming(stage, ann, after="2025-12-31T00:00:00.000000Z") as frames:
        got = [(await next_message(frames)).data["message_id"] for _ in range(count)]
    assert got == [f"{number:08x}-0" for number in range(count)]


async def test_a_stream_ends_with_its_token(stage: Stage, ann: Person) -> None:
    token = (await stage.token(ann.address, ann.token)).json()["access_token"]
    guest = Person(stage, token, ann.address)
    async with streaming(stage, guest) as frames:
        assert (await guest.post("/auth/logout")).status_code == 200
        await ann.send(ann.address)
        assert [frame async for frame in frames] == []


@pytest.mark.parametrize("cursor", ["7", "2026-01-01T00:00:00Z", "0001-01-01T00:00:00.000000Z~a"])
async def test_a_cursor_of_something_else_is_refused(ann: Person, cursor: str) -> None:
    answer = await ann.ask("GET", "/inbox/stream", headers={"Last-Event-ID": cursor})
    assert answer.status_code == 422
    assert "Last-Event-ID" in answer.text


async def test_nobody_reads_anothers_inbox(stage: Stage, ann: Person) -> None:
    assert (await stage.anonymous("GET", "/inbox/stream")).status_code == 401
    bob = await stage.person("bob")
    async with streaming(stage, bob) as frames:
        await ann.send(ann.address)
        sent = await ann.send(bob.address)
        assert (await next_message(frames)).data["message_id"] == sent["message_id"]
        assert (await bob.box("inbox"))[0]["sender"] == f"user:ann@{HOST}"


async def test_a_burst_is_read_in_slices(stage: Stage, ann: Person) -> None:
    """A hundred entries come a second: what a stream remembers, and holds the loop for, doesn't grow with them."""
    account = (await stage.host.accounts.find("user:ann"))["user:ann"]
    place, begun = box("inbox", account.box), datetime(2026, 1, 1, tzinfo=UTC)
    for n in range(10 * PAGE):
        time = format_utc(begun + timedelta(milliseconds=10 * n))
        row = InboxRow("a@b", "s", 1, time, time, "a@b")
        await stage.rows.write([Write((place, f"{n:08}"), row.text, PutIf.ABSENT, row.times)])
    pauses = Pauses()
    reader = Reader(stage.rows, account.box, Cursor.parse("2026-01-01T00:00:00.000000Z"), pauses)
    names = list[str]()
    while found := await reader.next():
        names += [entry["message_id"] for entry, _ in found]
        assert all(len(cursor.had) <= NAMED for _, cursor in found)
    assert names == [f"{n:08}" for n in range(10 * PAGE)]
    assert pauses.count >= 10


class Pauses:
    """Counts the pauses of a work."""

    count = 0

    async def pause(self, size: int) -> None:
        self.count += size > 0
