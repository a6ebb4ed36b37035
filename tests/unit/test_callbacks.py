"""Actions that finish later: who waits for a result, what it wakes, and when it comes too late."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mail.actions.timing import read_timing
from mail.core.decisions.waits import fall_due
from mail.core.engine.watch import Submitted
from mail.core.task.callbacks import (
    LATER,
    MAX_CALLS_IN_A_TURN,
    CallResult,
    CallState,
    Later,
    new_token,
    task_of,
)
from mail.core.task.draft import Draft
from mail.core.task.events import EventKind
from mail.core.task.swarm import ActionCore
from mail.core.task.task import TaskKey, TaskStatus
from mail.core.task.waits import MOST_ENDED
from mail.core.turns.context import current_context
from mail.errors import BadRequest, CallbackClosed, CallbackNotFound, ConfigurationError
from mail.testing.agents import Call, View, build_swarm, call, complete, request, respond, wait
from mail.testing.changes import NOW
from mail.testing.rig import Rig

DAY = 86_400.0
DONE = CallResult("the film")


class Studio:
    """An action whose result comes later; `hold` keeps its call from returning."""

    def __init__(self) -> None:
        self.tokens: list[str] = []
        self.begun = asyncio.Event()
        self.hold = asyncio.Event()
        self.hold.set()

    async def __call__(self, arguments: dict[str, Any]) -> str | Later:
        self.tokens.append(current_context().callback.token)
        self.begun.set()
        await self.hold.wait()
        return LATER

    def action(self, **settings: Any) -> ActionCore:
        return ActionCore("render", self, **{"finish_within": 3 * DAY, **settings})


async def look(arguments: dict[str, Any]) -> str:
    return "a look"


def director(view: View) -> Sequence[Call]:
    """Render, once for each word of the order; complete with the last result."""
    mail = view.mail
    if mail.sender_type == "user":
        return [call(word) for word in mail.body.split()]
    if "UNDER WAY" in str(view.results) and "render: " not in mail.body:
        return [wait("the film")]
    return [complete(mail.body)]


def studio_of(studio: Studio, **settings: Any) -> Rig:
    return Rig(
        build_swarm({"director": director}, actions={"render": studio.action(**settings), "look": look})
    )


async def until_asleep(rig: Rig, key: TaskKey) -> None:
    """Wait until nothing happens in a task before a call finishes."""
    async with asyncio.timeout(60):
        while not (await rig.task(key)).is_asleep:  # noqa: ASYNC110 - of a store
            await asyncio.sleep(0.001)


@asynccontextmanager
async def asleep(order: str = "render", **settings: Any) -> AsyncIterator[tuple[Rig, Studio, Submitted]]:
    """A task of a studio whose calls wait."""
    studio = Studio()
    async with studio_of(studio, **settings) as rig:
        submitted = await rig.submit(order)
        await until_asleep(rig, submitted.key)
        yield rig, studio, submitted


class TestResult:
    async def test_it_wakes_the_agent_that_sleeps(self) -> None:
        async with asleep() as (rig, studio, submitted):
            task = await rig.task(submitted.key)
            assert (task.waits.open_calls, task.waits.due) == (1, NOW + 3 * DAY)
            assert task.deadline == NOW + 3 * DAY
            ended = await rig.runtime.callbacks.finish(studio.tokens[0], DONE)
            outcome = await rig.outcome(submitted)
            history = await rig.history("director", submitted.key)
        assert ended.state is CallState.FINISHED
        assert outcome.answer == "render: the film"
        assert outcome.task.waits.open_calls == 0
        results = [entry["content"] for entry in history if entry["role"] == "tool"]
        assert results[0].startswith("UNDER WAY: render has begun")
        assert "2026-02-03" in results[0]
        waiting, done = outcome.of(EventKind.ACTION_WAITING), outcome.of(EventKind.ACTION_COMPLETE)
        assert waiting[0].extra.tool_call_id == done[0].extra.tool_call_id  # type: ignore[attr-defined]

    async def test_other_calls_of_the_turn_are_done_meanwhile(self) -> None:
        async with asleep("render look") as (rig, studio, submitted):
            woken = [event.text for event in await rig.store.read_events(submitted.key) if event.message]
            assert any(
                "look: a look" in str(event.message) for event in await rig.store.read_events(submitted.key)
            )
            assert woken
            await rig.runtime.callbacks.finish(studio.tokens[0], CallResult("no light", has_failed=True))
            outcome = await rig.outcome(submitted)
        assert outcome.answer == "render: ERROR: no light"
        assert EventKind.ACTION_ERROR in outcome.kinds

    async def test_one_that_comes_before_the_turn_is_committed_is_read_once(self) -> None:
        studio = Studio()
        studio.hold.clear()
        async with studio_of(studio) as rig:
            submitted = await rig.submit("render")
            await studio.begun.wait()
            await rig.runtime.callbacks.finish(studio.tokens[0], DONE)
            assert (await rig.task(submitted.key)).waits.early
            studio.hold.set()
            outcome = await rig.outcome(submitted)
            with pytest.raises(CallbackClosed):
                await rig.runtime.callbacks.finish(studio.tokens[0], CallResult("another film"))
        assert outcome.answer == "render: the film"
        assert (outcome.task.waits.open_calls, outcome.task.waits.early) == (0, ())

    async def test_the_same_one_again_changes_nothing_and_another_is_refused(self) -> None:
        async with asleep() as (rig, studio, submitted):
            first = await rig.runtime.callbacks.finish(studio.tokens[0], DONE)
            await rig.outcome(submitted)
            before = await rig.task(submitted.key)
            assert await rig.runtime.callbacks.finish(studio.tokens[0], DONE) == first
            assert await rig.task(submitted.key) == before
            for other in (CallResult("another film"), replace(DONE, has_failed=True)):
                with pytest.raises(CallbackClosed, match="finished already, with another result"):
                    await rig.runtime.callbacks.finish(studio.tokens[0], other)
            with pytest.raises(CallbackClosed):
                await rig.runtime.callbacks.report(studio.tokens[0])

    async def test_forged_tokens_find_nothing(self) -> None:
        async with asleep() as (rig, studio, submitted):
            token = studio.tokens[0]
            for forged in (
                f"{token}0",
                token.partition(".")[0],
                new_token(*submitted.key, "guessed"),
                new_token("user:ann@example", "another-task", token.partition(".")[2]),
                new_token("user:ann@elsewhere", submitted.key.task_id, token.partition(".")[2]),
                "",
                "é.x",
            ):
                with pytest.raises(CallbackNotFound):
                    await rig.runtime.callbacks.finish(forged, DONE)

    async def test_it_is_read_after_a_pause(self) -> None:
        """A result for a paused task waits in the mailbox of its agent."""
        studio = Studio()
        swarm = build_swarm(
            {
                "director": lambda view: (
                    [call("render"), call("render"), call("ask")]
                    if len(view.messages) == 1
                    else [complete("done")]
                )
            },
            actions={"render": studio.action(), "ask": look},
            breakpoint_tools=frozenset({"ask"}),
        )
        async with Rig(swarm) as rig:
            paused = await rig.ask("begin")
            assert paused.task.status is TaskStatus.PAUSED
            await rig.runtime.callbacks.finish(studio.tokens[0], DONE)
            (waiting,) = await rig.inbox(paused.key)
            assert waiting.message.message.body == "render: the film"
            rig.runtime.swarm = build_swarm({"chief": lambda view: [complete(view.mail.body)]})
            await rig.runtime.callbacks.finish(studio.tokens[1], CallResult("the second film"))
            last = (await rig.inbox(paused.key))[-1].message
            assert (await rig.task(paused.key)).status is TaskStatus.PAUSED
        assert last.message.body == (
            "render of agent 'director', which the swarm no longer has: the second film"
        )

    @pytest.mark.parametrize("result", [DONE, CallResult("no disk", has_failed=True)])
    async def test_one_whose_agent_is_gone_ends_the_task_as_failed_and_says_what_was_there(
        self, result: CallResult
    ) -> None:
        studio = Studio()

        def chief(view: View) -> Sequence[Call]:
            return [request("maker")] if view.mail.sender_type == "user" else [complete(view.mail.body)]

        swarm = build_swarm(
            {"chief": chief, "maker": lambda view: [call("render")]}, actions={"render": studio.action()}
        )
        async with Rig(swarm) as rig:
            submitted = await rig.submit()
            await until_asleep(rig, submitted.key)
            rig.runtime.swarm = build_swarm({"chief": chief})
            await rig.runtime.callbacks.finish(studio.tokens[0], result)
            outcome = await rig.outcome(submitted)
            repeated = await rig.runtime.callbacks.finish(studio.tokens[0], result)
        assert outcome.task.status is TaskStatus.FAILED
        assert outcome.answer == (
            "render, which agent 'maker' had called, has ended, but the swarm no longer has this agent. "
            "The task was ended."
        )
        kind = EventKind.ACTION_ERROR if result.has_failed else EventKind.ACTION_COMPLETE
        assert [result.text in event.text for event in outcome.of(kind)] == [True], "it can be read"
        assert repeated.state in (CallState.FINISHED, CallState.FAILED)

    async def test_one_whose_action_is_gone_is_read_and_says_so(self) -> None:
        async with asleep() as (rig, studio, submitted):
            rig.runtime.swarm = build_swarm({"director": lambda view: [complete(view.mail.body)]})
            await rig.runtime.callbacks.finish(studio.tokens[0], DONE)
            outcome = await rig.outcome(submitted)
        assert outcome.task.status is TaskStatus.COMPLETED
        assert outcome.answer == "render, an action that you no longer have: the film"


class TestTime:
    async def test_without_a_result_the_agent_reads_an_error(self) -> None:
        async with asleep() as (rig, studio, submitted):
            await rig.pass_time(3 * DAY - 1)
            assert (await rig.task(submitted.key)).is_asleep
            await rig.pass_time(1)
            outcome = await rig.outcome(submitted)
            with pytest.raises(CallbackClosed, match="it is too late: render has failed"):
                await rig.runtime.callbacks.finish(studio.tokens[0], DONE)
        assert outcome.answer == "render: ERROR: its result had not come by 2026-02-03T08:00:00+00:00"

    async def test_heartbeats_keep_a_call_alive_and_write_only_its_record(self) -> None:
        async with asleep(heartbeat=600.0) as (rig, studio, submitted):
            before = await rig.task(submitted.key)
            assert before.waits.due == NOW + 600
            rig.clock.advance(500)  # type: ignore[attr-defined]
            reported = await rig.runtime.callbacks.report(studio.tokens[0], "half of it")
            assert (reported.state, reported.due) == (CallState.WAITING, NOW + 1100)
            assert await rig.task(submitted.key) == before
            await rig.pass_time(200)
            after = await rig.task(submitted.key)
            assert (after.waits.due, after.seq) == (NOW + 1100, before.seq)
            (record,) = await rig.store.list_waits(submitted.key, limit=9)
            assert record.progress == "half of it"
            await rig.pass_time(400)
            outcome = await rig.outcome(submitted)
        assert outcome.answer == "render: ERROR: nothing had been heard of it for 600 seconds"

    async def test_short_heartbeats_cost_a_commit_a_minute_and_delay_no_deadline(self) -> None:
        async with asleep(heartbeat=10.0, finish_within=100.0) as (rig, studio, submitted):
            before = await rig.task(submitted.key)
            for _ in range(9):
                rig.clock.advance(5)  # type: ignore[attr-defined]
                await rig.runtime.callbacks.report(studio.tokens[0])
                await rig.pass_time(5)
            after = await rig.task(submitted.key)
            assert after.version <= before.version + 2
            assert after.waits.due == NOW + 100
            await rig.pass_time(10)
            assert (await rig.outcome(submitted)).answer.startswith("render: ERROR")

    async def test_calls_that_were_not_read_do_not_expire(self) -> None:
        async with asleep() as (rig, _, submitted):
            task = await rig.task(submitted.key)
            assert fall_due(Draft(task, rig.swarm, rig.clock), None, NOW + 4 * DAY) is None

    async def test_many_calls_expire_a_few_at_a_time(self) -> None:
        studio = Studio()
        rule = lambda view: [call("render")] * 30 if view.mail.sender_type == "user" else [wait("more")]  # noqa: E731
        async with Rig(build_swarm({"director": rule}, actions={"render": studio.action()})) as rig:
            submitted = await rig.submit("one")
            await until_asleep(rig, submitted.key)
            await rig.submit("two", task_id=submitted.key.task_id)
            async with asyncio.timeout(60):
                while (await rig.task(submitted.key)).waits.open_calls < 60:  # noqa: ASYNC110 - of a store
                    await asyncio.sleep(0.001)
            await rig.pass_time(3 * DAY)
            await rig.pass_time(0)
            assert (await rig.task(submitted.key)).waits.open_calls == 0
            told = [event.message for event in await rig.store.read_events(submitted.key) if event.message]
            lines = [
                len(message.message.body.splitlines())
                for message in told
                if message.message.subject == "::action_error::"
            ]
            assert lines == [MOST_ENDED, 60 - MOST_ENDED]

    async def test_a_report_has_a_limit(self) -> None:
        async with asleep() as (rig, studio, _):
            with pytest.raises(BadRequest, match="1000 characters"):
                await rig.runtime.callbacks.report(studio.tokens[0], "x" * 1001)


class TestTask:
    async def test_other_mail_is_worked_on_while_a_call_waits(self) -> None:
        studio = Studio()

        def chief(view: View) -> Sequence[Call]:
            if view.mail.sender_type == "user":
                return [request("maker", view.mail.body)]
            return [wait("more")] if view.mail.body == "2" else [complete(view.mail.body)]

        def maker(view: View) -> Sequence[Call]:
            if view.mail.sender_type == "system":
                return [respond("chief", view.mail.body)]
            return [call("render")] if view.mail.body == "film" else [respond("chief", "2")]

        swarm = build_swarm({"chief": chief, "maker": maker}, actions={"render": studio.action()})
        async with Rig(swarm) as rig:
            submitted = await rig.submit("film")
            await until_asleep(rig, submitted.key)
            await rig.submit("1+1", task_id=submitted.key.task_id)
            await until_asleep(rig, submitted.key)
            await rig.runtime.callbacks.finish(studio.tokens[0], DONE)
            outcome = await rig.outcome(submitted)
        assert outcome.answer == "render: the film"
        assert [message.message.body for message in outcome.sent_to("chief")][-2:] == [
            "2",
            "render: the film",
        ]

    async def test_completing_it_is_refused_once_and_then_cancels_its_calls(self) -> None:
        studio = Studio()

        def hasty(view: View) -> Sequence[Call]:
            if len(view.messages) == 1:
                return [call("render"), complete("no film")]
            return [complete(view.mail.body)]

        async with Rig(build_swarm({"hasty": hasty}, actions={"render": studio.action()})) as rig:
            outcome = await rig.ask()
            assert "this is still to come: a call of render (hasty)" in outcome.answer
            assert outcome.task.waits.open_calls == 0
            with pytest.raises(CallbackClosed, match="no longer waits for render"):
                await rig.runtime.callbacks.finish(studio.tokens[0], DONE)
            await rig.ask("again", task_id=outcome.key.task_id)
            with pytest.raises(CallbackClosed):
                await rig.runtime.callbacks.finish(studio.tokens[0], DONE)

    async def test_cancelling_it_closes_the_tokens_also_of_a_turn_that_runs(self) -> None:
        async with asleep() as (rig, studio, submitted):
            studio.hold.clear()
            studio.begun.clear()
            await rig.submit("render", task_id=submitted.key.task_id)
            await studio.begun.wait()
            await rig.runtime.cancel(rig.user, submitted.key.task_id)
            studio.hold.set()
            for token in studio.tokens:
                with pytest.raises(CallbackClosed, match="no longer waits"):
                    await rig.runtime.callbacks.finish(token, DONE)

    async def test_one_that_is_asleep_is_not_counted_as_running(self) -> None:
        async with asleep() as (rig, _, submitted):
            assert await rig.store.count_running(submitted.key.instance, upto=10) == 0
            listed = await rig.store.list_tasks(submitted.key.instance, status=TaskStatus.RUNNING)
            assert [task.key for task in listed.tasks] == [submitted.key]
            assert await rig.store.list_ready() == []

    async def test_a_fork_leaves_its_calls_behind_and_says_so(self) -> None:
        async with asleep() as (rig, studio, submitted):
            forked = await rig.runtime.fork(rig.user, submitted.key.task_id)
            assert forked.task.waits.open_calls == 0
            (told,) = await rig.inbox(forked.task.key)
            assert "what was to come to you later (a call of render)" in told.message.message.body
            await rig.runtime.callbacks.finish(studio.tokens[0], DONE)
            assert (await rig.outcome(submitted)).answer == "render: the film"

    async def test_a_turn_begins_a_limited_number_of_calls(self) -> None:
        studio = Studio()
        many = MAX_CALLS_IN_A_TURN + 1
        rule = lambda view: [call("render")] * many if len(view.messages) == 1 else [wait("films")]  # noqa: E731
        async with Rig(build_swarm({"director": rule}, actions={"render": studio.action()})) as rig:
            submitted = await rig.submit()
            await until_asleep(rig, submitted.key)
            assert (await rig.task(submitted.key)).waits.open_calls == MAX_CALLS_IN_A_TURN
            history = await rig.history("director", submitted.key)
        results = [entry["content"] for entry in history if entry["role"] == "tool"]
        assert sum("one turn can begin 32 calls" in result for result in results) == 1


class TestAction:
    async def test_one_that_returns_its_result_at_once_closes_its_callback(self) -> None:
        tokens: list[str] = []

        async def render(arguments: dict[str, Any]) -> str:
            tokens.append(current_context().callback.token)
            return "a short film"

        action = ActionCore("render", render, finish_within=60.0)
        async with Rig(build_swarm({"director": director}, actions={"render": action})) as rig:
            outcome = await rig.ask("render")
            assert outcome.answer == "render: a short film"
            with pytest.raises(CallbackClosed, match="with another result"):
                await rig.runtime.callbacks.finish(tokens[0], DONE)

    async def test_only_one_that_finishes_later_may_return_later(self) -> None:
        async def render(arguments: dict[str, Any]) -> Later:
            assert not current_context().callback.token
            return LATER

        async with Rig(build_swarm({"director": director}, actions={"render": render})) as rig:
            answer = (await rig.ask("render")).answer
        assert "must return str, but returned Later; only an action with finishes='later' may" in answer

    async def test_an_approved_call_may_finish_later(self) -> None:
        studio = Studio()
        async with studio_of(studio, needs_approval=True) as rig:
            paused = await rig.ask("render")
            assert paused.task.status is TaskStatus.PAUSED
            approved = await rig.submit(
                task_id=paused.key.task_id,
                resume_from="breakpoint_tool_call",
                approvals=[{"decision": "approve", "all": True}],
            )
            await until_asleep(rig, paused.key)
            await rig.runtime.callbacks.finish(studio.tokens[0], DONE)
            assert (await rig.outcome(approved)).answer == "render: the film"

    async def test_a_restart_changes_nothing(self, tmp_path: Path) -> None:
        studio = Studio()
        swarm = build_swarm({"director": director}, actions={"render": studio.action(), "look": look})
        async with Rig(swarm, path=tmp_path / "mail.db") as rig:
            submitted = await rig.submit("render")
            await until_asleep(rig, submitted.key)
            await rig.restart()
            await rig.runtime.callbacks.finish(studio.tokens[0], DONE)
            assert (await rig.outcome(submitted)).answer == "render: the film"

    @pytest.mark.parametrize(
        ("settings", "says"),
        [
            (("later", None, None), "needs a timeout"),
            (("later", "3 days", None), "such as '90s'"),
            (("later", 0, None), "must be above 0"),
            (("later", "367d", None), "at most 366 days"),
            (("later", "3d", "x"), "heartbeat must be seconds"),
            (("now", 5, "10s"), "only for actions with finishes='later'"),
            (("sometime", 5, None), "finishes must be 'now' or 'later'"),
        ],
    )
    def test_settings_that_make_no_sense_are_refused(self, settings: Any, says: str) -> None:
        with pytest.raises(ConfigurationError, match=says):
            ActionCore("render", look, **read_timing("render", *settings)._asdict())

    def test_durations(self) -> None:
        assert read_timing("render", "later", "1.5h", "10m") == (None, 5400.0, 600.0)
        assert read_timing("render", "now", "90s", None) == (90.0, None, None)


def test_a_token_names_its_task() -> None:
    key = TaskKey("user:ünï@example", "a task")
    assert task_of(new_token(*key, "secret")) == key
