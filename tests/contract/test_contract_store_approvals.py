"""Store: what approvals ask of it. A decision is stored, approved calls run once however often a worker dies, and
approvals expire."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from support.engines.adapters import StoreAdapter, loaded
from support.engines.mortal import ANN, KEY, MortalServer

from mail.core.decisions.submit import Submission
from mail.core.task.swarm import ActionCore, SwarmCore
from mail.core.task.task import TaskStatus
from mail.testing.agents import View, build_swarm, call, complete
from mail.testing.clock import FakeClock
from mail.testing.contracts import due_tasks
from mail.testing.faults import Dead

APPROVE = Submission(
    task_id="task-1", resume_from="breakpoint_tool_call", approvals=[{"decision": "approve", "all": True}]
)


@dataclass
class Server(MortalServer):
    """A process that runs a swarm whose agent pays (not idempotent) and looks (idempotent), both after an approval."""

    ran: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    timeout: float | None = None

    def swarm(self) -> SwarmCore:
        actions = {
            name: ActionCore(
                name,
                self._action(name),
                idempotent=name == "look",
                needs_approval=True,
                approval_timeout=self.timeout,
            )
            for name in ("pay", "look")
        }
        return build_swarm({"chief": self._chief}, actions=actions)

    def _chief(self, view: View) -> Any:
        self.asked.append(view.mail.body)
        return [complete(" | ".join(view.results))] if view.results else [call("pay"), call("look")]

    def _action(self, name: str) -> Callable[[dict[str, Any]], Awaitable[str]]:
        async def run(_arguments: dict[str, Any]) -> str:
            self.ran.append(name)
            return f"{name} done"

        return run


WRITES = [(number, when) for number in (1, 2, 3) for when in ("before", "after")]
"""Of the approved turn: a checkpoint before the actions, one after them, and the commit."""


@pytest.mark.soak(on=("moto", "postgres"))
@pytest.mark.parametrize("fate", WRITES, ids=lambda fate: f"{fate[1]} write {fate[0]}")
async def test_a_worker_that_dies_at_a_write_neither_loses_nor_repeats_a_call(
    adapter: StoreAdapter, fate: tuple[int, str]
) -> None:
    server = Server(adapter.store, FakeClock())
    await server.begin()
    await server.runtime.submit(ANN, APPROVE)
    server.restart(fate)
    await server.runtime.recover()
    with pytest.raises(Dead):
        await server.work()
    await server.take_over()
    assert server.ran.count("pay") <= 1
    assert server.ran.count("look") >= 1
    pay, _, look = (await server.answer(2)).partition(" | ")
    assert look == "SUCCESS: look done"
    is_unknown = pay.startswith("ERROR: the outcome is unknown")
    assert is_unknown or (pay, server.ran.count("pay")) == ("SUCCESS: pay done", 1)
    assert is_unknown is (fate in ((1, "after"), (2, "before")))
    assert len(server.asked) == 2  # the model is never asked again
    task = await loaded(server.store, KEY)
    assert (task.status, task.approved_calls) == (TaskStatus.COMPLETED, ())


async def test_a_decision_on_one_of_two_calls_is_stored(durable: StoreAdapter) -> None:
    server = Server(durable.store, FakeClock())
    await server.begin()
    paused = await loaded(server.store, KEY)
    assert paused.generation.breakpoint is not None
    first, second = (each.call_id for each in paused.generation.breakpoint.calls)
    decision = {"decision": "edit", "arguments": {"to": "eve"}, "call_id": second}
    await server.runtime.submit(
        ANN, Submission(task_id="task-1", resume_from="breakpoint_tool_call", approvals=[decision])
    )
    store = await durable.reopen()
    task = await loaded(store, KEY)
    assert task.status is TaskStatus.PAUSED
    assert task.generation.breakpoint is not None
    approvals = {each.call_id: each.approval for each in task.generation.breakpoint.calls}
    assert approvals[first] is None
    assert approvals[second] is not None
    assert approvals[second].arguments == {"to": "eve"}
    response = await store.read_response(KEY, 2)
    assert response is not None
    assert [call["name"] for call in json.loads(response.message.body)] == ["pay"]


async def test_the_approvals_of_a_paused_task_expire(adapter: StoreAdapter) -> None:
    server = Server(adapter.store, FakeClock(), timeout=60.0)
    await server.begin()
    server.clock.advance(59)
    assert await due_tasks(server.store, server.clock.now().timestamp()) == []
    server.clock.advance(2)
    assert await due_tasks(server.store, server.clock.now().timestamp()) == [KEY]
    await server.runtime.sweep()
    await server.work()
    assert server.ran == []
    expired = "ERROR: it was not run: nobody approved it within 60 seconds"
    assert await server.answer(2) == f"{expired} | {expired}"
    assert await due_tasks(server.store, 1e11) == []


async def test_a_paused_task_that_a_person_ends_no_longer_expires(adapter: StoreAdapter) -> None:
    server = Server(adapter.store, FakeClock(), timeout=60.0)
    await server.begin()
    await server.runtime.cancel(ANN, "task-1")
    assert await due_tasks(server.store, 1e11) == []
