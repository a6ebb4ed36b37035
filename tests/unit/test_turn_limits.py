"""How a task is brought to an end that its agents don't find: steps, turns, time, stalls and faults."""

import asyncio
import itertools
from typing import Any

import pytest

from mail.core.protocol.message import Tier
from mail.core.protocol.tool_schemas import ToolFormat
from mail.core.protocol.xml import render_message
from mail.core.task.events import EventKind
from mail.core.task.limits import FAULTS_IN_A_ROW, TURNS_PER_STEP
from mail.core.task.ports import WakeUp
from mail.core.task.task import TaskStatus
from mail.testing.agents import (
    Call,
    View,
    acknowledge,
    broadcast,
    build_agent,
    build_swarm,
    call,
    complete,
    ignore,
    request,
    respond,
    wait,
)
from mail.testing.clock import FakeClock
from mail.testing.rig import Rig, ask_once

FORMATS: list[ToolFormat] = ["completions", "responses"]
NOTICE = "::maximum_steps_reached::"


def ping_pong(last_word: Any = None, seen: list[View] | None = None) -> dict[str, Any]:
    """Agents that never come to an end by themselves; at the limit the supervisor says `last_word`."""

    def supervisor(view: View) -> Any:
        if seen is not None:
            seen.append(view)
        if view.mail.subject == NOTICE:
            return last_word if last_word is not None else [complete(f"at last {len(view.messages)}")]
        return [request("worker", f"ping {len(view.messages)}"), wait()]

    return {"supervisor": supervisor, "worker": lambda view: [respond("supervisor", "pong")]}


class TestStepLimit:
    @pytest.mark.parametrize("limit", [1, 2, 3, 8])
    async def test_past_it_the_entrypoint_must_finish(self, limit: int) -> None:
        seen: list[View] = []
        outcome = await ask_once(build_swarm(ping_pong(seen=seen), task_message_limit=limit))
        assert outcome.answer.startswith("at last")
        assert outcome.task.status is TaskStatus.COMPLETED
        assert outcome.task.generation.steps == limit
        assert [view.mail.subject for view in seen].count(NOTICE) == 1
        assert seen[-1].mail.sender_type == "system"

    async def test_the_notice_carries_the_transcript(self) -> None:
        seen: list[View] = []
        outcome = await ask_once(build_swarm(ping_pong(seen=seen), task_message_limit=4), "the question")
        (notice,) = [m for m in outcome.messages if m.message.subject == NOTICE]
        before = outcome.messages[: outcome.messages.index(notice)]
        assert len(before) == 5
        for message in before:
            assert render_message(message) in notice.message.body
        assert "the question" in seen[-1].mail.body

    async def test_the_transcript_reaches_back_over_generations(self) -> None:
        seen: list[View] = []
        async with Rig(build_swarm(ping_pong(seen=seen), task_message_limit=2)) as rig:
            await rig.ask("first question", task_id="t")
            await rig.ask("second question", task_id="t", resume_from="user_response")
        assert "first question" in seen[-1].mail.body
        assert "second question" in seen[-1].mail.body

    async def test_a_transcript_holds_no_earlier_transcript(self) -> None:
        """Else each notice would be more than twice as long as the one before."""
        sizes = []
        async with Rig(build_swarm(ping_pong(), task_message_limit=1)) as rig:
            for _ in range(10):
                outcome = await rig.ask(task_id="t")
                (notice,) = [m for m in outcome.messages if m.message.subject == NOTICE]
                sizes.append(len(notice.message.body))
        growth = [later - earlier for earlier, later in itertools.pairwise(sizes)]
        assert max(growth) < 2 * min(growth)

    @pytest.mark.parametrize("tool_format", FORMATS)
    async def test_only_then_task_complete_is_forced(self, tool_format: ToolFormat) -> None:
        seen: list[View] = []
        swarm = build_swarm(ping_pong(seen=seen), task_message_limit=5, tool_format=tool_format)
        await ask_once(swarm)
        *earlier, last = [view.tool_choice for view in seen]
        assert set(map(str, earlier)) == {"required"}
        assert "task_complete" in str(last)

    @pytest.mark.parametrize(
        "last_word",
        [[request("worker"), wait()], [wait()], [call("help")], [call("nonsense")], []],
        ids=["request", "await", "help", "nonsense", "nothing"],
    )
    async def test_without_task_complete_the_task_ends_with_an_error(self, last_word: list[Call]) -> None:
        outcome = await ask_once(build_swarm(ping_pong(last_word), task_message_limit=3))
        assert outcome.events[-1].kind is EventKind.TASK_ERROR
        assert outcome.subject == "::task_error::"
        assert outcome.task.status is TaskStatus.FAILED
        assert outcome.kinds.count(EventKind.TASK_COMPLETE) == 0
        assert outcome.events[-1].data("x")["response"] == outcome.answer

    async def test_an_agent_that_fails_then_ends_it_too(self) -> None:
        def supervisor(view: View) -> Any:
            if view.mail.subject == NOTICE:
                raise RuntimeError("no model")
            return [request("worker"), wait()]

        agents = {**ping_pong(), "supervisor": supervisor}
        outcome = await ask_once(build_swarm(agents, task_message_limit=3))
        assert outcome.task.status is TaskStatus.FAILED

    async def test_system_messages_are_no_steps(self) -> None:
        def supervisor(view: View) -> Any:
            return [call("help")] if len(view.messages) < 10 else [complete()]

        outcome = await ask_once(build_swarm({"supervisor": supervisor}, task_message_limit=1))
        assert outcome.answer == "done"
        assert outcome.task.generation.steps == 1
        assert outcome.task.generation.turns == 10

    async def test_a_subject_in_colons_is_a_step_like_any_other(self) -> None:
        def labelled(to: str) -> Any:
            return lambda view: (
                [complete("limited")]
                if view.mail.sender_type == "system"
                else [request(to, subject="::action_complete::"), wait()]
            )

        agents = {"supervisor": labelled("worker"), "worker": labelled("supervisor")}
        outcome = await ask_once(build_swarm(agents, task_message_limit=6))
        assert outcome.answer == "limited"
        assert outcome.task.generation.steps == 6

    async def test_the_submission_may_set_it(self) -> None:
        async with Rig(build_swarm(ping_pong(), task_message_limit=3)) as rig:
            assert (await rig.ask(steps=7)).task.generation.steps == 7
            assert (await rig.ask()).task.generation.steps == 3

    async def test_resuming_resets_it_and_brings_back_what_was_left(self) -> None:
        async with Rig(build_swarm(ping_pong(), task_message_limit=4)) as rig:
            first = await rig.ask(task_id="t")
            left = await rig.inbox(first.key)
            second = await rig.ask("go on", task_id="t", steps=5)
            history = await rig.history("worker", first.key)
        assert len(left) == 1
        assert first.task.generation.steps == 4
        assert second.task.generation.steps == 5
        assert second.answer.startswith("at last")
        read = [letter.body for letter in View(history, "").messages]
        assert left[0].message.message.body in read or left[0].mailbox == "supervisor"

    async def test_no_agent_but_the_entrypoint_runs_past_it(self) -> None:
        ran: list[str] = []

        def worker(view: View) -> Any:
            ran.append(view.mail.body)
            return [call("help")]

        async def supervisor(view: View) -> Any:
            if view.mail.subject == NOTICE:
                before = len(ran)
                await rig.queue.publish([WakeUp(outcome.key, "worker", Tier.SYSTEM)])
                for _ in range(20):
                    await asyncio.sleep(0)
                return [complete(f"{len(ran) - before} ran")]
            return [request("worker", str(n)) for n in range(20)] + [wait()]

        swarm = build_swarm({"supervisor": supervisor, "worker": worker}, task_message_limit=5)
        async with Rig(swarm) as rig:
            outcome = await rig.submit()
            ended = await rig.outcome(outcome)
        assert ended.answer == "0 ran"
        assert (
            ended.task.generation.steps <= 5
        )  # turns under way count too, so that the limit is never passed
        assert ran

    async def test_many_agents_at_once_get_one_notice(self) -> None:
        async def slow(view: View) -> Any:
            await asyncio.sleep(0.001)
            return [request("supervisor")]

        def supervisor(view: View) -> Any:
            if view.mail.subject == NOTICE:
                return [complete()]
            return [request(f"worker-{n}") for n in range(8)] + [wait()]

        agents: dict[str, Any] = {"supervisor": supervisor} | {f"worker-{n}": slow for n in range(8)}
        outcome = await ask_once(build_swarm(agents, task_message_limit=3))
        assert outcome.answer == "done"
        assert outcome.task.generation.steps <= 3
        assert len([m for m in outcome.messages if m.message.subject == NOTICE]) == 1

    @pytest.mark.parametrize(("can_complete", "answer"), [(True, "front"), (False, "supervisor")])
    async def test_the_entrypoint_where_the_task_began_gets_the_notice_if_it_can_complete_tasks(
        self, can_complete: bool, answer: str
    ) -> None:
        front = build_agent(
            lambda view: [complete("front")] if view.mail.subject == NOTICE else [request("worker"), wait()],
            targets=["worker"],
            enable_entrypoint=True,
            can_complete_tasks=can_complete,
            name="front",
        )
        agents = {
            "supervisor": lambda view: [complete("supervisor")],
            "front": front,
            "worker": lambda view: [respond("front")],
        }
        swarm = build_swarm(agents, entrypoint="supervisor", task_message_limit=4)
        assert (await ask_once(swarm, entrypoint="front")).answer == answer


class TestTurnLimit:
    """System messages are no steps, so turns are counted as well."""

    async def test_an_entrypoint_that_only_talks_to_the_system(self) -> None:
        def supervisor(view: View) -> Any:
            return [complete("stopped")] if view.mail.subject == NOTICE else [call("help")]

        outcome = await ask_once(build_swarm({"supervisor": supervisor}, task_message_limit=2))
        assert outcome.answer == "stopped"
        assert 2 * TURNS_PER_STEP < outcome.task.generation.turns <= 2 * TURNS_PER_STEP + 2

    async def test_a_worker_that_only_talks_to_the_system(self) -> None:
        agents = {**ping_pong([complete("stopped")]), "worker": lambda view: [call("help")]}
        outcome = await ask_once(build_swarm(agents, task_message_limit=2))
        assert outcome.answer == "stopped"


class TestStall:
    async def test_the_entrypoint_is_nudged_once_with_the_unanswered_requests(self) -> None:
        def supervisor(view: View) -> Any:
            return (
                [complete(f"{view.mail.subject} {view.mail.body}")]
                if view.mail.sender_type == "system"
                else [request("worker"), wait()]
            )

        swarm = build_swarm({"supervisor": supervisor, "worker": lambda view: [call("web_search_call")]})
        outcome = await ask_once(swarm)
        assert outcome.answer.startswith("::runtime_error:: ")
        assert "supervisor waits for worker" in outcome.answer
        assert outcome.task.generation.nudges == 1

    async def test_the_second_time_the_task_ends_with_an_error(self) -> None:
        swarm = build_swarm({"supervisor": lambda view: [call("web_search_call")]})
        outcome = await ask_once(swarm)
        assert outcome.subject == "::task_error::"
        assert outcome.task.status is TaskStatus.FAILED
        assert outcome.events[-1].kind is EventKind.TASK_ERROR
        assert [m.message.subject for m in outcome.messages] == ["New Message", "::runtime_error::"]

    async def test_resuming_gives_a_new_nudge(self) -> None:
        def supervisor(view: View) -> Any:
            return [complete()] if len(view.messages) == 4 else [call("web_search_call")]

        async with Rig(build_swarm({"supervisor": supervisor})) as rig:
            failed = await rig.ask(task_id="t")
            outcome = await rig.ask(task_id="t")
        assert failed.task.status is TaskStatus.FAILED
        assert outcome.answer == "done"
        assert outcome.messages[1].message.subject == "::runtime_error::"

    async def test_a_task_with_work_under_way_does_not_stall(self) -> None:
        """The supervisor's own turn leaves no mail but for a worker that is slow."""

        async def slow(view: View) -> Any:
            await asyncio.sleep(0.02)
            return [respond("supervisor", "slow answer")]

        def supervisor(view: View) -> Any:
            if view.mail.sender_type == "user":
                return [request("slow"), request("fast"), wait()]
            return [wait()] if view.mail.sender == "fast" else [complete(view.mail.body)]

        swarm = build_swarm(
            {"supervisor": supervisor, "slow": slow, "fast": lambda view: [respond("supervisor")]}
        )
        outcome = await ask_once(swarm)
        assert outcome.answer == "slow answer"
        assert outcome.task.generation.nudges == 0

    @pytest.mark.parametrize("answer", [acknowledge(), ignore()])
    async def test_a_broadcast_that_nobody_answers(self, answer: Call) -> None:
        def supervisor(view: View) -> Any:
            return [broadcast(), wait()] if view.mail.sender_type == "user" else [complete("nobody answered")]

        outcome = await ask_once(build_swarm({"supervisor": supervisor, "worker": lambda view: [answer]}))
        assert outcome.answer == "nobody answered"


class TestFaults:
    async def test_a_worker_that_keeps_erring_is_reported(self) -> None:
        turns_of_worker: list[int] = []

        def worker(view: View) -> Any:
            turns_of_worker.append(len(view.messages))
            return [call("nonsense")]

        def supervisor(view: View) -> Any:
            if view.mail.sender_type == "system":
                return [complete(f"{view.mail.subject} {view.mail.body}")]
            return [request("worker"), wait()]

        async with Rig(build_swarm({"supervisor": supervisor, "worker": worker}), concurrency=1) as rig:
            outcome = await rig.ask()
        assert outcome.answer.startswith("::agent_error:: ")
        assert "worker" in outcome.answer
        assert outcome.task.generation.faults.get("worker", 0) < FAULTS_IN_A_ROW
        assert len(turns_of_worker) in (FAULTS_IN_A_ROW, FAULTS_IN_A_ROW + 1)

    async def test_an_entrypoint_that_keeps_erring_ends_the_task(self) -> None:
        calls: list[int] = []

        def supervisor(view: View) -> Any:
            calls.append(1)
            return [call("nonsense")]

        outcome = await ask_once(build_swarm({"supervisor": supervisor}))
        assert outcome.task.status is TaskStatus.FAILED
        assert outcome.subject == "::task_error::"
        assert len(calls) == FAULTS_IN_A_ROW
        assert "supervisor" in outcome.answer

    async def test_a_good_turn_begins_the_count_anew(self) -> None:
        def supervisor(view: View) -> Any:
            n = len(view.messages)
            if n > 3 * FAULTS_IN_A_ROW:
                return [complete()]
            return [call("help")] if n % FAULTS_IN_A_ROW == 0 else [call("nonsense")]

        outcome = await ask_once(build_swarm({"supervisor": supervisor}))
        assert outcome.answer == "done"
        assert outcome.task.generation.faults == {}

    async def test_several_faults_in_one_turn_are_one_faulty_turn(self) -> None:
        def supervisor(view: View) -> Any:
            return [call("nonsense")] * FAULTS_IN_A_ROW if len(view.messages) == 1 else [complete()]

        outcome = await ask_once(build_swarm({"supervisor": supervisor}))
        assert outcome.answer == "done"


class TestDeadline:
    async def test_a_task_past_its_deadline_ends_with_an_error(self) -> None:
        clock = FakeClock()
        entered = asyncio.Event()

        async def slow(view: View) -> Any:
            entered.set()
            await asyncio.sleep(60)
            return [complete()]

        async with Rig(build_swarm({"supervisor": slow}), clock=clock) as rig:
            submitted = await rig.submit(timeout=30)
            await entered.wait()
            clock.advance(29)
            await rig.runtime.sweep()
            task = await rig.task(submitted.key)
            assert task.is_running
            clock.advance(1)
            await rig.runtime.sweep()
            outcome = await rig.outcome(submitted)
            await rig.runtime.sweep()
            assert await rig.store.load(submitted.key) == outcome.task
        assert outcome.subject == "::task_timeout::"
        assert outcome.task.status is TaskStatus.FAILED
        assert outcome.events[-1].kind is EventKind.TASK_ERROR

    async def test_the_workers_look_at_deadlines_by_themselves(self) -> None:
        async def slow(view: View) -> Any:
            clock.advance(5)
            await asyncio.sleep(60)
            return [complete()]

        clock = FakeClock()
        async with Rig(build_swarm({"supervisor": slow}), clock=clock) as rig:
            outcome = await rig.ask(timeout=5)
        assert outcome.subject == "::task_timeout::"

    async def test_no_turn_begins_past_it(self) -> None:
        clock = FakeClock()

        def supervisor(view: View) -> Any:
            clock.advance(10)
            return [request("worker"), wait()]

        ran: list[int] = []

        def worker(view: View) -> Any:
            ran.append(1)
            return [respond("supervisor")]

        async with Rig(build_swarm({"supervisor": supervisor, "worker": worker}), clock=clock) as rig:
            outcome = await rig.ask(timeout=10)
            left = await rig.inbox(outcome.key)
        assert outcome.subject == "::task_timeout::"
        assert ran == []
        assert [entry.mailbox for entry in left] == ["worker"]

    async def test_a_resume_sets_a_new_one_or_none(self) -> None:
        clock = FakeClock()

        def supervisor(view: View) -> Any:
            if len(view.messages) == 1:
                clock.advance(10)
                return [call("help")]
            clock.advance(50)
            return [call("help")] if len(view.messages) < 4 else [complete("in time")]

        async with Rig(build_swarm({"supervisor": supervisor}), clock=clock) as rig:
            first = await rig.ask(timeout=10, task_id="t")
            second = await rig.ask("again", task_id="t")
        assert first.subject == "::task_timeout::"
        assert second.answer == "in time"

    @pytest.mark.parametrize("fails", [True, False])
    async def test_what_an_earlier_generation_ends_with_does_not_end_the_next(self, fails: bool) -> None:
        """A model that answers after the time limit must not answer the question that came after it."""
        clock = FakeClock()
        entered, go = asyncio.Event(), asyncio.Event()

        async def supervisor(view: View) -> Any:
            if view.mail.body == "first question":
                entered.set()
                await go.wait()
                if fails:
                    raise RuntimeError("the model has gone")
                return [complete("answer to the first")]
            return [complete("answer to the second")]

        async with Rig(build_swarm({"supervisor": supervisor}), clock=clock) as rig:
            submitted = await rig.submit("first question", timeout=1, task_id="t")
            await entered.wait()
            clock.advance(1)
            await rig.runtime.sweep()
            assert (await rig.outcome(submitted)).subject == "::task_timeout::"
            again = await rig.submit("second question", task_id="t")
            go.set()
            outcome = await rig.outcome(again)
        assert (outcome.answer, outcome.task.status) == ("answer to the second", TaskStatus.COMPLETED)
