"""Turns that commits open: who runs them, what keeps them from running, and that callers still take turns."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from psycopg.rows import scalar_row
from support.engines.adapters import loaded
from support.engines.postgres import PostgresAdapter, lose_answer, waits

from mail.adapters.local.workers import LocalWorkers
from mail.adapters.postgres.ahead import FRESH_SECONDS
from mail.adapters.postgres.notifier import Notifier
from mail.adapters.postgres.pool import Postgres
from mail.adapters.postgres.queue import PostgresQueue
from mail.adapters.postgres.schema import task_number
from mail.adapters.postgres.store import PostgresStore
from mail.core.decisions.cancel import StillRunning
from mail.core.decisions.submit import Submission
from mail.core.engine.leased_turn import TurnReport
from mail.core.engine.runtime import Runtime
from mail.core.engine.watch import Submitted
from mail.core.protocol.address import Principal
from mail.core.protocol.clock import SYSTEM_CLOCK
from mail.core.protocol.message import Tier
from mail.core.task.change import Turn
from mail.core.task.leases import Lease
from mail.core.task.ports import Busy, Idle
from mail.core.task.swarm import SwarmCore
from mail.core.task.task import TaskKey, Transition
from mail.errors import LeaseLost, VersionConflict
from mail.testing.agents import NAME, View, build_swarm, complete, request, respond, turns
from mail.testing.changes import ANN, NOW, Mail, Maker
from mail.testing.contracts import committed, open_turn

KEY = TaskKey(ANN, "task-1")


class AlwaysFree:
    """Workers that begin nothing by themselves, and have room for everything."""

    free = 100

    def __init__(self, new_lease: Callable[[], Lease]) -> None:
        self._new_lease = new_lease

    def lets_begin(self, caller: str, reserved: int = 0) -> bool:
        return True

    def new_lease(self) -> Lease:
        return self._new_lease()


@dataclass
class Server:
    """A server's part of the database, with workers that begin nothing unless `run` has been called."""

    url: str
    swarm: SwarmCore
    concurrency: int
    postgres: Postgres = field(init=False)
    store: PostgresStore = field(init=False)
    queue: PostgresQueue = field(init=False)
    runtime: Runtime = field(init=False)
    workers: LocalWorkers | None = None

    async def open(self) -> None:
        self.postgres = Postgres(self.url)
        self.notifier = Notifier(self.postgres)
        self.store = PostgresStore(self.postgres, self.notifier)
        self.queue = PostgresQueue(self.postgres, self.notifier, NAME, store=self.store)
        self.runtime = Runtime(self.swarm, self.store, self.queue, SYSTEM_CLOCK)
        await self.notifier.start()
        self.queue.serve(AlwaysFree(self.runtime.new_lease))

    async def run(self) -> None:
        self.workers = LocalWorkers(self.runtime, self.queue, concurrency=self.concurrency)
        await self.workers.start()

    async def close(self) -> None:
        if self.workers is not None:
            await self.workers.stop(grace=0)
        await self.queue.close()
        await self.notifier.stop()
        await self.postgres.close()

    async def submit(self, name: str, body: str = "hello") -> Submitted:
        caller = Principal(role="user", id=name, swarm=NAME)
        return await self.runtime.submit(caller, Submission(body=body))


@asynccontextmanager
async def servers(url: str, swarm: SwarmCore, *concurrency: int) -> AsyncIterator[list[Server]]:
    """Open servers of one swarm; those with a concurrency above 0 run."""
    async with AsyncExitStack() as stack:
        opened = []
        for number in concurrency:
            server = Server(url, swarm, number)
            await server.open()
            stack.push_async_callback(server.close)
            if number:
                await server.run()
            opened.append(server)
        yield opened


async def leases(url: str) -> list[str]:
    """The mailboxes with a lease."""
    async with await psycopg.AsyncConnection.connect(url, row_factory=scalar_row) as connection:
        return await (await connection.execute("SELECT mailbox FROM mail.leases ORDER BY mailbox")).fetchall()


async def count_wake_ups(url: str) -> int:
    async with await psycopg.AsyncConnection.connect(url, row_factory=scalar_row) as connection:
        return int(await (await connection.execute("SELECT count(*) FROM mail.wake_ups")).fetchone() or 0)


class TestStore:
    """What a commit opens, and what becomes of it."""

    @pytest.fixture
    async def store(self, adapter: PostgresAdapter, make: Maker) -> PostgresStore:
        return await self.another(adapter, make)

    async def another(self, adapter: PostgresAdapter, make: Maker) -> PostgresStore:
        store = await adapter.another()
        store.ahead.workers = AlwaysFree(make.lease)
        return store

    async def begin(
        self, store: PostgresStore, make: Maker, mailbox: str, *, now: float = NOW
    ) -> Turn | Busy | Idle:
        return await store.open_turn(KEY, mailbox, make.lease(now + 60), now=now, history_after=0)

    async def test_the_first_messages_of_empty_mailboxes(
        self, adapter: PostgresAdapter, store: PostgresStore, make: Maker
    ) -> None:
        mail = Mail("beta", Tier.AGENT, "later"), Mail("alpha"), Mail("beta", Tier.INTERRUPT, "first")
        await store.commit(make.begin(KEY, *mail))
        assert await leases(adapter.url) == ["alpha", "beta"]
        opened = {name: await self.begin(store, make, name) for name in ("alpha", "beta")}
        for name, turn in opened.items():
            other = await adapter.store.open_turn(KEY, name, make.lease(), now=NOW, history_after=0)
            assert other == Busy()
            assert isinstance(turn, Turn)
            assert turn.task == await adapter.store.load(KEY)
            assert turn.entry in await adapter.store.read_inbox(KEY)
        beta = opened["beta"]
        assert isinstance(beta, Turn)
        assert beta.entry.message.message.body == "first"
        # as if one had been opened after the other
        assert sorted(turn.running_turns for turn in opened.values() if isinstance(turn, Turn)) == [0, 1]

    async def test_the_next_turn_of_the_same_mailbox(
        self, adapter: PostgresAdapter, store: PostgresStore, make: Maker
    ) -> None:
        await store.commit(make.begin(KEY))
        turn = await open_turn(store, KEY, "alpha", make)
        await store.commit(make.change(turn.task, Mail("alpha", body="and now?"), turn=turn))
        following = await open_turn(store, KEY, "alpha", make)
        assert following.entry.message.message.body == "and now?"
        with pytest.raises(LeaseLost):
            await store.commit(make.change(following.task, turn=turn))
        await store.commit(make.change(following.task, turn=following))
        assert await leases(adapter.url) == []
        assert store.turns.held == set()

    async def test_but_none_of_a_mailbox_that_has_mail_or_a_lease(
        self, adapter: PostgresAdapter, store: PostgresStore, make: Maker
    ) -> None:
        begun = await committed(adapter.store, make.begin(KEY, Mail("alpha")))
        await store.commit(make.change(begun.task, Mail("alpha")))
        assert await leases(adapter.url) == []
        leased = await open_turn(adapter.store, KEY, "alpha", make)
        await store.commit(make.change(leased.task, Mail("alpha"), Mail("gamma")))
        assert not store.ahead.covers(KEY, "alpha")
        gamma = await open_turn(store, KEY, "gamma", make)
        assert gamma.running_turns == 1

    async def test_none_without_workers_or_when_they_are_busy(
        self, adapter: PostgresAdapter, store: PostgresStore, make: Maker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(AlwaysFree, "lets_begin", lambda *_: False)
        begun = await committed(store, make.begin(KEY))
        store.ahead.workers = None
        await store.commit(make.change(begun.task, Mail("beta")))
        assert await leases(adapter.url) == []
        assert store.turns.held == set()

    async def test_a_commit_that_is_refused_opens_none(
        self, adapter: PostgresAdapter, store: PostgresStore, make: Maker
    ) -> None:
        begun = await committed(adapter.store, make.begin(KEY))
        await adapter.store.commit(make.change(begun.task))
        for change in (make.change(begun.task, Mail("beta")), make.begin(KEY, Mail("beta"))):
            with pytest.raises(VersionConflict):
                await store.commit(change)
        assert await leases(adapter.url) == []
        assert store.turns.held == set()
        assert store.ahead.reserved == 0

    @pytest.mark.parametrize("is_new", [True, False])
    async def test_a_commit_whose_answer_was_lost_opens_them_nevertheless(
        self, adapter: PostgresAdapter, store: PostgresStore, make: Maker, is_new: bool
    ) -> None:
        change = make.begin(KEY, Mail("beta"))
        if not is_new:
            begun = await committed(adapter.store, make.begin(KEY))
            change = make.change(begun.task, Mail("beta"))
        lose_answer(store)
        await store.commit(change)
        assert store.ahead.covers(KEY, "beta")
        assert isinstance(await self.begin(store, make, "beta"), Turn)

    async def test_one_whose_commit_nobody_awaits_is_not_held(
        self, adapter: PostgresAdapter, store: PostgresStore, make: Maker
    ) -> None:
        commit = asyncio.create_task(store.commit(make.begin(KEY)))
        await asyncio.sleep(0)
        commit.cancel()
        await asyncio.gather(commit, return_exceptions=True)
        assert store.turns.held == set(), "so the check for servers that are gone frees it"
        assert store.ahead.reserved == 0

    async def test_one_that_waited_long_is_read_again_and_its_lease_renewed(
        self, adapter: PostgresAdapter, store: PostgresStore, make: Maker
    ) -> None:
        begun = await committed(store, make.begin(KEY))
        await adapter.store.commit(make.change(begun.task, Mail("alpha", Tier.SYSTEM, body="urgent")))
        late = await open_turn(store, KEY, "alpha", make, now=NOW + FRESH_SECONDS + 1)
        assert late.entry.message.message.body == "urgent"
        held = await adapter.store.read_leases(KEY, now=NOW + 60)
        assert {name: lease.token for name, lease in held.items()} == {"alpha": late.lease.token}

    async def test_one_that_was_taken_over_does_not_begin(
        self, adapter: PostgresAdapter, store: PostgresStore, make: Maker
    ) -> None:
        await store.commit(make.begin(KEY))
        heir = await adapter.store.open_turn(
            KEY, "alpha", make.lease(NOW + 200), now=NOW + 61, history_after=0
        )
        assert isinstance(heir, Turn)
        assert heir.replaced is not None
        assert await self.begin(store, make, "alpha", now=NOW + 62) == Busy()
        await adapter.store.commit(make.change(heir.task, turn=heir))

    @pytest.mark.parametrize("transition", [Transition.CANCEL, Transition.PAUSE, Transition.COMPLETE])
    async def test_none_begins_after_its_task_was_stopped_here(
        self, adapter: PostgresAdapter, store: PostgresStore, make: Maker, transition: Transition
    ) -> None:
        begun = await committed(store, make.begin(KEY, Mail("alpha"), Mail("beta")))
        await store.commit(make.change(begun.task, transition=transition))
        assert await leases(adapter.url) == []
        assert isinstance(await self.begin(store, make, "alpha"), Idle)
        assert store.turns.held == set()

    async def test_nor_after_it_was_stopped_elsewhere(
        self, adapter: PostgresAdapter, store: PostgresStore, make: Maker
    ) -> None:
        begun = await committed(store, make.begin(KEY))
        async with asyncio.timeout(60):
            await adapter.store.commit(make.change(begun.task, transition=Transition.CANCEL))
            while not store.ahead._opened[KEY, "alpha"].is_stale:  # noqa: ASYNC110 - a notification comes
                await asyncio.sleep(0.001)
        assert list(await adapter.store.read_leases(KEY, now=NOW)) == ["alpha"], "it counts as running"
        assert isinstance(await self.begin(store, make, "alpha"), Idle)
        assert await leases(adapter.url) == []


class TestFence:
    @pytest.mark.parametrize("opens", [False, True])
    async def test_a_commit_under_way_while_its_turn_is_released_and_opened_elsewhere(
        self, adapter: PostgresAdapter, make: Maker, opens: bool
    ) -> None:
        """It waits for the row of its task, so that it is in flight when its lease goes; it has the row before the
        heir.
        """
        here, there = await adapter.another(), await adapter.another()
        if opens:
            here.ahead.workers = AlwaysFree(make.lease)
        await there.commit(make.begin(KEY, Mail("alpha")))
        turn = await open_turn(here, KEY, "alpha", make)
        async with await psycopg.AsyncConnection.connect(adapter.url) as holder:
            await holder.execute("SELECT FROM mail.tasks WHERE id = %s FOR UPDATE", (task_number(KEY),))
            late = asyncio.create_task(here.commit(make.change(turn.task, Mail("beta"), turn=turn)))
            await waits(adapter.url, 1)
            late.cancel()  # as the turn is cancelled: the statement runs on
            await asyncio.gather(late, return_exceptions=True)
            await here.release(turn)
            heir = asyncio.create_task(there.open_turn(KEY, "alpha", make.lease(), now=NOW, history_after=0))
            await waits(adapter.url, 2)
        opened = await heir
        assert isinstance(opened, Turn)
        assert opened.task == turn.task
        assert await leases(adapter.url) == ["alpha"]
        await there.commit(make.change(opened.task, turn=opened))
        assert await there.read_inbox(KEY) == []
        task = await loaded(there, KEY)
        assert task.version == 2

    async def test_a_cancelled_turn_whose_commit_is_under_way(self, url: str) -> None:
        """The commit counts, or the turn that runs again does; never both. Here the server has given its turn up."""
        go = asyncio.Event()

        async def alpha(view: View) -> Any:
            await go.wait()
            return [complete("done")]

        async with servers(url, build_swarm({"alpha": alpha}), 0, 0) as (here, there):
            submitted = await here.submit("ann")
            running = asyncio.create_task(here.runtime.run_turn(submitted.key, "alpha"))
            async with await psycopg.AsyncConnection.connect(url) as holder:
                number = task_number(submitted.key)
                await holder.execute("SELECT FROM mail.tasks WHERE id = %s FOR UPDATE", (number,))
                go.set()
                await waits(url, 1)
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
                heir = asyncio.create_task(there.runtime.run_turn(submitted.key, "alpha"))
                await waits(url, 2)
            await heir
            answer = await there.runtime.wait(submitted, 10)
            events = await there.store.read_events(submitted.key)
            assert answer is not None
            assert [event.kind for event in events].count("task_complete") == 1
            assert [event.seq for event in events] == list(range(1, len(events) + 1))


class TestCancel:
    async def test_a_turn_that_was_opened_does_not_begin_after_it(self, url: str) -> None:
        called = []
        swarm = build_swarm({"alpha": lambda view: called.append(view) or [complete()]})
        ann = Principal(role="user", id="ann", swarm=NAME)
        async with servers(url, swarm, 0, 0) as (here, there):
            submitted = await here.submit("ann")
            assert here.store.ahead.covers(submitted.key, "alpha")
            task = await here.runtime.cancel(ann, submitted.key.task_id)
            assert await there.runtime.still_running(task) == StillRunning()
            report = await here.runtime.run_turn(submitted.key, "alpha")
            assert report.outcome is TurnReport.Outcome.IDLE

            submitted = await here.submit("ann")
            task = await there.runtime.cancel(ann, submitted.key.task_id)
            assert await there.runtime.still_running(task) == StillRunning(agents=("alpha",))
            async with asyncio.timeout(60):
                while not here.store.ahead._opened[submitted.key, "alpha"].is_stale:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
            report = await here.runtime.run_turn(submitted.key, "alpha")
            assert report.outcome is TurnReport.Outcome.IDLE
            assert await there.runtime.still_running(task) == StillRunning()
        assert not called


class TestHandingOver:
    async def test_a_server_that_stops_leaves_what_has_not_begun_to_others(self, url: str) -> None:
        swarm = build_swarm({"alpha": turns([complete("done")])})
        async with servers(url, swarm, 0, 0) as (here, there):
            submitted = await here.submit("ann")
            assert await leases(url) == ["alpha"]
            here.queue.serve(None)
            await here.queue.close()
            await there.run()
            answer = await there.runtime.wait(submitted, 10)
        assert answer is not None
        assert answer.message.body == "done"

    async def test_slow_agents_run_wherever_a_worker_is_free(self, url: str) -> None:
        """One server gets all requests and has two workers; the other has the rest.

        No turn waits, and no worker rests.
        """
        held = asyncio.Event()
        running: list[str] = []

        async def alpha(view: View) -> Any:
            if view.mail.sender_type == "user":
                return [request("beta", view.mail.body)]
            return [complete(view.mail.body)]

        async def beta(view: View) -> Any:
            running.append(view.mail.body)
            await held.wait()
            return [respond("alpha", view.mail.body)]

        async with servers(url, build_swarm({"alpha": alpha, "beta": beta}), 2, 32) as (small, large):
            tasks = [await small.submit(f"caller-{n % 4}", f"task {n}") for n in range(12)]
            async with asyncio.timeout(20):
                while len(running) < 12:  # noqa: ASYNC110 - agents append
                    await asyncio.sleep(0.005)
            assert large.workers is not None
            assert 32 - large.workers.free >= 10
            held.set()
            answers = [await small.runtime.wait(task, 20) for task in tasks]
        assert [answer and answer.message.body for answer in answers] == [f"task {n}" for n in range(12)]

    async def test_nobody_else_is_notified_of_what_runs_here(
        self, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("mail.adapters.postgres.notifier.PAUSE_SECONDS", 3600.0)
        swarm = build_swarm({"alpha": turns([complete("done")])})
        async with servers(url, swarm, 8, 0) as (here, there):
            topics: list[str] = []
            there.notifier._wake = lambda each, news=None: topics.extend(each)  # type: ignore[method-assign]
            for _ in range(3):
                assert await here.runtime.wait(await here.submit("ann"), 10) is not None
            assert await count_wake_ups(url) == 0
            here.notifier._urgent.set()
            async with asyncio.timeout(60):
                while not any(topic.startswith("e") for topic in topics):  # noqa: ASYNC110 - comes over PostgreSQL
                    await asyncio.sleep(0.005)
        assert not [topic for topic in topics if topic.startswith("w")]


class TestFairness:
    async def test_each_callers_next_turn_comes_before_anybodys_second_one(self, url: str) -> None:
        """All workers are busy with a greedy caller's tasks, which have more turns to come; others wait, at both
        servers.
        """
        gates: dict[str, asyncio.Event] = {}
        began: list[str] = []

        async def play(view: View, more: list[Any]) -> Any:
            name = view.mail.body
            began.append(name)
            await gates.setdefault(f"{name} {began.count(name)}", asyncio.Event()).wait()
            return more

        async def alpha(view: View) -> Any:
            if view.mail.sender_type == "user":
                return await play(view, [request("beta", view.mail.body)])
            return await play(view, [complete("done")])

        async def beta(view: View) -> Any:
            return await play(view, [respond("alpha", view.mail.body)])

        async def begins(*names: str) -> None:
            async with asyncio.timeout(60):
                while len(began) < len(names):  # noqa: ASYNC110 - agents append
                    await asyncio.sleep(0.002)
            await asyncio.sleep(0.05)  # nobody else may begin
            assert began == [*names]

        def end(name: str) -> None:
            gates[f"{name} {began.count(name)}"].set()

        async with servers(url, build_swarm({"alpha": alpha, "beta": beta}), 3, 0) as (here, there):
            for number in range(4):
                await here.submit("greedy", f"g{number}")
            await begins("g0", "g1")
            await there.submit("bob", "b0")
            there.queue.serve(None)
            await begins("g0", "g1", "b0")
            await here.submit("carol", "c0")
            await here.submit("dave", "d0")
            await begins("g0", "g1", "b0")
            end("g0")
            await begins("g0", "g1", "b0", "c0")
            end("g1")
            await begins("g0", "g1", "b0", "c0", "g2")
            end("b0")
            await begins("g0", "g1", "b0", "c0", "g2", "d0")
            for gate in gates.values():
                gate.set()
