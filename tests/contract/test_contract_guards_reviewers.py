"""Store: guards that ask a person, and actions that name who that is. A call runs once, if both let it, and else never,
wherever a process dies.
"""

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from support.engines.adapters import StoreAdapter
from support.engines.mortal import ANN, KEY, MortalServer
from test_contract_store_reviewers import APPROVE, BOB, REJECT, ROOT

from mail.core.decisions.approvals import GivenApproval
from mail.core.decisions.reviewers import show_call
from mail.core.protocol.address import Principal
from mail.core.task.approvals import Approval
from mail.core.task.events import EventKind
from mail.core.task.guards import ALLOW, Act, AskPerson, Guard, Refuse, Ruling
from mail.core.task.swarm import ActionCore, SwarmCore
from mail.core.task.task import TaskStatus
from mail.errors import ApprovalNotFound, Forbidden
from mail.testing.agents import View, build_swarm, call, complete
from mail.testing.clock import FakeClock
from mail.testing.faults import Dead

RULE = Approval(by=("user:bob",), escalate_to=("admin",))
MINUTE = 60.0


@dataclass
class Server(MortalServer):
    """A process whose agent pays eve, on which a guard asks a person, and mallory, which it refuses.

    The action names reviewers, and needs no approval otherwise.
    """

    ran: list[str] = field(default_factory=list)
    rule: Approval = RULE
    timeout: float | None = MINUTE
    checkpointed: bool = False

    def swarm(self) -> SwarmCore:
        async def pay(arguments: dict[str, Any]) -> str:
            self.ran.append(arguments["to"])
            return f"paid {arguments['to']}"

        def chief(view: View) -> Any:
            if view.results:
                return [complete(" | ".join(view.results))]
            return [call("pay", to=name) for name in ("eve", "mallory")]

        action = ActionCore("pay", pay, reviewers=self.rule, approval_timeout=self.timeout)
        guard = Guard(
            name="asks", function=self._judge, on=frozenset({"call"}), checkpointed=self.checkpointed
        )
        return build_swarm({"chief": chief}, actions={"pay": action}, guards=(guard,))

    async def _judge(self, act: Act) -> Ruling:
        match act.arguments.get("to"):
            case "eve":
                return AskPerson("Is it right?")
            case "mallory":
                return Refuse("nobody pays mallory")
        return ALLOW

    async def waiting(self, who: Principal = BOB) -> list[str]:
        found = [each async for _, calls in self.runtime.reviews.waiting(who, limit=10) for each in calls]
        return [each.paused_at.approval_id(each.call) for each in found]

    async def decide(self, given: GivenApproval, who: Principal = BOB) -> None:
        [approval_id] = await self.waiting(who)
        await self.runtime.reviews.decide(who, approval_id, given)
        await self.work()

    async def kinds(self) -> list[EventKind]:
        return [event.kind for event in await self.store.read_events(KEY)]


async def test_what_a_guard_asks_goes_to_the_reviewers(adapter: StoreAdapter) -> None:
    server = Server(adapter.store, FakeClock())
    await server.begin()
    [asked] = await server.waiting()
    with pytest.raises(Forbidden):
        await server.runtime.reviews.decide(ANN, asked, APPROVE)
    assert server.ran == []
    found = await server.runtime.reviews.find(BOB, asked)
    assert show_call(found.task, found.paused_at, found.call)["question"] == "Is it right?"
    await server.decide(APPROVE)
    assert server.ran == ["eve"]
    assert "nobody pays mallory" in await server.answer(2)
    kinds = await server.kinds()
    assert kinds.count(EventKind.GUARD_DECISION) == 2
    assert kinds.count(EventKind.APPROVAL_REQUESTED) == 1


@pytest.mark.parametrize(
    ("given", "ran", "read"),
    [
        (REJECT, [], "no"),
        (GivenApproval(decision="edit", arguments={"to": "mallory"}), [], "[refused: nobody pays mallory]"),
        (GivenApproval(decision="edit", arguments={"to": "carl"}), ["carl"], "paid carl"),
    ],
    ids=["rejected", "edited into what is refused", "edited"],
)
async def test_guards_judge_what_reviewers_make_of_a_call(
    adapter: StoreAdapter, given: GivenApproval, ran: list[str], read: str
) -> None:
    server = Server(adapter.store, FakeClock())
    await server.begin()
    await server.decide(given)
    assert server.ran == ran
    assert read in await server.answer(2)


async def test_it_is_escalated_and_then_rejected(adapter: StoreAdapter) -> None:
    server = Server(adapter.store, FakeClock())
    await server.begin()
    assert await server.waiting(ROOT) == []
    server.clock.advance(MINUTE + 1)
    await server.runtime.sweep()
    assert await server.waiting(ROOT) == await server.waiting()
    server.clock.advance(MINUTE + 1)
    await server.runtime.sweep()
    await server.work()
    assert server.ran == []
    assert await server.waiting() == []
    assert (await server.task()).status is TaskStatus.COMPLETED


async def test_after_its_escalation_another_may_approve(adapter: StoreAdapter) -> None:
    server = Server(adapter.store, FakeClock())
    await server.begin()
    server.clock.advance(MINUTE + 1)
    await server.runtime.sweep()
    await server.decide(APPROVE, ROOT)
    assert server.ran == ["eve"]


async def test_nobody_decides_after_a_cancel(adapter: StoreAdapter) -> None:
    server = Server(adapter.store, FakeClock())
    await server.begin()
    [asked] = await server.waiting()
    await server.runtime.cancel(ANN, KEY.task_id, "enough")
    assert await server.waiting() == []
    with pytest.raises(ApprovalNotFound):
        await server.runtime.reviews.decide(BOB, asked, APPROVE)
    await server.work()
    assert server.ran == []


@pytest.mark.soak(on=("moto", "postgres"))
@pytest.mark.parametrize("checkpointed", [False, True], ids=["", "checkpointed"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", range(2, 6))
async def test_it_is_asked_once_and_runs_once_wherever_a_process_dies(
    adapter: StoreAdapter, number: int, when: str, checkpointed: bool
) -> None:
    server = Server(adapter.store, FakeClock(), timeout=9_000.0, checkpointed=checkpointed)
    server.restart((number, when))
    with suppress(Dead):
        await server.begin()
    await server.take_over()
    assert server.ran == []
    [asked] = await server.waiting()
    server.restart((number - 1, when))
    with suppress(Dead):
        await server.runtime.reviews.decide(BOB, asked, APPROVE)
        await server.work()
    await server.take_over()
    if await server.waiting():
        await server.decide(APPROVE)
    assert len(server.ran) <= 1, "an action that is not idempotent runs at most once"
    assert await server.waiting() == []
    kinds = await server.kinds()
    assert kinds.count(EventKind.APPROVAL_REQUESTED) == 1
    assert (await server.task()).status is TaskStatus.COMPLETED
    assert set(server.ran) <= {"eve"}
