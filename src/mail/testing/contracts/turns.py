"""Store: who may run the next turn of a mailbox, what it gets, and how far it had come."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from os import urandom

import pytest

from mail.core.decisions.copies import hand_over
from mail.core.engine.watch import read_waiting
from mail.core.protocol.message import Tier
from mail.core.task.change import Inheritance, Turn
from mail.core.task.context import AgentContext, Cut
from mail.core.task.draft import Draft
from mail.core.task.leases import Lease, Park, urgent_mail
from mail.core.task.ports import Busy, Idle, Store, read_history
from mail.core.task.swarm import History
from mail.core.task.task import TaskKey, Transition
from mail.core.task.turn_state import Receipt
from mail.errors import LeaseLost
from mail.testing.changes import ANN, NOW, SWARM, Mail, Maker, checkpoint
from mail.testing.contracts import (
    StoreAdapter,
    committed,
    due_tasks,
    end_expired,
    everything,
    first_turn,
    open_turn,
)

KEY, OTHER = TaskKey(ANN, "task-1"), TaskKey(ANN, "task-2")


def tokens(leases: Mapping[str, Lease]) -> dict[str, str]:
    """Return the tokens of leases, by mailbox: a store may count the time by a clock of its own."""
    return {mailbox: lease.token for mailbox, lease in leases.items()}


async def test_open_turn_gives_the_task_the_head_and_the_lease(store: Store, make: Maker) -> None:
    begun = await committed(store, make.begin(KEY, Mail("alpha", Tier.PERSON, "hello")))
    lease = make.lease()
    turn = await store.open_turn(KEY, "alpha", lease, now=NOW, history_after=0)
    assert turn == Turn(begun.task, begun.deliveries[0], lease, [], None)


async def test_nothing_to_open(store: Store, make: Maker) -> None:
    lease = make.lease()
    assert await store.open_turn(KEY, "alpha", lease, now=NOW, history_after=0) == Idle(None)
    begun = await committed(store, make.begin(KEY, Mail("alpha")))
    assert await store.open_turn(KEY, "beta", lease, now=NOW, history_after=0) == Idle(begun.task)
    assert await store.open_turn(KEY, "nobody", lease, now=NOW, history_after=0) == Idle(begun.task)


@pytest.mark.parametrize(
    "transition", [Transition.COMPLETE, Transition.FAIL, Transition.PAUSE, Transition.CANCEL]
)
async def test_no_turn_opens_while_the_task_does_not_run(
    store: Store, make: Maker, transition: Transition
) -> None:
    begun = await committed(store, make.begin(KEY, Mail("alpha")))
    stopped = await committed(store, make.change(begun.task, transition=transition))
    assert await store.open_turn(KEY, "alpha", make.lease(), now=NOW, history_after=0) == Idle(stopped.task)
    assert len(await store.read_inbox(KEY)) == 1
    await store.commit(make.change(stopped.task, transition=Transition.RESUME))
    await open_turn(store, KEY, "alpha", make)


async def test_a_mailbox_that_is_leased_opens_for_nobody_else(store: Store, make: Maker) -> None:
    await store.commit(make.begin(KEY, Mail("alpha"), Mail("alpha")))
    await open_turn(store, KEY, "alpha", make)
    assert await store.open_turn(KEY, "alpha", make.lease(), now=NOW, history_after=0) == Busy()
    assert await store.open_turn(KEY, "alpha", make.lease(), now=NOW + 50, history_after=0) == Busy()


async def test_leases_that_are_held_can_be_read(store: Store, make: Maker) -> None:
    assert await store.read_leases(KEY, now=NOW) == {}
    await store.commit(make.begin(KEY, Mail("alpha"), Mail("beta")))
    alpha, beta = await open_turn(store, KEY, "alpha", make), await open_turn(store, KEY, "beta", make)
    assert tokens(await store.read_leases(KEY, now=NOW)) == tokens({"alpha": alpha.lease, "beta": beta.lease})
    await store.release(beta)
    assert tokens(await store.read_leases(KEY, now=NOW)) == tokens({"alpha": alpha.lease})
    assert await store.read_leases(KEY, now=alpha.lease.expires + 1) == {}


async def test_of_many_at_once_one_gets_the_lease(store: Store, make: Maker) -> None:
    await store.commit(make.begin(KEY, Mail("alpha")))
    opened = await asyncio.gather(
        *(store.open_turn(KEY, "alpha", make.lease(), now=NOW, history_after=0) for _ in range(8))
    )
    assert sorted(type(each).__name__ for each in opened) == ["Busy"] * 7 + ["Turn"]


async def test_mailboxes_are_leased_one_by_one(store: Store, make: Maker) -> None:
    """Agents of one task work at the same time; so do those of other tasks."""
    other = TaskKey(ANN, "task-2")
    await store.commit(make.begin(KEY, Mail("alpha"), Mail("beta")))
    await store.commit(make.begin(other, Mail("alpha")))
    for key, mailbox in ((KEY, "alpha"), (KEY, "beta"), (other, "alpha")):
        turn = await open_turn(store, key, mailbox, make)
        assert (turn.task.key, turn.mailbox) == (key, mailbox)


async def test_commit_gives_the_lease_back(store: Store, make: Maker) -> None:
    turn = await first_turn(
        store, KEY, "alpha", make, Mail("alpha", body="first"), Mail("alpha", body="second")
    )
    await store.commit(make.change(turn.task, turn=turn))
    turn = await open_turn(store, KEY, "alpha", make)
    assert (turn.entry.message.message.body, turn.history) == ("second", [])


async def test_commit_that_leaves_the_mail_gives_the_lease_back_too(store: Store, make: Maker) -> None:
    turn = await first_turn(store, KEY, "alpha", make)
    await store.commit(make.change(turn.task, turn=turn, consume=False))
    again = await open_turn(store, KEY, "alpha", make)
    assert again.entry == turn.entry


async def test_release_gives_the_lease_back_and_keeps_the_mail(store: Store, make: Maker) -> None:
    turn = await first_turn(store, KEY, "alpha", make)
    before = await everything(store, KEY)
    await store.release(turn)
    assert await everything(store, KEY) == before
    assert (await open_turn(store, KEY, "alpha", make)).entry == turn.entry


async def test_commits_of_others_leave_the_lease_alone(store: Store, make: Maker) -> None:
    await store.commit(make.begin(KEY, Mail("alpha"), Mail("beta")))
    await open_turn(store, KEY, "alpha", make)
    beta = await open_turn(store, KEY, "beta", make)
    await store.commit(make.change(beta.task, Mail("alpha", Tier.SYSTEM), turn=beta))
    assert await store.open_turn(KEY, "alpha", make.lease(), now=NOW, history_after=0) == Busy()


async def test_a_lease_still_holds_after_the_task_was_stopped_and_resumed(store: Store, make: Maker) -> None:
    """A slow turn may outlast a generation; its mailbox stays its own until it commits."""
    slow = await first_turn(store, KEY, "alpha", make)
    stopped = await committed(store, make.change(slow.task, transition=Transition.COMPLETE))
    resumed = await committed(store, make.change(stopped.task, Mail("alpha"), transition=Transition.RESUME))
    assert await store.open_turn(KEY, "alpha", make.lease(), now=NOW, history_after=0) == Busy()
    await store.commit(make.change(resumed.task, turn=slow))
    assert (await open_turn(store, KEY, "alpha", make)).entry == resumed.deliveries[0]


class TestRenewal:
    """A lease whose worker says in time that it is alive."""

    async def test_a_renewed_lease_lasts_longer(self, store: Store, make: Maker) -> None:
        await store.commit(make.begin(KEY, Mail("alpha"), Mail("beta")))
        alpha, beta = await open_turn(store, KEY, "alpha", make), await open_turn(store, KEY, "beta", make)
        assert await store.renew([alpha, beta], expires=NOW + 90) == set()
        held = await store.read_leases(KEY, now=NOW)
        assert tokens(held) == tokens({turn.mailbox: turn.lease for turn in (alpha, beta)})
        assert [lease.expires for lease in held.values()] == pytest.approx([NOW + 90] * 2, abs=5)
        later = await store.open_turn(KEY, "alpha", make.lease(NOW + 150), now=NOW + 80, history_after=0)
        assert later == Busy()
        await store.save_checkpoint(alpha, checkpoint("late"))
        await store.commit(make.change(alpha.task, turn=alpha))
        assert [entry.mailbox for entry in await store.read_inbox(KEY)] == ["beta"]

    async def test_a_late_renewal_counts_while_nobody_has_taken_over(self, store: Store, make: Maker) -> None:
        turn = await first_turn(store, KEY, "alpha", make)
        (expired,) = await end_expired(store, NOW + 61)
        assert expired.lease.token == turn.lease.token
        assert await store.renew([turn], expires=NOW + 150) == set()
        opened = await store.open_turn(KEY, "alpha", make.lease(NOW + 200), now=NOW + 100, history_after=0)
        assert opened == Busy()

    async def test_what_is_lost_is_told_apart_and_stays_lost(self, store: Store, make: Maker) -> None:
        await store.commit(make.begin(KEY, Mail("alpha"), Mail("beta"), Mail("gamma")))
        alpha, beta, gamma = [await open_turn(store, KEY, name, make) for name in ("alpha", "beta", "gamma")]
        new_holder = await open_turn(store, KEY, "alpha", make, now=NOW + 61)
        await store.release(gamma)
        lost = await store.renew([alpha, beta, gamma], expires=NOW + 300)
        assert lost == {alpha.lease.token, gamma.lease.token}
        assert (await store.read_leases(KEY, now=NOW))["alpha"].token == new_holder.lease.token
        with pytest.raises(LeaseLost):
            await store.save_checkpoint(alpha, checkpoint("late"))
        await store.commit(make.change(new_holder.task, turn=new_holder))

    async def test_renewing_is_no_change_of_the_task(self, store: Store, make: Maker) -> None:
        await store.commit(make.begin(KEY, Mail("alpha")))
        before = await everything(store, KEY)
        turn = await open_turn(store, KEY, "alpha", make)
        await store.renew([turn], expires=NOW + 90)
        assert await everything(store, KEY) == before

    async def test_a_delivery_renews_too(self, store: Store, make: Maker) -> None:
        turn = await first_turn(store, KEY, "@other", make)
        assert await store.renew([turn], expires=NOW + 90) == set()
        await store.commit(make.change(turn.task, turn=turn))


class TestExpiredLease:
    """A lease that has run out while its holder still works, or is gone."""

    async def test_each_is_handed_out_once_to_one_caller(self, store: Store, make: Maker) -> None:
        alpha = await first_turn(store, KEY, "alpha", make, Mail("alpha"), Mail("beta"), Mail("gamma"))
        await store.release(await open_turn(store, KEY, "beta", make))
        await open_turn(store, KEY, "gamma", make, now=NOW + 30)
        assert await end_expired(store, NOW + 50) == []
        taken = await asyncio.gather(*(end_expired(store, NOW + 61) for _ in range(3)))
        ((expired,),) = [each for each in taken if each]
        assert (expired.task.key, expired.mailbox, expired.lease.token) == (KEY, "alpha", alpha.lease.token)
        new_holder = await open_turn(store, KEY, "alpha", make, now=NOW + 61)
        assert new_holder.replaced is not None
        assert (new_holder.replaced.token, new_holder.replaced.expires) == (alpha.lease.token, 0.0)
        with pytest.raises(LeaseLost):
            await store.commit(make.change(alpha.task, turn=alpha))

    async def test_the_turn_after_it_knows_it(self, store: Store, make: Maker) -> None:
        first = await first_turn(store, KEY, "alpha", make)
        second = await open_turn(store, KEY, "alpha", make, now=NOW + 61)
        assert first.replaced is None
        assert second.replaced is not None
        assert (second.replaced.token, second.replaced.attempt) == (first.lease.token, 1)
        await store.release(second)
        third = await open_turn(store, KEY, "alpha", make, now=NOW + 61)
        assert third.replaced is None

    async def test_the_turn_after_failed_ones_knows_how_many(self, store: Store, make: Maker) -> None:
        failed = await first_turn(store, KEY, "alpha", make)
        await store.release(failed, left=failed.lease.ended(3, 7))
        assert await store.read_leases(KEY, now=NOW) == {}
        assert await end_expired(store, NOW + 90) == []
        again = await open_turn(store, KEY, "alpha", make)
        assert again.replaced is not None
        assert again.replaced == failed.lease.ended(3, 7)
        counted = replace(make.lease(), attempt=4, seq=7)
        await store.release(again)
        turn = await store.open_turn(KEY, "alpha", counted, now=NOW, history_after=0)
        assert isinstance(turn, Turn)
        assert await store.renew([turn], expires=NOW + 90) == set()
        await store.save_checkpoint(turn, checkpoint("late"))
        after = await open_turn(store, KEY, "alpha", make, now=NOW + 91)
        assert after.replaced is not None
        assert (after.replaced.token, after.replaced.attempt, after.replaced.seq) == (counted.token, 4, 7)

    async def test_a_sweep_wakes_its_mailbox_and_none_that_is_leased(self, store: Store, make: Maker) -> None:
        await store.commit(make.begin(KEY, Mail("alpha"), Mail("beta")))
        await open_turn(store, KEY, "alpha", make)
        assert [each.mailbox for each in await store.list_ready(now=NOW)] == ["beta"]
        assert [each.mailbox for each in await store.list_ready(now=NOW + 61)] == ["alpha", "beta"]
        assert [each.mailbox for each in await store.list_ready()] == ["alpha", "beta"]

    async def test_its_holder_may_still_finish_while_nobody_has_taken_over(
        self, store: Store, make: Maker
    ) -> None:
        slow = await first_turn(store, KEY, "alpha", make)
        await store.save_checkpoint(slow, checkpoint("late"))
        change = await committed(store, make.change(slow.task, turn=slow))
        assert await store.load(KEY) == change.task

    async def test_the_new_holder_fences_the_old_holder_off(self, store: Store, make: Maker) -> None:
        slow = await first_turn(store, KEY, "alpha", make)
        new_holder = await open_turn(store, KEY, "alpha", make, now=NOW + 61)
        before = await everything(store, KEY)
        with pytest.raises(LeaseLost):
            await store.save_checkpoint(slow, checkpoint("late"))
        with pytest.raises(LeaseLost):
            await store.commit(make.change(slow.task, Mail("beta"), turn=slow, history=[{"late": True}]))
        assert await everything(store, KEY) == before
        await store.commit(make.change(new_holder.task, turn=new_holder))

    async def test_release_by_the_old_holder_does_not_free_the_new_holders_lease(
        self, store: Store, make: Maker
    ) -> None:
        slow = await first_turn(store, KEY, "alpha", make)
        new_holder = await open_turn(store, KEY, "alpha", make, now=NOW + 61)
        await store.release(slow)
        assert await store.open_turn(KEY, "alpha", make.lease(), now=NOW + 61, history_after=0) == Busy()
        await store.commit(make.change(new_holder.task, turn=new_holder))

    async def test_the_old_holder_stays_out_after_the_new_holder_has_finished(
        self, store: Store, make: Maker
    ) -> None:
        slow = await first_turn(store, KEY, "alpha", make, Mail("alpha"), Mail("alpha"))
        new_holder = await open_turn(store, KEY, "alpha", make, now=NOW + 61)
        finished = await committed(store, make.change(new_holder.task, turn=new_holder))
        before = await everything(store, KEY)
        with pytest.raises(LeaseLost):
            await store.commit(make.change(finished.task, Mail("beta"), turn=slow))
        with pytest.raises(LeaseLost):
            await store.save_checkpoint(slow, checkpoint("late"))
        await store.release(slow)
        assert await everything(store, KEY) == before

    async def test_a_lost_lease_is_noticed_before_a_lost_version(self, store: Store, make: Maker) -> None:
        """Told of a conflict, the old holder would only decide again; it must give up."""
        slow = await first_turn(store, KEY, "alpha", make)
        new_holder = await open_turn(store, KEY, "alpha", make, now=NOW + 61)
        await store.commit(make.change(new_holder.task, turn=new_holder))
        with pytest.raises(LeaseLost):
            await store.commit(make.change(slow.task, turn=slow))


class TestOrder:
    """Inside a mailbox mail is read by (tier, seq)."""

    async def test_the_most_urgent_tier_goes_first_and_the_oldest_inside_it(
        self, store: Store, make: Maker
    ) -> None:
        tiers = [
            Tier.AGENT,
            Tier.BROADCAST,
            Tier.PERSON,
            Tier.AGENT,
            Tier.SYSTEM,
            Tier.INTERRUPT,
            Tier.SYSTEM,
        ]
        await store.commit(
            make.begin(KEY, *(Mail("alpha", tier, f"{tier.name} {n}") for n, tier in enumerate(tiers)))
        )
        read = []
        for _ in tiers:
            turn = await open_turn(store, KEY, "alpha", make)
            read.append(turn.entry.message.message.body)
            await store.commit(make.change(turn.task, turn=turn))
        assert read == [
            "SYSTEM 4", "SYSTEM 6", "PERSON 2", "INTERRUPT 5", "BROADCAST 1", "AGENT 0", "AGENT 3",
        ]  # fmt: skip

    async def test_seq_is_compared_as_a_number(self, store: Store, make: Maker) -> None:
        await store.commit(make.begin(KEY, *(Mail("alpha", body=str(n)) for n in range(1, 13))))
        read = []
        for _ in range(12):
            turn = await open_turn(store, KEY, "alpha", make)
            read.append(turn.entry.message.message.body)
            await store.commit(make.change(turn.task, turn=turn))
        assert read == [str(n) for n in range(1, 13)]

    async def test_urgent_mail_overtakes_what_waits(self, store: Store, make: Maker) -> None:
        begun = await committed(store, make.begin(KEY, Mail("alpha", Tier.AGENT, "chatter")))
        await store.commit(make.change(begun.task, Mail("alpha", Tier.INTERRUPT, "urgent")))
        assert (await open_turn(store, KEY, "alpha", make)).entry.message.message.body == "urgent"

    async def test_commit_removes_the_message_of_the_turn_and_not_the_head(
        self, store: Store, make: Maker
    ) -> None:
        """Something more urgent may come in while a turn runs; it isn't what the turn has read."""
        turn = await first_turn(store, KEY, "alpha", make, Mail("alpha", Tier.AGENT, "read"))
        came = await committed(store, make.change(turn.task, Mail("alpha", Tier.SYSTEM, "came in")))
        await store.commit(make.change(came.task, turn=turn))
        assert [entry.message.message.body for entry in await store.read_inbox(KEY)] == ["came in"]

    async def test_read_inbox_is_in_order_over_all_mailboxes(self, store: Store, make: Maker) -> None:
        change = make.begin(
            KEY, Mail("beta", Tier.AGENT), Mail("alpha", Tier.BROADCAST), Mail("gamma", Tier.SYSTEM),
            Mail("alpha", Tier.AGENT), Mail("beta", Tier.SYSTEM),
        )  # fmt: skip
        await store.commit(change)
        inbox = await store.read_inbox(KEY)
        assert inbox == sorted(change.deliveries, key=lambda entry: (entry.tier, entry.seq))

    async def test_one_message_in_many_mailboxes(self, store: Store, make: Maker) -> None:
        """A broadcast has one seq, and a place in every mailbox."""
        begun = await committed(store, make.begin(KEY))
        change = make.change(begun.task, Mail("alpha", Tier.BROADCAST, "to all"))
        entry = change.deliveries[0]
        copies = tuple(
            type(entry)(mailbox, entry.tier, entry.seq, entry.message)
            for mailbox in ("alpha", "beta", "gamma")
        )
        task = replace(
            change.task, pending={**change.task.pending, "beta": (0, 0, 0, 1, 0), "gamma": (0, 0, 0, 1, 0)}
        )
        await store.commit(
            type(change)(
                task, 1, deliveries=copies, events=change.events, encoded_events=change.encoded_events
            )
        )
        turn = await open_turn(store, KEY, "beta", make)
        assert turn.entry == copies[1]
        await store.commit(make.change(turn.task, turn=turn))
        left = [entry.mailbox for entry in await store.read_inbox(KEY) if entry.seq == copies[0].seq]
        assert sorted(left) == ["alpha", "gamma"]


class TestCopies:
    async def test_a_message_that_has_waited_moves_to_a_copy_under_its_seq(self, store: Store) -> None:
        """Its new reader reads nothing of what the copy did before, and the mail of each moment can be read."""
        beta = replace(SWARM.agents["beta"], copies=1)
        make = Maker(swarm=replace(SWARM, agents={**SWARM.agents, "beta": beta}))
        begun = await committed(
            store, make.begin(KEY, Mail("beta", body="first"), Mail("beta", body="second"))
        )
        assert [mailbox for mailbox, _ in begun.task.ready()] == ["beta~1"]
        assert [each.mailbox for each in await store.list_ready()] == ["beta~1"]
        turn = await open_turn(store, KEY, "beta~1", make)
        said: History = [{"role": "user", "content": "first"}]
        await store.commit(make.change(turn.task, turn=turn, history=said))
        assert [each.mailbox for each in await store.list_ready()] == ["beta"]
        waits = await open_turn(store, KEY, "beta", make)
        moved = hand_over(Draft(waits.task, make.swarm, make.clock), waits)
        assert moved is not None
        await store.commit(moved)
        turn = await open_turn(store, KEY, "beta~1", make)
        assert turn.entry == replace(waits.entry, mailbox="beta~1")
        assert (turn.task, turn.history) == (moved.task, [])
        assert await read_history(store, KEY, "beta~1") == said
        for n, waited in enumerate((turn.entry, waits.entry)):
            snapshot = await store.read_snapshot(KEY, moved.task.seq - n)
            assert [entry async for entry in read_waiting(store, snapshot)] == [waited]


class TestCheckpoint:
    """An unfinished turn is found by the worker that runs it next."""

    async def test_it_comes_with_the_turn_that_is_opened_again(self, store: Store, make: Maker) -> None:
        turn = await first_turn(store, KEY, "alpha", make)
        assert turn.checkpoint is None
        await store.save_checkpoint(turn, checkpoint("a", "b"))
        await store.release(turn)
        again = await open_turn(store, KEY, "alpha", make)
        assert again.checkpoint == checkpoint("a", "b")
        assert again.entry == turn.entry

    async def test_the_last_one_counts(self, store: Store, make: Maker) -> None:
        turn = await first_turn(store, KEY, "alpha", make)
        started = checkpoint("a").with_receipt(0, Receipt(state=Receipt.State.STARTED))
        await store.save_checkpoint(turn, started)
        failed = started.with_receipt(0, Receipt(state=Receipt.State.FAILED, content="no"))
        await store.save_checkpoint(turn, failed)
        await store.release(turn)
        assert (await open_turn(store, KEY, "alpha", make)).checkpoint == failed

    async def test_it_outlives_an_expired_lease(self, store: Store, make: Maker) -> None:
        turn = await first_turn(store, KEY, "alpha", make)
        await store.save_checkpoint(turn, checkpoint("a"))
        assert (await open_turn(store, KEY, "alpha", make, now=NOW + 61)).checkpoint == checkpoint("a")

    async def test_it_goes_with_its_message(self, store: Store, make: Maker) -> None:
        turn = await first_turn(store, KEY, "alpha", make, Mail("alpha"), Mail("alpha"))
        await store.save_checkpoint(turn, checkpoint("first"))
        await store.commit(make.change(turn.task, turn=turn))
        assert (await open_turn(store, KEY, "alpha", make)).checkpoint is None

    async def test_mail_that_overtakes_does_not_inherit_it(self, store: Store, make: Maker) -> None:
        """The output was made for another message: used for this one, its actions would run for nothing, or twice."""
        turn = await first_turn(store, KEY, "alpha", make, Mail("alpha", Tier.AGENT, "slow"))
        await store.save_checkpoint(turn, checkpoint("for slow"))
        await store.release(turn)
        await store.commit(make.change(turn.task, Mail("alpha", Tier.INTERRUPT, "urgent")))
        urgent = await open_turn(store, KEY, "alpha", make)
        assert urgent.entry.message.message.body == "urgent"
        assert urgent.checkpoint is None
        await store.commit(make.change(urgent.task, turn=urgent))
        slow = await open_turn(store, KEY, "alpha", make)
        assert slow.entry.message.message.body == "slow"
        assert slow.checkpoint == checkpoint("for slow")

    async def test_each_mailbox_has_its_own(self, store: Store, make: Maker) -> None:
        await store.commit(make.begin(KEY, Mail("alpha"), Mail("beta")))
        turns = [await open_turn(store, KEY, name, make) for name in ("alpha", "beta")]
        for turn in turns:
            await store.save_checkpoint(turn, checkpoint(turn.mailbox))
            await store.release(turn)
        for name in ("alpha", "beta"):
            assert (await open_turn(store, KEY, name, make)).checkpoint == checkpoint(name)

    async def test_saving_it_is_no_change_of_the_task(self, store: Store, make: Maker) -> None:
        turn = await first_turn(store, KEY, "alpha", make)
        before = await everything(store, KEY)
        await store.save_checkpoint(turn, checkpoint("a"))
        assert await everything(store, KEY) == before

    async def test_it_survives_reopening(self, durable: StoreAdapter, make: Maker) -> None:
        await durable.store.commit(make.begin(KEY, Mail("alpha", Tier.AGENT, "slow")))
        turn = await open_turn(durable.store, KEY, "alpha", make)
        await durable.store.save_checkpoint(turn, checkpoint("kept"))
        store = await durable.reopen()
        again = await open_turn(store, KEY, "alpha", make, now=NOW + 61)
        assert again.checkpoint == checkpoint("kept")
        assert again.entry == turn.entry

    async def test_after_reopening_mail_that_overtakes_does_not_inherit_it(
        self, durable: StoreAdapter, make: Maker
    ) -> None:
        await durable.store.commit(make.begin(KEY, Mail("alpha", Tier.AGENT, "slow")))
        turn = await open_turn(durable.store, KEY, "alpha", make)
        await durable.store.save_checkpoint(turn, checkpoint("for slow"))
        await durable.store.commit(make.change(turn.task, Mail("alpha", Tier.INTERRUPT, "urgent")))
        store = await durable.reopen()
        urgent = await open_turn(store, KEY, "alpha", make, now=NOW + 61)
        assert (urgent.entry.message.message.body, urgent.checkpoint) == ("urgent", None)


def parked(turn: Turn, until: float, *, ended_by_mail: bool) -> Lease:
    """Return what a turn leaves that waits until a time."""
    urgent = urgent_mail(turn.task, turn.mailbox) if ended_by_mail else None
    return turn.lease.parked(until, 0, turn.entry.seq, Park(on="weather", since=NOW, urgent=urgent))


async def begin_parked(store: Store, make: Maker, until: float, *, ended_by_mail: bool = False) -> Turn:
    """Begin a task, and park its turn; return the turn."""
    turn = await first_turn(store, KEY, "alpha", make, Mail("alpha"), Mail("alpha", body="second"))
    await store.park(turn, parked(turn, until, ended_by_mail=ended_by_mail), None)
    return turn


class TestPark:
    """A turn that can't run now, and that no worker holds."""

    async def test_its_mailbox_opens_when_its_time_has_come(self, store: Store, make: Maker) -> None:
        turn = await begin_parked(store, make, NOW + 300)
        assert await store.open_turn(KEY, "alpha", make.lease(), now=NOW + 299, history_after=0) == Busy()
        assert await store.list_ready(now=NOW + 299) == []
        again = await open_turn(store, KEY, "alpha", make, now=NOW + 300)
        assert again.entry == turn.entry
        assert again.replaced is not None
        assert again.replaced.park == Park(on="weather", since=NOW)
        assert (again.replaced.attempt, again.replaced.seq) == (0, turn.entry.seq)
        await store.commit(make.change(again.task, turn=again))
        assert (await open_turn(store, KEY, "alpha", make)).replaced is None

    async def test_it_is_read_with_the_leases(self, store: Store, make: Maker) -> None:
        await begin_parked(store, make, NOW + 300)
        (lease,) = (await store.read_leases(KEY, now=NOW)).values()
        assert lease.park == Park(on="weather", since=NOW)
        assert lease.expires == pytest.approx(NOW + 300, abs=5)
        assert await end_expired(store, NOW + 290) == []
        assert await store.read_leases(KEY, now=NOW + 301) == {}

    async def test_its_end_is_handed_out_once(self, store: Store, make: Maker) -> None:
        turn = await begin_parked(store, make, NOW + 300)
        assert await due_tasks(store, NOW + 290) == []
        assert await due_tasks(store, NOW + 310) == [KEY]
        assert await end_expired(store, NOW + 290) == []
        ended = await asyncio.gather(*(end_expired(store, NOW + 310) for _ in range(3)))
        assert sorted(each.mailbox for taken in ended for each in taken) == ["alpha"]
        assert await due_tasks(store, NOW + 310) == []
        assert (await open_turn(store, KEY, "alpha", make)).entry == turn.entry

    async def test_the_first_of_several_is_due_first(self, store: Store, make: Maker) -> None:
        await store.commit(make.begin(KEY, Mail("alpha"), Mail("beta"), deadline=NOW + 900))
        for name, until in (("alpha", NOW + 600), ("beta", NOW + 300)):
            turn = await open_turn(store, KEY, name, make)
            await store.park(turn, parked(turn, until, ended_by_mail=False), None)
        assert await due_tasks(store, NOW + 310) == [KEY]
        assert [each.mailbox for each in await end_expired(store, NOW + 310)] == ["beta"]
        assert await due_tasks(store, NOW + 590) == []
        assert await due_tasks(store, NOW + 610) == [KEY]
        assert [each.mailbox for each in await end_expired(store, NOW + 610)] == ["alpha"]
        assert await due_tasks(store, NOW + 890) == []
        assert await due_tasks(store, NOW + 900) == [KEY]

    @pytest.mark.parametrize("transition", [Transition.COMPLETE, Transition.PAUSE])
    async def test_it_is_due_only_while_its_task_runs(
        self, store: Store, make: Maker, transition: Transition
    ) -> None:
        turn = await begin_parked(store, make, NOW + 300)
        await store.commit(stop := make.change(turn.task, transition=transition))
        assert await due_tasks(store, NOW + 310) == []
        await store.commit(make.change(stop.task, transition=Transition.RESUME))
        assert await store.open_turn(KEY, "alpha", make.lease(), now=NOW + 299, history_after=0) == Busy()
        assert [each.mailbox for each in await end_expired(store, NOW + 310)] == ["alpha"]
        assert (await open_turn(store, KEY, "alpha", make, now=NOW + 310)).entry == turn.entry

    async def test_mail_of_a_person_that_comes_later_ends_only_some(self, store: Store, make: Maker) -> None:
        for ended_by_mail, key in ((True, KEY), (False, TaskKey(ANN, "task-2"))):
            turn = await first_turn(
                store, key, "alpha", make, Mail("alpha", Tier.PERSON), Mail("alpha", Tier.PERSON)
            )
            await store.park(turn, parked(turn, NOW + 300, ended_by_mail=ended_by_mail), None)
            chatter = make.change(turn.task, Mail("alpha", Tier.AGENT), Mail("alpha", Tier.BROADCAST))
            await store.commit(chatter)
            assert await store.open_turn(key, "alpha", make.lease(), now=NOW, history_after=0) == Busy()
            assert await store.list_ready(now=NOW) == []
            await store.commit(make.change(chatter.task, Mail("alpha", Tier.PERSON)))
            ready = [each.key for each in await store.list_ready(now=NOW)]
            opened = await store.open_turn(key, "alpha", make.lease(), now=NOW, history_after=0)
            if ended_by_mail:
                assert ready == [key]
                assert isinstance(opened, Turn)
                assert await store.open_turn(key, "alpha", make.lease(), now=NOW, history_after=0) == Busy()
            else:
                assert ready == []
                assert opened == Busy()

    @pytest.mark.parametrize("takes_back", [False, True])
    @pytest.mark.parametrize("size", [10, 5_000])
    async def test_it_keeps_how_far_its_turn_has_come(
        self, store: Store, make: Maker, size: int, takes_back: bool
    ) -> None:
        turn = await first_turn(store, KEY, "alpha", make)
        started = checkpoint(urandom(size).hex(), "b").with_receipt(1, Receipt(state=Receipt.State.STARTED))
        await store.save_checkpoint(turn, started)
        taken_back = started.with_receipt(1, None)
        kept, given = (taken_back, taken_back) if takes_back else (started, None)
        await store.park(turn, parked(turn, NOW + 300, ended_by_mail=True), given)
        again = await open_turn(store, KEY, "alpha", make, now=NOW + 301)
        assert (again.entry, again.checkpoint) == (turn.entry, kept)
        await store.commit(make.change(again.task, turn=again))
        assert await store.read_inbox(KEY) == []

    async def test_what_its_worker_still_does_has_no_effect(self, store: Store, make: Maker) -> None:
        turn = await begin_parked(store, make, NOW + 300)
        assert await store.renew([turn], expires=NOW + 900) == {turn.lease.token}
        await store.release(turn)
        with pytest.raises(LeaseLost):
            await store.commit(make.change(turn.task, turn=turn))
        with pytest.raises(LeaseLost):
            await store.save_checkpoint(turn, checkpoint("late"))
        assert await store.open_turn(KEY, "alpha", make.lease(), now=NOW + 299, history_after=0) == Busy()
        await open_turn(store, KEY, "alpha", make, now=NOW + 301)

    async def test_a_turn_that_has_lost_its_lease_can_not_park(self, store: Store, make: Maker) -> None:
        slow = await first_turn(store, KEY, "alpha", make)
        new_holder = await open_turn(store, KEY, "alpha", make, now=NOW + 61)
        for late in (None, checkpoint("late")):
            with pytest.raises(LeaseLost):
                await store.park(slow, parked(slow, NOW + 900, ended_by_mail=False), late)
        await store.commit(make.change(new_holder.task, turn=new_holder))

    async def test_commits_of_others_leave_it(self, store: Store, make: Maker) -> None:
        turn = await begin_parked(store, make, NOW + 300)
        await store.commit(make.change(turn.task, Mail("beta")))
        beta = await open_turn(store, KEY, "beta", make)
        await store.commit(make.change(beta.task, turn=beta))
        assert await store.open_turn(KEY, "alpha", make.lease(), now=NOW + 299, history_after=0) == Busy()
        assert [each.mailbox for each in await end_expired(store, NOW + 310)] == ["alpha"], "its end is found"
        assert (await open_turn(store, KEY, "alpha", make, now=NOW + 301)).entry == turn.entry

    async def test_it_outlives_its_process(self, durable: StoreAdapter, make: Maker) -> None:
        await begin_parked(durable.store, make, NOW + 300)
        store = await durable.reopen()
        assert await store.open_turn(KEY, "alpha", make.lease(), now=NOW + 299, history_after=0) == Busy()
        assert await due_tasks(store, NOW + 310) == [KEY]
        assert [each.mailbox for each in await end_expired(store, NOW + 310)] == ["alpha"]
        again = await open_turn(store, KEY, "alpha", make)
        assert again.replaced is not None
        assert again.replaced.park == Park(on="weather", since=NOW)


async def test_a_lease_dies_with_the_process_that_keeps_it_in_memory(
    durable: StoreAdapter, make: Maker
) -> None:
    if durable.leases_outlive_process:
        pytest.skip("leases are kept in the database")
    await durable.store.commit(make.begin(KEY, Mail("alpha")))
    turn = await open_turn(durable.store, KEY, "alpha", make)
    store = await durable.reopen()
    with pytest.raises(LeaseLost):
        await store.commit(make.change(turn.task, turn=turn))
    await open_turn(store, KEY, "alpha", make)


class TestHistoryAfter:
    """A worker says how many records it knows and gets the rest."""

    @pytest.mark.parametrize("known", range(5))
    async def test_records_past_the_known_ones(self, store: Store, make: Maker, known: int) -> None:
        await store.commit(make.begin(KEY, *(Mail("alpha") for _ in range(5))))
        for n in range(4):
            turn = await open_turn(store, KEY, "alpha", make, history_after=n)
            await store.commit(make.change(turn.task, turn=turn, history=[{"n": n, "of": 2}, {"n": n}]))
        turn = await open_turn(store, KEY, "alpha", make, history_after=known)
        assert turn.history == [entry for n in range(known, 4) for entry in ({"n": n, "of": 2}, {"n": n})]
        assert turn.task.histories == {"alpha": 4}

    @pytest.mark.parametrize(("known", "read"), [(0, (3, 4)), (1, (3, 4)), (3, (4,)), (4, ())])
    async def test_a_cut_leaves_out_what_is_before_it(
        self, store: Store, make: Maker, known: int, read: tuple[int, ...]
    ) -> None:
        await store.commit(make.begin(KEY, *(Mail("alpha") for _ in range(5))))
        for n in range(1, 5):
            turn = await open_turn(store, KEY, "alpha", make, history_after=n)
            change = make.change(turn.task, turn=turn, history=[{"n": n}])
            contexts = {"alpha": AgentContext(cut=Cut(begin=n))} if n == 3 else turn.task.contexts
            await store.commit(replace(change, task=replace(change.task, contexts=contexts)))
        turn = await open_turn(store, KEY, "alpha", make, history_after=known)
        assert [(portion.n, portion.entries) for portion in turn.portions] == [(n, [{"n": n}]) for n in read]
        assert all(portion.size == len('[{"n":1}]') for portion in turn.portions)
        assert [portion.n for portion in await store.read_portions(KEY, "alpha", after=1, upto=3)] == [2, 3]

    async def test_histories_of_agents_are_apart(self, store: Store, make: Maker) -> None:
        await store.commit(make.begin(KEY, Mail("alpha"), Mail("beta"), Mail("alpha")))
        for name in ("alpha", "beta"):
            turn = await open_turn(store, KEY, name, make)
            await store.commit(make.change(turn.task, turn=turn, history=[{"by": name}]))
        assert (await open_turn(store, KEY, "alpha", make)).history == [{"by": "alpha"}]
        assert await read_history(store, KEY, "beta") == [{"by": "beta"}]
        assert await read_history(store, KEY, "gamma") == []

    async def test_many_records_keep_their_order(self, store: Store, make: Maker) -> None:
        begun = await committed(store, make.begin(KEY))
        task = begun.task
        for n in range(30):
            change = await committed(store, make.change(task, history=[{"n": n}], agent="beta"))
            task = change.task
        assert await read_history(store, KEY, "beta") == [{"n": n} for n in range(30)]
        early = begun.task.seq + 10
        for bounds in ({}, {"at": early}, {"at": task.seq}):
            assert await read_history(store, KEY, "beta", after=3, upto=6, **bounds) == [
                {"n": 3},
                {"n": 4},
                {"n": 5},
            ]
        assert await read_history(store, KEY, "beta", after=28) == [{"n": 28}, {"n": 29}]


class TestContents:
    """Long texts of a task, each stored once."""

    TEXT = "äbc" * 100_000

    async def test_they_are_read_in_pieces(self, store: Store, make: Maker) -> None:
        await store.commit(make.begin(KEY))
        await store.commit(make.begin(OTHER))
        for _ in range(2):
            await store.put_content(KEY, "ref", self.TEXT)
        assert await store.read_content(KEY, "ref", offset=0, length=4) == ("äbcä", 300_000)
        assert await store.read_content(KEY, "ref", offset=299_998, length=9) == ("bc", 300_000)
        assert await store.read_content(KEY, "ref", offset=400_000, length=9) == ("", 300_000)
        assert await store.read_content(KEY, "other", offset=0, length=9) is None
        assert await store.read_content(OTHER, "ref", offset=0, length=9) is None

    async def test_a_fork_has_its_own_and_keeps_the_portions(self, store: Store, make: Maker) -> None:
        await store.commit(make.begin(KEY, *(Mail("alpha") for _ in range(3))))
        for n in range(3):
            turn = await open_turn(store, KEY, "alpha", make)
            await store.commit(make.change(turn.task, turn=turn, history=[{"n": n}]))
        await store.put_content(KEY, "ref", self.TEXT)
        draft = make.begin(OTHER)
        begun = replace(draft.task, histories={"alpha": 3})
        await store.commit(replace(draft, task=begun, inherits=Inheritance(KEY, {"alpha": 3}, 30)))
        portions = await store.read_portions(OTHER, "alpha")
        assert [(portion.n, portion.entries) for portion in portions] == [
            (n + 1, [{"n": n}]) for n in range(3)
        ]
        original = await store.load(KEY)
        assert original is not None
        stopped = await committed(store, make.change(original, transition=Transition.COMPLETE))
        await store.delete(stopped.task)
        assert await store.load(KEY) is None
        assert await store.read_content(OTHER, "ref", offset=0, length=3) == ("äbc", 300_000)
