"""Live events in one process: what a turn that is taken over shows, and what nobody needs."""

from contextlib import aclosing
from typing import Any

from mail.core.decisions.submit import Submission
from mail.core.task.activity import model_call
from mail.core.task.live import LiveEvent, LiveKind
from mail.core.task.task import TaskKey
from mail.core.task.usage import Usage
from mail.testing.agents import build_agent, build_swarm, call, complete, turns
from mail.testing.clock import FakeClock
from mail.testing.rig import Rig


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
            await rig.runtime.run_turn(key, "supervisor", attempt=2)
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
    async def search(_args: Any) -> str:
        raise ValueError("\n" + "x" * 300 + "\nmore")

    agent = build_agent(turns([call("search")], [complete("done")]), supervises=True, actions=["search"])
    async with Rig(build_swarm({"supervisor": agent}, actions={"search": search}), concurrency=0) as rig:
        await rig.runtime.submit(rig.user, Submission(body="hello", task_id="t"))
        key = TaskKey(str(rig.user), "t")
        async with rig.runtime.turns.live.subscribe(key) as subscription:
            await rig.runtime.run_turn(key, "supervisor")
            live = subscription.take()
    assert [event.extra["error"] for event in live if event.kind is LiveKind.ACTION_ENDED] == ["x" * 200]


async def test_a_hub_forgets_tasks_that_nobody_watches() -> None:
    swarm = build_swarm({"supervisor": lambda view: [complete("done")]})
    async with Rig(swarm) as rig:
        submitted = await rig.runtime.submit(rig.user, Submission(body="hello", task_id="t"))
        async with aclosing(rig.runtime.watch(submitted.key, answer_to=submitted.seq, live=True)) as batches:
            async for _ in batches:
                assert submitted.key in rig.runtime.turns.live.watched
        assert not rig.runtime.turns.live.watched


def test_a_model_can_be_called_outside_of_a_turn() -> None:
    with model_call("house/model") as reply:
        reply.retry("HTTP 500", 1.0)
        reply.delta("text", "hi")
        reply.report(Usage(calls=1))
        assert not reply.wants_deltas
