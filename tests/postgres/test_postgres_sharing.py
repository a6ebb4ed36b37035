"""Several servers on one database: what one does the other knows, and no lease has two holders."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import psycopg
import pytest
from psycopg.sql import SQL, Identifier
from support.engines.adapters import searched
from support.engines.postgres import (
    PostgresAdapter,
    break_connections,
    execute,
    lose_answer,
    postgres_server,
    waits,
)

from mail.adapters.postgres.backend import PostgresDocuments
from mail.adapters.postgres.pool import Postgres
from mail.adapters.postgres.schema import task_number
from mail.core.engine.documents import ServerDocuments
from mail.core.task.change import Inheritance, Turn
from mail.core.task.ports import Busy, read_history
from mail.core.task.search import Search
from mail.core.task.task import TaskKey, Transition
from mail.errors import BadRequest, LeaseLost, StoreUnavailable, VersionConflict
from mail.testing.changes import ANN, NOW, Mail, Maker
from mail.testing.contracts import committed, everything, first_turn, open_turn

KEY = TaskKey(ANN, "task-1")


async def test_a_search_that_takes_too_long_ends(
    adapter: PostgresAdapter, make: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here it waits for a lock."""
    await adapter.store.commit(make.begin(KEY, Mail("alpha", body="a needle")))
    search = Search(("needle",))
    assert len((await searched(adapter.store, ANN, search)).tasks) == 1
    with psycopg.connect(adapter.url) as other, monkeypatch.context() as patch:
        other.execute("LOCK TABLE mail.texts IN ACCESS EXCLUSIVE MODE")
        patch.setattr("mail.adapters.postgres.search.LONGEST_SEARCH", 0.05)
        with pytest.raises(BadRequest, match="search for a rarer text"):
            await adapter.store.search(ANN, search, limit=2)
    assert len((await searched(adapter.store, ANN, search)).tasks) == 1


class TestNews:
    async def test_a_commit_at_one_server_wakes_who_waits_at_the_other(
        self, adapter: PostgresAdapter, make: Maker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """By a notification: they don't look by themselves within the time of this test."""
        monkeypatch.setattr("mail.adapters.postgres.notifier.POLL_SECONDS", 3600.0)
        here, there = adapter.store, await adapter.another()
        begun = await committed(here, make.begin(KEY))
        change = asyncio.create_task(there.wait_for_change(KEY, after=1, seconds=60))
        response = asyncio.create_task(there.wait_for_response(KEY, 1, seconds=60))
        await asyncio.sleep(0.1)
        ended = await committed(here, make.change(begun.task, transition=Transition.COMPLETE))
        async with asyncio.timeout(30):  # half of what they would wait
            assert await change == ended.task.seq
            assert await response == ended.response

    async def test_who_waits_hears_of_what_was_missed_while_nobody_listened(
        self, adapter: PostgresAdapter, make: Maker
    ) -> None:
        here, there = adapter.store, await adapter.another()
        begun = await committed(here, make.begin(KEY))
        waiting = asyncio.create_task(there.wait_for_change(KEY, after=1, seconds=60))
        await asyncio.sleep(0.1)
        break_connections(adapter.url)
        await here.commit(make.change(begun.task))
        async with asyncio.timeout(30):  # half of what it would wait
            assert await waiting == 2

    @pytest.mark.soak
    async def test_many_topics_are_told_in_several_payloads(
        self, adapter: PostgresAdapter, make: Maker
    ) -> None:
        here, there = adapter.store, await adapter.another()

        async def insist[Answer](work: Callable[[], Awaitable[Answer]]) -> Answer:
            while True:
                with suppress(StoreUnavailable):  # a busy machine has too few connections for all at once
                    return await work()

        keys = [TaskKey(ANN, f"task-{number}") for number in range(400)]
        tasks = []
        for key in keys:
            begun = await committed(here, make.begin(key))
            tasks.append(begun.task)
        waiting = [
            asyncio.create_task(insist(partial(there.wait_for_change, key, after=1, seconds=60)))
            for key in keys
        ]
        await asyncio.sleep(0.5)
        await asyncio.gather(*(insist(partial(here.commit, make.change(task))) for task in tasks))
        async with asyncio.timeout(50):  # less than they would wait
            assert await asyncio.gather(*waiting) == [2] * 400


class TestLeases:
    async def test_of_many_at_several_servers_one_gets_the_lease(
        self, adapter: PostgresAdapter, make: Maker
    ) -> None:
        stores = [adapter.store, await adapter.another(), await adapter.another()]
        await adapter.store.commit(make.begin(KEY, Mail("alpha")))
        opened = await asyncio.gather(
            *(
                store.open_turn(KEY, "alpha", make.lease(), now=NOW, history_after=0)
                for store in stores
                for _ in range(4)
            )
        )
        assert sorted(type(each).__name__ for each in opened) == ["Busy"] * 11 + ["Turn"]

    @pytest.mark.parametrize("write", ["commit", "checkpoint"])
    async def test_a_lease_that_changes_hands_while_its_old_holder_waits_is_noticed(
        self, adapter: PostgresAdapter, make: Maker, write: str
    ) -> None:
        """Both wait for the row of the task, the heir first: what the old holder looks at must be what came of that."""
        from mail.testing.changes import checkpoint

        here, there = adapter.store, await adapter.another()
        slow = await first_turn(here, KEY, "alpha", make)
        async with await psycopg.AsyncConnection.connect(adapter.url) as holder:
            await holder.execute("SELECT FROM mail.tasks WHERE id = %s FOR UPDATE", (task_number(KEY),))
            heir = asyncio.create_task(
                there.open_turn(KEY, "alpha", make.lease(NOW + 120), now=NOW + 61, history_after=0)
            )
            await waits(adapter.url, 1)
            late: Any = asyncio.create_task(
                here.commit(make.change(slow.task, Mail("beta"), turn=slow))
                if write == "commit"
                else here.save_checkpoint(slow, checkpoint("late"))
            )
            await waits(adapter.url, 2)
        turn = await heir
        assert isinstance(turn, Turn)
        with pytest.raises(LeaseLost):
            await late
        await there.commit(make.change(turn.task, turn=turn))
        assert await here.read_inbox(KEY) == []

    async def test_a_commit_that_an_heir_waits_for_leaves_nothing_to_inherit(
        self, adapter: PostgresAdapter, make: Maker
    ) -> None:
        here, there = adapter.store, await adapter.another()
        slow = await first_turn(here, KEY, "alpha", make)
        async with await psycopg.AsyncConnection.connect(adapter.url) as holder:
            await holder.execute("SELECT FROM mail.tasks WHERE id = %s FOR UPDATE", (task_number(KEY),))
            commit = asyncio.create_task(here.commit(make.change(slow.task, turn=slow)))
            await waits(adapter.url, 1)
            heir = asyncio.create_task(
                there.open_turn(KEY, "alpha", make.lease(NOW + 120), now=NOW + 61, history_after=0)
            )
            await waits(adapter.url, 2)
        await commit
        assert not isinstance(await heir, Turn | Busy)

    async def test_who_gives_up_while_a_turn_is_opened_keeps_no_lease(
        self, adapter: PostgresAdapter, make: Maker
    ) -> None:
        store = await adapter.another()
        await store.commit(make.begin(KEY, Mail("alpha")))
        opening = asyncio.create_task(store.open_turn(KEY, "alpha", make.lease(), now=NOW, history_after=0))
        await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        assert store.turns.held == set()


class TestTrouble:
    @pytest.mark.parametrize("level", ["serializable", "repeatable read"])
    async def test_another_default_isolation_changes_nothing(
        self, adapter: PostgresAdapter, make: Maker, level: str
    ) -> None:
        name = Identifier(adapter.url.rpartition("/")[2])
        alter = SQL("ALTER DATABASE {} SET default_transaction_isolation = {}")
        execute(adapter.url, alter.format(name, SQL("'{}'").format(SQL(level))))
        try:
            stores = [await adapter.another(), await adapter.another()]
            begun = await committed(stores[0], make.begin(KEY))
            changes = [make.change(begun.task, Mail("beta", body=str(n))) for n in range(8)]
            results = await asyncio.gather(
                *(stores[n % 2].commit(change) for n, change in enumerate(changes)), return_exceptions=True
            )
            assert sum(result is None for result in results) == 1
            assert sum(isinstance(result, VersionConflict) for result in results) == 7
        finally:
            execute(adapter.url, SQL("ALTER DATABASE {} RESET ALL").format(name))

    @pytest.mark.parametrize("is_new", [True, False])
    async def test_a_commit_whose_answer_was_lost_counts_once(
        self, adapter: PostgresAdapter, make: Maker, is_new: bool
    ) -> None:
        store = await adapter.another()
        change = make.begin(KEY)
        if not is_new:
            await store.commit(change)
            turn = await open_turn(store, KEY, "alpha", make)
            change = make.change(turn.task, Mail("beta"), turn=turn, history=[{"n": 1}])
        before = await everything(store, KEY) if not is_new else None
        lose_answer(store)
        await store.commit(change)
        assert await store.load(KEY) == change.task
        seqs = [event.seq for event in await store.read_events(KEY)]
        assert seqs == list(range(1, change.task.seq + 1))
        assert before != await everything(store, KEY)
        assert store.turns.held == set()

    async def test_a_fork_whose_answer_was_lost_is_made_once(
        self, adapter: PostgresAdapter, make: Maker
    ) -> None:
        """The retry finds it, so that the decision doesn't make another one under a new id."""
        store = await adapter.another()
        await store.commit(make.begin(KEY))
        turn = await open_turn(store, KEY, "alpha", make)
        await store.commit(make.change(turn.task, turn=turn, history=[{"n": 1}]))
        fork = make.begin(TaskKey(ANN, "fork"))
        fork = replace(fork, inherits=Inheritance(KEY, {"alpha": 1}, 10))
        lose_answer(store)
        await store.commit(fork)
        assert await store.load(fork.key) == fork.task
        assert await read_history(store, fork.key, "alpha") == [{"n": 1}]

    async def test_a_conflict_stays_one_though_an_answer_was_lost(
        self, adapter: PostgresAdapter, make: Maker
    ) -> None:
        store = await adapter.another()
        begun = await committed(store, make.begin(KEY))
        await store.commit(make.change(begun.task))
        lose_answer(store)
        with pytest.raises(VersionConflict):
            await store.commit(make.change(begun.task, Mail("beta")))

    async def test_a_turn_whose_opening_was_repeated_is_open(
        self, adapter: PostgresAdapter, make: Maker
    ) -> None:
        store = await adapter.another()
        await store.commit(make.begin(KEY, Mail("alpha")))
        lose_answer(store)
        await open_turn(store, KEY, "alpha", make)

    async def test_connections_that_broke_are_replaced(self, adapter: PostgresAdapter, make: Maker) -> None:
        begun = await committed(adapter.store, make.begin(KEY))
        await asyncio.gather(*(adapter.store.load(KEY) for _ in range(20)))
        postgres_server().stop()
        postgres_server().start()
        assert await adapter.store.load(KEY) == begun.task

    async def test_what_is_out_of_reach_is_unavailable(
        self, adapter: PostgresAdapter, make: Maker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("mail.adapters.postgres.pool.TIMEOUT", 0.5)
        postgres = Postgres(adapter.url)
        records = ServerDocuments(PostgresDocuments(postgres))
        assert await records.tokens() == []
        postgres_server().stop()
        try:
            with pytest.raises(StoreUnavailable):
                await records.tokens()
        finally:
            postgres_server().start()
        assert await records.tokens() == []
        await postgres.close()

    async def test_a_caller_that_gives_up_leaves_the_connection_whole(self, adapter: PostgresAdapter) -> None:
        postgres = Postgres(adapter.url, connections=1)
        for _ in range(5):
            sleeping = asyncio.create_task(postgres.fetch("SELECT pg_sleep(0.05)"))
            await asyncio.sleep(0.01)
            sleeping.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sleeping
        numbers = {(await postgres.fetch("SELECT pg_backend_pid()"))[0] for _ in range(3)}
        assert len(numbers) == 1
        await postgres.close()

    async def test_nothing_in_the_background_opens_a_database_again_that_was_closed(
        self, adapter: PostgresAdapter, make: Maker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A pool whose workers connect while the event loop closes would keep that from ending."""
        monkeypatch.setattr("mail.adapters.shared.search.PAUSE_SECONDS", 0.0)
        store = await adapter.another()
        await store.commit(make.begin(KEY))
        await adapter.leave()
        asked, connect = list[str](), psycopg.AsyncConnection.connect

        async def asking(*args: Any, **options: Any) -> Any:
            asked.append(options["dbname"])
            return await connect(*args, **options)

        monkeypatch.setattr(psycopg.AsyncConnection, "connect", asking)
        store.searches.note(task_number(KEY))
        await asyncio.sleep(0.05)
        with pytest.raises(StoreUnavailable):
            await store.load(KEY)
        assert not asked

    async def test_text_that_postgresql_cannot_hold(self, adapter: PostgresAdapter) -> None:
        with pytest.raises(BadRequest):
            await adapter.records.peer("a\0b")
