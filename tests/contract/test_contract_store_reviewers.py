"""Store: what reviewers ask of it. What waits for whom is known as long as it waits, wherever a process dies; a request
is sent by one event, and a decision is made once.
"""

from dataclasses import dataclass, field
from typing import Any

import pytest
from support.engines.adapters import StoreAdapter
from support.engines.mortal import ANN, KEY, MortalServer

from mail.core.decisions.approvals import GivenApproval
from mail.core.protocol.address import Principal
from mail.core.task.approvals import Approval
from mail.core.task.events import EventKind
from mail.core.task.swarm import ActionCore, SwarmCore
from mail.core.task.task import TaskStatus
from mail.errors import ApprovalNotFound, BadApproval, Forbidden
from mail.testing.agents import View, build_swarm, call, complete
from mail.testing.clock import FakeClock
from mail.testing.faults import Dead

ROOT = Principal(role="admin", id="root", swarm="example")
BOB = Principal(role="user", id="bob", swarm="example")
RULE = Approval(by=("user:bob",), escalate_to=("admin",), otherwise="approve")
APPROVE, REJECT = GivenApproval(decision="approve"), GivenApproval(decision="reject", reason="no")
ANSWER = GivenApproval(decision="answer", answer="on Friday")


@dataclass
class Server(MortalServer):
    """A process that runs a swarm whose agent pays twice, after an approval of others than the task's owner."""

    ran: list[str] = field(default_factory=list)
    rule: Approval = RULE
    timeout: float | None = 60.0
    asks: bool = False

    def swarm(self) -> SwarmCore:
        async def pay(arguments: dict[str, Any]) -> str:
            self.ran.append(arguments["to"])
            return f"paid {arguments['to']}"

        def chief(view: View) -> Any:
            if view.results:
                return [complete(" | ".join(view.results))]
            asked = [call("ask", question="When?")] if self.asks else []
            return [*asked, *(call("pay", to=name) for name in ("eve", "carl"))]

        action = ActionCore(
            "pay",
            pay,
            needs_approval=True,
            reviewers=self.rule,
            approval_timeout=self.timeout,
            idempotent=True,
        )
        ask = ActionCore("ask", pay, reviewers=self.rule.but(otherwise="reject"), approval_timeout=60.0)
        return build_swarm(
            {"chief": chief}, actions={"pay": action, "ask": ask}, breakpoint_tools=frozenset({"ask"})
        )

    async def waiting(self, who: Principal = BOB) -> list[str]:
        """The ids of what waits for somebody's decision."""
        found = [each async for _, calls in self.runtime.reviews.waiting(who, limit=10) for each in calls]
        return [each.paused_at.approval_id(each.call) for each in found]

    async def events(self, kind: EventKind) -> list[Any]:
        return [each.extra for each in await self.store.read_events(KEY) if each.kind is kind]


async def test_what_waits_is_known_until_it_is_decided(durable: StoreAdapter) -> None:
    server = Server(durable.store, FakeClock())
    await server.begin()
    assert await server.waiting() == await server.waiting(ANN)
    assert await server.waiting(ROOT) == []
    first, second = await server.waiting()
    with pytest.raises(Forbidden):
        await server.runtime.reviews.decide(ANN, first, APPROVE)
    with pytest.raises(ApprovalNotFound):
        await server.runtime.reviews.decide(ROOT, first, APPROVE)
    await server.runtime.reviews.decide(BOB, second, REJECT)
    server.store = await durable.reopen()
    server.restart()
    assert await server.waiting() == [first]
    await server.runtime.reviews.decide(BOB, first, APPROVE)
    await server.work()
    assert await server.waiting() == await server.waiting(ANN) == []
    assert server.ran == ["eve"]
    decisions = await server.events(EventKind.BREAKPOINT_ACTION_COMPLETE)
    assert [(each.decision, each.by) for each in decisions] == [("reject", str(BOB)), ("approve", str(BOB))]


async def test_a_question_waits_for_its_reviewers_beside_calls(durable: StoreAdapter) -> None:
    server = Server(durable.store, FakeClock(), asks=True)
    await server.begin()
    question, first, second = await server.waiting()
    assert await server.waiting(ROOT) == []
    with pytest.raises(Forbidden):
        await server.runtime.reviews.decide(ANN, question, ANSWER)
    with pytest.raises(BadApproval):
        await server.runtime.reviews.decide(BOB, question, APPROVE)
    assert await server.runtime.reviews.decide(BOB, question, ANSWER) == "answer"
    server.store = await durable.reopen()
    server.restart()
    assert await server.waiting() == [first, second]
    await server.runtime.reviews.decide(BOB, first, APPROVE)
    await server.runtime.reviews.decide(BOB, second, REJECT)
    await server.work()
    assert await server.waiting() == []
    assert server.ran == ["eve"]
    task = await server.task()
    response = await server.store.read_response(KEY, task.generation.number)
    assert response is not None
    assert response.message.body.startswith("on Friday | SUCCESS: paid eve | ERROR")
    said = {
        (each.decision, each.answer) for each in await server.events(EventKind.BREAKPOINT_ACTION_COMPLETE)
    }
    assert said == {("answer", "on Friday"), ("approve", None), ("reject", None)}


@pytest.mark.soak(on=("moto", "postgres"))
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_worker_that_dies_while_it_asks_asks_once(adapter: StoreAdapter, when: str) -> None:
    server = Server(adapter.store, FakeClock(), timeout=9_000.0)
    server.restart((2, when))  # the first write is that of the message
    with pytest.raises(Dead):
        await server.begin()
    server.restart()
    asked = await server.waiting()
    assert len(asked) == (2 if when == "after" else 0)
    await server.take_over()
    assert len(await server.waiting()) == len(await server.events(EventKind.APPROVAL_REQUESTED)) == 2
    if asked:
        assert await server.waiting() == asked


@pytest.mark.soak(on=("moto", "postgres"))
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_process_that_dies_while_it_decides_decides_once(adapter: StoreAdapter, when: str) -> None:
    server = Server(adapter.store, FakeClock(), timeout=9_000.0)
    await server.begin()
    first, second = await server.waiting()
    await server.runtime.reviews.decide(BOB, second, REJECT)
    server.restart((1, when))
    with pytest.raises(Dead):
        await server.runtime.reviews.decide(BOB, first, APPROVE)
    server.restart()
    if when == "before":
        assert await server.waiting() == [first]
        await server.runtime.reviews.decide(BOB, first, APPROVE)
    assert await server.waiting() == []
    with pytest.raises(ApprovalNotFound):
        await server.runtime.reviews.decide(BOB, first, REJECT)
    await server.take_over()
    assert server.ran == ["eve"]
    assert len(await server.events(EventKind.BREAKPOINT_ACTION_COMPLETE)) == 2


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_deadline_asks_others_and_then_decides(adapter: StoreAdapter, when: str) -> None:
    server = Server(adapter.store, FakeClock())
    await server.begin()
    for expected in (2, 0):
        server.clock.advance(61)
        server.restart((1, when))
        with pytest.raises(Dead):
            await server.runtime.sweep()
        server.restart()
        await server.runtime.sweep()
        assert len(await server.waiting(ROOT)) == len(await server.waiting()) == expected
        assert len(await server.events(EventKind.APPROVAL_REQUESTED)) == 4
    await server.runtime.recover()
    await server.work()
    assert sorted(server.ran) == ["carl", "eve"]
    by = {each.by for each in await server.events(EventKind.BREAKPOINT_ACTION_COMPLETE)}
    assert by == {None}


async def test_what_ends_a_pause_ends_what_waits(adapter: StoreAdapter) -> None:
    server = Server(adapter.store, FakeClock())
    await server.begin()
    fork = await server.runtime.fork(ANN, KEY.task_id)
    forked = await server.waiting()
    assert (
        len(forked) == len(set(forked)) == 4
    )  # those of the fork have ids of their own, and the same reviewers
    await server.runtime.cancel(ANN, KEY.task_id)
    left = await server.waiting()
    assert left == [each for each in forked if each in left]
    assert len(left) == 2
    await server.runtime.delete(str(ANN), fork.task.task_id)
    assert await server.waiting() == []
    assert await server.store.find_asks(str(BOB), limit=5) == []
    assert (await server.task()).status is TaskStatus.CANCELLED
