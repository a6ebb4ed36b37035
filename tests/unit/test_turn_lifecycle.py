"""A task over several generations: what ends it, what is stashed, and how a person's next message resumes it."""

import asyncio
from typing import Any

import pytest

from mail.adapters.local.workers import LocalWorkers
from mail.core.protocol.address import Principal
from mail.core.protocol.message import MAILMessage
from mail.core.task.events import EventKind
from mail.core.task.ports import WakeUp
from mail.core.task.stored import write_task
from mail.core.task.task import TaskStatus
from mail.errors import BadRequest, TaskNotFound, UnknownEntrypoint
from mail.testing.agents import (
    Call,
    View,
    acknowledge,
    broadcast,
    build_agent,
    build_swarm,
    call,
    complete,
    request,
    respond,
    turns,
    wait,
)
from mail.testing.rig import Rig, ask_once


class TestFollowingUp:
    @pytest.mark.parametrize("resume_from", [None, "user_response"])
    async def test_a_finished_task_goes_on_with_its_memory(self, resume_from: str | None) -> None:
        def supervisor(view: View) -> Any:
            return [complete(" / ".join(letter.body for letter in view.messages))]

        async with Rig(build_swarm({"supervisor": supervisor})) as rig:
            first = await rig.ask("one", task_id="t")
            second = await rig.ask("two", task_id="t", resume_from=resume_from)
            third = await rig.ask("three", task_id="t", resume_from=resume_from)
        assert [first.answer, second.answer, third.answer] == ["one", "one / two", "one / two / three"]
        assert [outcome.task.generation.number for outcome in (first, second, third)] == [1, 2, 3]
        assert third.task.status is TaskStatus.COMPLETED
        assert third.task.started == first.task.started

    async def test_it_goes_to_the_entrypoint_of_the_task_unless_told_otherwise(self) -> None:
        deputy = build_agent(lambda view: [complete("deputy")], supervises=True, name="deputy")
        swarm = build_swarm({"supervisor": lambda view: [complete("chief")], "deputy": deputy})
        async with Rig(swarm) as rig:
            assert (await rig.ask(task_id="t", entrypoint="deputy")).answer == "deputy"
            assert (await rig.ask(task_id="t")).answer == "deputy"
            assert (await rig.ask(task_id="t", entrypoint="supervisor")).answer == "chief"
            assert (await rig.ask(task_id="t")).answer == "chief"

    async def test_a_failed_task_goes_on(self) -> None:
        def supervisor(view: View) -> Any:
            return [call("web_search_call")] if len(view.messages) < 3 else [complete()]

        async with Rig(build_swarm({"supervisor": supervisor})) as rig:
            assert (await rig.ask(task_id="t")).task.status is TaskStatus.FAILED
            assert (await rig.ask(task_id="t", resume_from="user_response")).answer == "done"

    async def test_wait_tells_the_answer_of_its_own_generation(self) -> None:
        async with Rig(build_swarm({"supervisor": lambda view: [complete(view.mail.body)]})) as rig:
            first = await rig.submit("one", task_id="t")
            await rig.outcome(first)
            second = await rig.submit("two", task_id="t")
            await rig.outcome(second)
            answers = [await rig.runtime.wait(each) for each in (first, second)]
        assert [answer.message.body for answer in answers if answer] == ["one", "two"]


class TestWritingToARunningTask:
    async def test_it_is_more_mail_for_the_entrypoint_and_has_the_same_answer(self) -> None:
        entered, go = asyncio.Event(), asyncio.Event()

        async def worker(view: View) -> Any:
            entered.set()
            await go.wait()
            return [respond("supervisor")]

        def supervisor(view: View) -> Any:
            if len(view.messages) == 1:
                return [request("worker"), wait()]
            if view.mail.sender_type == "user":
                go.set()
                return [wait()]
            return [complete(" / ".join(letter.body for letter in view.messages))]

        async with Rig(build_swarm({"supervisor": supervisor, "worker": worker})) as rig:
            first = await rig.submit("one", task_id="t")
            await entered.wait()
            second = await rig.submit("two", task_id="t", resume_from="user_response")
            outcomes = [await rig.outcome(first), await rig.outcome(second)]
        assert [outcome.answer for outcome in outcomes] == ["one / two / done"] * 2
        assert {outcome.task.generation.number for outcome in outcomes} == {1}
        assert second.generation == first.generation
        assert second.after > first.after

    async def test_many_at_once_are_all_read_once(self) -> None:
        read: list[str] = []

        async def supervisor(view: View) -> Any:
            read.append(view.mail.body)
            await asyncio.sleep(0)
            return [complete()] if len(view.messages) == 20 else [call("web_search_call")]

        async with Rig(build_swarm({"supervisor": supervisor}, task_message_limit=50)) as rig:
            await rig.workers.stop()
            submissions = await asyncio.gather(*(rig.submit(f"message {n}", task_id="t") for n in range(20)))
            rig.workers = type(rig.workers)(rig.runtime, rig.queue)
            await rig.workers.start()
            for submitted in submissions:
                await rig.outcome(submitted)
        assert sorted(read) == sorted(f"message {n}" for n in range(20))

    @pytest.mark.parametrize("steps", [None, 15])
    async def test_many_at_once_are_all_answered_although_each_takes_steps(self, steps: int | None) -> None:
        """Else the agents would have used up the steps of one message before they have answered one of them."""
        count = 20

        def supervisor(view: View) -> Any:
            if view.mail.sender_type == "user":
                return [request("worker", view.mail.body), wait()]
            answers = [letter.body for letter in view.messages if letter.sender_type == "agent"]
            return [complete(" ".join(answers))] if len(answers) == count else [wait()]

        agents = {
            "supervisor": supervisor,
            "worker": lambda view: [respond("supervisor", f"<{view.mail.body}>")],
        }
        async with Rig(build_swarm(agents, task_message_limit=15)) as rig:
            submissions = await asyncio.gather(
                *(rig.submit(f"message {n}", task_id="t", steps=steps) for n in range(count))
            )
            outcomes = [await rig.outcome(submitted) for submitted in submissions]
            assert await rig.inbox(submissions[0].key) == []
        for number, outcome in enumerate(outcomes):
            assert f"<message {number}>" in outcome.answer
        assert outcomes[0].task.max_steps == 15 * count

    async def test_those_left_for_the_next_answer_bring_their_steps_with_them(self) -> None:
        entered, go = asyncio.Event(), asyncio.Event()
        allowed: list[int] = []

        async def supervisor(view: View) -> Any:
            allowed.append((await rig.store.load(first.key)).max_steps)  # type: ignore[union-attr]
            entered.set()
            await go.wait()
            return [complete()]

        async with Rig(build_swarm({"supervisor": supervisor}, task_message_limit=5)) as rig:
            first = await rig.submit("one", task_id="t")
            await entered.wait()
            for body in ("two", "three", "four"):
                last = await rig.submit(body, task_id="t")
            go.set()
            await rig.outcome(last)
        assert allowed == [5, 15, 10, 5]

    async def test_the_next_message_has_the_steps_of_one(self) -> None:
        async with Rig(build_swarm({"supervisor": lambda view: [complete()]}, task_message_limit=4)) as rig:
            await rig.workers.stop()
            submissions = [await rig.submit(task_id="t") for _ in range(3)]
            assert (await rig.store.load(submissions[0].key)).max_steps == 12  # type: ignore[union-attr]
            rig.workers = type(rig.workers)(rig.runtime, rig.queue)
            await rig.workers.start()
            for submitted in submissions:
                await rig.outcome(submitted)
            assert (await rig.ask(task_id="t")).task.max_steps == 4

    async def test_limits_that_it_names_take_the_place_of_the_tasks(self) -> None:
        async with Rig(build_swarm({"supervisor": lambda view: [complete()]})) as rig:
            await rig.workers.stop()
            submitted = await rig.submit(task_id="t", steps=5)
            await rig.submit(task_id="t")
            first = await rig.task(submitted.key)
            await rig.submit(task_id="t", steps=50, timeout=1)
            second = await rig.task(submitted.key)
        assert (first.limits.steps, first.limits.deadline) == (5, None)
        assert (second.limits.steps, second.limits.deadline) == (50, rig.clock.now().timestamp() + 1)
        assert second.generation.number == 1


async def test_each_person_gets_the_answer_to_their_own_message() -> None:
    """Those who wrote while the first one is answered get answers of their own, however they wait for them."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def supervisor(view: View) -> Any:
        begun.set()
        await go_on.wait()
        return [complete(f"answer to {view.mail.body}")]

    async with Rig(build_swarm({"supervisor": supervisor})) as rig:
        submitted = [await rig.submit("one", task_id="t")]
        await begun.wait()
        submitted += [await rig.submit(body, task_id="t") for body in ("two", "three")]
        go_on.set()
        answers = await asyncio.gather(*(rig.runtime.wait(each, seconds=60) for each in submitted))
        late = await rig.runtime.wait(submitted[1], seconds=60)
        events = await rig.store.read_events(submitted[0].key)
        task = await rig.task(submitted[0].key)
        ends = []
        for each in submitted:
            watch = rig.runtime.watch(each.key, after=each.after, answer_to=each.seq)
            ends.append([batch async for batch in watch][-1][-1].text)
    said = [answer.message.body if answer else None for answer in answers]
    assert said == ends == ["answer to one", "answer to two", "answer to three"]
    assert late == answers[1]
    unread = [event.extra.as_json().get("unread_from") for event in events if event.is_terminal]
    assert unread == [submitted[1].seq, submitted[2].seq, None]
    assert (task.generation.number, task.unread_questions, task.pending, task.is_running) == (
        3,
        (),
        {},
        False,
    )


class TestAnswersThatComeTooEarly:
    """A message came while the answer to an earlier one was on its way: it must get an answer of its own."""

    class Slow:
        """A supervisor in the middle of its first turn, which it ends with `end` when told to."""

        def __init__(self, end: Any = None, *, fails: bool = False, **agents: Any) -> None:
            self.entered, self.go = asyncio.Event(), asyncio.Event()

            async def supervisor(view: View) -> Any:
                if len(view.messages) == 1:
                    self.entered.set()
                    await self.go.wait()
                    if fails:
                        raise RuntimeError("no model")
                    return end or [complete("answer to one")]
                return [complete(f"answer to {view.mail.body}")]

            self.rig = Rig(
                build_swarm({"supervisor": supervisor, **agents}, breakpoint_tools=frozenset({"approve"}))
            )

        async def ask_two(self, **fields: Any) -> list[Any]:
            """Ask "one", and "two" while "one" is being worked on; returns what became of both."""
            first = await self.rig.submit("one", task_id="t")
            await self.entered.wait()
            second = await self.rig.submit("two", task_id="t", **fields)
            self.go.set()
            return [await self.rig.outcome(first), await self.rig.outcome(second)]

    async def test_what_waited_in_a_stopped_task_does_not_take_the_answer(self) -> None:
        """The message that resumes it is read after what waits, and gets an answer of its own."""
        async with Rig(build_swarm({"supervisor": lambda view: [complete(f"to {view.mail.body}")]})) as rig:
            await rig.workers.stop()
            cancelled = await rig.submit("wrong", task_id="t")
            await rig.runtime.cancel(Principal.parse(cancelled.key.instance), "t")
            right = await rig.submit("right", task_id="t")
            rig.workers = type(rig.workers)(rig.runtime, rig.queue)
            await rig.workers.start()
            assert (await rig.outcome(right)).answer == "to right"
            assert await rig.store.read_inbox(right.key) == []

    async def test_a_failure_is_no_answer_to_it_either(self) -> None:
        slow = self.Slow(fails=True)
        async with slow.rig:
            first, second = await slow.ask_two()
        assert first.subject == "::task_error::"
        assert second.answer == "answer to two"

    async def test_a_pause_asks_everyone(self) -> None:
        slow = self.Slow([call("approve")])
        async with slow.rig as rig:
            first, second = await slow.ask_two()
            assert first.subject == second.subject == "::breakpoint_tool_call::"
            assert second.task.status is TaskStatus.PAUSED
            await rig.ask(
                "", task_id="t", resume_from="breakpoint_tool_call", breakpoint_tool_call_result="yes"
            )
            last = await rig.ask("three", task_id="t")
            bodies = [letter.body for letter in View(await rig.history("supervisor", last.key), "").messages]
        assert "two" in bodies

    async def test_what_was_stashed_goes_on_with_it(self) -> None:
        read: list[str] = []

        def worker(view: View) -> Any:
            read.append(view.mail.body)
            return [call("web_search_call")]

        slow = self.Slow([request("worker", "stashed"), complete("answer to one")], worker=worker)
        async with slow.rig as rig:
            _, second = await slow.ask_two()
            assert second.answer == "answer to two"
            if not read:  # then the second answer came first, and the mail is still there
                assert [entry.message.message.body for entry in await rig.inbox(second.key)] == ["stashed"]

    async def test_who_was_stopped_by_the_step_limit_goes_on_with_it(self) -> None:
        """Their mail was there all the time, but nobody was woken for it any more."""
        noticed, go = asyncio.Event(), asyncio.Event()

        async def supervisor(view: View) -> Any:
            if view.mail.subject == "::maximum_steps_reached::":
                noticed.set()
                await go.wait()
                return [complete("no more steps")]
            if view.mail.body == "one":
                return [request("worker", str(n)) for n in range(3)] + [wait()]
            return [wait()] if view.mail.body == "two" else [complete(f"worker says {view.mail.body}")]

        swarm = build_swarm(
            {"supervisor": supervisor, "worker": lambda view: [respond("supervisor", view.mail.body)]}
        )
        async with Rig(swarm) as rig:
            first = await rig.submit("one", task_id="t", steps=1)
            await noticed.wait()
            second = await rig.submit("two", task_id="t", steps=10)
            go.set()
            answers = [(await rig.outcome(each)).answer for each in (first, second)]
        assert answers == ["no more steps", "worker says 0"]

    async def test_it_begins_with_fresh_limits(self) -> None:
        slow = self.Slow()
        async with slow.rig:
            _, second = await slow.ask_two(steps=1)
        assert second.answer == "answer to two"
        assert second.task.generation.steps == 1


class TestStash:
    """Mail that nobody has read when a task ends waits for the next generation."""

    async def test_it_is_kept_and_read_after_the_resume(self) -> None:
        read: list[str] = []

        def worker(view: View) -> Any:
            read.append(view.mail.body)
            return [acknowledge()] if view.mail.subject == "News" else [respond("supervisor", view.mail.body)]

        def supervisor(view: View) -> Any:
            if len(view.messages) == 1:
                return [request("worker", "stashed request"), broadcast("stashed news"), complete("first")]
            if view.mail.sender_type == "user":
                return [wait("the worker's late answer")]
            return [complete(view.mail.body)]

        async with Rig(build_swarm({"supervisor": supervisor, "worker": worker})) as rig:
            first = await rig.ask(task_id="t")
            await asyncio.sleep(0.01)
            assert read == []
            assert len(await rig.inbox(first.key)) == 2
            assert first.task.pending == {"worker": (0, 0, 0, 1, 1)}
            second = await rig.ask("go on", task_id="t")
            assert await rig.inbox(first.key) == []
        assert second.answer == "stashed request"
        assert read == ["stashed news", "stashed request"]

    async def test_a_finished_task_runs_no_turn(self) -> None:
        ran: list[str] = []

        def worker(view: View) -> Any:
            ran.append(view.mail.body)
            return [respond("supervisor")]

        swarm = build_swarm({"supervisor": turns([request("worker"), complete()]), "worker": worker})
        async with Rig(swarm) as rig:
            outcome = await rig.ask()
            await rig.runtime.run_turn(outcome.key, "worker")
            await rig.queue.publish(
                [WakeUp(outcome.key, "worker", tier=outcome.task.head_tier("worker") or 5)]
            )
            await rig.runtime.recover()
            await asyncio.sleep(0.01)
            assert await rig.store.load(outcome.key) == outcome.task
        assert ran == []


class InFlight:
    """A swarm whose worker is in the middle of a turn when the supervisor ends or pauses the task.

    The supervisor's `end` is played while the worker's turn hangs; the worker, a supervisor itself, then
    plays `late`.
    """

    def __init__(self, *late: Any, end: Any, actions: Any = None, fails: bool = False) -> None:
        self.go = asyncio.Event()
        entered = asyncio.Event()

        async def worker(view: View) -> Any:
            if len(view.messages) == 1:
                entered.set()
                await self.go.wait()
                if fails:
                    raise RuntimeError("no model")
                return list(late)
            return [respond("supervisor", f"{view.mail.subject} {view.mail.body}")]

        async def supervisor(view: View) -> Any:
            if len(view.messages) == 1:
                return [request("worker"), request("helper"), wait()]
            if view.mail.sender == "helper":
                await entered.wait()
                return [end]
            if view.mail.sender == "worker":
                return [complete(f"worker: {view.mail.body}")]
            if view.mail.subject == "::agent_error::":
                return [complete(view.mail.subject)]
            return [wait()]

        self.rig = Rig(
            build_swarm(
                {
                    "supervisor": supervisor,
                    "worker": build_agent(
                        worker,
                        targets=["supervisor", "helper"],
                        actions=list(actions or ()),
                        supervises=True,
                        name="worker",
                    ),
                    "helper": lambda view: [respond("supervisor")],
                },
                actions=actions,
                breakpoint_tools=frozenset({"approve"}),
            )
        )

    async def land(self) -> None:
        """Let the worker's turn come to its end."""
        self.go.set()
        await self.rig.workers.stop()
        self.rig.workers = LocalWorkers(self.rig.runtime, self.rig.queue)
        await self.rig.workers.start()


async def act(args: dict[str, Any]) -> str:
    return "acted"


class TestTurnsThatEndAfterTheTask:
    async def test_their_messages_are_dropped_and_their_history_is_kept(self) -> None:
        late = InFlight(
            respond("supervisor", "late"), request("helper", "late"), broadcast("late"), end=complete()
        )
        async with late.rig as rig:
            outcome = await rig.ask(task_id="t")
            await late.land()
            events = await rig.store.read_events(outcome.key)
            view = View(await rig.history("worker", outcome.key), "")
            task = await rig.task(outcome.key)
            assert await rig.inbox(outcome.key) == []
        assert task.status is TaskStatus.COMPLETED
        assert task.pending == {}
        assert not any(event.message and event.message.message.body == "late" for event in events)
        assert len(view.messages) == 1
        assert len(view.results) == 3
        assert [event.kind for event in events].count(EventKind.TASK_COMPLETE) == 1

    async def test_task_complete_is_a_harmless_duplicate(self) -> None:
        late = InFlight(complete("late"), end=complete("first"))
        async with late.rig as rig:
            outcome = await rig.ask()
            await late.land()
            response = await rig.store.read_response(outcome.key, 1)
            events = await rig.store.read_events(outcome.key)
            view = View(await rig.history("worker", outcome.key), "")
        assert response is not None
        assert response.message.body == "first"
        assert [event.kind for event in events].count(EventKind.TASK_COMPLETE_CALL_DUPLICATE) == 1
        assert view.results[0].startswith("SUCCESS: ")

    async def test_task_complete_does_not_answer_what_the_user_has_written_meanwhile(self) -> None:
        late = InFlight(complete("late"), end=complete("first"))
        async with late.rig as rig:
            await rig.ask(task_id="t")
            second = await rig.submit(task_id="t")
            late.go.set()
            outcome = await rig.outcome(second)
        assert outcome.answer.startswith("worker: ::tool_call_error:: ")
        assert "the user has written meanwhile" in outcome.answer

    async def test_errors_and_actions_cause_no_mail(self) -> None:
        late = InFlight(
            call("act"), call("nonsense"), wait(), call("help"), end=complete(), actions={"act": act}
        )
        async with late.rig as rig:
            outcome = await rig.ask()
            await late.land()
            view = View(await rig.history("worker", outcome.key), "")
            assert await rig.inbox(outcome.key) == []
        assert view.results[0] == "SUCCESS: acted"
        assert view.results[1].startswith("ERROR: ")

    async def test_a_breakpoint_call_gets_a_result_and_pauses_nothing(self) -> None:
        late = InFlight(call("approve"), end=complete())
        async with late.rig as rig:
            outcome = await rig.ask()
            await late.land()
            task = await rig.task(outcome.key)
            view = View(await rig.history("worker", outcome.key), "")
        assert task.status is TaskStatus.COMPLETED
        assert task.generation.breakpoint is None
        assert len(view.results) == 1

    async def test_a_failure_changes_nothing(self) -> None:
        late = InFlight(end=complete(), fails=True)
        async with late.rig as rig:
            outcome = await rig.ask()
            await late.land()
            task = await rig.task(outcome.key)
            assert await rig.inbox(outcome.key) == []
        assert task.status is TaskStatus.COMPLETED


class TestTurnsThatEndWhileTheTaskIsPaused:
    """A pause is no end: what the others do meanwhile is stashed, and must be there after the resume."""

    async def resumed(self, late: InFlight) -> Any:
        async with late.rig as rig:
            paused = await rig.ask(task_id="t")
            assert paused.task.status is TaskStatus.PAUSED
            await late.land()
            return await rig.ask(
                "", task_id="t", resume_from="breakpoint_tool_call", breakpoint_tool_call_result="yes"
            )

    @pytest.mark.parametrize(
        ("late", "told"),
        [
            (respond("supervisor", "in time"), "in time"),
            (call("act"), "::action_complete:: act: acted"),
            (call("nonsense"), "::action_error:: "),
            (call("help"), "::help:: "),
            (call("approve"), "::tool_call_error:: "),  # it is paused already
            (
                complete("too early"),
                "::tool_call_error:: ",
            ),  # the user has been asked, and must be heard first
        ],
    )
    async def test_what_an_agent_does(self, late: Call, told: str) -> None:
        outcome = await self.resumed(InFlight(late, end=call("approve"), actions={"act": act}))
        assert outcome.answer.startswith(f"worker: {told}")
        assert outcome.task.generation.nudges == 0

    async def test_a_failure(self) -> None:
        outcome = await self.resumed(InFlight(end=call("approve"), fails=True))
        assert outcome.answer == "::agent_error::"


class TestRefusals:
    async def test_an_empty_body(self) -> None:
        async with Rig(build_swarm({"supervisor": lambda view: [complete()]})) as rig:
            with pytest.raises(BadRequest):
                await rig.submit("", task_id="t")
            assert (await rig.store.list_tasks(str(rig.user))).tasks == []

    @pytest.mark.parametrize("name", ["worker", "nobody", "", "Supervisor"])
    async def test_an_entrypoint_that_takes_no_messages(self, name: str) -> None:
        swarm = build_swarm({"supervisor": lambda view: [complete()], "worker": turns()})
        async with Rig(swarm) as rig:
            with pytest.raises(UnknownEntrypoint) as refusal:
                await rig.submit(entrypoint=name, task_id="t")
            assert (await rig.store.list_tasks(str(rig.user))).tasks == []
        assert "supervisor" in refusal.value.detail
        assert refusal.value.http_status == 400

    @pytest.mark.parametrize("resume_from", ["user_response", "breakpoint_tool_call"])
    async def test_resuming_a_task_that_does_not_exist(self, resume_from: str) -> None:
        async with Rig(build_swarm({"supervisor": lambda view: [complete()]})) as rig:
            with pytest.raises(TaskNotFound):
                await rig.submit(task_id="t", resume_from=resume_from)
            assert (await rig.store.list_tasks(str(rig.user))).tasks == []

    async def test_resuming_somebody_elses_task(self) -> None:
        async with Rig(build_swarm({"supervisor": lambda view: [complete(view.mail.body)]})) as rig:
            await rig.ask("mine", task_id="t")
            bob = rig.user.model_copy(update={"id": "bob"})
            with pytest.raises(TaskNotFound):
                await rig.submit(caller=bob, task_id="t", resume_from="user_response")
            root = rig.user.model_copy(update={"role": "admin"})
            with pytest.raises(TaskNotFound):
                await rig.submit(caller=root, task_id="t", resume_from="user_response")

    async def test_a_task_id_without_resume_begins_the_task(self) -> None:
        outcome = await ask_once(
            build_swarm({"supervisor": lambda view: [complete()]}), task_id="chosen by the client / 🦊"
        )
        assert outcome.key.task_id == "chosen by the client / 🦊"
        assert outcome.task.owner == "user:ann@example"
        assert outcome.task.contributors == ("user:ann@example",)


async def test_titles() -> None:
    async with Rig(build_swarm({"supervisor": lambda view: [complete()]})) as rig:
        assert (await rig.ask("What  is\nthis?")).task.title == "What is this?"
        assert (await rig.ask("x" * 200)).task.title == "x" * 79 + "…"
        assert (await rig.ask("body", subject="Subject")).task.title == "Subject"


async def test_the_record_of_a_long_task_stays_small() -> None:
    def supervisor(view: View) -> Any:
        n = len(view.messages)
        return [complete()] if n > 150 else [request("worker", "ping " * 100), wait()]

    swarm = build_swarm(
        {"supervisor": supervisor, "worker": lambda view: [respond("supervisor", "pong " * 100)]},
        task_message_limit=1000,
    )
    outcome = await ask_once(swarm, "x" * 10_000)
    assert outcome.task.generation.turns > 300
    assert len(write_task(outcome.task)) < 2_000


async def test_a_finishing_message_is_a_message() -> None:
    outcome = await ask_once(build_swarm({"supervisor": lambda view: [complete()]}))
    assert MAILMessage.model_validate_json(outcome.response.model_dump_json()) == outcome.response
