"""Permits for model calls, which processes share through a document in every database."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from mail.core.decisions.fallback import closed, opened, tried
from mail.core.decisions.permits import LEAST_HOLD
from mail.core.engine.documents import ServerDocuments
from mail.core.engine.permits import Gate, ModelPermits
from mail.core.task.documents import Document, Kind
from mail.core.task.fallback import Breaker, SwitchCause
from mail.core.task.permits import NO_LIMITS, ModelLimits, PermitGate
from mail.core.task.ports import Documents
from mail.errors import StoreUnavailable
from mail.testing.clock import FakeClock

CLAUDE = "anthropic/claude-sonnet-4-5"
SIXTY = {"anthropic/*": ModelLimits(requests_per_minute=60)}


@pytest.fixture
def documents(records: ServerDocuments) -> Documents:
    return records._documents


class Processes:
    """Processes that share documents and a clock."""

    def __init__(
        self, documents: Documents, limits: Mapping[str, ModelLimits], *, pause: float = 0.0
    ) -> None:
        self.clock = FakeClock()
        self.each = [ModelPermits(documents, self.clock, limits, pause=pause) for _ in range(3)]

    def gate(self, number: int, model: str = CLAUDE) -> PermitGate:
        gate = self.each[number].gate(model)
        assert gate is not None
        return gate


class Counting:
    """Documents that count requests, and may be away."""

    def __init__(self, documents: Documents) -> None:
        self.gets = self.puts = 0
        self.is_away = False
        self._documents = documents
        self._changed = asyncio.Condition()

    async def get(self, kind: Kind, *key: str) -> Document | None:
        self.gets += 1
        await asyncio.sleep(0)  # others run meanwhile, whatever the store
        if self.is_away:
            raise StoreUnavailable
        return await self._documents.get(kind, *key)

    async def put(self, kind: Kind, document: Document, **options: Any) -> bool:
        done = await self._documents.put(kind, document, **options)
        async with self._changed:
            self.puts += 1
            self._changed.notify_all()
        return done

    async def until(self, puts: int) -> None:
        """Wait for so many writes."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.puts >= puts)


@pytest.fixture
def counting(documents: Documents) -> Any:
    """The same documents; a `Counting`."""
    return Counting(documents)


async def of_which_one_was_refused(counting: Any) -> Processes:
    """Processes of which the first was refused."""
    processes = Processes(counting, {})
    await processes.each[0].refuse(CLAUDE, ModelLimits(requests_per_minute=6), 20.0)
    return processes


async def test_they_share_a_limit(documents: Documents) -> None:
    processes = Processes(documents, SIXTY)
    replies = [await processes.gate(n % 3).take("ann") for n in range(9)]
    assert [reply.may_begin for reply in replies] == [True, True] + [False] * 7
    waits = [reply.wait for reply in replies]
    assert waits == sorted(waits)
    processes.clock.advance(waits[5])
    assert (await processes.gate(0).take("ann", replies[5].ticket)).may_begin
    assert not (await processes.gate(1).take("ann", replies[8].ticket)).may_begin


async def test_many_at_once_get_tickets_of_their_own(documents: Documents) -> None:
    processes = Processes(documents, SIXTY, pause=0.01)
    replies = await asyncio.gather(*(processes.gate(n % 3).take("ann") for n in range(30)))
    tickets = [reply.ticket for reply in replies]
    assert sorted(tickets) == list(range(1, 31))


async def test_what_one_is_refused_holds_for_all(documents: Documents) -> None:
    processes = Processes(documents, SIXTY)
    await processes.each[0].refuse(CLAUDE, NO_LIMITS, 20.0)
    reply = await processes.gate(1).take("ann")
    assert (reply.may_begin, reply.wait > 20) == (False, True)


async def test_a_model_without_limits_has_none_until_it_is_refused(documents: Documents) -> None:
    processes = Processes(documents, {})
    first, second, _ = processes.each
    assert first.gate(CLAUDE) is None
    await first.refuse(CLAUDE, ModelLimits(requests_per_minute=6), 1.0)
    assert second.gate(CLAUDE) is None
    processes.clock.advance(1.0)
    replies = [await processes.gate(0).take("ann") for _ in range(3)]
    assert replies[2].wait > 10
    processes.clock.advance(3_600)
    assert first.gate(CLAUDE) is None


async def test_what_one_has_learnt_is_known_to_those_who_read_the_breakers(counting: Any) -> None:
    """It is in the same document, and costs no request of its own."""
    processes = await of_which_one_was_refused(counting)
    gets = counting.gets
    _, second, third = processes.each
    await second.learn_breakers(CLAUDE)
    for _ in range(2):  # as an agent with one model does
        await third.learn_breakers(CLAUDE, once=True)
        processes.clock.advance(10.0)
    gate = second.gate(CLAUDE)
    assert counting.gets == gets + 2
    assert gate is not None
    assert third.gate(CLAUDE) is not None
    assert (await gate.take("ann")).wait > 0


async def test_calls_at_once_share_the_first_request(counting: Any) -> None:
    _, second, _ = (await of_which_one_was_refused(counting)).each
    gets = counting.gets

    async def gate() -> PermitGate | None:
        await second.learn_breakers(CLAUDE, once=True)
        return second.gate(CLAUDE)

    assert None not in await asyncio.gather(*(gate() for _ in range(16)))
    assert counting.gets == gets + 1


async def test_a_request_that_fails_is_made_again(counting: Any) -> None:
    _, second, _ = (await of_which_one_was_refused(counting)).each
    for is_away in (True, False):
        counting.is_away = is_away
        await second.learn_breakers(CLAUDE, once=True)
        assert (second.gate(CLAUDE) is None) == is_away


async def test_a_call_that_is_cancelled_takes_the_request_from_no_other(counting: Any) -> None:
    _, second, _ = (await of_which_one_was_refused(counting)).each
    calls = [asyncio.ensure_future(second.learn_breakers(CLAUDE, once=True)) for _ in range(2)]
    await asyncio.sleep(0)
    calls[0].cancel()
    await calls[1]
    assert second.gate(CLAUDE) is not None


async def test_a_place_becomes_free_when_a_call_of_a_server_ends(counting: Any) -> None:
    limits = {CLAUDE: ModelLimits(concurrent=1)}
    processes = Processes(counting, limits, pause=0.01)
    assert (await processes.gate(0).take("ann")).may_begin
    refused = await processes.gate(1).take("bob")
    assert not refused.may_begin
    await processes.gate(0).end(100, 2.0)
    await counting.until(puts=2)
    assert (await processes.gate(1).take("bob", refused.ticket)).may_begin


@pytest.mark.parametrize(("pause", "writes"), [(0.05, 1), (0.0, 5)])
async def test_a_server_asks_once_for_many_calls_and_a_function_once_for_each(
    counting: Any, pause: float, writes: int
) -> None:
    limits = {CLAUDE: ModelLimits(requests_per_minute=60_000)}
    gate = Processes(counting, limits, pause=pause).gate(0)
    if pause:
        await asyncio.gather(*(gate.take("ann") for _ in range(5)))
    else:
        for _ in range(5):
            await gate.take("ann")
    assert (counting.puts, counting.gets) == (writes, writes)


async def test_who_comes_back_writes_nothing(counting: Any) -> None:
    processes = Processes(counting, SIXTY)
    gate = processes.gate(0)
    replies = [await gate.take("ann") for _ in range(5)]
    assert counting.puts == 5
    processes.clock.advance(replies[4].wait)
    assert (await gate.take("ann", replies[4].ticket)).may_begin
    assert counting.puts == 5


async def test_functions_write_once_for_each_call_with_a_limit_of_tokens(counting: Any) -> None:
    """Each reports its last call with the next one, and not when a call that has waited comes back."""
    processes = Processes(counting, {CLAUDE: ModelLimits(tokens_per_minute=60_000)})
    gates = [processes.gate(n) for n in range(3)]
    begun, waiting = 0, list[tuple[float, int]]()
    for n in range(12):
        reply = await gates[n % 3].take("ann")
        if not reply.may_begin:
            waiting.append((processes.clock.now().timestamp() + reply.wait, reply.ticket))
            continue
        begun += 1
        await gates[n % 3].end(2_000, 1.0)
    assert 0 < begun < 12
    while waiting:
        at, ticket = waiting.pop(0)
        processes.clock.advance(max(0.0, at - processes.clock.now().timestamp()))
        reply = await gates[ticket % 3].take("ann", ticket)
        if reply.may_begin:
            begun += 1
            await gates[ticket % 3].end(2_000, 1.0)
        else:
            waiting.append((processes.clock.now().timestamp() + reply.wait, ticket))
    assert (begun, counting.puts) == (12, 12)
    first = gates[0]
    assert isinstance(first, Gate)
    permits, _ = await first.read()
    assert permits.tokens > 1_000  # what they take is known all the same


async def test_functions_write_once_for_each_call_when_calls_run_at_the_same_time(counting: Any) -> None:
    """Three functions have room for two calls; each runs one call after the other."""
    limits = {CLAUDE: ModelLimits(concurrent=2)}
    processes = Processes(counting, limits)
    gates = [processes.gate(n) for n in range(3)]
    left, most, running = [4] * 3, 0, set[int]()
    while any(left) or running:
        for n, gate in enumerate(gates):
            if n in running:
                running.remove(n)
                await gate.end(100, 1.0)
            elif left[n] and (await gate.take("ann")).may_begin:
                left[n] -= 1
                running.add(n)
                most = max(most, len(running))
        processes.clock.advance(1.0)
    assert (counting.puts, most) == (12, 2)


async def test_a_function_that_is_frozen_after_its_call_keeps_the_place_for_a_while(
    documents: Documents,
) -> None:
    processes = Processes(documents, {CLAUDE: ModelLimits(concurrent=1)})
    assert (await processes.gate(0).take("ann")).may_begin
    await processes.gate(0).end(100, 1.0)
    assert not (await processes.gate(1).take("bob")).may_begin
    processes.clock.advance(LEAST_HOLD + 1)
    assert (await processes.gate(1).take("bob")).may_begin


async def test_a_call_that_lasts_longer_than_usual_keeps_its_place(
    counting: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mail.core.engine.permits.HELD", 0.0)
    processes = Processes(counting, {CLAUDE: ModelLimits(concurrent=1)})
    assert (await processes.gate(0).take("ann")).may_begin
    await counting.until(puts=3)
    await processes.gate(0).end(100, 1.0)
    processes.clock.advance(LEAST_HOLD + 1)
    assert not (await processes.gate(1).take("bob")).may_begin


async def test_if_the_store_is_away_calls_begin(counting: Any) -> None:
    counting.is_away = True
    permits = ModelPermits(counting, FakeClock(), SIXTY)
    gate = permits.gate(CLAUDE)
    assert gate is not None
    assert all([(await gate.take("ann")).may_begin for _ in range(2)])
    await permits.refuse(CLAUDE, NO_LIMITS, 20.0)


# ------------------------------------------------------------------------------------------------ breakers


def down(breaker: Breaker | None, now: float) -> Breaker:
    return opened(breaker, now, SwitchCause.OUTAGE)


async def known_to(permits: ModelPermits, model: str = CLAUDE) -> Breaker | None:
    await permits.learn_breakers(model)
    return permits.breaker(model)


@pytest.mark.parametrize("limits", [{}, SIXTY], ids=["no limits", "limits"])
async def test_an_open_breaker_is_known_to_all(
    documents: Documents, limits: Mapping[str, ModelLimits]
) -> None:
    processes = Processes(documents, limits)
    first, second, third = processes.each
    assert await known_to(second) is None
    assert await first.change_breaker(CLAUDE, down)
    breaker = await known_to(third)
    assert breaker is not None
    assert (breaker.until, breaker.cause) == (first.now() + 30, SwitchCause.OUTAGE)
    assert await known_to(second) is None, "it has just asked"
    processes.clock.advance(6.0)
    assert await known_to(second) == breaker
    assert await known_to(second, "anthropic/claude-haiku-4-5") is None, "though it shares the limit"
    assert await second.change_breaker(CLAUDE, closed)
    processes.clock.advance(6.0)
    assert [await known_to(each) for each in processes.each] == [None] * 3


async def test_one_process_tries_a_model_again(documents: Documents) -> None:
    processes = Processes(documents, {})
    await processes.each[0].change_breaker(CLAUDE, down)
    assert [await each.change_breaker(CLAUDE, tried) for each in processes.each] == [False] * 3
    processes.clock.advance(31.0)
    assert all([await known_to(each) for each in processes.each])
    assert sum([await each.change_breaker(CLAUDE, tried) for each in processes.each]) == 1


async def test_a_breaker_costs_a_write_when_it_opens_and_one_when_it_closes(counting: Any) -> None:
    permits = ModelPermits(counting, FakeClock(), {})
    for _ in range(9):
        assert await known_to(permits) is None
        await permits.change_breaker(CLAUDE, closed)
    assert (counting.gets, counting.puts) == (1, 0)
    await asyncio.gather(*(permits.change_breaker(CLAUDE, down) for _ in range(9)))
    assert counting.puts == 1
    for _ in range(9):
        await permits.change_breaker(CLAUDE, tried)
        await known_to(permits)
    assert (counting.gets, counting.puts) == (2, 1)
    await asyncio.gather(*(permits.change_breaker(CLAUDE, closed) for _ in range(9)))
    assert (counting.gets, counting.puts) == (3, 2)


async def test_a_breaker_opens_in_its_process_while_the_store_is_away(counting: Any) -> None:
    permits = ModelPermits(counting, FakeClock(), {})
    counting.is_away = True
    await permits.change_breaker(CLAUDE, down)
    assert await known_to(permits) == Breaker(permits.now() + 30, 1, SwitchCause.OUTAGE)
