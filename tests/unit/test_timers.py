"""Timers: reminders of agents, and messages that are posted later."""

from collections.abc import Sequence
from typing import Any

import pytest

from mail.core.decisions.caller_limits import CallerLimits
from mail.core.decisions.tools import MOST_LISTED
from mail.core.engine.waits import open_waits
from mail.core.protocol.clock import read_duration, read_time
from mail.core.task.events import EventKind
from mail.core.task.extras import DeadLetterExtra, TimerExtra
from mail.core.task.swarm import AgentCore
from mail.core.task.task import TaskKey, TaskStatus
from mail.core.task.timers import MAX_TIMERS_IN_A_TURN, Timer
from mail.core.task.waits import MOST_ENDED, Wait
from mail.errors import (
    BadRequest,
    MailboxFull,
    PayloadTooLarge,
    Subject,
    TaskFull,
    TimerNotFound,
    UnknownEntrypoint,
)
from mail.testing.agents import Call, View, build_agent, build_swarm, call, complete, request, respond, wait
from mail.testing.changes import NOW
from mail.testing.rig import Rig

HOUR = 3_600.0
DAY = 86_400.0


def remind(note: str = "look again", **when: Any) -> Call:
    return call("remind_me", note=note, **(when or {"in": "2h"}))


async def waits_of(rig: Rig, key: TaskKey) -> list[Wait]:
    return [each async for each in open_waits(rig.store, await rig.task(key))]


async def timers_of(rig: Rig, key: TaskKey) -> list[Timer]:
    return [each for each in await waits_of(rig, key) if isinstance(each, Timer)]


def results_of(history: list[dict[str, Any]]) -> list[str]:
    return [str(entry["content"]) for entry in history if entry.get("role") == "tool"]


def patient(view: View) -> Sequence[Call]:
    """Be reminded once, and complete with the note."""
    return (
        [remind()] if view.mail.sender_type == "user" else [complete(f"{view.mail.subject} {view.mail.body}")]
    )


def echo(view: View) -> Sequence[Call]:
    """Complete with what was read."""
    return [complete(view.mail.body)]


def echo_agent() -> AgentCore:
    return build_agent(echo, supervises=True, name="aide")


def read(view: View) -> list[str]:
    """Return the notes that the agent has read."""
    return [message.body for message in view.messages if message.sender_type == "system"]


class TestReminder:
    async def test_its_note_wakes_the_agent_when_it_is_due(self) -> None:
        async with Rig(build_swarm({"chief": patient})) as rig:
            submitted = await rig.submit()
            await rig.workers.idle()
            task = await rig.task(submitted.key)
            assert (task.is_asleep, task.deadline, task.waits.reminders) == (
                True,
                NOW + 2 * HOUR,
                {"chief": 1},
            )
            assert await rig.store.count_running(submitted.key.instance, upto=9) == 0
            await rig.pass_time(2 * HOUR - 1)
            assert await rig.task(submitted.key) == task  # nothing is written while it waits
            await rig.pass_time(1)
            outcome = await rig.outcome(submitted)
            assert outcome.answer == f"{Subject.REMINDER} look again"
            assert await rig.store.list_waits(submitted.key, limit=9) == []
            (result, _) = results_of(await rig.history("chief", submitted.key))
        (event,) = outcome.of(EventKind.TIMER_SET)
        assert isinstance(event.extra, TimerExtra)
        assert event.extra.due == NOW + 2 * HOUR
        assert result == (
            "SUCCESS: your note comes back as a message at 2026-01-31T10:00:00+00:00; "
            f"its id is {event.extra.timer_id}"
        )

    async def test_several_come_in_the_order_of_their_times(self) -> None:
        def chief(view: View) -> Sequence[Call]:
            if view.mail.sender_type == "user":
                return [
                    remind("third", at="2026-01-31T12:00:00+01:00"),
                    remind("first", **{"in": 600}),
                    remind("second", at="2026-01-31T08:10:00.500Z"),
                ]
            return [wait("more")] if view.mail.body != "third" else [complete(" ".join(read(view)))]

        async with Rig(build_swarm({"chief": chief})) as rig:
            submitted = await rig.submit()
            await rig.workers.idle()
            assert [timer.due - NOW for timer in await timers_of(rig, submitted.key)] == [
                600.0,
                600.5,
                3 * HOUR,
            ]
            await rig.pass_time(600)
            assert (await rig.task(submitted.key)).waits.due == NOW + 600.5
            await rig.pass_time(3 * HOUR)
            outcome = await rig.outcome(submitted)
        assert outcome.answer == "first second third"

    async def test_an_agent_lists_and_cancels_its_own(self) -> None:
        def chief(view: View) -> Sequence[Call]:
            match len(view.messages):
                case 1:
                    return [remind("one"), remind("two"), request("aide")]
                case 2:
                    return [call("remind_me"), call("remind_me", cancel="t0"), wait()]
                case 3:
                    listed = next(text for text in view.results if "your reminders" in str(text))
                    first = str(listed).splitlines()[1].split()[0]
                    return [call("remind_me", cancel=first), call("remind_me", cancel=first)]
            return [complete("done"), complete("done")]

        def aide(view: View) -> Sequence[Call]:
            return [remind("mine", **{"in": DAY}), respond("chief", "done")]

        async with Rig(build_swarm({"chief": chief, "aide": aide})) as rig:
            outcome = await rig.ask()
            results = results_of(await rig.history("chief", outcome.key))
        assert sum("you have no reminder" in text for text in results) == 2
        assert any(text.startswith("SUCCESS: reminder t") for text in results)
        (listed,) = [text for text in results if "your reminders" in text]
        assert [line.split(": ")[-1] for line in listed.splitlines()[1:]] == ["one", "two"]
        (cancelled,) = outcome.of(EventKind.TIMER_CANCELLED)
        assert cancelled.text == "agent chief has cancelled a reminder of chief: one"

    async def test_a_long_list_is_cut(self) -> None:
        def chief(view: View) -> Sequence[Call]:
            if len(view.messages) == 1:
                return [*(remind(str(n)) for n in range(MOST_LISTED + 2)), call("nothing")]
            return [call("remind_me"), complete("")] if len(view.messages) == 2 else [complete("")]

        async with Rig(build_swarm({"chief": chief})) as rig:
            outcome = await rig.ask()
            results = results_of(await rig.history("chief", outcome.key))
        assert any(text.endswith("and 2 more") for text in results)

    @pytest.mark.parametrize(
        ("arguments", "problem"),
        [
            ({"in": "2h"}, "note is empty"),
            ({"note": "x", "in": 1, "at": "2026-12-01T08:00:00Z"}, "give in or at, not both"),
            ({"note": "x", "in": "soon"}, "in must be seconds, or text such as '90s'"),
            ({"note": "x", "at": "2026-12-01T08:00:00"}, "at must be ISO 8601 with its zone"),
            ({"note": "x", "at": "tomorrow"}, "at must be ISO 8601 with its zone"),
            ({"note": "x", "in": "367d"}, "in may be 366 days ahead at most, not 367d"),
            ({"note": "x", "in": float("nan")}, "in may be 366 days ahead at most"),
            ({"note": "x" * 10_001, "in": 1}, "note"),
            ({"cancel": "t1"}, "you have no reminder 't1'"),
        ],
    )
    async def test_bad_arguments_are_an_error_that_the_agent_reads(
        self, arguments: dict[str, Any], problem: str
    ) -> None:
        def chief(view: View) -> Sequence[Call]:
            return [call("remind_me", **arguments)] if len(view.messages) == 1 else [complete(view.mail.body)]

        async with Rig(build_swarm({"chief": chief})) as rig:
            outcome = await rig.ask()
        assert problem in outcome.answer
        assert outcome.task.waits.timers == 0

    async def test_a_time_that_has_passed_is_now(self) -> None:
        def chief(view: View) -> Sequence[Call]:
            if len(view.messages) == 1:
                return [remind("late", at="2020-01-01T00:00:00Z")]
            return [complete(view.mail.body)]

        async with Rig(build_swarm({"chief": chief})) as rig:
            submitted = await rig.submit()
            await rig.workers.idle()
            await rig.pass_time(0)
            assert (await rig.outcome(submitted)).answer == "late"

    async def test_a_turn_sets_a_limited_number(self) -> None:
        def chief(view: View) -> Sequence[Call]:
            if len(view.messages) == 1:
                return [remind(str(n)) for n in range(MAX_TIMERS_IN_A_TURN + 1)]
            return [wait(view.mail.body)]

        async with Rig(build_swarm({"chief": chief})) as rig:
            submitted = await rig.submit()
            await rig.workers.idle()
            task = await rig.task(submitted.key)
        assert task.waits.reminders == {"chief": MAX_TIMERS_IN_A_TURN}

    async def test_many_fire_a_few_at_a_time(self) -> None:
        def chief(view: View) -> Sequence[Call]:
            if view.mail.sender_type == "user":
                return [remind(f"{view.mail.body} {n}") for n in range(30)]
            return [wait()]

        async with Rig(build_swarm({"chief": chief}), concurrency=0) as rig:
            submitted = await rig.submit("a")
            await rig.submit("b", task_id=submitted.key.task_id)
            while await rig.step():
                pass
            before = await rig.task(submitted.key)
            assert before.waits.timers == 60
            await rig.pass_time(2 * HOUR)
            assert (await rig.task(submitted.key)).waits.timers == 60 - MOST_ENDED
            await rig.pass_time(0)
            task = await rig.task(submitted.key)
            events = await rig.store.read_events(submitted.key, after=before.seq)
        assert (task.waits.timers, task.waits.due) == (0, None)
        assert (
            sum(event.message.message.subject == Subject.REMINDER for event in events if event.message) == 60
        )

    async def test_it_waits_in_the_mailbox_of_a_paused_task(self) -> None:
        def chief(view: View) -> Sequence[Call]:
            if view.mail.sender_type == "user":
                return [remind(), call("ask")]
            return [complete(view.mail.body)]

        async with Rig(build_swarm({"chief": chief}, breakpoint_tools=["ask"])) as rig:
            submitted = await rig.submit()
            await rig.outcome(submitted)
            assert (await rig.task(submitted.key)).deadline == NOW + 2 * HOUR
            await rig.pass_time(2 * HOUR)
            task = await rig.task(submitted.key)
            assert (task.status, task.waits.timers) == (TaskStatus.PAUSED, 0)
            assert [entry.message.message.body for entry in await rig.inbox(submitted.key)] == ["look again"]
            given = {"resume_from": "breakpoint_tool_call", "breakpoint_tool_call_result": "42"}
            outcome = await rig.ask("", task_id=submitted.key.task_id, **given)
        assert outcome.answer == "look again"

    async def test_completing_the_task_is_refused_once_and_then_cancels_it(self) -> None:
        def hasty(view: View) -> Sequence[Call]:
            if len(view.messages) == 1:
                return [remind(), complete("done")]
            return [complete(view.mail.body)]

        async with Rig(build_swarm({"hasty": hasty})) as rig:
            outcome = await rig.ask()
            assert "this is still to come: a reminder (hasty)" in outcome.answer
            assert (outcome.task.waits.timers, outcome.task.deadline) == (0, None)
            await rig.pass_time(2 * HOUR)
            assert await rig.task(outcome.key) == outcome.task
            assert await waits_of(rig, outcome.key) == []

    async def test_one_of_an_earlier_generation_is_deleted(self) -> None:
        def chief(view: View) -> Sequence[Call]:
            match len(view.messages):
                case 1:
                    return [remind("old")]
                case 2:
                    return [complete("so far")] if view.mail.sender_type == "user" else [wait()]
                case 3:
                    return [complete("so far")]
                case 4:
                    return [remind("new")]
            return [complete(view.mail.body)]

        async with Rig(build_swarm({"chief": chief})) as rig:
            submitted = await rig.submit()
            await rig.workers.idle()
            task_id = submitted.key.task_id
            await rig.ask("end it", task_id=task_id)
            assert (await rig.task(submitted.key)).status is TaskStatus.COMPLETED
            rig.clock.advance(1)  # type: ignore[attr-defined]
            again = await rig.submit("again", task_id=task_id)
            await rig.workers.idle()
            (timer,) = await timers_of(rig, submitted.key)
            assert timer.text == "new"
            assert await rig.store.list_waits(submitted.key, limit=9) == [timer]
            await rig.pass_time(2 * HOUR)
            outcome = await rig.outcome(again)
            assert await rig.store.list_waits(submitted.key, limit=9) == []
        assert outcome.answer == "new"

    async def test_a_fork_leaves_it_behind_and_says_so(self) -> None:
        async with Rig(build_swarm({"chief": patient})) as rig:
            submitted = await rig.submit()
            await rig.workers.idle()
            forked = await rig.runtime.fork(rig.user, submitted.key.task_id, run=True)
            await rig.workers.idle()
            task = await rig.task(forked.task.key)
            (told,) = [each.message for each in await rig.store.read_events(task.key) if each.message][:1]
            assert task.waits.timers == 0
            assert "what was to come to you later (a reminder)" in told.message.body
            assert len(await timers_of(rig, submitted.key)) == 1

    async def test_of_an_agent_that_is_gone_the_entrypoint_reads_it(self) -> None:
        def chief(view: View) -> Sequence[Call]:
            if view.mail.sender_type == "user":
                return [remind("own", **{"in": DAY}), request("aide")]
            return [wait()] if view.mail.sender == "aide" else [complete(view.mail.body)] * 2

        def aide(view: View) -> Sequence[Call]:
            return [remind("from aide"), respond("chief", "busy")]

        async with Rig(build_swarm({"chief": chief, "aide": aide})) as rig:
            submitted = await rig.submit()
            await rig.workers.idle()
            rig.runtime.swarm = build_swarm({"chief": chief})
            await rig.pass_time(2 * HOUR)
            assert (await rig.outcome(submitted)).answer == "from aide"

    async def test_it_counts_in_what_the_task_stores(self) -> None:
        async with Rig(build_swarm({"chief": lambda view: [remind("x" * 5_000)]})) as rig:
            submitted = await rig.submit()
            await rig.workers.idle()
            task = await rig.task(submitted.key)
            (timer,) = await timers_of(rig, submitted.key)
            await rig.runtime.cancel_wait.timer(rig.user, submitted.key, timer.id)
            cancelled = await rig.store.read_commit(submitted.key, task.seq + 1)
        assert timer.size > 5_000
        assert task.stored_bytes > 3 * timer.size
        assert cancelled.task.stored_bytes < task.stored_bytes + timer.size


class TestMessage:
    async def test_a_new_task_sleeps_until_its_message_is_posted(self) -> None:
        async with Rig(build_swarm({"chief": echo})) as rig:
            submitted = await rig.submit("good morning", not_before=NOW + DAY, timeout=600, steps=5)
            task = await rig.task(submitted.key)
            assert (task.status, task.is_asleep, task.title) == (TaskStatus.RUNNING, True, "good morning")
            assert (task.deadline, task.limits.deadline) == (NOW + DAY, None)
            assert await rig.store.count_running(task.instance, upto=9) == 0
            assert [event.kind for event in await rig.store.read_events(task.key)] == [EventKind.TIMER_SET]
            await rig.pass_time(DAY)
            outcome = await rig.outcome(submitted)
        assert outcome.answer == "good morning"
        assert (outcome.task.limits.steps, outcome.task.limits.deadline) == (5, NOW + DAY + 600)
        assert (outcome.task.generation.joined, outcome.task.generation.number) == (0, 1)
        assert outcome.task.unread_questions == ()

    @pytest.mark.parametrize("not_before", [NOW, NOW - 9 * DAY, 0.0])
    async def test_a_time_that_has_passed_is_now(self, not_before: float) -> None:
        async with Rig(build_swarm({"chief": echo})) as rig:
            outcome = await rig.ask("at once", not_before=not_before)
        assert outcome.answer == "at once"
        assert EventKind.TIMER_SET not in outcome.kinds

    async def test_it_resumes_a_task_that_has_completed(self) -> None:
        async with Rig(build_swarm({"chief": echo})) as rig:
            first = await rig.ask("one")
            later = await rig.submit("two", task_id=first.key.task_id, not_before=NOW + DAY)
            task = await rig.task(first.key)
            assert (task.status, task.deadline, task.is_asleep) == (TaskStatus.COMPLETED, NOW + DAY, False)
            listed = await rig.store.list_tasks(first.key.instance, status=TaskStatus.COMPLETED)
            assert [each.key for each in listed.tasks] == [first.key]
            await rig.pass_time(DAY)
            outcome = await rig.outcome(later)
        assert (outcome.task.generation.number, outcome.task.status) == (2, TaskStatus.COMPLETED)
        assert outcome.answer == "two"

    async def test_it_joins_a_task_that_runs_and_outlives_its_answer(self) -> None:
        async with Rig(build_swarm({"chief": echo})) as rig:
            submitted = await rig.submit("now")
            await rig.submit("later", task_id=submitted.key.task_id, not_before=NOW + DAY)
            assert (await rig.outcome(submitted)).answer == "now"
            assert (await rig.task(submitted.key)).waits.messages == 1
            await rig.pass_time(DAY)
            answer = await rig.store.wait_for_response(submitted.key, 2, seconds=60)
        assert answer is not None
        assert answer.message.body == "later"

    async def test_one_for_each_time_is_posted_by_itself(self) -> None:
        async with Rig(
            build_swarm({"chief": lambda view: [wait(view.mail.body), complete("never")][:1]})
        ) as rig:
            submitted = await rig.submit("a", not_before=NOW + 10)
            for n in range(3):
                await rig.submit(f"b{n}", task_id=submitted.key.task_id, not_before=NOW + 20)
            await rig.pass_time(30)
            for _ in range(4):
                await rig.runtime.look_after(submitted.key)
            events = await rig.store.read_events(submitted.key)
            task = await rig.task(submitted.key)
        posted = [
            event.message.message.body for event in events if event.message and event.message.sender.is_person
        ]
        assert posted[0] == "a"
        assert sorted(posted) == ["a", "b0", "b1", "b2"]
        assert task.waits.messages == 0

    async def test_an_answer_to_a_breakpoint_is_given_when_it_is_due(self) -> None:
        def chief(view: View) -> Sequence[Call]:
            return (
                [call("ask")]
                if len(view.messages) == 1 and not view.results
                else [complete(str(view.results[-1]))]
            )

        async with Rig(build_swarm({"chief": chief}, breakpoint_tools=["ask"])) as rig:
            first = await rig.ask()
            assert first.task.status is TaskStatus.PAUSED
            await rig.submit(
                "",
                task_id=first.key.task_id,
                resume_from="breakpoint_tool_call",
                breakpoint_tool_call_result={"content": "42"},
                not_before=NOW + DAY,
            )
            assert (await rig.task(first.key)).status is TaskStatus.PAUSED
            await rig.pass_time(DAY)
            answer = await rig.store.wait_for_response(first.key, 2, seconds=60)
        assert answer is not None
        assert "42" in answer.message.body

    async def test_one_that_the_task_refuses_then_becomes_a_dead_letter(self) -> None:
        async with Rig(build_swarm({"chief": lambda view: [call("ask")]}, breakpoint_tools=["ask"])) as rig:
            first = await rig.ask()
            await rig.submit("more", task_id=first.key.task_id, not_before=NOW + DAY)
            await rig.pass_time(DAY)
            task = await rig.task(first.key)
            (letter,) = [
                each for each in await rig.store.read_events(first.key) if each.kind == EventKind.DEAD_LETTER
            ]
            assert isinstance(letter.extra, DeadLetterExtra)
            assert "it could not be delivered when it was due" in letter.extra.reason
            assert letter.message is not None
            assert letter.message.message.body == "more"
            assert (task.waits.timers, task.status) == (0, TaskStatus.PAUSED)

    async def test_a_new_task_whose_entrypoint_is_gone_fails(self) -> None:
        async with Rig(build_swarm({"chief": echo, "aide": echo_agent()})) as rig:
            submitted = await rig.submit("hello", entrypoint="aide", not_before=NOW + DAY)
            rig.runtime.swarm = build_swarm({"chief": echo})
            await rig.pass_time(DAY)
            outcome = await rig.outcome(submitted)
        assert outcome.task.status is TaskStatus.FAILED
        assert "it could not be delivered when it was due: entrypoint must be one of: chief" in outcome.answer

    async def test_bad_ones_are_refused_when_they_are_sent(self) -> None:
        async with Rig(build_swarm({"chief": echo})) as rig:
            for error, fields in (
                (BadRequest, {"not_before": NOW + 367 * DAY}),
                (UnknownEntrypoint, {"entrypoint": "nobody"}),
                (BadRequest, {"body": ""}),
                (PayloadTooLarge, {"body": "x" * 100_001}),
                (BadRequest, {"output_schema": {"type": "nonsense"}}),
            ):
                with pytest.raises(error):
                    await rig.submit(**{"body": "x", "not_before": NOW + DAY, **fields})
            assert (await rig.store.list_tasks(str(rig.user))).tasks == []

    async def test_a_cancelled_task_has_dropped_it(self) -> None:
        async with Rig(build_swarm({"chief": echo})) as rig:
            submitted = await rig.submit("hello", not_before=NOW + DAY)
            await rig.runtime.cancel(rig.user, submitted.key.task_id)
            task = await rig.task(submitted.key)
            assert (task.waits.timers, task.deadline) == (0, None)
            assert await waits_of(rig, submitted.key) == []
            await rig.pass_time(DAY)
            assert await rig.task(submitted.key) == task
            await rig.runtime.delete(*submitted.key)
            assert await rig.store.load(submitted.key) is None

    async def test_one_to_a_cancelled_task_resumes_it(self) -> None:
        async with Rig(build_swarm({"chief": echo})) as rig:
            submitted = await rig.submit("old", not_before=NOW + DAY)
            await rig.runtime.cancel(rig.user, submitted.key.task_id)
            again = await rig.submit("new", task_id=submitted.key.task_id, not_before=NOW + 2 * DAY)
            await rig.pass_time(2 * DAY)
            assert (await rig.outcome(again)).answer == "new"

    async def test_limits_count_it_when_it_is_sent(self) -> None:
        async with Rig(build_swarm({"chief": echo})) as rig:
            rig.runtime.caller_limits = CallerLimits(task_bytes=20_000)
            with pytest.raises(TaskFull):
                await rig.submit("x" * 20_000, not_before=NOW + DAY)
            submitted = await rig.submit("x" * 9_000, not_before=NOW + DAY)
            with pytest.raises(TaskFull):
                await rig.submit("x" * 12_000, not_before=NOW + DAY, task_id=submitted.key.task_id)

    async def test_a_task_has_a_limited_number_of_timers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("mail.core.decisions.submit.MAX_TIMERS", 2)
        async with Rig(build_swarm({"chief": echo})) as rig:
            submitted = await rig.submit("a", not_before=NOW + DAY)
            await rig.submit("b", not_before=NOW + DAY, task_id=submitted.key.task_id)
            with pytest.raises(MailboxFull, match="2 timers of task"):
                await rig.submit("c", not_before=NOW + DAY, task_id=submitted.key.task_id)


class TestCancel:
    async def test_the_rest_goes_on(self) -> None:
        async with Rig(build_swarm({"chief": echo})) as rig:
            submitted = await rig.submit("one", not_before=NOW + DAY)
            await rig.submit("two", task_id=submitted.key.task_id, not_before=NOW + 2 * DAY)
            one, two = await timers_of(rig, submitted.key)
            task = await rig.runtime.cancel_wait.timer(rig.user, submitted.key, one.id)
            assert (task.is_asleep, task.waits.messages) == (True, 1)
            assert await timers_of(rig, submitted.key) == [two]
            with pytest.raises(TimerNotFound):
                await rig.runtime.cancel_wait.timer(rig.user, submitted.key, one.id)
            await rig.pass_time(DAY)
            await rig.pass_time(DAY)
            assert (await rig.outcome(submitted)).answer == "two"

    async def test_a_task_without_its_only_message_is_cancelled(self) -> None:
        async with Rig(build_swarm({"chief": echo})) as rig:
            submitted = await rig.submit("one", not_before=NOW + DAY)
            (timer,) = await timers_of(rig, submitted.key)
            task = await rig.runtime.cancel_wait.timer(rig.user, submitted.key, timer.id)
            outcome = await rig.outcome(submitted)
        assert task.status is TaskStatus.CANCELLED
        assert outcome.answer == "The task was cancelled by ann: no message is left that it could begin with"

    async def test_an_agent_whose_reminder_is_gone_is_nudged(self) -> None:
        async with Rig(build_swarm({"chief": patient})) as rig:
            submitted = await rig.submit()
            await rig.workers.idle()
            (timer,) = await timers_of(rig, submitted.key)
            await rig.runtime.cancel_wait.timer(rig.user, submitted.key, timer.id)
            outcome = await rig.outcome(submitted)
        assert "No agent of this task has any mail left" in outcome.answer


class TestTimes:
    @pytest.mark.parametrize(
        ("given", "seconds"),
        [(5, 5.0), (0.5, 0.5), ("90s", 90.0), ("15m", 900.0), ("1.5h", 5_400.0), ("1w", 7 * DAY)],
    )
    def test_a_duration(self, given: float | str, seconds: float) -> None:
        assert read_duration(given) == seconds

    @pytest.mark.parametrize(
        ("given", "seconds"),
        [
            (NOW, NOW),
            ("2026-01-31T08:00:00Z", NOW),
            ("2026-01-31T09:00+01:00", NOW),
            (" 20260131T080000Z ", NOW),
        ],
    )
    def test_a_time(self, given: float | str, seconds: float) -> None:
        assert read_time(given) == seconds

    @pytest.mark.parametrize("given", ["", "now", "2026-01-31", "2026-01-31T08:00:00", "08:00Z"])
    def test_no_time(self, given: str) -> None:
        with pytest.raises(ValueError, match="ISO 8601 with its zone"):
            read_time(given)
