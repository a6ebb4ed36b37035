"""`keep = "latest"`: tasks in which nothing happens lose their past, and are continued without it.

On DynamoDB the past expires (`tests/aws/test_dynamodb_retention.py`).
"""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.engines.adapters import SQLiteAdapter, StoreAdapter, loaded

from mail.adapters.local.queue import LocalQueue
from mail.core.decisions.delete import drop_past
from mail.core.decisions.submit import Submission
from mail.core.engine.delete import PASS_SECONDS
from mail.core.engine.runtime import Runtime
from mail.core.protocol.address import Principal
from mail.core.task.change import Inheritance
from mail.core.task.context import AgentContext, Cut
from mail.core.task.draft import Draft
from mail.core.task.ports import Store, read_history
from mail.core.task.task import Task, TaskKey, TaskStatus, Transition
from mail.errors import SnapshotExpired, VersionConflict
from mail.testing.agents import NAME, View, build_swarm, complete
from mail.testing.changes import ANN, SWARM, Mail, Maker
from mail.testing.clock import FakeClock
from mail.testing.contracts import committed, open_turn

DAY = 86_400.0
KEY, FORK = TaskKey(ANN, "task-1"), TaskKey(ANN, "task-2")
ADMIN = f"admin:root@{NAME}"
MARKER = "5vN2rQ8xTz0LkWc7"


@pytest.fixture
async def sql(adapter: StoreAdapter) -> Store:
    """A store that has an order of its tasks, and so deletes what is old."""
    if not (await adapter.store.list_oldest(limit=1)).is_ordered:
        pytest.skip("its data expires")
    return adapter.store


async def dropped(store: Store, task: Task) -> Task:
    change = drop_past(Draft(task, SWARM, FakeClock()))
    await store.commit(change)
    return change.task


async def answered(store: Store, make: Maker, *turns: list[Mail]) -> Task:
    """A task of two generations, whose agent has taken these turns in each, with this mail."""
    change = make.begin(KEY, Mail("alpha"))
    for generation in (1, 2):
        await store.commit(change)
        task = change.task
        for n, mail in enumerate(turns):
            turn = await open_turn(store, KEY, "alpha", make, history_after=99)
            is_last = n == len(turns) - 1
            ending = Transition.COMPLETE if is_last else None
            entry = {"role": "user", "content": f"{generation}.{n}"}
            change = make.change(task, *mail, turn=turn, history=[entry], transition=ending)
            await store.commit(change)
            task = change.task
        change = make.change(task, Mail("alpha"), transition=Transition.RESUME)
    return task


async def test_a_task_keeps_what_continues_it(sql: Store, make: Maker) -> None:
    task = await answered(sql, make, [Mail("alpha")], [Mail("alpha")], [Mail("beta")])
    history, answer = await read_history(sql, KEY, "alpha"), await sql.read_response(KEY, 2)
    events, mail = await sql.read_events(KEY), await sql.read_inbox(KEY)
    assert answer is not None
    present = await dropped(sql, task)
    assert await sql.load(KEY) == present
    assert present.stored_bytes < task.stored_bytes
    assert await read_history(sql, KEY, "alpha") == history
    assert await sql.read_response(KEY, 2) == answer
    assert await sql.read_inbox(KEY) == mail
    left = await sql.read_events(KEY)
    assert left == events[-len(left) :]
    assert 1 < left[0].seq <= mail[0].seq, "the oldest unread message is in the events"
    await sql.commit(make.change(present, Mail("alpha"), transition=Transition.RESUME))
    assert (await open_turn(sql, KEY, "alpha", make)).history == history


async def test_the_answer_of_an_earlier_generation_and_its_events_are_gone(sql: Store, make: Maker) -> None:
    task = await answered(sql, make, [Mail("alpha")], [])
    assert await sql.read_response(KEY, 1) is not None
    await dropped(sql, task)
    assert await sql.read_response(KEY, 1) is None
    left = await sql.read_events(KEY)
    assert 1 < left[0].seq <= left[-1].seq == task.seq


async def test_what_is_gone_can_not_be_read_as_it_was(sql: Store, make: Maker) -> None:
    task = await answered(sql, make, [Mail("alpha")], [])
    await dropped(sql, task)
    first = (await sql.read_events(KEY))[0].seq
    for at in (1, first - 1):
        with pytest.raises(SnapshotExpired):
            await sql.read_commit(KEY, at)
        with pytest.raises(SnapshotExpired):
            await sql.read_snapshot(KEY, at)
    assert (await sql.read_commit(KEY, first)).task.seq == task.seq
    assert (await sql.read_snapshot(KEY, task.seq)).task.histories == task.histories


async def test_histories_behind_a_cut_are_gone(sql: Store, make: Maker) -> None:
    task = await answered(sql, make, [Mail("alpha")], [])
    assert task.histories["alpha"] == 4
    cut = make.change(task)
    cut = replace(cut, task=replace(cut.task, contexts={"alpha": AgentContext(cut=Cut(begin=3))}))
    await sql.commit(cut)
    present = await dropped(sql, cut.task)
    assert [portion.n for portion in await sql.read_portions(KEY, "alpha")] == [3, 4]
    inherits = Inheritance(KEY, {"alpha": 4}, present.history_bytes)
    await sql.commit(replace(make.begin(FORK, Mail("alpha")), inherits=inherits))
    assert [portion.n for portion in await sql.read_portions(FORK, "alpha")] == [3, 4]


async def test_it_may_happen_again(sql: Store, make: Maker) -> None:
    present = await dropped(sql, await answered(sql, make, [Mail("alpha")], []))
    history = await read_history(sql, KEY, "alpha")
    present = await dropped(sql, present)
    await sql.commit(make.change(present, Mail("alpha"), transition=Transition.RESUME))
    turn = await open_turn(sql, KEY, "alpha", make)
    ended = make.change(turn.task, turn=turn, history=[{"n": 9}], transition=Transition.COMPLETE)
    await sql.commit(ended)
    await dropped(sql, ended.task)
    assert await read_history(sql, KEY, "alpha") == [*history, {"n": 9}]
    assert await sql.read_response(KEY, 3) is not None


async def test_a_task_that_has_changed_keeps_its_past(sql: Store, make: Maker) -> None:
    task = await answered(sql, make, [])
    events = await sql.read_events(KEY)
    resumed = await committed(sql, make.change(task, Mail("alpha"), transition=Transition.RESUME))
    with pytest.raises(VersionConflict):
        await sql.commit(drop_past(Draft(task, SWARM, FakeClock())))
    assert await sql.read_events(KEY) == [*events, *resumed.events]


async def test_it_survives_the_process(durable: StoreAdapter, make: Maker) -> None:
    store = durable.store
    if not (await store.list_oldest(limit=1)).is_ordered:
        pytest.skip("its data expires")
    present = await dropped(store, await answered(store, make, [Mail("alpha")], [Mail("beta")]))
    history, mail = await read_history(store, KEY, "alpha"), await store.read_inbox(KEY)
    store = await durable.reopen()
    assert await store.load(KEY) == present
    assert (await read_history(store, KEY, "alpha"), await store.read_inbox(KEY)) == (history, mail)


async def test_the_server_drops_the_past_of_what_is_old(adapter: StoreAdapter, sql: Store) -> None:
    """Not of tasks that run or are on hold."""
    clock, seen = FakeClock(start=datetime.now(UTC)), list[View]()

    def answer(view: View) -> list[object]:
        seen.append(view)
        return [complete("done")]

    swarm = build_swarm({"supervisor": answer})
    queue = LocalQueue(lambda: clock.now().timestamp())
    runtime = Runtime(
        swarm, sql, queue, clock, documents=adapter.records, retention=30 * DAY, keeps_latest=True
    )

    async def ask(body: str, task_id: str | None = None) -> TaskKey:
        submitted = await runtime.submit(Principal.parse(ANN), Submission(body=body, task_id=task_id))
        await runtime.run_turn(*(await queue.take()))
        return submitted.key

    old, held = await ask("first"), await ask("first")
    await runtime.deletions.hold(ANN, held.task_id, "a lawsuit", ADMIN)
    clock.advance(30 * DAY + PASS_SECONDS)
    recent = await ask("first")
    await runtime.deletions.work()
    begins = {key: (await sql.read_events(key))[0].seq for key in (old, held, recent)}
    assert begins[old] > 1 == begins[held] == begins[recent]
    task = await loaded(sql, old)
    assert task.status is TaskStatus.COMPLETED
    clock.advance(PASS_SECONDS)
    await runtime.deletions.work()
    assert await sql.load(old) == task, "its time has begun again"
    await ask("second", old.task_id)
    assert len(seen[-1].history) > len(seen[0].history), "its agent remembers"
    answered = await sql.read_response(old, 2)
    assert answered is not None
    assert answered.message.body == "done"


async def test_no_byte_of_it_is_left_in_sqlite_s_files(tmp_path: Path, make: Maker) -> None:
    adapter = SQLiteAdapter(tmp_path / "mail.db")
    await adapter.open()
    store = adapter.store
    await store.commit(make.begin(KEY, Mail("alpha", body=MARKER)))
    turn = await open_turn(store, KEY, "alpha", make)
    ended = make.change(turn.task, turn=turn, history=[{"n": 1}], transition=Transition.COMPLETE)
    await store.commit(ended)

    def count() -> int:
        return sum(file.read_bytes().count(MARKER.encode()) for file in tmp_path.iterdir())

    assert count() > 0
    await dropped(store, ended.task)
    await store.scrub(is_quiet=True)
    assert count() == 0
    await adapter.close()
