"""`Exchange` in memory: what only it has, how it behaves among threads, and what it costs."""

import asyncio
import copy
import pickle
import sys
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest
from pydantic import BaseModel, model_serializer
from support.plugins.tiers import sized

from mail.errors import BadRequest
from mail.exchange import OUTBOX, Exchange, Mail

ALICE, BOB, CAROL = uuid4(), uuid4(), uuid4()


@pytest.fixture
def exchange() -> Exchange:
    exchange = Exchange()
    for owner in (ALICE, BOB, CAROL):
        exchange.register(owner)
    return exchange


def test_outbox_is_called_outbox() -> None:
    assert OUTBOX == "outbox"


def test_len_and_in(exchange: Exchange) -> None:
    assert len(exchange) == 3
    assert ALICE in exchange
    assert uuid4() not in exchange
    assert "alice" not in exchange
    assert exchange.owner_ids == [ALICE, BOB, CAROL]
    assert len(exchange.flows) == 3


def test_register_returns_the_flow_that_get_returns(exchange: Exchange) -> None:
    owner = uuid4()
    assert exchange.register(owner) is exchange.get(owner)
    assert exchange.unregister(owner) is not None
    assert len(exchange.flows) == 3


async def test_a_broadcast_is_deep_copied(exchange: Exchange) -> None:
    sent = exchange.send(ALICE, None, {"list": [1]}, metadata={"k": []})
    await exchange.sync()
    (for_bob,), (for_carol,) = exchange.receive(BOB), exchange.receive(CAROL)
    for_bob.content["list"].append(2)
    for_bob.metadata["k"].append(3)
    assert sent.content == for_carol.content == {"list": [1]}
    assert sent.metadata == for_carol.metadata == {"k": []}
    assert sent.id == for_bob.id == for_carol.id


async def test_content_that_cannot_be_copied_is_shared(exchange: Exchange) -> None:
    content = [threading.Lock()]
    exchange.send(ALICE, None, content)
    assert await exchange.sync() == 1
    assert exchange.receive(BOB)[0].content is exchange.receive(CAROL)[0].content is content


async def test_collect_all_skips_those_that_vanish_meanwhile(exchange: Exchange) -> None:
    class Vanishing:
        def __deepcopy__(self, _: Any) -> Any:
            exchange.unregister(BOB)
            return self

    exchange.send(ALICE, None, Vanishing())
    exchange.send(BOB, CAROL, "too late")
    exchange.send(CAROL, ALICE, "hello")
    assert await exchange.collect_all() == 2
    assert [mail.content for mail in exchange.receive(ALICE)] == ["hello"]


async def test_a_copy_that_fails_for_good_loses_nothing(exchange: Exchange) -> None:
    class Interrupting:
        def __deepcopy__(self, _: Any) -> Any:
            raise KeyboardInterrupt

    exchange.send(ALICE, BOB, "before")
    exchange.send(ALICE, None, Interrupting())
    with pytest.raises(KeyboardInterrupt):
        await exchange.collect(ALICE)
    box = exchange.get(ALICE)
    assert box is not None
    assert len(box.list_items(OUTBOX)) == 1
    assert [mail.content for mail in exchange.receive(BOB)] == ["before"]
    assert exchange.receive(CAROL) == []


async def test_a_sync_that_is_cancelled_loses_nothing(exchange: Exchange) -> None:
    for n in range(500):
        exchange.send(ALICE, BOB, n)
    syncing = asyncio.create_task(exchange.sync())
    await asyncio.sleep(0)
    syncing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await syncing
    assert 0 < len(exchange.receive(BOB)) < 500
    await exchange.sync()
    assert [mail.content for mail in exchange.receive(BOB)] == list(range(500))


async def test_mail_that_is_not_the_owners_is_dropped(exchange: Exchange) -> None:
    """What `send` would never do can be done by hand."""
    box = exchange.get(ALICE)
    assert box is not None
    box.add_item(Mail(sender=BOB, recipient=CAROL, content="forged"), OUTBOX)
    assert await exchange.sync() == 0
    assert exchange.receive(CAROL) == []


@pytest.mark.parametrize("recipient", [BOB, None])
async def test_mail_that_has_arrived_does_not_come_again(exchange: Exchange, recipient: UUID | None) -> None:
    """An exchange that was put together of two copies may have a mail in an outbox and in inboxes."""
    mail = exchange.send(ALICE, recipient, "once")
    before = exchange.to_dict()
    await exchange.sync()
    if recipient is None:
        assert exchange.pop_mail(CAROL, ALICE) is not None
    after = exchange.to_dict()
    boxes = [
        next(box for box in written["flows"]["elements"] if box["name"] == str(owner))
        for written, owner in ((before, ALICE), (after, BOB), (after, CAROL))
    ]
    mixed = Exchange.from_dict({**after, "flows": {**after["flows"], "elements": boxes}})
    assert await mixed.sync() == (1 if recipient is None else 0)
    assert [got.id for got in mixed.receive(BOB)] == [mail.id]
    assert [got.id for got in mixed.receive(CAROL)] == ([mail.id] if recipient is None else [])
    assert mixed.receive(ALICE) == []


async def test_what_is_sent_while_mail_is_collected_waits_for_the_next_time(exchange: Exchange) -> None:
    class Answering:
        """Each time that it is copied another one is sent."""

        copies = 0

        def __deepcopy__(self, _: Any) -> Any:
            Answering.copies += 1
            if Answering.copies < 500:
                exchange.send(ALICE, None, Answering())
            return self

    exchange.send(ALICE, None, Answering())
    assert await exchange.collect(ALICE) == 1
    assert len(exchange.receive(BOB)) == 1


@pytest.mark.parametrize("write", ["to_json", "to_dict"])
def test_an_exchange_is_written_as_of_one_moment(exchange: Exchange, write: str) -> None:
    has_sent = threading.Event()
    seen: list[bool] = []

    def send() -> None:
        exchange.send(CAROL, ALICE, "meanwhile")
        has_sent.set()

    class Slow(BaseModel):
        @model_serializer
        def slowly(self) -> str:
            thread.start()
            seen.append(has_sent.wait(0.2))
            return "slow"

    thread = threading.Thread(target=send)
    exchange.send(ALICE, BOB, Slow())
    written = getattr(exchange, write)()
    thread.join()
    assert seen == [False]
    assert "meanwhile" not in str(written)
    assert has_sent.is_set()


async def test_inboxes_that_are_emptied_are_gone(exchange: Exchange) -> None:
    for n in range(20):
        stranger = uuid4()
        exchange.register(stranger)
        exchange.send(stranger, ALICE, n)
        exchange.send(stranger, ALICE, n)
        await exchange.sync()
        exchange.unregister(stranger)
        (first, _) = exchange.receive(ALICE, stranger)
        exchange.remove_mail(ALICE, first)
        assert [mail.content for mail in exchange.receive(ALICE)] == [n]
        exchange.pop_mail(ALICE, stranger)
    box = exchange.get(ALICE)
    assert box is not None
    assert [order.name for order in box.progressions] == [OUTBOX]
    assert str(ALICE) in exchange


async def test_stop_ends_runs_in_all_threads(exchange: Exchange) -> None:
    threads = [threading.Thread(target=lambda: asyncio.run(exchange.run(3600))) for _ in range(3)]
    for thread in threads:
        thread.start()
    async with asyncio.timeout(60):
        while len(exchange._repeater._runs) < 3:  # noqa: ASYNC110 - nobody tells us
            await asyncio.sleep(0.01)
    await asyncio.to_thread(exchange.stop)
    for thread in threads:
        await asyncio.to_thread(thread.join, 60)
        assert not thread.is_alive()


def test_threads_that_send_sync_and_pop_lose_and_double_nothing() -> None:
    owners = [uuid4() for _ in range(4)]
    exchange = Exchange()
    for owner in owners:
        exchange.register(owner)
    counts: list[int] = []
    popped: list[tuple[UUID, UUID, int]] = []
    is_sending = threading.Event()
    is_sending.set()

    def send(sender: UUID) -> None:
        for n in range(300):
            exchange.send(sender, None if n % 10 == 0 else owners[n % 4], n)

    def sync() -> None:
        while is_sending.is_set():
            counts.append(asyncio.run(exchange.sync()))

    def pop(owner: UUID) -> None:
        while is_sending.is_set():
            popped.extend(pop_all(owner))

    def pop_all(owner: UUID) -> list[tuple[UUID, UUID, int]]:
        found = []
        for sender in owners:
            while (mail := exchange.pop_mail(owner, sender)) is not None:
                found.append((owner, sender, mail.content))
        return found

    senders = [threading.Thread(target=send, args=(owner,)) for owner in owners]
    others = [threading.Thread(target=sync) for _ in range(3)]
    others += [threading.Thread(target=pop, args=(owner,)) for owner in owners]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in (*senders, *others):
            thread.start()
        for thread in senders:
            thread.join()
        is_sending.clear()
        for thread in others:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    counts.append(asyncio.run(exchange.sync()))
    for owner in owners:
        popped += pop_all(owner)
    assert sum(counts) == 4 * 300
    expected = Counter(
        (owner, sender, n)
        for sender in owners
        for n in range(300)
        for place, owner in enumerate(owners)
        if (owner != sender if n % 10 == 0 else n % 4 == place)
    )
    assert Counter(popped) == expected
    for owner in owners:
        for sender in owners:
            got = [n for to, by, n in popped if (to, by) == (owner, sender)]
            assert got == sorted(got)


# ----------------------------------------------------------------------------------------------------- costs


def lines_run(entities: int, mails: int, broadcasts: int = 0) -> int:
    """How many lines of Python, and look-ups of ids, a sync and the reading of all mail take."""
    owners = [uuid4() for _ in range(entities)]
    exchange = Exchange()
    for owner in owners:
        exchange.register(owner)
    for n in range(mails):
        exchange.send(owners[n % entities], owners[n * 7 % entities], n)
    for n in range(broadcasts):
        exchange.send(owners[n % entities], None, n)
    count = 0

    def note(*_: Any) -> None:
        nonlocal count
        count += 1

    monitoring, tool = sys.monitoring, 4
    monitoring.use_tool_id(tool, "lines")
    monitoring.register_callback(tool, monitoring.events.LINE, note)
    monitoring.set_events(tool, monitoring.events.LINE)
    try:
        routed = asyncio.run(exchange.sync())
        for owner in owners:
            for mail in exchange.receive(owner):
                exchange.pop_mail(owner, mail.sender)
    finally:
        monitoring.set_events(tool, 0)
        monitoring.free_tool_id(tool)
    assert routed == mails + broadcasts
    return count


@pytest.mark.full
def test_sync_is_linear_in_the_mail_routed() -> None:
    """Lines of Python, those of UUID.__hash__ among them: so each look-up in a dictionary counts."""
    few, many = lines_run(100, 200), lines_run(100, 2_000)
    assert many < 11 * few


@pytest.mark.full
def test_sync_is_linear_in_the_recipients_of_broadcasts() -> None:
    few, many = lines_run(100, 0, 5), lines_run(400, 0, 5)
    assert many < 4.4 * few


@pytest.mark.soak
def test_a_thousand_entities_and_much_mail() -> None:
    few = sized(fast=300, full=300, soak=10_000)
    assert lines_run(1_000, 10 * few) < 11 * lines_run(1_000, few)


async def turns_of_others(exchange: Exchange) -> int:
    """How often others have the event loop during a sync."""
    turns = 0
    syncing = asyncio.create_task(exchange.sync())
    while not syncing.done():
        turns += 1
        await asyncio.sleep(0)
    return turns


async def test_a_sync_of_much_mail_lets_others_have_the_loop(exchange: Exchange) -> None:
    for n in range(1_000):
        exchange.send(ALICE, BOB, n)
    assert await turns_of_others(exchange) > 10


@pytest.mark.parametrize("mails", [0, 1])
async def test_a_sync_of_many_entities_lets_others_have_the_loop(mails: int) -> None:
    exchange, owners = Exchange(), [uuid4() for _ in range(1_000)]
    for owner in owners:
        exchange.register(owner)
        for _ in range(mails):
            exchange.send(owner, owners[0], "hello")
    assert await turns_of_others(exchange) > 10


@pytest.mark.parametrize("senders", [1, 40])
async def test_a_sync_of_broadcasts_lets_others_have_the_loop(senders: int) -> None:
    """After each that goes to many."""
    exchange, owners = Exchange(), [uuid4() for _ in range(100)]
    for owner in owners:
        exchange.register(owner)
    for n in range(40):
        exchange.send(owners[n % senders], None, "hello")
    assert await turns_of_others(exchange) >= 40


@pytest.mark.parametrize(
    "duplicate",
    [
        copy.deepcopy,
        lambda exchange: exchange.model_copy(deep=True),
        lambda exchange: pickle.loads(pickle.dumps(exchange)),
    ],
    ids=["deepcopy", "model_copy", "pickle"],
)
async def test_an_exchange_can_be_copied(duplicate: Callable[[Exchange], Exchange]) -> None:
    exchange = Exchange(metadata={"room": 1})
    ann, bob = uuid4(), uuid4()
    for owner in (ann, bob):
        exchange.register(owner)
    exchange.send(ann, bob, {"n": 1})
    await exchange.sync()
    exchange.send(bob, ann, {"n": 2})
    other = duplicate(exchange)
    assert (other.id, other.created_at, other.to_json()) == (
        exchange.id,
        exchange.created_at,
        exchange.to_json(),
    )
    other.receive(bob)[0].content["n"] = 3
    assert await other.sync() == 1
    assert [mail.content for mail in other.receive(ann)] == [{"n": 2}]
    assert exchange.receive(ann) == []
    assert exchange.receive(bob)[0].content == {"n": 1}


@pytest.mark.parametrize("metadata", [5, [1], "x"])
def test_metadata_is_a_dictionary(metadata: Any) -> None:
    exchange = Exchange()
    ann = uuid4()
    exchange.register(ann)
    with pytest.raises(BadRequest, match="metadata must be a dictionary"):
        exchange.send(ann, None, "x", metadata=metadata)
