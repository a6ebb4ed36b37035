"""Store: what calls that finish later ask of it. Their records change with the commits of their task, and no result is
lost or read twice, however often a worker dies."""

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from support.engines.adapters import StoreAdapter
from support.engines.mortal import ANN, KEY, MortalServer

from mail.adapters.local.queue import LocalQueue
from mail.core.decisions.submit import Submission
from mail.core.engine import attempts
from mail.core.engine.runtime import Runtime
from mail.core.engine.versions import Versions
from mail.core.task.callbacks import LATER, CallResult, CallState, Later, LaterCall, digest_of
from mail.core.task.change import TaskChange
from mail.core.task.draft import Draft
from mail.core.task.events import EventKind
from mail.core.task.guards import Act, Guard, Refuse, Ruling
from mail.core.task.swarm import ActionCore, SwarmCore
from mail.core.task.task import Task, TaskStatus
from mail.core.turns.context import current_context
from mail.errors import CallbackNotFound
from mail.testing.agents import View, build_swarm, call, complete
from mail.testing.clock import FakeClock
from mail.testing.faults import Dead

DAY = 86_400.0
FILM = CallResult("the film")


@dataclass
class Server(MortalServer):
    """A process that runs a swarm whose agent has a film rendered, and tells its result."""

    idempotent: bool = False
    is_early: bool = False
    holds: bool = False
    is_judged: bool = False
    tokens: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)

    def swarm(self) -> SwarmCore:
        action = ActionCore(
            "render",
            self._render,
            idempotent=self.idempotent,
            finish_within=3 * DAY,
            heartbeat=DAY,
            on_cancel=self._cancel,
        )
        guard = Guard(name="strict", function=self._judge, on=frozenset({"result"}))
        guards = (guard,) if self.is_judged else ()
        return build_swarm({"chief": self._chief}, actions={"render": action}, guards=guards)

    async def _judge(self, _act: Act) -> Ruling:
        return Refuse("not this one")

    def _chief(self, view: View) -> Any:
        if view.mail.body == "stop":
            return [complete("done")]
        return (
            [call("render", title="waves")] if view.mail.sender_type == "user" else [complete(view.mail.body)]
        )

    async def _render(self, _arguments: dict[str, Any]) -> str | Later:
        context = current_context()
        self.tokens.append(context.callback.token)
        self.key = context.idempotency_key
        if self.is_early:
            elsewhere = Runtime(self.runtime.swarm, self.store, self.queue, self.clock)
            await elsewhere.callbacks.finish(context.callback.token, FILM)
        return LATER

    async def _cancel(self, arguments: dict[str, Any]) -> None:
        assert arguments == {"title": "waves"}
        self.cancelled.append(current_context().idempotency_key)
        if self.holds:
            await asyncio.Event().wait()


WRITES = [(number, when) for number in (1, 2, 3, 4) for when in ("before", "after")]
"""Of the turn: a checkpoint before the action, the call's record, a checkpoint after the action, and the commit."""


@pytest.mark.soak(on=("moto", "postgres"))
@pytest.mark.parametrize("fate", WRITES, ids=lambda fate: f"{fate[1]} write {fate[0]}")
@pytest.mark.parametrize("idempotent", [False, True], ids=["once", "idempotent"])
async def test_a_worker_that_dies_at_a_write_loses_no_call(
    adapter: StoreAdapter, fate: tuple[int, str], idempotent: bool
) -> None:
    server = Server(adapter.store, FakeClock(), idempotent)
    await server.runtime.submit(ANN, Submission(body="go", task_id="task-1"))
    server.restart(fate)
    await server.runtime.recover()
    with pytest.raises(Dead):
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
    with pytest.raises(Dead):
        await server.runtime.callbacks.finish(server.tokens[0], FILM)
    server.restart()
    await server.runtime.callbacks.finish(server.tokens[0], FILM)
    await server.runtime.recover()
    await server.work()
    assert await server.answer() == "render: the film"
    events = [event.kind for event in await server.store.read_events(KEY)]
    assert events.count(EventKind.ACTION_COMPLETE) == 1


@pytest.mark.soak(on=("moto", "postgres"))
@pytest.mark.parametrize("fate", WRITES[:4], ids=lambda fate: f"{fate[1]} write {fate[0]}")
@pytest.mark.parametrize("is_early", [False, True], ids=["later", "early"])
async def test_a_result_is_judged_once_whenever_its_worker_dies(
    adapter: StoreAdapter, fate: tuple[int, str], is_early: bool
) -> None:
    """It waits in the record of its call, which its task may not be committed to wait for yet."""
    server = Server(adapter.store, FakeClock(), is_early=is_early, is_judged=True)
    await server.begin()
    server.restart(fate)
    if not is_early:
        for _ in range(2):
            try:
                await server.runtime.callbacks.finish(server.tokens[0], FILM)
            except Dead:
                server.restart()
    try:
        await server.runtime.recover()
        await server.work()
    except Dead:
        pass
    await server.take_over()
    assert await server.answer() == "render: [refused: not this one]"
    events = await server.store.read_events(KEY)
    assert "the film" not in repr(events)
    kinds = [event.kind for event in events]
    assert kinds.count(EventKind.ACTION_COMPLETE) == kinds.count(EventKind.GUARD_DECISION) == 1


async def test_a_result_that_comes_before_the_commit_is_found_by_it(adapter: StoreAdapter) -> None:
    server = Server(adapter.store, FakeClock(), is_early=True)
    await server.begin()
    assert await server.answer() == "render: the film"
    assert (await server.task()).waits.early == ()


@pytest.mark.soak(on=("moto", "postgres"))
@pytest.mark.parametrize("fate", WRITES[4:7], ids=lambda fate: f"{fate[1]} write {fate[0]}")
async def test_a_worker_that_dies_after_an_early_result_waits_for_no_other(
    adapter: StoreAdapter, fate: tuple[int, str]
) -> None:
    """The result is the most urgent mail, so its turn comes before the rest of the one that called the action."""
    server = Server(adapter.store, FakeClock(), idempotent=True, is_early=True)
    await server.runtime.submit(ANN, Submission(body="go", task_id="task-1"))
    server.restart(fate)
    await server.runtime.recover()
    with pytest.raises(Dead):
        await server.work()
    server.is_early = False
    await server.take_over()
    assert await server.answer() == "render: the film"
    await server.runtime.submit(ANN, Submission(body="stop", task_id="task-1"))
    await server.work()
    assert (await server.task()).waits.early == ()
    found = await server.store.read_wait(KEY, digest_of(server.tokens[0]))
    assert isinstance(found, LaterCall)
    assert found.state is CallState.FINISHED
    assert server.cancelled == []


@pytest.mark.soak(on=("moto", "postgres"))
@pytest.mark.parametrize("fate", WRITES[:2], ids=lambda fate: f"{fate[1]} write {fate[0]}")
async def test_a_call_expires_once_whenever_its_sweeper_dies(
    adapter: StoreAdapter, fate: tuple[int, str]
) -> None:
    server = Server(adapter.store, FakeClock())
    await server.begin()
    server.clock.advance(DAY)
    server.restart(fate)
    with pytest.raises(Dead):
        await server.runtime.sweep()
    await server.take_over()
    assert "nothing had been heard of it" in await server.answer()
    assert (await server.task()).waits.open_calls == 0
    events = [event.kind for event in await server.store.read_events(KEY)]
    assert events.count(EventKind.ACTION_ERROR) == 1


CANCELLATION = WRITES[:2]
"""Of the turn of the mailbox of cancelled calls: its commit."""


@pytest.mark.soak(on=("moto", "postgres"))
@pytest.mark.parametrize("fate", CANCELLATION, ids=lambda fate: f"{fate[1]} write {fate[0]}")
async def test_a_worker_that_dies_while_it_cancels_calls_cancels_them_again(
    adapter: StoreAdapter, fate: tuple[int, str]
) -> None:
    server = Server(adapter.store, FakeClock())
    await server.begin()
    await server.runtime.cancel(ANN, KEY.task_id)
    assert (await server.task()).has_outbound_mail
    server.restart(fate)
    await server.runtime.recover()
    with pytest.raises(Dead):
        await server.work()
    await server.take_over()
    assert set(server.cancelled) == {server.key}
    assert len(server.cancelled) == (2 if fate == (1, "before") else 1)
    task = await server.task()
    assert (task.waits.cancel_at, task.has_outbound_mail) == (None, False)
    assert await server.store.list_waits(KEY, limit=9) == []
    assert await server.store.list_ready() == []
    events = [event.kind for event in await server.store.read_events(KEY)]
    assert events.count(EventKind.ACTION_CANCELLED) == 1


@pytest.mark.soak(on=("moto", "postgres"))
async def test_calls_are_cancelled_although_workers_died_of_it_again_and_again(
    adapter: StoreAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their mailbox is then among the suspects, and holds no message that could be read."""
    monkeypatch.setattr(attempts, "CALM_SECONDS", 0.0)
    server = Server(adapter.store, FakeClock())
    await server.begin()
    await server.runtime.cancel(ANN, KEY.task_id)
    server.holds = True
    dying: list[asyncio.Task[None]] = []
    for n in range(attempts.ALONE):
        dying.append(asyncio.create_task(server.work()))
        while len(server.cancelled) <= n:
            assert not dying[-1].done(), "the calls are being cancelled"
            await asyncio.sleep(0)
        server.clock.advance(DAY)
        server.restart()
        await server.runtime.sweep()
        await server.runtime.recover()
    server.holds = False
    await server.take_over()
    for each in dying:
        each.cancel()
    await asyncio.gather(*dying, return_exceptions=True)
    assert set(server.cancelled) == {server.key}
    assert (await server.task()).waits.cancel_at is None


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
    assert (await server.store.usage_of(KEY.instance)).asleep == 1
    listed = await server.store.list_tasks(KEY.instance, status=TaskStatus.RUNNING)
    assert [task.key for task in listed.tasks] == [KEY]
    assert (await server.store.list_tasks(KEY.instance, status=TaskStatus.PAUSED)).tasks == []
    before = await server.task()
    store = await durable.reopen()
    task = await store.load(KEY)
    assert task == before
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


async def test_a_result_is_read_by_the_version_on_which_its_task_finishes(adapter: StoreAdapter) -> None:
    """The process that takes the result began with another version, and has only what is stored of the first one."""
    clock, tokens = FakeClock(), list[str]()

    async def render(_arguments: dict[str, Any]) -> Later:
        tokens.append(current_context().callback.token)
        return LATER

    def swarm(mark: str) -> SwarmCore:
        def chief(view: View) -> Any:
            return (
                [call("render")]
                if view.mail.sender_type == "user"
                else [complete(f"{mark}, {view.mail.body}")]
            )

        action = ActionCore("render", render, finish_within=3 * DAY)
        built = build_swarm({"chief": chief}, actions={"render": action})
        return replace(built, version=mark, finishes=True, entry={"mark": mark})

    async def build(version: SwarmCore) -> SwarmCore:
        assert version.entry is not None
        return replace(swarm(version.entry["mark"]), kept_as=version.digest)

    def process(mark: str) -> tuple[Runtime, LocalQueue]:
        queue = LocalQueue(lambda: clock.now().timestamp())
        versions = Versions(adapter.records._documents, clock)
        versions.build = build
        return Runtime(swarm(mark), adapter.store, queue, clock, versions=versions), queue

    async def work(runtime: Runtime, queue: LocalQueue) -> None:
        while len(queue):
            await runtime.run_turn(*await queue.take())

    first, queue = process("one")
    await first.submit(ANN, Submission(body="go", task_id=KEY.task_id))
    await work(first, queue)
    second, queue = process("two")
    clock.advance(2 * DAY)
    await second.callbacks.finish(tokens[0], FILM)
    await work(second, queue)
    response = await adapter.store.read_response(KEY, 1)
    assert response is not None
    assert response.message.body == "one, render: the film"


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
