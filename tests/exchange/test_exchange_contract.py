"""What seed 003 and EXCHANGE.md say of an exchange: in memory, in SQLite and in DynamoDB."""

import asyncio
from datetime import UTC
from typing import Any
from uuid import UUID, uuid4

import pytest
from exchange_worlds import Awaited, World, arrives

from mail.errors import BadRequest, MAILError
from mail.exchange import OUTBOX, AlreadyRegistered, Mail, NotRegistered

ALICE, BOB, CAROL = (UUID(int=n) for n in (0xA << 100, 0xB << 100, 0xC << 100))


@pytest.fixture
async def three(exchange: Any) -> Any:
    for owner in (ALICE, BOB, CAROL):
        await exchange.register(owner)
    return exchange


def contents(mails: list[Mail]) -> list[Any]:
    return [mail.content for mail in mails]


class TestRegistering:
    async def test_register_returns_a_mailbox_named_after_its_owner_with_an_outbox(
        self, exchange: Any
    ) -> None:
        box = await exchange.register(ALICE)
        assert box.name == str(ALICE)
        assert len(box.get_progression(OUTBOX)) == 0

    async def test_register_twice_raises_value_error_already_registered(self, exchange: Any) -> None:
        await exchange.register(ALICE)
        with pytest.raises(ValueError, match="already registered") as caught:
            await exchange.register(ALICE)
        assert isinstance(caught.value, AlreadyRegistered)
        assert isinstance(caught.value, MAILError)

    async def test_has_and_owner_ids(self, three: Any) -> None:
        assert set(await three.owner_ids()) == {ALICE, BOB, CAROL}
        assert await three.has(BOB)
        assert not await three.has(uuid4())

    async def test_get_is_the_mailbox_or_none(self, three: Any) -> None:
        await three.send(ALICE, BOB, "to Bob")
        await three.send(BOB, ALICE, "to Alice")
        await three.collect(ALICE)
        box = await three.get(BOB)
        assert contents(box.list_items(f"inbox_{ALICE}")) == ["to Bob"]
        assert contents(box.list_items(OUTBOX)) == ["to Alice"]
        assert await three.get(uuid4()) is None

    async def test_unregister_of_an_unknown_owner_is_none(self, exchange: Any) -> None:
        assert await exchange.unregister(ALICE) is None

    async def test_unregister_returns_the_mailbox(self, three: Any) -> None:
        await three.send(BOB, ALICE, "kept")
        await three.send(ALICE, BOB, "unsent")
        await three.collect(BOB)
        box = await three.unregister(ALICE)
        assert box.name == str(ALICE)
        assert contents(box.list_items(OUTBOX)) == ["unsent"]
        assert contents(box.list_items(f"inbox_{BOB}")) == ["kept"]
        assert not await three.has(ALICE)
        assert await three.get(ALICE) is None
        assert set(await three.owner_ids()) == {BOB, CAROL}

    async def test_unsent_mail_goes_with_its_sender(self, three: Any) -> None:
        await three.send(ALICE, BOB, "unsent")
        await three.unregister(ALICE)
        assert await three.sync() == 0
        assert await three.receive(BOB) == []

    async def test_mail_that_was_delivered_stays(self, three: Any) -> None:
        await three.send(ALICE, BOB, "delivered")
        await three.sync()
        await three.unregister(ALICE)
        assert contents(await three.receive(BOB, ALICE)) == ["delivered"]

    async def test_registering_again_starts_empty(self, three: Any) -> None:
        await three.send(BOB, ALICE, "old")
        await three.sync()
        await three.send(ALICE, BOB, "unsent")
        await three.unregister(ALICE)
        await three.register(ALICE)
        assert await three.receive(ALICE) == []
        assert await three.sync() == 0
        await three.send(BOB, None, "new")
        await three.send(ALICE, BOB, "after all")
        assert await three.sync() == 2
        assert contents(await three.receive(ALICE)) == ["new"]
        assert contents(await three.receive(BOB)) == ["after all"]


class TestIds:
    """Ids are read as `Mail` reads them, at each door."""

    @pytest.mark.parametrize("text", [str(ALICE), str(ALICE).upper(), ALICE.hex])
    async def test_the_text_of_an_id_is_the_id(self, exchange: Any, text: str) -> None:
        box = await exchange.register(text)
        assert box.name == str(ALICE)
        assert await exchange.owner_ids() == [ALICE]
        assert await exchange.has(ALICE)
        assert await exchange.has(text)
        with pytest.raises(AlreadyRegistered):
            await exchange.register(ALICE)
        for content in ("first", "second"):
            await exchange.send(text, text, content)
        assert await exchange.collect(text) == 2
        (_, second) = await exchange.receive(text, text)
        assert await exchange.remove_mail(text, second)
        assert (await exchange.pop_mail(text, text)).content == "first"
        assert (await exchange.get(text)).name == str(ALICE)
        assert (await exchange.unregister(text)).name == str(ALICE)
        assert not await exchange.has(ALICE)

    @pytest.mark.parametrize("wrong", ["alice", "", None, 5, [], f"{ALICE}#"])
    async def test_what_is_no_id_raises_bad_request(self, three: Any, wrong: Any) -> None:
        mail = await three.send(ALICE, BOB, "hello")
        calls = [
            (three.register, wrong),
            (three.unregister, wrong),
            (three.get, wrong),
            (three.has, wrong),
            (three.send, wrong, BOB, "hello"),
            (three.receive, wrong),
            (three.pop_mail, wrong, BOB),
            (three.pop_mail, BOB, wrong),
            (three.remove_mail, wrong, mail),
            (three.collect, wrong),
        ]
        if wrong is not None:
            calls += [(three.send, ALICE, wrong, "hello"), (three.receive, BOB, wrong)]
        for call, *arguments in calls:
            with pytest.raises(BadRequest):
                await call(*arguments)
        assert set(await three.owner_ids()) == {ALICE, BOB, CAROL}
        assert await three.sync() == 1

    async def test_a_channel_that_is_no_text_raises_bad_request(self, three: Any) -> None:
        with pytest.raises(BadRequest, match="channel"):
            await three.send(ALICE, BOB, "hello", 5)


class TestSending:
    async def test_send_returns_the_mail(self, three: Any) -> None:
        mail = await three.send(ALICE, BOB, {"task": "analyze"}, "tasks")
        assert (mail.sender, mail.recipient, mail.content, mail.channel) == (
            ALICE,
            BOB,
            {"task": "analyze"},
            "tasks",
        )
        assert mail.created_at.tzinfo is UTC

    async def test_send_from_an_unregistered_sender_raises_value_error(self, three: Any) -> None:
        with pytest.raises(ValueError, match="not registered") as caught:
            await three.send(uuid4(), BOB, "hello")
        assert isinstance(caught.value, NotRegistered)
        assert await three.sync() == 0

    async def test_nothing_arrives_before_a_sync(self, three: Any) -> None:
        await three.send(ALICE, BOB, "hello")
        assert await three.receive(BOB) == []
        assert await three.sync() == 1
        assert contents(await three.receive(BOB)) == ["hello"]

    async def test_mail_to_an_unknown_recipient_is_accepted_and_dropped_when_collected(
        self, three: Any
    ) -> None:
        stranger = uuid4()
        await three.send(ALICE, stranger, "hello")
        assert await three.sync() == 0
        await three.register(stranger)
        assert await three.sync() == 0
        assert await three.receive(stranger) == []

    async def test_recipients_are_resolved_when_collected(self, three: Any) -> None:
        late = uuid4()
        await three.send(ALICE, late, "direct")
        await three.send(ALICE, None, "broadcast")
        await three.register(late)
        assert await three.sync() == 2
        assert contents(await three.receive(late, ALICE)) == ["direct", "broadcast"]

    async def test_a_broadcast_reaches_everybody_but_its_sender_with_the_same_id(self, three: Any) -> None:
        mail = await three.send(ALICE, None, ["hello"], "news")
        await three.sync()
        for owner in (BOB, CAROL):
            (got,) = await three.receive(owner, ALICE)
            assert (got.id, got.content, got.channel, got.created_at) == (
                mail.id,
                ["hello"],
                "news",
                mail.created_at,
            )
        assert await three.receive(ALICE) == []

    async def test_mail_to_oneself_is_delivered(self, three: Any) -> None:
        await three.send(ALICE, ALICE, "note")
        assert await three.sync() == 1
        assert contents(await three.receive(ALICE, ALICE)) == ["note"]
        assert (await three.pop_mail(ALICE, ALICE)).content == "note"

    async def test_metadata_goes_with_the_mail(self, three: Any) -> None:
        await three.send(ALICE, BOB, "hello", metadata={"in_reply_to": "x"})
        await three.sync()
        (got,) = await three.receive(BOB)
        assert got.metadata == {"in_reply_to": "x"}


class TestCounting:
    async def test_a_broadcast_counts_one(self, three: Any) -> None:
        await three.send(ALICE, None, "hello")
        assert await three.sync() == 1

    async def test_a_broadcast_with_no_recipients_counts_zero(self, exchange: Any) -> None:
        await exchange.register(ALICE)
        await exchange.send(ALICE, None, "hello?")
        assert await exchange.sync() == 0
        await exchange.register(BOB)
        assert await exchange.sync() == 0

    async def test_collect_moves_the_mail_of_one(self, three: Any) -> None:
        await three.send(ALICE, CAROL, "from Alice")
        await three.send(BOB, CAROL, "from Bob")
        assert await three.collect(ALICE) == 1
        assert contents(await three.receive(CAROL)) == ["from Alice"]
        assert await three.collect_all() == 1

    async def test_collect_of_an_unregistered_owner_raises_value_error(self, three: Any) -> None:
        with pytest.raises(ValueError, match="not registered"):
            await three.collect(uuid4())

    async def test_concurrent_syncs_deliver_once_and_their_counts_add_up(self, three: Any) -> None:
        for n in range(12):
            await three.send(ALICE, BOB if n % 3 else None, n)
        counts = await asyncio.gather(
            *(three.sync() for _ in range(4)), *(three.collect(ALICE) for _ in range(2))
        )
        assert sum(counts) == 12
        assert contents(await three.receive(BOB, ALICE)) == list(range(12))
        assert contents(await three.receive(CAROL, ALICE)) == [0, 3, 6, 9]


class TestReading:
    async def test_receive_does_not_consume(self, three: Any) -> None:
        await three.send(ALICE, BOB, "hello")
        await three.sync()
        assert await three.receive(BOB) == await three.receive(BOB) != []

    async def test_receive_of_an_unknown_owner_is_empty(self, three: Any) -> None:
        assert await three.receive(uuid4()) == []
        assert await three.receive(BOB, uuid4()) == []

    async def test_receive_is_grouped_by_sender(self, three: Any) -> None:
        for n in range(3):
            await three.send(ALICE, BOB, f"a{n}")
            await three.send(CAROL, BOB, f"c{n}")
            await three.sync()
        assert contents(await three.receive(BOB)) == ["a0", "a1", "a2", "c0", "c1", "c2"]
        assert contents(await three.receive(BOB, CAROL)) == ["c0", "c1", "c2"]

    async def test_pop_mail_is_fifo_per_sender(self, three: Any) -> None:
        for n in range(3):
            await three.send(ALICE, BOB, n)
            await three.send(CAROL, BOB, 10 + n)
        await three.sync()
        popped = [await three.pop_mail(BOB, sender=ALICE) for _ in range(4)]
        assert [mail and mail.content for mail in popped] == [0, 1, 2, None]
        assert contents(await three.receive(BOB)) == [10, 11, 12]

    async def test_pop_mail_is_none_where_there_is_nothing(self, three: Any) -> None:
        assert await three.pop_mail(BOB, ALICE) is None
        assert await three.pop_mail(uuid4(), ALICE) is None

    async def test_remove_mail_takes_one_wherever_it_is(self, three: Any) -> None:
        for n in range(3):
            await three.send(ALICE, BOB, n)
        await three.sync()
        middle = (await three.receive(BOB))[1]
        assert await three.remove_mail(BOB, middle)
        assert not await three.remove_mail(BOB, middle)
        assert not await three.remove_mail(CAROL, middle)
        assert contents(await three.receive(BOB)) == [0, 2]

    async def test_popped_mail_does_not_come_back(self, three: Any) -> None:
        await three.send(ALICE, None, "once")
        await three.sync()
        await three.pop_mail(BOB, ALICE)
        await three.sync()
        assert await three.receive(BOB) == []


class TestRunning:
    async def test_run_syncs_until_stop(self, three: Any) -> None:
        running = asyncio.create_task(three.run(interval=0.01))
        await three.send(ALICE, BOB, "hello")
        await arrives(three, BOB)
        three.stop()
        await asyncio.wait_for(running, 60)

    async def test_a_stop_before_run_is_not_lost(self, three: Any) -> None:
        running = asyncio.create_task(three.run(interval=60))
        three.stop()
        await asyncio.wait_for(running, 60)

    async def test_stop_does_not_wait_for_the_interval(self, three: Any) -> None:
        running = asyncio.create_task(three.run(interval=3600))
        await asyncio.sleep(0.05)
        three.stop()
        await asyncio.wait_for(running, 60)

    async def test_a_stop_while_another_run_ends_holds_for_the_next(self, three: Any) -> None:
        first = asyncio.create_task(three.run(interval=3600))
        await asyncio.sleep(0.05)
        three.stop()
        second = asyncio.create_task(three.run(interval=3600))
        three.stop()
        await asyncio.wait_for(asyncio.gather(first, second), 60)

    async def test_a_run_whose_loop_was_closed_keeps_no_stop_from_the_next(self, three: Any) -> None:
        def leave() -> None:
            loop = asyncio.new_event_loop()
            left = loop.create_task(three.run(interval=3600))
            loop.run_until_complete(asyncio.sleep(0.2))
            loop.close()
            left._log_destroy_pending = False  # type: ignore[attr-defined]

        await asyncio.to_thread(leave)
        three.stop()
        await asyncio.wait_for(three.run(interval=3600), 60)

    async def test_run_may_be_called_again_after_stop(self, three: Any) -> None:
        three.stop()
        await three.run(60)
        running = asyncio.create_task(three.run(0.01))
        await three.send(ALICE, BOB, "hello")
        await arrives(three, BOB)
        three.stop()
        await running

    @pytest.mark.parametrize("end", ["cancel", "stop"])
    async def test_a_stop_after_a_run_has_ended_leaves_the_next_one_alone(self, three: Any, end: str) -> None:
        first = asyncio.create_task(three.run(0.01))
        await asyncio.sleep(0.02)
        if end == "cancel":
            first.cancel()
        three.stop()
        await asyncio.wait([first])
        three.stop()
        running = asyncio.create_task(three.run(0.01))
        await three.send(ALICE, BOB, "hello")
        await arrives(three, BOB)
        three.stop()
        await asyncio.wait_for(running, 60)

    async def test_a_stop_right_after_a_second_run_has_begun_ends_it(self, three: Any) -> None:
        exchange = three.exchange if isinstance(three, Awaited) else three
        exchange.stop()
        await exchange.run(3600)
        running = asyncio.create_task(exchange.run(3600))
        exchange.stop()
        await asyncio.wait_for(running, 60)

    @pytest.mark.parametrize("interval", [-1, float("nan"), "x", None])
    async def test_an_interval_below_zero_is_refused(self, three: Any, interval: Any) -> None:
        with pytest.raises(ValueError, match="or more seconds"):
            await three.run(interval)


async def test_what_is_opened_again_is_the_same_exchange(durable: World) -> None:
    async with durable.open() as exchange:
        for owner in (ALICE, BOB):
            await exchange.register(owner)
        await exchange.send(ALICE, BOB, "delivered")
        await exchange.sync()
        await exchange.send(ALICE, BOB, "sent")
    async with durable.open() as exchange:
        assert await exchange.sync() == 1
        assert contents(await exchange.receive(BOB)) == ["delivered", "sent"]
