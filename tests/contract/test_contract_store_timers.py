"""Store: what timers ask of it. Their records come and go with the commits of their task, in the order of their times,
and none fires twice or is lost, however often a worker dies, and however many look after its task."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
from support.engines.adapters import StoreAdapter, loaded
from support.engines.mortal import ANN, KEY, MortalServer

from mail.core.decisions.submit import Submission
from mail.core.task.callbacks import CallState, LaterCall
from mail.core.task.draft import Draft
from mail.core.task.events import EventKind
from mail.core.task.swarm import SwarmCore
from mail.core.task.task import TaskStatus
from mail.core.task.timers import Timer
from mail.core.task.waits import Wait
from mail.errors import Subject
from mail.testing.agents import Call, View, build_swarm, call, complete
from mail.testing.clock import FakeClock
from mail.testing.faults import Dead

HOUR = 3_600.0
DAY = 86_400.0


def chief(view: View) -> Sequence[Call]:
    """Be reminded as often as the order says, and complete with the last note."""
    if view.mail.sender_type == "user" and view.mail.body.isdigit():
        return [
            call("remind_me", note=f"note {n}", **{"in": HOUR * (n + 1)}) for n in range(int(view.mail.body))
        ]
    return [complete(view.mail.body)] * 2


class Server(MortalServer):
    """A process that runs a swarm."""

    def swarm(self) -> SwarmCore:
        return build_swarm({"chief": chief})

    async def post(self, body: str, **fields: Any) -> None:
        await self.runtime.submit(ANN, Submission(body=body, task_id=KEY.task_id, **fields))
        await self.work()

    async def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await self.runtime.sweep()
        await self.work()

    async def posted(self, of: str) -> list[str]:
        """Return the texts of the messages that came from the system, or from a user."""
        messages = [event.message for event in await self.store.read_events(KEY) if event.message]
        return [
            each.message.body
            for each in messages
            if each.sender.address_type == of and each.message.subject in (Subject.REMINDER, "New Message")
        ]

    def later(self, seconds: float) -> float:
        return self.clock.now().timestamp() + seconds


async def test_what_is_stored_of_timers(durable: StoreAdapter) -> None:
    server = Server(durable.store, FakeClock())
    await server.post("3")
    store = await durable.reopen()
    task = await loaded(store, KEY)
    assert (task.is_asleep, task.waits.reminders) == (True, {"chief": 3})
    assert await store.count_running(KEY.instance, upto=9) == 0
    waits = await store.list_waits(KEY, limit=9)
    assert [wait.text for wait in waits if isinstance(wait, Timer)] == ["note 0", "note 1", "note 2"]
    assert await store.read_wait(KEY, waits[1].id) == waits[1]
    assert await store.read_wait(KEY, "t0") is None
    assert await store.list_waits(KEY, limit=2) == waits[:2]
    for n in range(3):
        assert await store.list_waits(KEY, after=(waits[n].due, waits[n].id), limit=2) == waits[n + 1 :]
    assert await store.list_ready() == []
    assert await store.list_due(waits[0].due - 1) == []
    assert [each.task.key for each in await store.list_due(waits[0].due)] == [KEY]


async def test_timers_and_calls_are_in_one_order(adapter: StoreAdapter) -> None:
    server = Server(adapter.store, FakeClock())
    await server.post("3")
    now = server.clock.now().timestamp()
    calls = [
        LaterCall(
            digest=digest * 64,
            agent="chief",
            name="render",
            call_id=digest,
            state=CallState.WAITING,
            seq=1,
            finish_by=now + HOUR * hours,
        )
        for digest, hours in (("f", 0.5), ("0", 1.5), ("a", 9.0))
    ]
    for each in calls:
        assert await server.store.put_wait(KEY, each)
    waits = await server.store.list_waits(KEY, limit=99)
    assert [(wait.due - now) / HOUR for wait in waits] == [0.5, 1.0, 1.5, 2.0, 3.0, 9.0]
    read: list[Wait] = []
    while page := await server.store.list_waits(
        KEY, after=(read[-1].due, read[-1].id) if read else (0, ""), limit=2
    ):
        read += page
    assert read == waits
    assert await server.store.put_wait(KEY, replace(calls[0], state=CallState.FINISHED), instead_of=calls[0])
    assert (await server.store.list_waits(KEY, limit=1))[0].due == now + HOUR


async def test_one_that_has_fired_is_gone(adapter: StoreAdapter) -> None:
    server = Server(adapter.store, FakeClock())
    await server.post("2")
    await server.pass_time(HOUR - 1)
    assert await server.posted("system") == []
    version = (await server.task()).version
    await server.pass_time(1)
    assert await server.posted("system") == ["note 0"]
    assert (await server.task()).version == version + 3  # the note, the turn that reads it, and the deletion


async def test_the_end_of_the_task_deletes_the_rest_with_their_bytes(adapter: StoreAdapter) -> None:
    server = Server(adapter.store, FakeClock())
    await server.post("3")
    timers = cast(list[Timer], await server.store.list_waits(KEY, limit=9))
    await server.runtime.cancel(ANN, KEY.task_id)
    ended = await server.task()
    await server.work()
    task = await server.task()
    assert await server.store.list_waits(KEY, limit=9) == []
    assert (task.waits.due, task.waits.cancel_at, task.has_outbound_mail) == (None, None, False)
    freed = sum(timer.size for timer in timers)
    assert ended.stored_bytes - task.stored_bytes == pytest.approx(freed, abs=9)  # a commit has a few


async def test_a_new_task_of_a_message_that_is_posted_later(durable: StoreAdapter) -> None:
    server = Server(durable.store, FakeClock())
    due = server.later(DAY)
    await server.post("hello", not_before=due)
    server = Server(await durable.reopen(), server.clock)
    assert (await server.task()).is_asleep
    assert await server.posted("user") == []
    assert [each.task.key for each in await server.store.list_due(due)] == [KEY]
    await server.pass_time(DAY)
    task = await server.task()
    assert (task.status, task.waits.due) == (TaskStatus.COMPLETED, None)
    assert await server.posted("user") == ["hello"]
    assert await server.store.list_due(1e12) == []


@pytest.mark.parametrize("status", [TaskStatus.COMPLETED, TaskStatus.CANCELLED])
async def test_a_task_that_has_ended_is_due_when_a_message_is(
    adapter: StoreAdapter, status: TaskStatus
) -> None:
    server = Server(adapter.store, FakeClock())
    await server.post("2" if status is TaskStatus.CANCELLED else "done")
    if status is TaskStatus.CANCELLED:
        await server.runtime.cancel(ANN, KEY.task_id)
    due = server.later(DAY)
    await server.post("again", not_before=due)
    assert (await server.task()).status is status
    assert [each.task.key for each in await server.store.list_due(due)] == [KEY]
    listed = await server.store.list_tasks(KEY.instance, status=status)
    assert [task.key for task in listed.tasks] == [KEY]
    for _ in range(2):  # the first look deletes what the cancellation has dropped
        await server.pass_time(DAY / 2)
    await server.pass_time(0)
    assert (await server.posted("user"))[-1] == "again"
    assert (await server.task()).status is TaskStatus.COMPLETED
    assert await server.store.list_waits(KEY, limit=9) == []
    assert await server.store.list_due(1e12) == []


@pytest.mark.soak(on=("moto", "postgres"))
@pytest.mark.parametrize("fate", ["before", "after"])
@pytest.mark.parametrize("when", ["set", "fired", "posted", "cancelled"])
async def test_a_worker_that_dies_at_a_commit_loses_and_repeats_none(
    adapter: StoreAdapter, when: str, fate: str
) -> None:
    clock = FakeClock()
    server, mortal = Server(adapter.store, clock), Server(adapter.store, clock)
    mortal.restart((1, fate))
    fields: dict[str, Any] = {"not_before": server.later(HOUR)} if when in ("posted", "cancelled") else {}
    body = "hello" if fields else "1"
    if when == "set":
        await server.runtime.submit(ANN, Submission(body=body, task_id=KEY.task_id))
        with pytest.raises(Dead):
            await mortal.runtime.run_turn(KEY, "chief")
        clock.advance(100)  # the lease of the dead worker has ended
        server = Server(adapter.store, clock)
        await server.runtime.sweep()
        await server.runtime.recover()
        await server.work()
        assert (await server.task()).waits.reminders == {"chief": 1}
        assert len(await server.store.list_waits(KEY, limit=9)) == 1
    else:
        await server.post(body, **fields)
        if when == "cancelled":
            (timer,) = await server.store.list_waits(KEY, limit=9)
            with pytest.raises(Dead):
                await mortal.runtime.cancel_wait.timer(ANN, KEY, timer.id)
        else:
            clock.advance(HOUR)
            with pytest.raises(Dead):
                await mortal.runtime.sweep()
    server = Server(adapter.store, clock)
    await server.runtime.recover()
    await server.pass_time(HOUR)
    expected = [] if (when, fate) == ("cancelled", "after") else ["hello" if fields else "note 0"]
    assert await server.posted("user" if fields else "system") == expected
    assert (await server.task()).waits.due is None
    assert await server.store.list_waits(KEY, limit=9) == []


async def test_of_several_servers_that_look_after_a_task_one_fires_it(adapter: StoreAdapter) -> None:
    clock = FakeClock()
    servers = [Server(adapter.store, clock) for _ in range(4)]
    await servers[0].post("1")
    clock.advance(HOUR)
    await asyncio.gather(*(server.runtime.look_after(KEY) for server in servers))
    for server in servers:
        await server.work()
    assert await servers[0].posted("system") == ["note 0"]


async def test_a_commit_sets_and_deletes_many(adapter: StoreAdapter) -> None:
    server = Server(adapter.store, FakeClock())
    await server.post("1")
    draft = Draft(await server.task(), server.runtime.swarm, server.clock)
    draft.emit(EventKind.HELP_CALLED, "many")
    timers = [
        draft.set_timer(Timer(id="", due=1e9 + n, mailbox="chief", text="x" * 10_000)) for n in range(64)
    ]
    await server.store.commit(draft.seal())
    assert await server.store.list_waits(KEY, limit=64) == timers
    draft = Draft(await server.task(), server.runtime.swarm, server.clock)
    for timer in timers[:40]:
        draft.end_timer(timer)
    await server.store.commit(draft.seal())  # without an event
    task = await server.task()
    assert (task.waits.timers, task.seq) == (25, draft.before.seq)
    assert (await server.store.list_waits(KEY, limit=99))[:24] == timers[40:]


async def test_a_deleted_task_leaves_none(adapter: StoreAdapter) -> None:
    server = Server(adapter.store, FakeClock())
    await server.post("2")
    (first, _) = await server.store.list_waits(KEY, limit=9)
    await server.runtime.cancel(ANN, KEY.task_id)
    await server.runtime.delete(*KEY)
    assert await server.store.read_wait(KEY, first.id) is None
