"""Live events through the table: what a watched turn writes, and that an unwatched one does what it always did."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
from support.engines.dynamodb import Calls, DynamoDBAdapter
from support.faults.gates import Gate, gated_swarm
from support.processes.http_server import eventually

from mail.adapters.aws import live as table_live
from mail.adapters.aws.client import AwsClient
from mail.adapters.local.queue import LocalQueue
from mail.core.decisions.submit import Submission
from mail.core.engine.runtime import Runtime
from mail.core.protocol.address import Principal
from mail.core.protocol.clock import SYSTEM_CLOCK
from mail.core.task.live import LiveEvent, LiveKind
from mail.core.task.task import TaskKey
from mail.testing.agents import NAME

ANN = Principal(role="user", id="ann", swarm=NAME)
KEY = TaskKey(str(ANN), "t")


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def functions(table: DynamoDBAdapter, client: AwsClient, gate: Gate) -> tuple[Runtime, Runtime]:
    """The turn function, whose requests are counted, and the streaming function."""
    stores = (table.another(client), table.another())
    turn, stream = (
        Runtime(gated_swarm(gate), store, LocalQueue(), SYSTEM_CLOCK, live_link=store.live)
        for store in stores
    )
    return turn, stream


async def submit(runtime: Runtime, **options: Any) -> None:
    await runtime.submit(ANN, Submission(body="hello", task_id="t", **options))


async def until(batches: AsyncIterator[Any], *kinds: LiveKind) -> dict[LiveKind, LiveEvent]:
    """Read until live events of these kinds have come; return the last of each kind."""
    found: dict[LiveKind, LiveEvent] = {}
    async with asyncio.timeout(20):
        async for batch in batches:
            found |= {event.kind: event for event in batch if isinstance(event, LiveEvent)}
            if found.keys() >= set(kinds):
                return found
    raise AssertionError(f"there came only {found.keys()}")


async def test_without_a_watcher_a_turn_makes_the_requests_that_it_always_made(
    functions: tuple[Runtime, Runtime], gate: Gate, calls: Calls
) -> None:
    turn, stream = functions
    await submit(stream)
    gate.opened.set()
    calls.clear()
    await turn.run_turn(KEY, "supervisor")
    # opening; the checkpoint before and after the action, and the commit
    assert calls.count == {"UpdateItem": 3, "TransactWriteItems": 1}


async def test_a_watcher_sees_an_action_begin_and_end_for_a_write_a_second(
    functions: tuple[Runtime, Runtime], gate: Gate, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mail.adapters.aws.live.GATHER_SECONDS", 0.5)  # the machine may be slow
    turn, stream = functions
    await submit(stream, live=True)
    calls.clear()
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with aclosing(stream.with_live(KEY, stream.watch(KEY, heartbeat=0.05))) as batches:
        running = asyncio.create_task(turn.run_turn(KEY, "supervisor"))
        begun = await until(batches, LiveKind.TURN_STARTED, LiveKind.ACTION_STARTED)
        assert not running.done()
        assert begun[LiveKind.TURN_STARTED].extra["agent"] == "supervisor"
        assert LiveKind.TEXT_DELTA not in begun
        gate.opened.set()
        ended = await until(batches, LiveKind.TURN_ENDED)
        await running
        assert calls.count == {
            "UpdateItem": 3,
            "TransactWriteItems": 1,
            "BatchWriteItem": calls.count["BatchWriteItem"],
        }
        assert calls.count["BatchWriteItem"] <= 2 + int(loop.time() - began), "one a second"
        assert ended[LiveKind.TURN_ENDED].turn == begun[LiveKind.TURN_STARTED].turn


async def test_who_joins_a_running_turn_sees_its_action_at_once(
    functions: tuple[Runtime, Runtime], gate: Gate, calls: Calls
) -> None:
    """The watcher reads it from the checkpoint; when the turn learns that it is watched, it is not shown again."""

    async def written() -> bool:
        return calls.count["BatchWriteItem"] > 0

    turn, stream = functions
    await submit(stream)
    running = asyncio.create_task(turn.run_turn(KEY, "supervisor"))
    await gate.begun.wait()
    async with aclosing(stream.with_live(KEY, stream.watch(KEY, heartbeat=0.05))) as batches:
        begun = await until(batches, LiveKind.TURN_STARTED, LiveKind.ACTION_STARTED)
        assert KEY not in turn.turns.live.watched, "the turn doesn't know yet"
        assert begun[LiveKind.ACTION_STARTED].extra["tool_name"] == "web_search"
        assert begun[LiveKind.ACTION_STARTED].turn == begun[LiveKind.TURN_STARTED].turn
        turn.turns.live.mark(KEY, seconds=60, deltas=False)  # as its heartbeat does
        await eventually(written)
        gate.opened.set()
        kinds = []
        async with asyncio.timeout(20):
            async for batch in batches:
                kinds += [event.kind for event in batch if isinstance(event, LiveEvent)]
                if LiveKind.TURN_ENDED in kinds:
                    break
    await running
    assert LiveKind.ACTION_STARTED not in kinds


async def test_the_turn_of_a_dead_function_is_seen_to_end_and_to_be_taken_over(
    functions: tuple[Runtime, Runtime], gate: Gate
) -> None:
    turn, stream = functions
    await submit(stream, live=True)
    async with aclosing(stream.with_live(KEY, stream.watch(KEY, heartbeat=0.05))) as batches:
        opened = await turn.turns.lease(KEY, "supervisor", 2.0)  # the function dies here
        assert isinstance(opened, tuple)
        first = await until(batches, LiveKind.TURN_STARTED)
        ended = await until(batches, LiveKind.TURN_ENDED)
        assert ended[LiveKind.TURN_ENDED].extra["outcome"] == "taken_over"
        running = asyncio.create_task(turn.run_turn(KEY, "supervisor"))
        again = await until(batches, LiveKind.TURN_STARTED)
        while "attempt" not in again[LiveKind.TURN_STARTED].extra:  # the lease that only finds the count
            again = await until(batches, LiveKind.TURN_STARTED)
        gate.opened.set()
        await running
        assert again[LiveKind.TURN_STARTED].extra["attempt"] == 2
        assert again[LiveKind.TURN_STARTED].turn != first[LiveKind.TURN_STARTED].turn


async def test_a_quick_turn_is_seen_although_it_ends_between_two_looks(
    functions: tuple[Runtime, Runtime], gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mail.adapters.aws.live.GATHER_SECONDS", 0.5)
    turn, stream = functions
    await submit(stream, live=True)
    gate.opened.set()
    await turn.run_turn(KEY, "supervisor")
    async with aclosing(stream.with_live(KEY, stream.watch(KEY, heartbeat=0.05))) as batches:
        found = await until(batches, LiveKind.MODEL_CALL_ENDED, LiveKind.ACTION_ENDED, LiveKind.TURN_ENDED)
    assert len({event.turn for event in found.values()}) == 1


async def test_a_text_is_written_within_a_few_kilobytes(
    functions: tuple[Runtime, Runtime], gate: Gate, calls: Calls
) -> None:
    turn, stream = functions
    await submit(stream, live=True, deltas=True)
    gate.opened.set()
    await turn.run_turn(KEY, "supervisor")
    assert calls.sent["BatchWriteItem"] / calls.count["BatchWriteItem"] < 8_000


async def test_ended_turns_are_forgotten(table: DynamoDBAdapter, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was written in the last second is kept for the next turn, which may be of any task."""
    live = table.another().live

    def publish(task: TaskKey, *kinds: LiveKind) -> None:
        for n, kind in enumerate(kinds, 1):
            extra = {"agent": "a", "tool_name": "x"}
            live.publish(task, LiveEvent(kind, task.task_id, n, "2026-01-01T00:00:00+00:00", "", extra))

    publish(KEY, LiveKind.TURN_STARTED, LiveKind.ACTION_STARTED, LiveKind.TURN_ENDED)
    await live.flush(KEY)
    monkeypatch.setattr(table_live, "PAUSE_SECONDS", 0.0)
    other = TaskKey(str(ANN), "other")
    publish(other, LiveKind.TURN_STARTED)
    assert [*live._turns] == [(other, "a")]
