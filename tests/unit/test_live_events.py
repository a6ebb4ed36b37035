"""Live events in one process: what a turn that is taken over shows, and what nobody needs."""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from mail.core.decisions.submit import Submission
from mail.core.engine.live import LiveHub
from mail.core.task.activity import model_call
from mail.core.task.live import LiveEvent, LiveKind
from mail.core.task.swarm import ActionCore
from mail.core.task.task import TaskKey
from mail.core.task.usage import Usage
from mail.core.turns.context import TURN
from mail.testing.agents import (
    Call,
    View,
    build_agent,
    build_swarm,
    call,
    complete,
    request,
    respond,
    turns,
    wait,
)
from mail.testing.clock import FakeClock
from mail.testing.rig import Rig, ask_once


async def test_a_watcher_sees_that_a_turn_is_taken_over() -> None:
    clock = FakeClock()
    swarm = build_swarm({"supervisor": lambda view: [complete("done")]})
    async with Rig(swarm, clock=clock, concurrency=0) as rig:
        await rig.runtime.submit(rig.user, Submission(body="hello", task_id="t"))
        key = TaskKey(str(rig.user), "t")
        opened = await rig.runtime.turns.lease(
            key, "supervisor", -1.0
        )  # a worker that dies, and its lease has expired
        assert isinstance(opened, tuple)
        lost = opened[0].lease.token
        live: list[LiveEvent] = []
        async with rig.runtime.turns.live.subscribe(key) as subscription:
            await rig.runtime.run_turn(key, "supervisor")
            live = subscription.take()
    assert [(event.kind, event.turn == lost) for event in live] == [
        (LiveKind.TURN_ENDED, True),
        (LiveKind.TURN_STARTED, False),
        (LiveKind.TURN_ENDED, False),
    ]
    assert live[0].extra["outcome"] == "taken_over"
    assert live[1].extra["attempt"] == 2
    assert live[2].extra["outcome"] == "committed"


async def test_the_error_of_an_action_is_its_first_line_cut() -> None:
    async def fail(_args: Any) -> str:
        raise ValueError("\n" + "x" * 300 + "\nmore")

    search = ActionCore("search", fail, read_only=True, retries=1)
    agent = build_agent(turns([call("search")], [complete("done")]), supervises=True, actions=["search"])
    async with Rig(build_swarm({"supervisor": agent}, actions={"search": search}), concurrency=0) as rig:
        await rig.runtime.submit(rig.user, Submission(body="hello", task_id="t"))
        key = TaskKey(str(rig.user), "t")
        async with rig.runtime.turns.live.subscribe(key) as subscription:
            await rig.runtime.run_turn(key, "supervisor")
            live = subscription.take()
    assert [event.extra["error"] for event in live if event.kind is LiveKind.ACTION_ENDED] == ["x" * 200]
    (retried,) = [event.extra for event in live if event.kind is LiveKind.ACTION_RETRIED]
    assert (retried["tool_name"], retried["reason"], retried["attempt"]) == ("search", "x" * 200, 2)
    assert 0.5 <= retried["retry_in"] <= 1


async def test_who_begins_to_watch_within_a_reply_gets_its_beginning_once() -> None:
    seen: list[list[str]] = []

    async def write(view: View) -> list[Call]:
        live = rig.runtime.turns.live
        async with live.subscribe(key, deltas=True) as first:
            with model_call("m/m") as calling:
                calling.delta("answer", "Once upon ")
                async with live.subscribe(key, deltas=True) as second, live.subscribe(key) as third:
                    calling.delta("answer", "a time")
                    calling.retry("busy", 0.1)
                    async with live.subscribe(key, deltas=True) as last:
                        calling.delta("answer", "Again")
                        seen.extend(
                            [event.delta for event in each.take() if event.delta]
                            for each in (first, second, third, last)
                        )
        return [complete("done")]

    async with Rig(build_swarm({"supervisor": write}), concurrency=0) as rig:
        await rig.runtime.submit(rig.user, Submission(body="hello", task_id="t"))
        key = TaskKey(str(rig.user), "t")
        await rig.runtime.run_turn(key, "supervisor")
    assert seen == [
        ["Once upon ", "a time", "Again"],
        ["Once upon ", "a time", "Again"],
        [],
        ["Again"],
    ]


async def test_a_hub_forgets_tasks_that_nobody_watches() -> None:
    swarm = build_swarm({"supervisor": lambda view: [complete("done")]})
    async with Rig(swarm) as rig:
        submitted = await rig.runtime.submit(rig.user, Submission(body="hello", task_id="t"))
        events = rig.runtime.watch(submitted.key, answer_to=submitted.seq)
        async with aclosing(rig.runtime.with_live(submitted.key, events)) as batches:
            async for _ in batches:
                assert submitted.key in rig.runtime.turns.live.watched
        assert not rig.runtime.turns.live.watched


async def test_a_hub_forgets_those_who_never_came(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mail.core.engine.live.EXPECT_SECONDS", 0.05)
    hub = LiveHub(lambda key: [])
    one, other = (TaskKey("user:ann@example", task) for task in "ab")
    await hub.expect(one, deltas=True)
    assert hub.wants_deltas(one)
    await asyncio.sleep(0.1)
    assert not hub.wants_deltas(one)
    assert not hub.watched
    await hub.expect(other, deltas=False)
    assert hub.watched.keys() == {other}
    assert not hub.wants_deltas(other)


def test_a_model_can_be_called_outside_of_a_turn() -> None:
    with model_call("house/model") as reply:
        reply.retry("HTTP 500", 1.0)
        reply.delta("text", "hi")
        reply.report(Usage(calls=1))
        assert not reply.wants_deltas


@pytest.mark.parametrize(
    ("kind", "extra", "is_answer"),
    [
        (LiveKind.TEXT_DELTA, {"kind": "answer", "delta": "4"}, True),
        (LiveKind.TEXT_DELTA, {"kind": "text", "delta": "4", "to": "user"}, True),
        (LiveKind.TEXT_DELTA, {"kind": "text", "delta": "4", "to": "lead"}, False),
        (LiveKind.TEXT_DELTA, {"kind": "text", "delta": "4"}, False),
        (LiveKind.TEXT_DELTA, {"kind": "reasoning", "delta": "4"}, False),
        (LiveKind.TURN_STARTED, {}, False),
    ],
)
def test_the_pieces_of_the_answer(kind: LiveKind, extra: dict[str, Any], is_answer: bool) -> None:
    event = LiveEvent(kind, "turn", 1, "", "", {"agent": "searcher", **extra})
    assert (event.agent, event.is_answer) == ("searcher", is_answer)


async def test_plain_text_is_for_nobody_if_the_agent_must_call_a_tool_or_waits() -> None:
    recipients: list[str] = []

    async def supervise(_view: View) -> list[Call]:
        activity = TURN.get().activity
        assert activity is not None
        recipients.append(activity.text_recipient)
        return [request("worker"), wait()] if len(recipients) == 1 else [complete("done")]

    worker = turns([respond("supervisor")])
    for strict in (False, True):
        recipients.clear()
        lead = build_agent(supervise, targets=["worker"], supervises=True, strict_tools=strict)
        swarm = build_swarm({"supervisor": lead, "worker": worker})
        events = (await ask_once(swarm)).events
        assert recipients == ([""] * 2 if strict else ["user"] * 2)
    assert {event.agent for event in events if event.message is not None} == {"", "supervisor", "worker"}
