"""How much a task may store: what is counted, what is refused, and how a task ends that would exceed its limit."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from pydantic_core import to_json

from mail.core.decisions.caller_limits import CallerLimits
from mail.core.engine.pacing import Pacer
from mail.core.task.events import EventKind, encode_events
from mail.core.task.ports import Store, read_history
from mail.core.task.size import json_size, message_size
from mail.core.task.task import TaskKey, TaskStatus
from mail.errors import TaskFull
from mail.testing.agents import Call, View, build_swarm, call, complete, request, respond, wait
from mail.testing.rig import Rig

LIMIT = 20_000
LARGE = "x" * 15_000


def write(view: View) -> list[Call]:
    """Answer with as many characters as the message asks for."""
    return (
        [complete("y" * int(view.mail.body.split()[0]))] if view.mail.body[0].isdigit() else [complete("ok")]
    )


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with Rig(build_swarm({"supervisor": write})) as rig:
        rig.runtime.caller_limits = CallerLimits(task_bytes=LIMIT)
        yield rig


async def all_bytes(store: Store, key: TaskKey) -> int:
    """Return the size of a task's events and histories, each as a store keeps it, and of its answer."""
    task, answer = await store.load(key), await store.read_response(key, 1)
    assert task is not None
    assert answer is not None
    histories = [await read_history(store, key, agent) for agent in task.histories]
    events = [len(encode_events([event])) - len(",") for event in await store.read_events(key)]
    return (
        sum(events)
        + task.version * len("]")
        + sum(len(to_json(history)) for history in histories)
        + message_size(answer)
    )


def test_the_size_of_a_value_is_that_of_its_texts_and_little_more() -> None:
    value = {"role": "user", "content": "ü" * 1000, "calls": [{"n": 1, "is": None, "text": "x" * 500}]}
    assert 2500 < json_size(value) < 2700
    assert json_size("\ud800") == json_size("€")


async def test_what_a_task_stores_is_counted(rig: Rig) -> None:
    ended = await rig.ask("3000 characters", task_id="t")
    small = ended.task.stored_bytes
    assert small == await all_bytes(rig.store, ended.task.key)
    assert 15_000 < small < 20_000  # 3,000 characters, five times
    again = await rig.ask("10 characters", task_id="t")
    assert 0 < again.task.stored_bytes - small < 5000


async def test_a_message_that_does_not_fit_is_refused_and_not_stored(rig: Rig) -> None:
    ended = await rig.ask("say ok", task_id="t")
    with pytest.raises(
        TaskFull, match="may store 20000; send a shorter message, or start a new task"
    ) as refusal:
        await rig.submit(f"say {'z' * LIMIT}", task_id="t")
    assert refusal.value.http_status == 413
    assert await rig.store.load(ended.task.key) == ended.task
    assert (await rig.ask("say ok", task_id="t")).answer == "ok"


async def test_a_task_that_would_begin_too_large_is_not_begun(rig: Rig) -> None:
    with pytest.raises(TaskFull, match="send less"):
        await rig.submit("z" * LIMIT, task_id="t")
    assert await rig.store.load(TaskKey(str(rig.user), "t")) is None


async def test_a_turn_that_would_exceed_it_ends_the_task_and_stores_nothing_else(rig: Rig) -> None:
    ended = await rig.ask("30000 characters", task_id="t")
    assert ended.task.status is TaskStatus.FAILED
    assert "the task may store 20000 bytes" in ended.answer
    assert "Begin a new task" in ended.answer
    assert ended.task.stored_bytes < 5000
    assert ended.task.histories == {}
    assert await rig.inbox(ended.task.key) == []
    kinds = [event.kind for event in await rig.store.read_events(ended.task.key)]
    assert EventKind.DEAD_LETTER in kinds
    assert kinds[-1] is EventKind.TASK_ERROR


async def test_a_failing_turn_may_exceed_it_as_well() -> None:
    """The history of an agent that fails has its message."""

    def fail(_view: View) -> list[Call]:
        raise RuntimeError

    async with Rig(build_swarm({"supervisor": fail})) as rig:
        rig.runtime.caller_limits = CallerLimits(task_bytes=LIMIT)
        ended = await rig.ask(LARGE, task_id="t")
        assert ended.task.status is TaskStatus.FAILED
        assert "the task may store" in ended.answer
        assert ended.task.stored_bytes < LIMIT


async def test_the_result_of_an_action_that_does_not_fit_ends_the_task() -> None:
    ran = []

    async def dump(_arguments: dict[str, object]) -> str:
        ran.append(1)
        return "d" * 2 * LIMIT

    swarm = build_swarm({"supervisor": lambda _view: [call("dump")]}, actions={"dump": dump})
    async with Rig(swarm) as rig:
        rig.runtime.caller_limits = CallerLimits(task_bytes=LIMIT)
        ended = await rig.ask("dump it", task_id="t")
        assert ended.task.status is TaskStatus.FAILED
        assert "the task may store" in ended.answer
        assert ran == [1]


async def test_other_agents_turns_find_the_task_ended() -> None:
    def boss(view: View) -> list[Call]:
        if view.mail.sender == "worker":
            return [complete("never")]
        return [request("worker", LARGE), wait()]

    async with Rig(
        build_swarm({"supervisor": boss, "worker": lambda _view: [respond("supervisor", LARGE)]})
    ) as rig:
        rig.runtime.caller_limits = CallerLimits(task_bytes=45_000)
        ended = await rig.ask("work", task_id="t")
        assert ended.task.status is TaskStatus.FAILED
        assert ended.task.stored_bytes < 45_000


async def test_a_task_at_the_limit_can_be_cancelled_and_read(rig: Rig) -> None:
    submitted = await rig.submit("say ok", task_id="t")
    rig.runtime.caller_limits = CallerLimits(task_bytes=10)
    task = await rig.runtime.cancel(rig.user, "t")
    assert task.status is TaskStatus.CANCELLED
    assert (await rig.outcome(submitted)).task.status is TaskStatus.CANCELLED


async def test_a_fork_may_be_no_larger(rig: Rig) -> None:
    await rig.ask("3000 characters", task_id="t")
    rig.runtime.caller_limits = CallerLimits(task_bytes=1000)
    with pytest.raises(TaskFull):
        await rig.runtime.fork(rig.user, "t")


async def test_short_work_runs_between_long_pieces() -> None:
    pacer, order = Pacer(), list[str]()

    async def long(name: str) -> None:
        await pacer.pause(10**6)
        order.append(name)

    async def short() -> None:
        for n in range(3):
            await pacer.pause(10)
            order.append(f"short {n}")
            await asyncio.sleep(0)

    await asyncio.gather(long("one"), long("two"), short())
    assert order == ["short 0", "short 1", "short 2", "one", "two"]
