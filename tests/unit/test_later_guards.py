"""Guards on results that come after the turn of their call: nobody sees such a result before it is judged."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from test_callbacks import DAY, Studio, until_asleep
from test_guards import MARKER, everything, guard_of, no_marker, without_marker
from test_polled_calls import Works, ask, begin, calls_of, lead, working

from mail.core.engine.watch import Submitted
from mail.core.task.callbacks import MAX_JUDGED, CallResult, CallState
from mail.core.task.costs import Usage
from mail.core.task.events import EventKind
from mail.core.task.extras import GuardExtra
from mail.core.task.guards import ALLOW, Act, Guard, Refuse, Ruling
from mail.core.task.task import TaskStatus
from mail.core.turns.context import report_usage
from mail.errors import CallbackClosed, PayloadTooLarge
from mail.testing.agents import Call, View, build_agent, build_swarm, call, complete
from mail.testing.rig import Rig

SECRET = CallResult(f"the film {MARKER}")


def chief(view: View) -> Sequence[Call]:
    return [call("render")] if view.mail.sender_type == "user" else [complete(view.mail.body)]


def studio_of(studio: Studio, *guards: Guard, **settings: Any) -> Rig:
    actions = {"render": studio.action(**settings)}
    return Rig(build_swarm({"chief": chief}, actions=actions, guards=guards))


@asynccontextmanager
async def asleep(*guards: Guard, **settings: Any) -> AsyncIterator[tuple[Rig, Studio, Submitted]]:
    """A task of a studio whose call waits."""
    studio = Studio()
    async with studio_of(studio, *guards, **settings) as rig:
        submitted = await rig.submit("go")
        await until_asleep(rig, submitted.key)
        yield rig, studio, submitted


def decisions(events: Sequence[Any]) -> list[GuardExtra]:
    return [event.extra for event in events if event.kind is EventKind.GUARD_DECISION]


@pytest.mark.parametrize(
    ("rule", "read"),
    [(no_marker, "render: [refused: it has the marker]"), (without_marker, "render: the film …")],
)
@pytest.mark.parametrize("is_early", [False, True], ids=["after its turn", "before the commit"])
async def test_nobody_sees_a_result_before_it_is_judged(rule: Any, read: str, is_early: bool) -> None:
    studio = Studio()
    async with studio_of(studio, guard_of(rule, "result")) as rig:
        if is_early:
            studio.hold.clear()
        submitted = await rig.submit("go")
        await studio.begun.wait()
        if not is_early:
            await until_asleep(rig, submitted.key)
        ended = await rig.runtime.callbacks.finish(studio.tokens[0], SECRET)
        assert ended.state is CallState.WAITING
        seen = repr(await rig.store.read_events(submitted.key))
        studio.hold.set()
        outcome = await rig.outcome(submitted)
        assert MARKER not in seen + await everything(rig, outcome)
    assert outcome.answer == read
    assert (outcome.task.waits.open_calls, outcome.task.waits.see_at) == (0, None)
    [extra] = decisions(outcome.events)
    assert (extra.on, extra.tool_name, extra.outcome) == (
        "result",
        "render",
        "refuse" if rule is no_marker else "replace",
    )


async def test_an_allowed_result_and_a_failure_are_as_ever() -> None:
    judged: list[Act] = []

    def note(act: Act) -> Ruling:
        judged.append(act)
        return ALLOW

    for result, read in (
        (CallResult("fine"), "render: fine"),
        (CallResult("no film", has_failed=True), "render: ERROR: no film"),
    ):
        async with asleep(guard_of(note, "result")) as (rig, studio, submitted):
            await rig.runtime.callbacks.finish(studio.tokens[0], result)
            outcome = await rig.outcome(submitted)
        assert outcome.answer == read
    assert [(act.text, act.tool, act.agent) for act in judged] == [
        ("fine", "render", "chief"),
        ("no film", "render", "chief"),
    ]


async def test_a_failure_that_is_refused_quotes_nothing() -> None:
    async with asleep(guard_of(no_marker, "result")) as (rig, studio, submitted):
        await rig.runtime.callbacks.finish(studio.tokens[0], CallResult(MARKER, has_failed=True))
        outcome = await rig.outcome(submitted)
        assert MARKER not in await everything(rig, outcome)
    assert outcome.answer == "render: ERROR: [refused: it has the marker]"


async def test_the_same_result_again_changes_nothing_and_another_is_refused() -> None:
    async with asleep(guard_of(no_marker, "result")) as (rig, studio, submitted):
        finish = rig.runtime.callbacks.finish
        await finish(studio.tokens[0], SECRET)
        await finish(studio.tokens[0], SECRET)
        await rig.outcome(submitted)
        assert (await finish(studio.tokens[0], SECRET)).state is CallState.FINISHED
        with pytest.raises(CallbackClosed):
            await finish(studio.tokens[0], CallResult("another"))


async def test_progress_is_not_shown_and_a_large_result_is_refused() -> None:
    async with asleep(guard_of(no_marker, "result")) as (rig, studio, submitted):
        await rig.runtime.callbacks.report(studio.tokens[0], MARKER)
        assert MARKER not in repr(await rig.store.list_waits(submitted.key, limit=9))
        with pytest.raises(PayloadTooLarge):
            await rig.runtime.callbacks.finish(studio.tokens[0], CallResult("x" * (MAX_JUDGED + 1)))
        await rig.runtime.callbacks.finish(studio.tokens[0], CallResult("small"))
        assert (await rig.outcome(submitted)).answer == "render: small"


async def test_what_a_judging_model_costs_is_charged() -> None:
    async def judge(act: Act) -> Ruling:
        report_usage(Usage(input_tokens=7, output_tokens=1, calls=1), "house/judge")
        return Refuse("no") if MARKER in act.text else ALLOW

    guard = Guard(name="model", function=judge, on=frozenset({"result"}), checkpointed=True)
    async with asleep(guard) as (rig, studio, submitted):
        await rig.runtime.callbacks.finish(studio.tokens[0], SECRET)
        outcome = await rig.outcome(submitted)
    assert outcome.task.usage["chief"].input_tokens == 7
    assert outcome.task.models["house/judge"].calls == 1


async def test_a_guard_that_fails_refuses() -> None:
    async def fail(_act: Act) -> Ruling:
        raise ValueError(MARKER)

    async with asleep(Guard(name="broken", function=fail, on=frozenset({"result"}))) as (
        rig,
        studio,
        submitted,
    ):
        await rig.runtime.callbacks.finish(studio.tokens[0], SECRET)
        outcome = await rig.outcome(submitted)
        assert MARKER not in await everything(rig, outcome)
    assert outcome.answer == "render: [refused: guard broken failed]"


async def test_a_task_that_is_cancelled_meanwhile_drops_the_result() -> None:
    judged: list[Act] = []

    async def cancel(act: Act) -> Ruling:
        judged.append(act)
        await rig.runtime.cancel(rig.user, submitted.key.task_id, "enough")
        return ALLOW

    async with asleep(Guard(name="slow", function=cancel, on=frozenset({"result"}))) as (
        rig,
        studio,
        submitted,
    ):
        await rig.runtime.callbacks.finish(studio.tokens[0], SECRET)
        outcome = await rig.outcome(submitted)
        assert outcome.task.status is TaskStatus.CANCELLED
        while (await rig.task(submitted.key)).waits.see_at is not None:
            await rig.pass_time(1)
            await asyncio.sleep(0)
        assert MARKER not in await everything(rig, outcome)
        assert await rig.store.list_waits(submitted.key, limit=9) == []
    assert len(judged) == 1


async def test_a_call_that_ends_in_its_turn_is_judged_there() -> None:
    async def at_once(_arguments: dict[str, Any]) -> str:
        return f"it is {MARKER}"

    studio = Studio()
    action = studio.action()
    swarm = build_swarm(
        {"chief": lambda view: [complete(str(view.results))] if view.results else [call("render")]},
        actions={"render": type(action)("render", at_once, finish_within=DAY)},
        guards=(guard_of(no_marker, "result"),),
    )
    async with Rig(swarm) as rig:
        outcome = await rig.ask()
        assert MARKER not in await everything(rig, outcome)
    assert "[refused: it has the marker]" in outcome.answer


async def test_the_results_and_progress_of_servers_that_are_asked_are_judged() -> None:
    works = Works(working(f"half {MARKER}"), CallResult(f"boat {MARKER}"))
    swarm = build_swarm(
        {
            "lead": build_agent(
                lead, supervises=True, tool_source=works, guards=(guard_of(no_marker, "result"),)
            )
        }
    )
    async with Rig(swarm, concurrency=0) as rig:
        key = await begin(rig)
        await ask(rig, key, 5.0)
        (waiting,) = await calls_of(rig, key)
        assert (works.asked, waiting.progress) == (["boat"], "")
        await ask(rig, key, 5.0)
        assert await rig.step() == "lead"
        [extra] = decisions(await rig.store.read_events(key))
        answer = await rig.store.read_response(key, 1)
        assert MARKER not in repr((waiting, await rig.store.read_events(key), await rig.history("lead", key)))
    assert (extra.tool_name, extra.outcome) == ("build", "refuse")
    assert answer is not None
    assert answer.message.body == "build: [refused: it has the marker]"
