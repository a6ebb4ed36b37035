"""A worker on the queues of a deployment: shares of the tiers, failures, refusals, and how it stops."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from support.engines.adapters import loaded
from support.engines.aws import make_client
from support.engines.dynamodb import DynamoDBAdapter
from support.engines.sqs import SQSQueueAdapter
from support.faults.dynamodb import Faults, refusal
from support.processes.local_aws import needs_ministack

from mail.adapters.aws import queue as sqs_queue
from mail.adapters.aws import worker
from mail.adapters.aws.queue import SQSQueue
from mail.adapters.aws.worker import Slots, SQSWorker
from mail.core.decisions.submit import Submission
from mail.core.engine.runtime import Runtime
from mail.core.protocol.address import Principal
from mail.core.protocol.clock import SYSTEM_CLOCK
from mail.core.protocol.message import Tier
from mail.core.task.swarm import SwarmCore
from mail.core.task.task import TaskKey, TaskStatus
from mail.core.turns.context import CURRENT_TASK
from mail.errors import ConfigurationError
from mail.testing.agents import View, build_swarm, complete, request, respond

ANN = Principal.parse("user:ann@example")
ENGINE = "ministack"
WEIGHTS = {Tier.PERSON: 3, Tier.AGENT: 1}


class TestSlots:
    """Slots that tiers share."""

    pytestmark = pytest.mark.fast

    async def test_a_tier_alone_takes_them_all(self) -> None:
        slots = Slots(7, WEIGHTS)
        assert [await slots.acquire(Tier.AGENT, 5), await slots.acquire(Tier.AGENT, 5)] == [5, 2]

    async def test_a_flood_leaves_the_others_their_shares_as_its_turns_end(self) -> None:
        slots = Slots(40, WEIGHTS)
        assert await slots.acquire(Tier.AGENT, 40) == 40
        taken = Counter({Tier.AGENT: 40})
        asking: dict[Tier, asyncio.Task[int]] = {}
        for _ in range(100):
            for tier in WEIGHTS:
                if tier not in asking:
                    asking[tier] = asyncio.create_task(slots.acquire(tier, 10))
            await asyncio.sleep(0)
            ended = max(taken, key=lambda tier: taken[tier] / WEIGHTS[tier])
            slots.release(ended)
            taken[ended] -= 1
            done, _ = await asyncio.wait(asking.values(), return_when=asyncio.FIRST_COMPLETED)
            for tier in [tier for tier, each in asking.items() if each in done]:
                taken[tier] += asking.pop(tier).result()
            assert taken.total() == 40
        assert abs(taken[Tier.PERSON] - 30) <= 1
        for each in asking.values():
            each.cancel()

    async def test_who_no_longer_waits_keeps_none(self) -> None:
        slots = Slots(1, WEIGHTS)
        await slots.acquire(Tier.AGENT, 1)
        waiting = asyncio.create_task(slots.acquire(Tier.PERSON, 1))
        await asyncio.sleep(0)
        slots.release(Tier.AGENT)  # grants the place, then its taker is cancelled
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting
        assert await slots.acquire(Tier.AGENT, 9) == 1


@pytest.fixture
async def table() -> AsyncIterator[DynamoDBAdapter]:
    adapter = DynamoDBAdapter(ENGINE)
    await adapter.open()
    yield adapter
    await adapter.close()


@pytest.fixture
def sqs() -> SQSQueueAdapter:
    return SQSQueueAdapter(ENGINE)


class Process:
    """What a process with a worker has: a runtime of its own on the shared table and queues."""

    def __init__(self, table: DynamoDBAdapter, sqs: SQSQueueAdapter, swarm: SwarmCore, **client: Any) -> None:
        self.queue = SQSQueue(sqs.client, sqs.urls, sqs.outbound_url)
        self.runtime = Runtime(swarm, table.another(**client), self.queue, SYSTEM_CLOCK)
        self.stopping = asyncio.Event()
        self.failures = 0
        self.polls = make_client(ENGINE, "sqs", connections=len(Tier))
        self.worker = SQSWorker(
            self.polls,
            self.queue,
            self._run_turn,
            concurrency=20,
            lease_seconds=self.runtime.lease_seconds,
            on_failure=self._note_failure,
        )

    async def _run_turn(
        self, key: TaskKey, mailbox: str, on_renewal: Callable[[float], Awaitable[None]]
    ) -> None:
        await self.runtime.run_turn(key, mailbox, on_renewal=on_renewal)

    def _note_failure(self) -> None:
        self.failures += 1

    @asynccontextmanager
    async def working(self, grace: float = 30.0) -> AsyncIterator[None]:
        """Let the worker run, and stop it at the end."""
        running = asyncio.create_task(self.worker.run(self.stopping, grace))
        try:
            async with asyncio.timeout(60):
                yield
        finally:
            self.stopping.set()
            await running

    async def ask(self, task_id: str) -> TaskKey:
        await self.runtime.submit(ANN, Submission(body="hello", task_id=task_id))
        return TaskKey(str(ANN), task_id)

    async def failed(self, count: int) -> None:
        while self.failures < count:  # noqa: ASYNC110  # of a turn, far below
            await asyncio.sleep(0.05)

    async def finished(self, key: TaskKey) -> TaskStatus:
        while True:
            task = await loaded(self.runtime.store, key)
            if not task.is_running:
                return task.status
            await asyncio.sleep(0.05)


@pytest.fixture(autouse=True)
def short_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "WAIT_SECONDS", 1)


def conversing(turns: Counter[str]) -> SwarmCore:
    """A supervisor that asks another agent, and counts turns by task."""

    def supervise(view: View) -> Any:
        turns[CURRENT_TASK.get()] += 1
        return [complete("done")] if view.mail.sender == "expert" else [request("expert", "what?")]

    def answer(_view: View) -> Any:
        turns[CURRENT_TASK.get()] += 1
        return [respond("supervisor", "that")]

    return build_swarm({"supervisor": supervise, "expert": answer})


@pytest.mark.soak
@needs_ministack
async def test_two_workers_share_the_turns_of_all_tiers(table: DynamoDBAdapter, sqs: SQSQueueAdapter) -> None:
    turns: Counter[str] = Counter()
    first, second = (Process(table, sqs, conversing(turns)) for _ in range(2))
    async with first.working(), second.working():
        keys = [await first.ask(f"task {n}") for n in range(12)]
        assert {await first.finished(key) for key in keys} == {TaskStatus.COMPLETED}
    assert turns == {key.task_id: 3 for key in keys}
    assert first.worker.running == second.worker.running == first.failures == second.failures == 0


@pytest.mark.soak
@needs_ministack
async def test_a_tier_without_mail_keeps_a_slot_during_a_flood(
    table: DynamoDBAdapter, sqs: SQSQueueAdapter
) -> None:
    gate, people = asyncio.Event(), Counter[str]()

    def supervise(view: View) -> Any:
        people[CURRENT_TASK.get()] += 1
        return [complete("done")] if view.mail.sender == "expert" else [request("expert", "what?")]

    async def answer(_view: View) -> Any:
        await gate.wait()
        return [respond("supervisor", "that")]

    process = Process(table, sqs, build_swarm({"supervisor": supervise, "expert": answer}))
    asked: Counter[str] = Counter()
    process.polls.botocore.meta.events.register(
        "provide-client-params.sqs.ReceiveMessage", lambda params, **_: asked.update([params["QueueUrl"]])
    )
    async with process.working():
        keys = [await process.ask(f"flood {n}") for n in range(20)]
        while people.total() < 20 or process.worker.running < 20 - (len(Tier) - 1):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        polls = asked[sqs.urls[Tier.PERSON - 1]]
        while asked[sqs.urls[Tier.PERSON - 1]] < polls + 3:  # noqa: ASYNC110  # that have found nothing
            await asyncio.sleep(0.05)
        assert process.worker.running == 20 - (len(Tier) - 1)
        keys.append(await process.ask("person"))
        while not people["person"]:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        gate.set()
        assert {await process.finished(key) for key in keys} == {TaskStatus.COMPLETED}


@needs_ministack
async def test_a_turn_that_ends_in_time_is_committed_when_the_worker_stops(
    table: DynamoDBAdapter, sqs: SQSQueueAdapter
) -> None:
    begun, gate, calls = asyncio.Event(), asyncio.Event(), Counter[str]()
    stopped = Process(table, sqs, waiting_swarm(begun, gate, calls))
    async with stopped.working():
        key = await stopped.ask("slow")
        await begun.wait()
        stopped.stopping.set()
        late = await stopped.ask("late")
        gate.set()
    assert await stopped.finished(key) is TaskStatus.COMPLETED
    assert calls == {"slow": 1}, "nothing new is taken"
    other = Process(table, sqs, waiting_swarm(begun, gate, calls))
    async with other.working():
        assert await other.finished(late) is TaskStatus.COMPLETED


@needs_ministack
async def test_what_does_not_end_in_time_is_resumed_elsewhere_at_once(
    table: DynamoDBAdapter, sqs: SQSQueueAdapter
) -> None:
    begun, gate, calls = asyncio.Event(), asyncio.Event(), Counter[str]()
    stopped = Process(table, sqs, waiting_swarm(begun, gate, calls))
    async with stopped.working(grace=2.0):
        key = await stopped.ask("endless")
        await begun.wait()
    leases = await stopped.runtime.store.read_leases(key, now=SYSTEM_CLOCK.now().timestamp())
    assert leases == {}
    gate.set()
    other = Process(table, sqs, waiting_swarm(begun, gate, calls))
    begin = asyncio.get_running_loop().time()
    async with other.working():
        assert await other.finished(key) is TaskStatus.COMPLETED
    assert calls == {"endless": 2}
    assert asyncio.get_running_loop().time() - begin < other.runtime.lease_seconds, "no lease had to expire"


@pytest.mark.soak
@needs_ministack
async def test_while_aws_refuses_turns_it_asks_less_often_and_then_runs_them_all(
    table: DynamoDBAdapter, sqs: SQSQueueAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqs_queue, "REFUSED_SECONDS", (1, 1))
    monkeypatch.setattr(worker, "REFUSED_SECONDS", 0.02)  # 1.28 s at most
    turns: Counter[str] = Counter()
    client = make_client(ENGINE, "dynamodb")
    process = Process(table, sqs, conversing(turns), client=client)
    keys = [await process.ask(f"task {n}") for n in range(5)]
    received: list[int] = []
    process.polls.botocore.meta.events.register(
        "provide-client-params.sqs.ReceiveMessage",
        lambda params, **_: received.append(params["MaxNumberOfMessages"]),
    )
    with Faults(client) as faults:
        faults.always["UpdateItem"] = refusal("ProvisionedThroughputExceededException")
        async with process.working():
            await process.failed(len(keys))
            received.clear()
            await process.failed(len(keys) + 3)
            assert set(received) == {1}
            assert turns == {}
            faults.always.clear()
            assert {await process.finished(key) for key in keys} == {TaskStatus.COMPLETED}
    assert turns == {key.task_id: 3 for key in keys}


@needs_ministack
async def test_a_worker_that_gets_no_answer_from_its_queues_waits_and_asks_again(
    table: DynamoDBAdapter, sqs: SQSQueueAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "MAX_REFUSED_SECONDS", 0.5)
    turns: Counter[str] = Counter()
    process = Process(table, sqs, conversing(turns))
    key = await process.ask("patient")
    with Faults(process.polls) as faults:
        faults.plan("ReceiveMessage", *[refusal("RequestThrottled")] * 20)
        async with process.working():
            assert await process.finished(key) is TaskStatus.COMPLETED
        assert faults.are_over
    assert turns == {"patient": 3}


def waiting_swarm(begun: asyncio.Event, gate: asyncio.Event, calls: Counter[str]) -> SwarmCore:
    """A supervisor that counts its calls by task, and waits for the gate."""

    async def supervise(_view: View) -> Any:
        calls[CURRENT_TASK.get()] += 1
        begun.set()
        await gate.wait()
        return [complete("at last")]

    return build_swarm({"supervisor": supervise})


def test_fewer_slots_than_tiers_are_refused(sqs: SQSQueueAdapter) -> None:
    async def run(*_: object) -> None:
        raise AssertionError

    with pytest.raises(ConfigurationError, match="at least 5, not 4"):
        SQSWorker(sqs.client, SQSQueue(sqs.client, sqs.urls), run, concurrency=4, lease_seconds=40.0)
