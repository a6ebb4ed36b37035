"""Calls of actions that fail again and again with the same error: counted, noted, and in the end the agent's
failure.
"""

from typing import Any

import pytest

from mail.core.decisions.failing_calls import count_call, note_failures
from mail.core.protocol.calls import AgentToolCall
from mail.core.task.failing_calls import FAILING_CALLS, FailingCall
from mail.core.task.swarm import SwarmCore
from mail.core.task.task import TaskStatus
from mail.testing.agents import View, build_swarm, call, complete, request, respond, wait
from mail.testing.rig import Outcome, Rig

FULL = "the disk is full"


def made(name: str = "search", **arguments: Any) -> AgentToolCall:
    return AgentToolCall(
        tool_name=name, tool_args=arguments, tool_call_id="c", completion={"role": "assistant"}
    )


def counted(*calls: tuple[str, AgentToolCall, str | None]) -> tuple[tuple[FailingCall, ...], int]:
    known: tuple[FailingCall, ...] = ()
    times = 0
    for agent, each, error in calls:
        known, times = count_call(known, agent, each, error)
    return known, times


class TestCounting:
    def test_the_order_of_keys_does_not_matter(self) -> None:
        one, other = made(a=1, b={"x": 1, "y": 2}), made(b={"y": 2, "x": 1}, a=1)
        assert counted(("ann", one, FULL), ("ann", other, FULL))[1] == 2

    @pytest.mark.parametrize(
        "other",
        [("ann", made(q=2), FULL), ("ann", made("find", q=1), FULL), ("bob", made(q=1), FULL)],
        ids=["arguments", "name", "agent"],
    )
    def test_another_call_is_counted_apart(self, other: tuple[str, AgentToolCall, str]) -> None:
        known, times = counted(("ann", made(q=1), FULL), other, ("ann", made(q=1), FULL))
        assert times == 2
        assert [each.times for each in known] == [1, 2]

    def test_another_error_begins_again(self) -> None:
        assert counted(("ann", made(), FULL), ("ann", made(), "no network"), ("ann", made(), FULL))[1] == 1

    def test_a_success_ends_the_count(self) -> None:
        assert counted(("ann", made(), FULL), ("ann", made(), None)) == ((), 0)
        assert counted(("ann", made(), FULL), ("ann", made(q=1), None))[0][0].times == 1

    def test_a_call_that_never_fails_leaves_nothing(self) -> None:
        assert counted(*[("ann", made(), None)] * 50) == ((), 0)

    def test_the_state_is_bounded(self) -> None:
        known, _ = counted(*[("ann", made(q=n), FULL) for n in range(FAILING_CALLS + 3)])
        assert len(known) == FAILING_CALLS
        assert counted(*[("ann", made(q=n), FULL) for n in range(3)])[0][0].call != known[0].call

    def test_text_that_utf_8_has_no_form_for(self) -> None:
        assert counted(*[("ann", made(q="\ud800"), "\udfff")] * 2)[1] == 2

    def test_the_note(self) -> None:
        assert note_failures(2, 8) == ""
        assert "failed 3 times with the same error" in note_failures(3, 8)
        assert "After 8 failures your turn fails." in note_failures(3, 8)
        assert "your turn fails" not in note_failures(3, 0)


async def fails(args: dict[str, Any]) -> str:
    raise OSError(FULL)


def stubborn(*calls: Any, until: int = 1_000) -> tuple[Any, list[View]]:
    """Return a policy that makes the same calls in each turn, and what it sees."""
    seen: list[View] = []

    def policy(view: View) -> Any:
        seen.append(view)
        return [complete("given up")] if len(seen) > until else list(calls)

    return policy, seen


async def ask(swarm: SwarmCore, **settings: Any) -> Outcome:
    async with Rig(swarm, **settings) as rig:
        return await rig.ask(steps=60)


class TestTurns:
    async def test_an_entrypoint_ends_the_task_with_the_cause(self) -> None:
        policy, seen = stubborn(call("search", q="mail", limit=3))
        outcome = await ask(build_swarm({"supervisor": policy}, actions={"search": fails}))
        assert len(seen) == 8
        assert outcome.task.status is TaskStatus.FAILED
        assert outcome.subject == "::task_error::"
        assert outcome.answer == f"agent 'supervisor' has failed: search failed 8 times: {FULL}"
        assert not outcome.task.dead_letters  # the calls have failed, and no message is lost

    async def test_the_agent_is_told_from_the_third_failure_on(self) -> None:
        policy, seen = stubborn(call("search"), until=3)
        outcome = await ask(build_swarm({"supervisor": policy}, actions={"search": fails}))
        assert outcome.answer == "given up"
        assert seen[-1].results[:2] == [f"ERROR: {FULL}"] * 2
        assert (
            seen[-1].results[2].startswith(f"ERROR: {FULL}\nThis call has failed 3 times with the same error")
        )

    async def test_the_agent_that_waits_reads_why(self) -> None:
        """It asked several turns ago: what the failing agent reads since then are messages of the system."""
        worker, _ = stubborn(call("search"))

        def middle(view: View) -> Any:
            if view.mail.subject == "::agent_error::":
                return [respond("supervisor", view.mail.body)]
            return [request("worker"), wait()]

        def supervisor(view: View) -> Any:
            return [complete(view.mail.body)] if view.mail.sender == "middle" else [request("middle"), wait()]

        agents = {"supervisor": supervisor, "middle": middle, "worker": worker}
        outcome = await ask(build_swarm(agents, actions={"search": fails}))
        assert outcome.answer == f"agent 'worker' has failed: search failed 8 times: {FULL}"
        assert outcome.task.status is TaskStatus.COMPLETED

    async def test_polling_that_succeeds_is_never_ended(self) -> None:
        async def poll(args: dict[str, Any]) -> str:
            return "not yet"

        policy, seen = stubborn(call("poll"), until=40)
        outcome = await ask(build_swarm({"supervisor": policy}, actions={"poll": poll}))
        assert (outcome.answer, len(seen)) == ("given up", 41)
        assert not outcome.task.generation.failing_calls

    async def test_a_success_between_begins_again(self) -> None:
        n = 0

        async def now_and_then(args: dict[str, Any]) -> str:
            nonlocal n
            n += 1
            if n % 5:
                raise OSError(FULL)
            return "done"

        policy, _ = stubborn(call("search"), until=40)
        outcome = await ask(build_swarm({"supervisor": policy}, actions={"search": now_and_then}))
        assert outcome.answer == "given up"

    async def test_parallel_calls_count(self) -> None:
        policy, seen = stubborn(*[call("search", q=1)] * 4)
        outcome = await ask(build_swarm({"supervisor": policy}, actions={"search": fails}))
        assert len(seen) == 2
        assert "search failed 8 times" in outcome.answer

    async def test_the_count_survives_a_restart(self, tmp_path: Any) -> None:
        policy, seen = stubborn(call("search"))
        swarm = build_swarm({"supervisor": policy}, actions={"search": fails})
        async with Rig(swarm, path=tmp_path / "mail.db", concurrency=0) as rig:
            submitted = await rig.submit(steps=60)
            for _ in range(8):
                await rig.runtime.run_turn(submitted.key, "supervisor")
                await rig.restart()
            outcome = await rig.outcome(submitted)
        assert len(seen) == 8
        assert "search failed 8 times" in outcome.answer

    @pytest.mark.parametrize(("limit", "turns"), [(2, 2), (0, 30)])
    async def test_the_limit_is_a_setting(self, limit: int, turns: int) -> None:
        policy, seen = stubborn(call("search"), until=29)
        swarm = build_swarm({"supervisor": policy}, actions={"search": fails}, failing_call_limit=limit)
        outcome = await ask(swarm)
        assert len(seen) == turns
        assert outcome.task.status is (TaskStatus.FAILED if limit else TaskStatus.COMPLETED)
