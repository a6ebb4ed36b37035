"""Servers that come and go: whose leases are freed, and who takes which token."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass

import psycopg
import pytest
from psycopg.sql import SQL
from support.engines.postgres import break_connections, execute, postgres_server

from mail.adapters.postgres.liveness import LOCKS, Liveness
from mail.adapters.postgres.notifier import Notifier
from mail.adapters.postgres.pool import Postgres
from mail.adapters.postgres.queue import PostgresQueue
from mail.adapters.postgres.store import PostgresStore
from mail.core.protocol.address import Principal
from mail.core.protocol.message import Tier
from mail.core.task.change import Turn
from mail.core.task.mailboxes import peer_mailbox
from mail.core.task.ports import Busy, WakeUp
from mail.core.task.task import TaskKey
from mail.errors import StoreUnavailable
from mail.testing.agents import NAME
from mail.testing.changes import ANN, NOW, Mail, Maker
from mail.testing.contracts import first_turn, open_turn

KEY = TaskKey(ANN, "task-1")
HOOK = peer_mailbox("other")
USER = Principal(role="user", id="ann", swarm=NAME)


@dataclass
class Server:
    """What a server has of the database."""

    postgres: Postgres
    notifier: Notifier
    store: PostgresStore
    liveness: Liveness
    queue: PostgresQueue


@asynccontextmanager
async def server(
    url: str, swarm: str = NAME, clock: Callable[[], float] = time.time
) -> AsyncIterator[Server]:
    postgres = Postgres(url)
    notifier = Notifier(postgres)
    store = PostgresStore(postgres, notifier, clock=clock)
    made = Server(
        postgres,
        notifier,
        store,
        Liveness(postgres, notifier, store.turns),
        PostgresQueue(postgres, notifier, swarm),
    )
    await notifier.start()
    try:
        yield made
    finally:
        await made.queue.close()
        await notifier.stop()
        await postgres.close()


async def are_left(url: str, count: int) -> None:
    """Return once PostgreSQL has ended the sessions of all other servers."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection, asyncio.timeout(60):
        while True:
            locks = await connection.execute(
                "SELECT FROM pg_locks WHERE locktype = 'advisory' AND classid::bigint = %s", (LOCKS,)
            )
            if locks.rowcount == count:
                return
            await asyncio.sleep(0.005)


async def sessions(url: str) -> set[int]:
    """Return the sessions by which servers are known to be alive."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        locks = await connection.execute(
            "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND classid::bigint = %s", (LOCKS,)
        )
        return {pid for (pid,) in await locks.fetchall()}


async def are_back(url: str, before: set[int]) -> None:
    """Return once as many servers as before have sessions, all of them new."""
    async with asyncio.timeout(60):
        while len(now := await sessions(url)) != len(before) or not now.isdisjoint(before):  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def test_a_server_whose_clock_is_ahead_takes_nothing_over(url: str, make: Maker) -> None:
    """Leases are taken, renewed and expired by the clock of the database, whatever the servers' clocks say."""

    def ahead() -> float:
        return time.time() + 120

    async with server(url) as healthy, server(url, clock=ahead) as early:
        await healthy.store.commit(make.begin(KEY, Mail("alpha"), Mail("beta"), Mail(HOOK)))
        now = time.time()
        lease = make.lease(now + 40)
        turn = await healthy.store.open_turn(KEY, "alpha", lease, now=now, history_after=0)
        assert isinstance(turn, Turn)
        assert await healthy.store.renew([turn], expires=time.time() + 40) == set()
        for store, there in ((healthy.store, time.time()), (early.store, ahead())):
            assert await store.list_due(there) == []
            again = make.lease(there + 40)
            assert await store.open_turn(KEY, "alpha", again, now=there, history_after=0) == Busy()
            assert set(await store.read_leases(KEY, now=there)) == {"alpha"}
            assert {each.mailbox for each in await store.list_ready(now=there)} == {"beta", HOOK}
        there = ahead()
        other = await early.store.open_turn(KEY, "beta", make.lease(there + 40), now=there, history_after=0)
        assert isinstance(other, Turn)
        assert other.running_turns == 1
        assert await healthy.store.list_due(time.time() + 30) == []
        (late,) = await healthy.store.list_due(time.time() + 60)
        ended = await healthy.store.end_expired(late, now=time.time() + 60)
        assert {each.mailbox for each in ended} == {"alpha", "beta"}


class TestRollCall:
    async def test_the_leases_of_one_that_is_gone_are_freed(self, url: str, make: Maker) -> None:
        async with server(url) as survivor:
            async with server(url) as gone:
                assert gone.store.turns.owner != survivor.store.turns.owner
                await gone.store.commit(make.begin(KEY, Mail("alpha")))
                await open_turn(gone.store, KEY, "alpha", make)
                for _ in range(3):
                    assert await survivor.liveness.check() is False
            await are_left(url, 1)
            assert await survivor.liveness.check() is False, "its connection may only have broken"
            opened = await survivor.store.open_turn(KEY, "alpha", make.lease(), now=NOW, history_after=0)
            assert opened == Busy()
            assert await survivor.liveness.check() is True
            assert await survivor.liveness.check() is False
            await open_turn(survivor.store, KEY, "alpha", make)

    async def test_a_turn_that_one_has_handed_back_and_waits_to_run_is_found(
        self, url: str, make: Maker
    ) -> None:
        """Its wake-up is gone and its lease has ended; its count stays."""
        async with server(url) as survivor:
            async with server(url) as gone:
                turn = await first_turn(gone.store, KEY, "alpha", make)
                await gone.store.release(turn, left=turn.lease.ended(3, turn.entry.seq))
            await are_left(url, 1)
            assert [await survivor.liveness.check() for _ in range(2)] == [False, True]
            [ready] = await survivor.store.list_ready()
            assert ready.mailbox == "alpha"
            again = await open_turn(survivor.store, KEY, "alpha", make)
            assert again.replaced is not None
            assert again.replaced.attempt == 3

    async def test_of_several_survivors_one_takes_care_of_it(self, url: str) -> None:
        async with server(url) as one, server(url) as two:
            async with server(url):
                pass
            await are_left(url, 2)
            assert await one.liveness.check() is False
            assert await two.liveness.check() is False
            assert sorted([await one.liveness.check(), await two.liveness.check()]) == [False, True]

    async def test_one_that_starts_waits_for_nobody(self, url: str) -> None:
        async with server(url):
            pass
        async with server(url) as heir:
            await are_left(url, 1)
            assert await heir.liveness.check(twice=False) is True

    async def test_one_whose_connection_broke_is_not_gone(self, url: str) -> None:
        async with server(url) as one, server(url) as two:
            before = await sessions(url)
            break_connections(url)
            await are_back(url, before)
            for _ in range(3):
                assert await one.liveness.check() is False
                assert await two.liveness.check() is False

    async def test_one_that_was_taken_for_dead_is_on_the_list_again_when_it_is_back(self, url: str) -> None:
        async with server(url) as one, server(url) as two:
            before = await sessions(url)
            execute(url, SQL("DELETE FROM mail.servers"))
            break_connections(url)
            await are_back(url, before)
            expected = [(one.store.turns.owner,), (two.store.turns.owner,)]
            async with asyncio.timeout(60):
                while await one.postgres.fetch("SELECT id FROM mail.servers ORDER BY id") != expected:  # noqa: ASYNC110
                    await asyncio.sleep(0.005)

    async def test_a_lease_that_could_not_be_given_back_is_freed(self, url: str, make: Maker) -> None:
        async with server(url) as one:
            await one.store.commit(make.begin(KEY, Mail("alpha"), Mail("beta")))
            await open_turn(one.store, KEY, "beta", make)
            turn = await open_turn(one.store, KEY, "alpha", make)
            one.store.turns.held.discard(turn.lease.token)
            assert await one.liveness.check() is True
            assert await one.liveness.check() is False
            await open_turn(one.store, KEY, "alpha", make)
            opened = await one.store.open_turn(KEY, "beta", make.lease(), now=NOW, history_after=0)
            assert opened == Busy()


def token(
    mailbox: str,
    tier: Tier = Tier.AGENT,
    *,
    task: str = "task",
    not_before: float = 0.0,
    caller: str = ANN,
) -> WakeUp:
    return WakeUp(TaskKey(caller, task), mailbox, tier, not_before=not_before)


class TestQueue:
    async def test_each_token_is_taken_by_one_worker_of_one_server(self, url: str) -> None:
        tokens = [token(f"agent-{n % 7}", task=f"task-{n}") for n in range(150)]
        taken: Counter[tuple[TaskKey, str]] = Counter()

        async def work(queue: PostgresQueue) -> None:
            while True:
                taken[await queue.take()] += 1

        async with AsyncExitStack() as stack:
            servers = [await stack.enter_async_context(server(url)) for _ in range(3)]
            workers = [asyncio.create_task(work(each.queue)) for each in servers for _ in range(3)]
            await asyncio.gather(*(servers[n % 3].queue.publish([each]) for n, each in enumerate(tokens)))
            async with asyncio.timeout(60):
                while len(taken) < len(tokens):  # noqa: ASYNC110 - others count
                    await asyncio.sleep(0.01)
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
        assert taken == Counter({(each.key, each.mailbox): 1 for each in tokens})

    async def test_servers_that_publish_the_same_in_other_orders_do_not_wait_for_each_other(
        self, url: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        tokens = [token(f"agent-{n}") for n in range(40)]
        async with server(url) as one, server(url) as two:
            for _ in range(20):
                await asyncio.gather(one.queue.publish(tokens), two.queue.publish(tokens[::-1]))
        assert caplog.messages == [], "a deadlock ends with an error, after which one of them retries"

    async def test_each_callers_next_turn_comes_before_anybodys_second_one(self, url: str) -> None:
        """Of all servers together: what one has published, and another has taken, counts."""

        async def callers(queue: PostgresQueue, count: int, *excluded: str) -> str:
            return "".join([(await queue.take(excluded))[0].instance for _ in range(count)])

        def tokens(caller: str, count: int, task: str = "task") -> list[WakeUp]:
            return [token("agent", task=f"{task}-{n}", caller=caller) for n in range(count)]

        async with server(url) as one, server(url) as two:
            await one.queue.publish(tokens("a", 20))
            assert await callers(one.queue, 5) == "aaaaa"
            await two.queue.publish(tokens("b", 3))
            await one.queue.publish([*tokens("c", 2), token("agent", Tier.PERSON, caller="d")])
            assert await callers(two.queue, 7) == "dabcabc"
            await two.queue.publish(tokens("c", 2, "late"))
            assert await callers(one.queue, 4) == "abca"
            assert await callers(two.queue, 1, "a") == "c"
            assert await callers(one.queue, 11) == "a" * 11

    async def test_who_waits_at_another_server_is_woken_at_once(
        self, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """By a notification: it does not look by itself within the time of this test."""
        for module in ("queue", "notifier"):
            monkeypatch.setattr(f"mail.adapters.postgres.{module}.POLL_SECONDS", 3600.0)
        async with server(url) as one, server(url) as two:
            waiting = asyncio.create_task(two.queue.take())
            await asyncio.sleep(0.2)
            await one.queue.publish([token("alpha")])
            async with asyncio.timeout(60):
                assert await waiting == (TaskKey(ANN, "task"), "alpha")

    async def test_what_rests_is_not_taken_before_its_time(self, url: str) -> None:
        peer = peer_mailbox("other")
        async with server(url) as one, server(url) as two:
            due = time.time() + 0.7
            await one.queue.publish([token(peer, not_before=due), token("alpha")])
            assert (await two.queue.take())[1] == "alpha"
            assert (await two.queue.take_outbound())[1] == peer
            assert due <= time.time()

    async def test_a_later_token_may_wake_it_earlier_but_never_later(self, url: str) -> None:
        peer = peer_mailbox("other")
        async with server(url) as one:
            await one.queue.publish([token(peer, not_before=time.time() + 60)])
            await one.queue.publish([token(peer)])
            await one.queue.publish([token(peer, not_before=time.time() + 60)])
            async with asyncio.timeout(30):  # less than the minute of the others
                assert (await one.queue.take_outbound())[1] == peer

    async def test_agents_and_other_swarms_have_lanes_of_their_own(self, url: str) -> None:
        async with server(url) as one:
            await one.queue.publish([token(peer_mailbox("other"), Tier.SYSTEM), token("alpha")])
            assert (await one.queue.take())[1] == "alpha"
            assert (await one.queue.take_outbound())[1] == peer_mailbox("other")

    async def test_servers_of_another_swarm_leave_them_alone(self, url: str) -> None:
        async with server(url) as ours, server(url, "another") as theirs:
            await ours.queue.publish([token("alpha")])
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(theirs.queue.take(), 0.3)
            assert (await ours.queue.take())[1] == "alpha"

    @pytest.mark.soak
    async def test_workers_outlive_a_database_that_is_away(
        self, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("mail.adapters.postgres.pool.TIMEOUT", 0.3)
        async with server(url) as one:
            waiting = asyncio.create_task(one.queue.take())
            await asyncio.sleep(0.1)
            await asyncio.to_thread(postgres_server().stop)
            one.notifier._wake(one.queue._topics.values())
            await asyncio.sleep(1.0)
            await asyncio.to_thread(postgres_server().start)
            async with asyncio.timeout(60):
                while True:
                    with suppress(
                        StoreUnavailable
                    ):  # a busy machine may need longer than the limit above to connect
                        await one.queue.publish([token("alpha")])
                        break
                assert (await waiting)[1] == "alpha"
