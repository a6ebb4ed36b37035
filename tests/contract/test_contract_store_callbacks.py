"""Store: what calls that finish later ask of it. Their records change with the commits of their task, and no result is
lost or read twice, however often a worker dies."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
from support.engines.adapters import StoreAdapter

from mail.adapters.local.queue import LocalQueue
from mail.core.decisions.submit import Submission
from mail.core.engine.runtime import Runtime
from mail.core.protocol.address import Principal
from mail.core.task.callbacks import LATER, CallResult, CallState, Later, LaterCall
from mail.core.task.change import TaskChange
from mail.core.task.draft import Draft
from mail.core.task.events import EventKind
from mail.core.task.ports import Store
from mail.core.task.swarm import ActionCore
from mail.core.task.task import Task, TaskKey, TaskStatus
from mail.core.turns.context import current_context
from mail.errors import CallbackNotFound
from mail.testing.agents import View, build_swarm, call, complete
from mail.testing.clock import FakeClock

ANN = Principal(role="user", id="ann", swarm="example")
KEY = TaskKey(str(ANN), "task-1")
DAY = 86_400.0
FILM = CallResult("the film")


class Died(BaseException):
    """The process is gone."""


@dataclass
class Mortal:
    """A store whose process dies at one of its writes: before it, or after it."""

    store: Store
    fate: tuple[int, str] | None = None
    writes: int = 0

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self.store, name)

        async def write(*args: Any, **kwargs: Any) -> Any:
            self.writes += 1
            if self.fate == (self.writes, "before"):
                raise Died
            result = await method(*args, **kwargs)
            if self.fate == (self.writes, "after"):
                raise Died
            return result

        return write if name in ("save_checkpoint", "put_wait", "commit") else method


@dataclass
class Server:
    """A process that runs a swarm whose agent has a film rendered, and tells its result."""

    store: Store
    clock: FakeClock
    idempotent: bool = False
    is_early: bool = False
    tokens: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self, fate: tuple[int, str] | None = None) -> None:
        self.queue = LocalQueue(lambda: self.clock.now().timestamp())
        action = ActionCore(
            "render", self._render, idempotent=self.idempotent, finish_within=3 * DAY, heartbeat=DAY
        )
        swarm = build_swarm({"chief": self._chief}, actions={"render": action})
        store = cast(Store, Mortal(self.store, fate))
        self.runtime = Runtime(swarm, store, self.queue, self.clock)

    def _chief(self, view: View) -> Any:
        return [call("render")] if view.mail.sender_type == "user" else [complete(view.mail.body)]

    async def _render(self, _arguments: dict[str, Any]) -> str | Later:
        token = current_context().callback.token
        self.tokens.append(token)
        if self.is_early:
            await Runtime(self.runtime.swarm, self.store, self.queue, self.clock).callbacks.finish(
                token, FILM
            )
        return LATER

    async def work(self) -> None:
        while len(self.queue):
            await self.runtime.run_turn(*await self.queue.take())

    async def begin(self) -> None:
        await self.runtime.submit(ANN, Submission(body="go", task_id="task-1"))
        await self.work()

    async def take_over(self) -> None:
        """Begin again where a dead process has left off, after its leases have expired."""
        self.clock.advance(100)
        self.restart()
        await self.runtime.sweep()
        await self.runtime.recover()
        await self.work()

    async def task(self) -> Task:
        task = await self.store.load(KEY)
        assert task is not None
        return task

    async def answer(self) -> str:
        response = await self.store.read_response(KEY, 1)
        assert response is not None
        return response.message.body


WRITES = [(number, when) for number in (1, 2, 3, 4) for when in ("before", "after")]
"""Of the turn: a checkpoint before the action, the call's record, a checkpoint after the action, and the commit."""


@pytest.mark.parametrize("fate", WRITES, ids=lambda fate: f"{fate[1]} write {fate[0]}")
@pytest.mark.parametrize("idempotent", [False, True], ids=["once", "idempotent"])
async def test_a_worker_that_dies_at_a_write_loses_no_call(
    adapter: StoreAdapter, fate: tuple[int, str], idempotent: bool
) -> None:
    server = Server(adapter.store, FakeClock(), idempotent)
    await server.runtime.submit(ANN, Submission(body="go", task_id="task-1"))
    server.restart(fate)
    await server.runtime.recover()
    with pytest.raises(Died):
        await server.work()
    await server.take_over()
    task = await server.task()
    assert (task.is_asleep, task.waits.open_calls) == (True, 1)
    assert idempotent or len(server.tokens) <= 1
    assert len(set(server.tokens)) <= 1
    if server.tokens:
        await server.runtime.callbacks.finish(server.tokens[0], FILM)
    else:  # it is unknown whether the action has run
        server.clock.advance(DAY)
        await server.runtime.sweep()
    await server.work()
    assert await server.answer() in (
        "render: the film",
        "render: ERROR: nothing had been heard of it for 86400 seconds",
    )
    assert (await server.answer() == "render: the film") is bool(server.tokens)
    assert (await server.task()).waits.open_calls == 0


@pytest.mark.parametrize("fate", [(1, "before"), (1, "after")], ids=["before", "after"])
async def test_a_result_whose_commit_dies_can_be_sent_again(
    adapter: StoreAdapter, fate: tuple[int, str]
) -> None:
    server = Server(adapter.store, FakeClock())
    await server.begin()
    server.restart(fate)
    with pytest.raises(Died):
        await server.runtime.callbacks.finish(server.tokens[0], FILM)
    server.restart()
    await server.runtime.callbacks.finish(server.tokens[0], FILM)
    await server.runtime.recover()
    await server.work()
    assert await server.answer() == "render: the film"
    events = [event.kind for event in await server.store.read_events(KEY)]
    assert events.count(EventKind.ACTION_COMPLETE) == 1


async def test_a_result_that_comes_before_the_commit_is_found_by_it(adapter: StoreAdapter) -> None:
    server = Server(adapter.store, FakeClock(), is_early=True)
    await server.begin()
    assert await server.answer() == "render: the film"
    assert (await server.task()).waits.early == ()


async def test_of_results_at_the_same_time_one_counts(adapter: StoreAdapter) -> None:
    server = Server(adapter.store, FakeClock())
    await server.begin()
    results = [CallResult(f"film {n}") for n in range(4)]
    finish = server.runtime.callbacks.finish
    answers = await asyncio.gather(
        *(finish(server.tokens[0], result) for result in results), return_exceptions=True
    )
    (won,) = [n for n, answer in enumerate(answers) if not isinstance(answer, Exception)]
    await server.work()
    assert await server.answer() == f"render: film {won}"


async def test_what_is_stored_of_a_call(durable: StoreAdapter) -> None:
    server = Server(durable.store, FakeClock())
    await server.begin()
    assert (await server.task()).status is TaskStatus.RUNNING
    assert await server.store.count_running(KEY.instance, upto=9) == 0
    listed = await server.store.list_tasks(KEY.instance, status=TaskStatus.RUNNING)
    assert [task.key for task in listed.tasks] == [KEY]
    assert (await server.store.list_tasks(KEY.instance, status=TaskStatus.PAUSED)).tasks == []
    store = await durable.reopen()
    task = await store.load(KEY)
    assert task == await server.task()
    assert await store.list_ready() == []
    (waiting,) = await store.list_waits(KEY, limit=9)
    assert waiting == await store.read_wait(KEY, waiting.digest)
    assert await store.read_wait(KEY, "0" * 64) is None
    due = waiting.due
    assert await store.list_due(due - 1) == []
    assert [each.task.key for each in await store.list_due(due)] == [KEY]
    heard = waiting.heard_of(due - 1, "half of it")
    assert await store.put_wait(KEY, heard, instead_of=waiting)
    assert not await store.put_wait(KEY, waiting, instead_of=waiting)
    assert not await store.put_wait(KEY, waiting)
    assert await store.list_waits(KEY, limit=9) == [heard]
    assert await store.load(KEY) == task


async def test_a_call_that_was_heard_of_moves_when_its_task_is_due(adapter: StoreAdapter) -> None:
    server = Server(adapter.store, FakeClock())
    await server.begin()
    server.clock.advance(DAY - 1)
    await server.runtime.callbacks.report(server.tokens[0])
    server.clock.advance(1)
    await server.runtime.sweep()
    now = server.clock.now().timestamp()
    assert (await server.task()).is_asleep
    assert await server.store.list_due(now) == []
    assert [each.task.key for each in await server.store.list_due(now + DAY)] == [KEY]
    server.clock.advance(DAY)
    await server.runtime.sweep()
    await server.work()
    assert "nothing had been heard of it" in await server.answer()
    assert await server.store.list_waits(KEY, limit=9) == []


async def test_a_deleted_task_leaves_no_calls(adapter: StoreAdapter) -> None:
    server = Server(adapter.store, FakeClock())
    await server.begin()
    (waiting,) = await server.store.list_waits(KEY, limit=9)
    await server.runtime.cancel(ANN, KEY.task_id)
    await server.runtime.delete(*KEY)
    assert await server.store.read_wait(KEY, waiting.digest) is None
    with pytest.raises(CallbackNotFound):
        await server.runtime.callbacks.finish(server.tokens[0], FILM)


async def test_a_commit_changes_several_calls(adapter: StoreAdapter) -> None:
    server = Server(adapter.store, FakeClock())
    await server.begin()
    (first,) = await server.store.list_waits(KEY, limit=9)
    others = [replace(first, digest=str(n), state=CallState.STARTED) for n in range(3)]
    for other in others:
        assert await server.store.put_wait(KEY, other)
    assert await server.store.list_waits(KEY, limit=9) == [first]
    task = await server.task()
    change = _failing(server, task, [first, *others])
    await server.store.commit(change)
    assert await server.store.list_waits(KEY, limit=9) == []
    assert [await server.store.read_wait(KEY, other.digest) for other in others] == list(change.waits[1:])


def _failing(server: Server, task: Task, calls: list[LaterCall]) -> TaskChange:
    draft = Draft(task, server.runtime.swarm, server.clock)
    draft.emit(EventKind.ACTION_ERROR, "all have failed")
    for each in calls:
        draft.keep_wait(replace(each, state=CallState.FAILED))
    return draft.seal()
