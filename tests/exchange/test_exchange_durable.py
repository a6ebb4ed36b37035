"""What only exchanges in a database have: what they refuse, what they hold, and the URL that opens them."""

import asyncio
import sqlite3
import tempfile
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from exchange_worlds import DURABLE, World
from hypothesis import given, settings
from hypothesis import strategies as st
from support.engines.dynamodb import Calls
from support.plugins.tiers import sized

from mail.adapters.aws.rows import ROW_BYTES
from mail.adapters.sqlite.database import SQLiteDatabase
from mail.errors import BadRequest, ConfigurationError, MAILError, PayloadTooLarge, StoreUnavailable
from mail.exchange import Flow, open_exchange
from mail.exchange import durable as durable_exchange
from mail.exchange.durable import _write
from mail.exchange.mailboxes import Mail

ALICE, BOB = uuid4(), uuid4()

DEEP: list[Any] = []
for _ in range(100_000):
    DEEP = [DEEP]

NO_JSON = {
    "object": object(),
    "bytes": b"x",
    "tuple": (1, 2),
    "set": {1},
    "uuid": ALICE,
    "time": datetime(2026, 1, 1, tzinfo=UTC),
    "not a number": float("nan"),
    "infinity": [float("inf")],
    "number as key": {1: "one"},
    "half a character": "\ud800",
}

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@pytest.fixture
async def two(durable: World) -> Any:
    async with durable.open() as exchange:
        await exchange.register(ALICE)
        await exchange.register(BOB)
        yield exchange


@pytest.mark.parametrize("content", NO_JSON.values(), ids=NO_JSON)
async def test_content_that_is_no_json_is_refused_and_nothing_is_stored(two: Any, content: Any) -> None:
    with pytest.raises(BadRequest, match="stores only JSON"):
        await two.send(ALICE, BOB, content)
    with pytest.raises(BadRequest, match="stores only JSON"):
        await two.send(ALICE, BOB, None, metadata={"it": content})
    assert await two.sync() == 0


def test_content_that_is_too_deep_is_refused() -> None:
    with pytest.raises(BadRequest, match="stores only JSON"):
        _write(Mail(sender=ALICE, content=DEEP))


@given(JSON, st.none() | st.text(alphabet=st.characters(codec="utf-8")))
def test_json_is_read_as_it_was_written(content: Any, channel: str | None) -> None:
    mail = Mail(sender=ALICE, content=content, channel=channel)
    try:
        text = _write(mail)
    except BadRequest:
        assert "\\ud" in ascii(content)
        return
    read = Mail.from_json(text)
    assert repr(read.content) == repr(content)
    assert read.model_dump() == mail.model_dump()


async def test_any_text_survives(two: Any) -> None:
    content = {"\x00 \U0001f600 #%'\"\\": ["\n", "ä", "~"]}
    await two.send(ALICE, BOB, content, "#~\x00")
    await two.sync()
    mail = await two.pop_mail(BOB, ALICE)
    assert (mail.content, mail.channel) == (content, "#~\x00")


async def test_a_mail_that_does_not_fit_is_refused(two: Any, durable: World) -> None:
    await two.send(ALICE, BOB, "x" * (ROW_BYTES - 400))
    if durable.kind != "sqlite":
        with pytest.raises(PayloadTooLarge, match=str(ROW_BYTES)):
            await two.send(ALICE, BOB, "ä" * (ROW_BYTES // 2))
    assert await two.sync() == 1
    assert len((await two.pop_mail(BOB, ALICE)).content) == ROW_BYTES - 400


@pytest.mark.soak(on="moto")
async def test_a_broadcast_reaches_more_than_a_transaction_holds(two: Any) -> None:
    others = [uuid4() for _ in range(102)]
    for owner in others:
        await two.register(owner)
    await two.send(ALICE, None, "hello")
    assert await two.sync() == 1
    for owner in others:
        assert [mail.content for mail in await two.receive(owner)] == ["hello"]


@pytest.mark.soak(on="moto")
async def test_more_mail_than_a_batch_keeps_its_order(two: Any) -> None:
    for n in range(110):
        await two.send(ALICE, BOB, n)
    assert await two.sync() == 110
    assert [mail.content for mail in await two.receive(BOB)] == list(range(110))


async def test_mail_that_is_sent_during_a_sync_waits_for_the_next(
    two: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable_exchange, "PAGE", 5)
    collect_page = two._collect_page

    async def collect_and_send(*args: Any) -> int:
        routed: int = await collect_page(*args)
        await two.send(ALICE, BOB, "later")
        return routed

    monkeypatch.setattr(two, "_collect_page", collect_and_send)
    for _ in range(20):
        await two.send(ALICE, BOB, "hello")
    assert await two.sync() == 20
    assert {mail.content for mail in await two.receive(BOB)} == {"hello"}


async def test_an_entity_that_is_no_id_is_in_nobodys_way(two: Any) -> None:
    with pytest.raises(BadRequest, match="an id must be a UUID, not 'alice'"):
        await two.register("alice")
    assert set(await two.owner_ids()) == {ALICE, BOB}


async def test_exchanges_in_one_database_are_apart(durable: World) -> None:
    separator = "&" if "?" in durable.url else "?"
    base = durable.url.split("exchange=")[0]
    async with durable.open() as one:
        with durable.credentials():
            rest = durable.url.partition("&")[2]
            other_url = (
                f"{base}exchange=other%23{uuid4()}&{rest}" if rest else f"{base}{separator}exchange=other%23"
            )
            async with open_exchange(other_url) as other:
                await one.register(ALICE)
                await other.register(ALICE)
                await other.register(BOB)
                await one.send(ALICE, None, "nobody is here")
                await other.send(ALICE, None, "hello")
                assert await one.sync() == 0
                assert await other.sync() == 1
                assert await one.receive(BOB) == []


async def test_threads_and_event_loops_may_use_it_at_once(durable: World) -> None:
    async with durable.open() as exchange:
        await exchange.register(ALICE)
        await exchange.register(BOB)
        for n in range(20):
            await exchange.send(ALICE, BOB, n)
        counts: list[int] = []

        def sync() -> None:
            counts.append(asyncio.run(exchange.sync()))

        threads = [threading.Thread(target=sync) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            await asyncio.to_thread(thread.join)
        assert sum(counts) == 20
        assert [mail.content for mail in await exchange.receive(BOB)] == list(range(20))


# ---------------------------------------------------------------------------------- the same as in memory

PEOPLE = [UUID(int=n + 1) for n in range(3)]
SOMEBODY = st.sampled_from(PEOPLE)
STEPS = st.lists(
    st.tuples(st.sampled_from(["register", "unregister", "collect"]), SOMEBODY)
    | st.tuples(st.just("send"), SOMEBODY, st.none() | SOMEBODY, st.integers(0, 9))
    | st.tuples(st.just("pop_mail"), SOMEBODY, SOMEBODY)
    | st.tuples(st.just("sync")),
    max_size=40,
).map(lambda steps: [("register", PEOPLE[0]), ("register", PEOPLE[1]), *steps])


def told(result: Any) -> Any:
    """What of a result does not differ from one exchange to the next."""
    if isinstance(result, Mail):
        return result.sender, result.recipient, result.content
    if isinstance(result, Flow):
        orders = {order.name: result.list_items(order.name) for order in result.progressions}
        return {name: [mail.content for mail in mails] for name, mails in orders.items() if mails}
    return result


async def play(exchange: Any, steps: list[tuple[Any, ...]]) -> list[Any]:
    """What comes of the steps, and what is there after each."""
    seen: list[Any] = []
    for name, *arguments in steps:
        try:
            seen.append(told(await getattr(exchange, name)(*arguments)))
        except ValueError as error:
            seen.append(type(error))
        seen.append(await exchange.owner_ids())
        for owner in PEOPLE:
            mails = [await exchange.receive(owner, sender) for sender in PEOPLE]
            seen += [[mail.content for mail in group] for group in mails]
            seen.append(told(await exchange.get(owner)))
    return seen


def agree(kind: str, folder: Path, steps: list[tuple[Any, ...]]) -> None:
    async def both() -> None:
        world = World(kind, folder)
        world_of_its_own = World("memory", folder)
        async with world.open() as exchange, world_of_its_own.open() as memory:
            assert await play(exchange, steps) == await play(memory, steps)

    asyncio.run(both())


@settings(max_examples=sized(fast=15, full=15, soak=2000))
@given(STEPS)
def test_sqlite_does_what_memory_does(steps: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        agree("sqlite", Path(folder), steps)


@pytest.mark.soak
@pytest.mark.parametrize("kind", [kind for kind in DURABLE if kind != "sqlite"][:1])
@settings(max_examples=sized(fast=2, full=3, soak=100))
@given(steps=STEPS)
def test_dynamodb_does_what_memory_does(kind: str, steps: list[tuple[Any, ...]]) -> None:
    asyncio.run(World(kind, Path()).prepare())
    agree(kind, Path(), steps)


# ------------------------------------------------------------------------------------------------ DynamoDB


@pytest.mark.parametrize("kind", [kind for kind in DURABLE if kind != "sqlite"])
async def test_a_sync_does_not_read_what_was_delivered(kind: str, tmp_path: Path) -> None:
    """Requests of a sync with one mail: as many with nothing delivered before as with much."""
    world = World(kind, tmp_path)
    await world.prepare()
    async with world.open() as exchange:
        calls = Calls()
        calls.watch(exchange._rows._client)
        await exchange.register(ALICE)
        await exchange.register(BOB)
        counted: list[tuple[dict[str, int], int]] = []
        for number in (1, 40, 1):
            for n in range(number):
                await exchange.send(ALICE, BOB, n)
            calls.clear()
            await exchange.sync()
            counted.append((dict(calls.count), calls.count["TransactWriteItems"]))
        assert counted[0] == counted[2]
        assert counted[1][1] == 40 * counted[0][1]


@pytest.mark.parametrize("kind", [kind for kind in DURABLE if kind != "sqlite"])
async def test_a_broadcast_is_not_put_into_a_mailbox_that_was_just_left(kind: str, tmp_path: Path) -> None:
    """Bob goes, and comes back, between the moment at which he is seen and that at which he would get it."""
    world = World(kind, tmp_path)
    await world.prepare()
    async with world.open() as exchange:
        await exchange.register(ALICE)
        await exchange.register(BOB)
        everyone, left = exchange._everyone, await exchange._box(str(BOB))

        async def and_then_bob_goes() -> dict[str, str]:
            seen: dict[str, str] = await everyone()
            await exchange.unregister(BOB)
            await exchange.register(BOB)
            return seen

        exchange._everyone = and_then_bob_goes
        await exchange.send(ALICE, None, "hello")
        assert await exchange.sync() == 0
        assert await exchange.receive(BOB) == []
        assert await exchange._rows.find(exchange._inboxes(left), "I#") == []


# ---------------------------------------------------------------------------------------------------- SQLite


async def test_a_sync_in_sqlite_scans_no_table(tmp_path: Path) -> None:
    """The plan of every statement that an exchange runs on mail goes by an index."""
    async with open_exchange(f"sqlite:///{tmp_path}/x.db") as exchange:
        sql: sqlite3.Connection = exchange._rows._database.connection  # type: ignore[attr-defined]
        statements: list[str] = []
        sql.set_trace_callback(statements.append)
        await exchange.register(ALICE)
        await exchange.register(BOB)
        for to in (BOB, None):
            await exchange.send(ALICE, to, "hello")
        await exchange.collect(ALICE)
        await exchange.sync()
        await exchange.receive(BOB)
        mail = (await exchange.receive(BOB, ALICE))[1]
        await exchange.pop_mail(BOB, ALICE)
        assert await exchange.remove_mail(BOB, mail)
        await exchange.get(BOB)
        await exchange.unregister(BOB)
        sql.set_trace_callback(None)
        texts = [text.strip() for text in statements]
        seen = [text for text in texts if text.startswith(("SELECT", "INSERT", "UPDATE", "DELETE"))]
        assert len(seen) > 20
        for text in seen:
            steps = [row[3] for row in sql.execute(f"EXPLAIN QUERY PLAN {text}")]
            scanned = [step for step in steps if step.startswith("SCAN")]
            assert [step for step in scanned if "json_each" not in step] == [], text  # the keys of a read


async def test_it_shares_a_file_with_the_tasks_of_a_server(tmp_path: Path) -> None:
    path = tmp_path / "mail.db"
    async with open_exchange(f"sqlite:///{path}") as before:
        await before.register(ALICE)
        with SQLiteDatabase(path) as server:
            async with open_exchange(f"sqlite:///{path}") as exchange:
                assert await exchange.has(ALICE)
                await exchange.register(BOB)
                await exchange.send(ALICE, BOB, "hello")
                assert await exchange.sync() == 1
            server.connection.execute("INSERT INTO settings VALUES ('health', 'ok')")
            with pytest.raises(ConfigurationError, match="another server or program"):
                SQLiteDatabase(path)
    with SQLiteDatabase(path) as server:
        assert server.connection.execute("SELECT value FROM settings").fetchone() == ("ok",)
    assert path.stat().st_mode & 0o777 == 0o600


async def test_a_locked_file_raises_store_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mail.adapters.sqlite.database.LOCK_TIMEOUT", 0.05)
    async with open_exchange(f"sqlite:///{tmp_path}/x.db") as exchange:
        await exchange.register(ALICE)
        await exchange.register(BOB)
        await exchange.send(ALICE, BOB, "hello")
        other = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="locked"):
            await exchange.send(ALICE, BOB, "hello")
        with pytest.raises(StoreUnavailable, match="locked"):
            await exchange.sync()
        other.execute("ROLLBACK")
        other.close()
        await exchange.send(ALICE, BOB, "hello")
        assert await exchange.sync() == 2


async def test_in_memory_it_ends_when_it_is_closed() -> None:
    for _ in range(2):
        async with open_exchange("sqlite:///") as exchange:
            await exchange.register(ALICE)
            assert await exchange.owner_ids() == [ALICE]


# -------------------------------------------------------------------------------------------------------- URLs

BAD_URLS = {
    "": "sqlite:///path.db or dynamodb://table",
    "exchange.db": "sqlite:///path.db or dynamodb://table",
    "postgresql://user:secret@host/x": "sqlite:///path.db or dynamodb://table",
    "dynamodb://": "sqlite:///path.db or dynamodb://table",
    "sqlite:///x.db?regoin=eu": "there is no option 'regoin'; there are: exchange",
    "dynamodb://table?regoin=eu": "there is no option 'regoin'; there are: exchange, region, endpoint_url",
    "dynamodb://table?endpoint_url=localhost": "endpoint_url is not an http",
    "dynamodb://table?region": "name=value",
    "sqlite:////proc/nowhere/x.db": "can't be used as a database",
}


@pytest.mark.parametrize("url", BAD_URLS)
async def test_a_bad_url_says_what_is_wrong(url: str) -> None:
    with pytest.raises(MAILError, match=BAD_URLS[url]) as caught:
        async with open_exchange(url):
            pytest.fail("it was opened")
    assert isinstance(caught.value, ConfigurationError)
    assert "secret" not in str(caught.value)


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_text("no database" * 100)
    with pytest.raises(ConfigurationError, match="can't be used as a database"):
        async with open_exchange(f"sqlite:///{tmp_path}/x.db"):
            pytest.fail("it was opened")


@pytest.mark.parametrize("kind", [kind for kind in DURABLE if kind != "sqlite"])
async def test_a_table_that_is_not_there_is_refused(kind: str, tmp_path: Path) -> None:
    world = World(kind, tmp_path)
    await world.prepare()
    url = world.url.replace("dynamodb://", "dynamodb://no-such-")
    with world.credentials(), pytest.raises(ConfigurationError, match="can't be used"):
        async with open_exchange(url):
            pytest.fail("it was opened")
