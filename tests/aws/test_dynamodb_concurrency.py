"""Several functions work on one task, each with a store of its own: nothing gets lost, and nothing happens twice."""

import asyncio
from collections import Counter

import pytest
from support.engines.adapters import loaded
from support.engines.dynamodb import LONG, Calls, DynamoDBAdapter, make_client
from support.plugins.tiers import sized

from mail.core.protocol.message import Tier
from mail.core.task.change import Turn
from mail.core.task.ports import Busy, Idle, Store, read_history
from mail.core.task.task import TaskKey, Transition
from mail.errors import LeaseLost, VersionConflict
from mail.testing.changes import ANN, NOW, Mail, Maker, checkpoint
from mail.testing.clock import FakeClock
from mail.testing.contracts import committed, first_turn, open_turn

KEY = TaskKey(ANN, "task-1")
MAILBOXES = ("alpha", "beta", "gamma")
WORKERS = 6
TURNS = sized(fast=20, full=20, soak=60)


class Worker:
    """A function: it opens turns of any mailbox, sends new mail while there is any to send, and commits."""

    def __init__(self, run: int, store: Store, budget: list[int]) -> None:
        self.make = Maker(FakeClock(run))
        self.name = f"worker {run}"
        self.read: list[str] = []
        self._store = store
        self._budget = budget

    async def work(self) -> None:
        idle = 0
        while idle < 2 * len(MAILBOXES):
            for mailbox in MAILBOXES:
                idle = 0 if await self.step(mailbox) else idle + 1
                await asyncio.sleep(0.001)

    async def step(self, mailbox: str) -> bool:
        opened = await self._store.open_turn(KEY, mailbox, self.make.lease(), now=NOW, history_after=0)
        if not isinstance(opened, Turn):
            return isinstance(opened, Busy)
        await self._store.save_checkpoint(opened, checkpoint(self.name))
        task = opened.task
        mail = []
        if self._budget:
            n = self._budget.pop()
            target = MAILBOXES[n % len(MAILBOXES)]
            mail = [Mail(target, Tier(n % 5 + 1), f"letter {n}")]
        while True:
            change = self.make.change(task, *mail, turn=opened, history=[{"by": self.name}])
            try:
                await self._store.commit(change)
            except VersionConflict as conflict:
                task = conflict.current
                continue
            self.read.append(opened.entry.message.message.body)
            return True


@pytest.mark.soak
async def test_nothing_is_lost_or_doubled(table: DynamoDBAdapter, make: Maker) -> None:
    await table.store.commit(make.begin(KEY, *(Mail(name, body=f"first of {name}") for name in MAILBOXES)))
    budget = list(range(TURNS))
    workers = [Worker(n, table.another(), budget) for n in range(1, WORKERS + 1)]
    async with asyncio.timeout(60):
        await asyncio.gather(*(worker.work() for worker in workers))
    read = Counter(body for worker in workers for body in worker.read)
    assert read == Counter(
        [*(f"first of {name}" for name in MAILBOXES), *(f"letter {n}" for n in range(TURNS))]
    )
    task = await loaded(table.store, KEY)
    assert (task.version, task.pending) == (1 + TURNS + len(MAILBOXES), {})
    events = await table.store.read_events(KEY)
    assert [event.seq for event in events] == list(range(1, task.seq + 1))
    assert sum(task.histories.values()) == TURNS + len(MAILBOXES)
    for name in MAILBOXES:
        assert len(await read_history(table.store, KEY, name)) == task.histories[name]
    assert await table.store.read_inbox(KEY) == []


async def test_many_begin_one_task(table: DynamoDBAdapter) -> None:
    changes = [Maker(FakeClock(run)).begin(KEY, Mail("alpha", body=str(run))) for run in range(8)]
    results = await asyncio.gather(
        *(table.another().commit(change) for change in changes), return_exceptions=True
    )
    (winner,) = [change for change, result in zip(changes, results, strict=True) if result is None]
    losers = [result for result in results if result is not None]
    assert [type(each) for each in losers] == [VersionConflict] * 7
    assert await table.store.read_events(KEY) == list(winner.events)
    assert [entry.message for entry in await table.store.read_inbox(KEY)] == [winner.deliveries[0].message]


async def test_a_worker_taken_for_dead_is_fenced_off_at_every_step(
    table: DynamoDBAdapter, make: Maker
) -> None:
    """It was only asleep. Whatever it tries from then on, it must not touch what its heir does."""
    await table.store.commit(make.begin(KEY, Mail("alpha"), Mail("alpha")))
    zombies = [table.another(), table.another()]
    slow = await open_turn(zombies[0], KEY, "alpha", make)
    await zombies[0].save_checkpoint(slow, checkpoint("first step"))
    heir = await open_turn(table.store, KEY, "alpha", make, now=NOW + 61)
    assert heir.checkpoint == checkpoint("first step")
    await table.store.save_checkpoint(heir, checkpoint("first step", "second step"))
    for zombie in zombies:
        with pytest.raises(LeaseLost):
            await zombie.save_checkpoint(slow, checkpoint("first step", "the same again"))
        with pytest.raises(LeaseLost):
            await zombie.commit(make.change(slow.task, turn=slow))
        await zombie.release(slow)
    assert await table.store.open_turn(KEY, "alpha", make.lease(), now=NOW + 62, history_after=0) == Busy()
    third = await open_turn(table.another(), KEY, "alpha", make, now=NOW + 200)
    assert third.checkpoint == checkpoint("first step", "second step")


async def test_a_checkpoint_races_with_the_heirs_commit(table: DynamoDBAdapter, make: Maker) -> None:
    """Once the heir has committed, the message is gone, and a late checkpoint must not bring part of it back."""
    await table.store.commit(make.begin(KEY, Mail("alpha")))
    slow = await open_turn(table.another(), KEY, "alpha", make)
    heir = await open_turn(table.store, KEY, "alpha", make, now=NOW + 61)
    await table.store.commit(make.change(heir.task, turn=heir))
    with pytest.raises(LeaseLost):
        await table.another().save_checkpoint(slow, checkpoint("late"))
    assert table.items("A#alpha#I") == []


async def test_what_comes_in_while_a_turn_is_opened_waits_for_the_next_one(
    table: DynamoDBAdapter, make: Maker
) -> None:
    """A commit between the lease and the query: its mail may sort before the head, its history before the mail."""
    begun = await committed(table.store, make.begin(KEY, Mail("alpha", body=LONG)))
    client = make_client(table.engine, "dynamodb")
    loop = asyncio.get_running_loop()
    late = make.change(
        begun.task, Mail("alpha", Tier.SYSTEM, "came in"), history=[{"came": "in"}], agent="alpha"
    )

    def commit_meanwhile(**_: object) -> None:
        client.botocore.meta.events.unregister("before-send.dynamodb.Query", commit_meanwhile)
        asyncio.run_coroutine_threadsafe(table.store.commit(late), loop).result(10)

    client.botocore.meta.events.register("before-send.dynamodb.Query", commit_meanwhile)
    turn = await open_turn(table.another(client), KEY, "alpha", make)
    assert (turn.task, turn.history) == (begun.task, [])
    assert turn.entry.message.message.body == LONG
    await table.store.commit(make.change(late.task, turn=turn))
    turn = await open_turn(table.store, KEY, "alpha", make)
    assert turn.entry.message.message.body == "came in"
    assert turn.history == [{"came": "in"}]
    client.close()


async def test_a_waiter_sees_what_another_function_commits(table: DynamoDBAdapter, make: Maker) -> None:
    begun = await committed(table.store, make.begin(KEY))
    watching = asyncio.create_task(table.another().wait_for_change(KEY, after=begun.task.seq, seconds=30))
    await asyncio.sleep(0.1)
    change = await committed(table.store, make.change(begun.task))
    async with asyncio.timeout(25):  # less than it would wait
        assert await watching == change.task.seq


async def test_what_is_committed_here_is_seen_at_once(
    table: DynamoDBAdapter, make: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mail.adapters.aws.waits.FIRST_POLL", 60.0)
    begun = await committed(table.store, make.begin(KEY))
    waiting = [
        asyncio.create_task(table.store.wait_for_change(KEY, after=begun.task.seq, seconds=60)),
        asyncio.create_task(table.store.wait_for_response(KEY, 1, seconds=60)),
    ]
    await asyncio.sleep(0.5)
    change = await committed(table.store, make.change(begun.task, transition=Transition.COMPLETE))
    async with asyncio.timeout(50):  # less than its first pause
        assert await asyncio.gather(*waiting) == [change.task.seq, change.response]


async def test_a_waiter_looks_ever_more_seldom(
    table: DynamoDBAdapter, calls: Calls, client: object, make: Maker
) -> None:
    await table.store.commit(make.begin(KEY))
    store = table.another(client)  # type: ignore[arg-type]
    assert await store.wait_for_change(KEY, after=1, seconds=1.5) == 1
    assert 2 <= calls.count["GetItem"] <= 9
    assert calls.count.total() == calls.count["GetItem"]


async def test_nothing_is_idle_that_is_leased(table: DynamoDBAdapter, make: Maker) -> None:
    turn = await first_turn(table.store, KEY, "alpha", make)
    await table.store.commit(make.change(turn.task, turn=turn))
    task = await table.store.load(KEY)
    opened = await table.another().open_turn(KEY, "alpha", make.lease(), now=NOW, history_after=0)
    assert opened == Idle(task)
