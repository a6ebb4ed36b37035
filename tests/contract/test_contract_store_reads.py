"""Store: what others watch and list: events, responses, tasks, ready and overdue work."""

import asyncio
from dataclasses import replace

import pytest
from support.engines.adapters import StoreAdapter, loaded, searched

from mail.core.protocol.message import Tier
from mail.core.task.ports import Store, TaskPage, WakeUp
from mail.core.task.search import Search
from mail.core.task.task import Task, TaskKey, TaskStatus, Transition
from mail.core.task.turn_state import Breakpoint, PausedCall
from mail.errors import BadRequest, TaskNotFound, VersionConflict
from mail.http.routes.threads import PageStart, read_cursor, tasks_from, write_cursor
from mail.testing.changes import ANN, BOB, NOW, Mail, Maker
from mail.testing.clock import FakeClock
from mail.testing.contracts import committed, due_tasks, first_turn, open_turn

KEY = TaskKey(ANN, "task-1")
SOON = 60.0
"""Seconds in which a waiter must have been woken; it takes milliseconds, unless it never happens."""


class TestEvents:
    async def test_they_are_gapless_over_commits_of_any_size(self, store: Store, make: Maker) -> None:
        task = (await committed(store, make.begin(KEY, *(Mail("alpha") for _ in range(3))))).task
        for n in range(10):
            task = (await committed(store, make.change(task, *(Mail("beta") for _ in range(n))))).task
        events = await store.read_events(KEY)
        assert [event.seq for event in events] == list(range(1, task.seq + 1))

    @pytest.mark.parametrize("after", range(9))
    async def test_so_many_are_read_as_are_asked_for(self, store: Store, make: Maker, after: int) -> None:
        task = (await committed(store, make.begin(KEY, *(Mail("alpha") for _ in range(3))))).task
        for n in (1, 2, 3):
            task = (await committed(store, make.change(task, *(Mail("beta") for _ in range(n))))).task
        everything = await store.read_events(KEY, after=after)
        assert [event.seq for event in everything] == list(range(after + 1, task.seq + 1))
        for limit in range(1, task.seq + 2):
            assert await store.read_events(KEY, after=after, limit=limit) == everything[:limit]

    async def test_they_hold_their_messages_and_extras(self, store: Store, make: Maker) -> None:
        begun = await committed(store, make.begin(KEY))
        change = make.change(begun.task, Mail("beta", Tier.INTERRUPT, "now"), transition=Transition.COMPLETE)
        await store.commit(change)
        events = await store.read_events(KEY, after=1)
        assert events == list(change.events)
        assert [event.data("task-1") for event in events] == [event.data("task-1") for event in change.events]


class TestResponses:
    async def test_one_for_each_generation(self, store: Store, make: Maker) -> None:
        begun = await committed(store, make.begin(KEY))
        task: Task = begun.task
        responses = []
        for n in range(1, 4):
            ended = make.change(task, note=f"generation {n}", transition=Transition.COMPLETE)
            await store.commit(ended)
            responses.append(ended.response)
            assert await store.read_response(KEY, n + 1) is None
            task = (await committed(store, make.change(ended.task, transition=Transition.RESUME))).task
        assert [await store.read_response(KEY, n) for n in range(1, 4)] == responses
        assert await store.read_response(KEY, 0) is None
        assert await store.read_response(KEY, 4) is None


class TestWaitForChange:
    async def test_what_has_happened_is_told_at_once(self, store: Store, make: Maker) -> None:
        await store.commit(make.begin(KEY, Mail("alpha"), Mail("alpha")))
        for after in (0, 1):
            async with asyncio.timeout(SOON):
                assert await store.wait_for_change(KEY, after=after, seconds=60) == 2

    async def test_a_commit_wakes_everyone_who_waits(self, store: Store, make: Maker) -> None:
        begun = await committed(store, make.begin(KEY))
        waiting = [asyncio.create_task(store.wait_for_change(KEY, after=1, seconds=60)) for _ in range(3)]
        await asyncio.sleep(0)
        assert not any(task.done() for task in waiting)
        change = await committed(store, make.change(begun.task, Mail("beta")))
        async with asyncio.timeout(SOON):
            assert await asyncio.gather(*waiting) == [change.task.seq] * 3

    async def test_when_the_time_is_up_it_returns_what_it_was_given(self, store: Store, make: Maker) -> None:
        await store.commit(make.begin(KEY))
        assert await store.wait_for_change(KEY, after=1, seconds=0.01) == 1
        assert await store.wait_for_change(KEY, after=7, seconds=0) == 7

    async def test_another_tasks_commit_wakes_nobody(self, store: Store, make: Maker) -> None:
        await store.commit(make.begin(KEY))
        waiting = asyncio.create_task(store.wait_for_change(KEY, after=1, seconds=0.05))
        await asyncio.sleep(0)
        await store.commit(make.begin(TaskKey(ANN, "task-2")))
        await store.commit(make.begin(TaskKey(BOB, "task-1")))
        assert await waiting == 1

    async def test_a_refused_commit_wakes_nobody(self, store: Store, make: Maker) -> None:
        begun = await committed(store, make.begin(KEY))
        await store.commit(make.change(begun.task))
        waiting = asyncio.create_task(store.wait_for_change(KEY, after=2, seconds=0.05))
        await asyncio.sleep(0)
        with pytest.raises(VersionConflict):
            await store.commit(make.change(begun.task))
        assert await waiting == 2

    async def test_one_who_gave_up_is_forgotten(self, store: Store, make: Maker) -> None:
        begun = await committed(store, make.begin(KEY))
        quitter = asyncio.create_task(store.wait_for_change(KEY, after=1, seconds=60))
        stayer = asyncio.create_task(store.wait_for_change(KEY, after=1, seconds=60))
        await asyncio.sleep(0)
        quitter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await quitter
        await store.commit(make.change(begun.task))
        async with asyncio.timeout(SOON):
            assert await stayer == 2

    async def test_no_change_slips_between_two_waits(self, store: Store, make: Maker) -> None:
        begun = await committed(store, make.begin(KEY))
        seen = [1]

        async def watch() -> None:
            while seen[-1] < 21:
                seen.append(await store.wait_for_change(KEY, after=seen[-1], seconds=60))

        watching = asyncio.create_task(watch())
        task = begun.task
        for _ in range(20):
            task = (await committed(store, make.change(task))).task
            await asyncio.sleep(0)
        async with asyncio.timeout(SOON):
            await watching
        assert seen == sorted(set(seen))


class TestWaitForResponse:
    async def test_one_that_is_there_needs_no_time(self, store: Store, make: Maker) -> None:
        begun = await committed(store, make.begin(KEY))
        ended = await committed(store, make.change(begun.task, transition=Transition.COMPLETE))
        async with asyncio.timeout(SOON):
            assert await store.wait_for_response(KEY, 1, seconds=60) == ended.response
            assert await store.wait_for_response(KEY, 1, seconds=0) == ended.response

    @pytest.mark.parametrize("transition", [Transition.COMPLETE, Transition.FAIL, Transition.PAUSE])
    async def test_every_end_wakes_everyone_who_waits(
        self, store: Store, make: Maker, transition: Transition
    ) -> None:
        begun = await committed(store, make.begin(KEY))
        waiting = [asyncio.create_task(store.wait_for_response(KEY, 1, seconds=60)) for _ in range(3)]
        await asyncio.sleep(0)
        change = await committed(store, make.change(begun.task, Mail("beta")))
        await asyncio.sleep(0)
        assert not any(task.done() for task in waiting)
        ended = await committed(store, make.change(change.task, transition=transition))
        async with asyncio.timeout(SOON):
            assert await asyncio.gather(*waiting) == [ended.response] * 3

    async def test_it_is_the_generations_own_however_fast_the_next_one_follows(
        self, store: Store, make: Maker
    ) -> None:
        begun = await committed(store, make.begin(KEY))
        waiting = asyncio.create_task(store.wait_for_response(KEY, 1, seconds=60))
        await asyncio.sleep(0)
        first = await committed(store, make.change(begun.task, note="first", transition=Transition.PAUSE))
        resumed = await committed(store, make.change(first.task, transition=Transition.RESUME))
        second = make.change(resumed.task, note="second", transition=Transition.COMPLETE)
        await store.commit(second)
        async with asyncio.timeout(SOON):
            assert await waiting == first.response
            assert await store.wait_for_response(KEY, 2, seconds=60) == second.response

    async def test_when_the_time_is_up_there_is_none(self, store: Store, make: Maker) -> None:
        await store.commit(make.begin(KEY))
        assert await store.wait_for_response(KEY, 1, seconds=0) is None
        assert await store.wait_for_response(KEY, 1, seconds=0.01) is None
        async with asyncio.timeout(SOON):
            assert await store.wait_for_response(KEY, 7, seconds=0.01) is None

    async def test_one_who_gave_up_is_forgotten(self, store: Store, make: Maker) -> None:
        begun = await committed(store, make.begin(KEY))
        quitter = asyncio.create_task(store.wait_for_response(KEY, 1, seconds=60))
        stayer = asyncio.create_task(store.wait_for_response(KEY, 1, seconds=60))
        await asyncio.sleep(0)
        quitter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await quitter
        ended = await committed(store, make.change(begun.task, transition=Transition.COMPLETE))
        async with asyncio.timeout(SOON):
            assert await stayer == ended.response

    async def test_an_unknown_task(self, store: Store) -> None:
        with pytest.raises(TaskNotFound):
            await store.wait_for_response(KEY, 1, seconds=0)


class TestListTasks:
    async def fill(self, store: Store, make: Maker, count: int) -> None:
        for n in range(count):
            await store.commit(make.begin(TaskKey(ANN, f"task-{n:02}")))

    async def test_newest_first(self, store: Store, make: Maker) -> None:
        await self.fill(store, make, 5)
        page = await store.list_tasks(ANN)
        assert [task.task_id for task in page.tasks] == [f"task-{n:02}" for n in (4, 3, 2, 1, 0)]
        assert page.cursor is None

    async def test_no_task(self, store: Store) -> None:
        page = await store.list_tasks(ANN)
        assert (page.tasks, page.cursor) == ([], None)

    async def test_a_page_of_threads_may_begin_within_a_page_of_tasks(
        self, store: Store, make: Maker
    ) -> None:
        await self.fill(store, make, 5)
        start = PageStart(cursor=(await store.list_tasks(ANN, limit=1)).cursor, task_id="task-02", skip=1)
        assert read_cursor(write_cursor(start)) == start
        await store.commit(make.begin(TaskKey(ANN, "task-99")))  # since the page before
        seen, cursor = [], write_cursor(start)
        while cursor is not None:
            tasks, _, cursor = await tasks_from(store, ANN, read_cursor(cursor), 2)
            assert len(tasks) <= 2
            seen += [task.task_id for task in tasks]
        assert seen == ["task-02", "task-01", "task-00"]
        tasks, _, _ = await tasks_from(store, ANN, PageStart(None, "gone"), 2)
        assert [task.task_id for task in tasks] == ["task-99", "task-04"]

    @pytest.mark.parametrize("limit", [1, 2, 3, 6, 7, 8])
    async def test_pages_join_to_the_whole(self, store: Store, make: Maker, limit: int) -> None:
        await self.fill(store, make, 7)
        listed: list[str] = []
        cursor = None
        while True:
            page = await store.list_tasks(ANN, limit=limit, cursor=cursor)
            assert 0 < len(page.tasks) <= limit
            listed += [task.task_id for task in page.tasks]
            cursor = page.cursor
            if cursor is None:
                break
        assert listed == [f"task-{n:02}" for n in range(6, -1, -1)]

    async def test_a_task_that_begins_while_paging_shifts_nothing(self, store: Store, make: Maker) -> None:
        await self.fill(store, make, 4)
        first = await store.list_tasks(ANN, limit=2)
        await store.commit(make.begin(TaskKey(ANN, "late")))
        second = await store.list_tasks(ANN, limit=2, cursor=first.cursor)
        assert [task.task_id for task in first.tasks + second.tasks] == [
            "task-03", "task-02", "task-01", "task-00",
        ]  # fmt: skip

    async def test_by_status(self, store: Store, make: Maker) -> None:
        await self.fill(store, make, 4)
        for n, transition in enumerate((Transition.COMPLETE, Transition.FAIL, Transition.PAUSE)):
            task = await loaded(store, TaskKey(ANN, f"task-{n:02}"))
            await store.commit(make.change(task, transition=transition))
        for n, status in enumerate(
            (TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.PAUSED, TaskStatus.RUNNING)
        ):
            page = await store.list_tasks(ANN, status=status)
            assert [task.task_id for task in page.tasks] == [f"task-{n:02}"]
            assert page.tasks[0].status is status

    async def test_pages_by_status_are_full(self, store: Store, make: Maker) -> None:
        await self.fill(store, make, 6)
        for n in (0, 2, 4):
            task = await loaded(store, TaskKey(ANN, f"task-{n:02}"))
            await store.commit(make.change(task, transition=Transition.COMPLETE))
        first = await store.list_tasks(ANN, status=TaskStatus.COMPLETED, limit=2)
        assert [task.task_id for task in first.tasks] == ["task-04", "task-02"]
        assert first.cursor is not None
        second = await store.list_tasks(ANN, status=TaskStatus.COMPLETED, limit=2, cursor=first.cursor)
        assert [task.task_id for task in second.tasks] == ["task-00"]
        assert second.cursor is None

    async def test_the_current_state_is_listed(self, store: Store, make: Maker) -> None:
        begun = await committed(store, make.begin(KEY))
        change = await committed(store, make.change(begun.task, Mail("beta"), history=[{}]))
        assert (await store.list_tasks(ANN)).tasks == [change.task]

    @pytest.mark.parametrize(
        "cursor", ["", "x", "-1", "1.5", "٣", "1 OR 1=1", "9" * 400, "\x00", "null", "🦊", " 1", "0x10"]
    )
    async def test_a_cursor_it_did_not_make_is_refused(self, store: Store, make: Maker, cursor: str) -> None:
        await self.fill(store, make, 1)
        with pytest.raises(BadRequest):
            await store.list_tasks(ANN, cursor=cursor)

    async def test_everybodys(self, store: Store, make: Maker) -> None:
        await self.fill(store, make, 4)
        await store.commit(make.begin(TaskKey(BOB, "task-00")))
        listed: list[TaskKey] = []
        cursor = None
        while True:
            page = await store.list_tasks(None, limit=2, cursor=cursor)
            assert 0 < len(page.tasks) <= 2
            listed += [task.key for task in page.tasks]
            cursor = page.cursor
            if cursor is None:
                break
        newest_first = [TaskKey(BOB, "task-00"), *(TaskKey(ANN, f"task-{n:02}") for n in (3, 2, 1, 0))]
        assert sorted(listed) == sorted(newest_first)
        if page.is_ordered:
            assert listed == newest_first
        assert (await store.list_tasks(None, status=TaskStatus.FAILED)).tasks == []
        assert len((await store.list_tasks(None, status=TaskStatus.RUNNING)).tasks) == 5

    async def test_one_callers_tasks_are_in_order(self, store: Store, make: Maker) -> None:
        await self.fill(store, make, 2)
        assert (await store.list_tasks(ANN, limit=1)).is_ordered

    @pytest.mark.parametrize("cursor", ["", "x", "-1", "1 OR 1=1"])
    async def test_a_cursor_of_everybodys_it_did_not_make_is_refused(
        self, store: Store, make: Maker, cursor: str
    ) -> None:
        await self.fill(store, make, 1)
        with pytest.raises(BadRequest):
            await store.list_tasks(None, cursor=cursor)

    async def test_a_cursor_opens_nobody_elses_tasks(self, store: Store, make: Maker) -> None:
        await self.fill(store, make, 3)
        page = await store.list_tasks(ANN, limit=1)
        await store.commit(make.begin(TaskKey(BOB, "bobs")))
        try:
            theirs = await store.list_tasks(BOB, cursor=page.cursor)
        except BadRequest:
            return
        assert all(task.instance == BOB for task in theirs.tasks)

    async def fill_with_long_calls(self, store: Store, make: Maker) -> None:
        """Begin five tasks of a megabyte and a half, which have dead letters, too."""
        call = PausedCall(call_id="call-1", name="pay", arguments={"text": "x" * (3 * 2**19)})
        reached = Breakpoint(agent="alpha", tool_format="completions", calls=(call,))
        for n in range(5):
            key = TaskKey(ANN, f"task-{n}")
            begun = await committed(store, make.begin(key, Mail("alpha")))
            paused = make.change(begun.task, transition=Transition.PAUSE)
            generation = replace(paused.task.generation, breakpoint=reached)
            task = replace(paused.task, generation=generation, dead_letters=(1,))
            await store.commit(replace(paused, task=task))

    async def test_a_page_of_tasks_with_long_calls_ends_early(self, store: Store, make: Maker) -> None:
        await self.fill_with_long_calls(store, make)

        async def listed(cursor: str | None) -> TaskPage:
            return await store.list_tasks(ANN, status=TaskStatus.PAUSED, limit=5, cursor=cursor)

        async def found(cursor: str | None) -> TaskPage:
            return await searched(store, ANN, Search(status=TaskStatus.PAUSED), limit=5, cursor=cursor)

        async def dead(cursor: str | None) -> TaskPage:
            return await store.list_dead(ANN, limit=5, cursor=cursor)

        for read in (listed, found, dead):
            first = await read(None)
            assert [task.task_id for task in first.tasks] == ["task-4", "task-3", "task-2"]
            assert first.cursor is not None
            second = await read(first.cursor)
            assert [task.task_id for task in second.tasks] == ["task-1", "task-0"]
            assert second.cursor is None

    async def test_a_page_of_threads_may_begin_after_tasks_with_long_calls(
        self, store: Store, make: Maker
    ) -> None:
        await self.fill_with_long_calls(store, make)
        seen, cursor = list[str](), write_cursor(PageStart(None, "task-1", 1))
        while cursor is not None:
            tasks, start, cursor = await tasks_from(store, ANN, read_cursor(cursor), 1)
            assert start.cursor is not None
            seen += [task.task_id for task in tasks]
        assert seen == ["task-1", "task-0"]
        tasks, start, _ = await tasks_from(store, ANN, PageStart(None, "gone"), 1)
        assert (start.cursor, [task.task_id for task in tasks]) == (None, ["task-4"])


class TestReadyAndOverdue:
    async def test_every_mailbox_with_mail_of_every_running_task_is_ready(
        self, store: Store, make: Maker
    ) -> None:
        other, done = TaskKey(BOB, "task-1"), TaskKey(ANN, "done")
        await store.commit(
            make.begin(KEY, Mail("alpha", Tier.AGENT), Mail("alpha", Tier.SYSTEM), Mail("beta"))
        )
        await store.commit(make.begin(other, Mail("gamma", Tier.PERSON)))
        begun = await committed(store, make.begin(done, Mail("alpha")))
        await store.commit(make.change(begun.task, transition=Transition.COMPLETE))
        assert set(await store.list_ready()) == {
            WakeUp(KEY, "alpha", Tier.SYSTEM),
            WakeUp(KEY, "beta", Tier.AGENT),
            WakeUp(other, "gamma", Tier.PERSON),
        }
        assert len(await store.list_ready()) == 3

    async def test_what_was_read_is_ready_no_more(self, store: Store, make: Maker) -> None:
        turn = await first_turn(
            store, KEY, "alpha", make, Mail("alpha", Tier.SYSTEM), Mail("alpha", Tier.AGENT)
        )
        await store.commit(make.change(turn.task, turn=turn))
        assert await store.list_ready() == [WakeUp(KEY, "alpha", Tier.AGENT)]
        turn = await open_turn(store, KEY, "alpha", make)
        await store.commit(make.change(turn.task, turn=turn))
        assert await store.list_ready() == []

    async def test_ready_survives_reopening(self, durable: StoreAdapter, make: Maker) -> None:
        await durable.store.commit(make.begin(KEY, Mail("alpha"), Mail("beta", Tier.BROADCAST)))
        await open_turn(durable.store, KEY, "alpha", make)
        store = await durable.reopen()
        assert set(await store.list_ready()) == {
            WakeUp(KEY, "alpha", Tier.AGENT),
            WakeUp(KEY, "beta", Tier.BROADCAST),
        }

    async def test_tasks_that_were_busy_lately_need_no_sweep(self, store: Store) -> None:
        clock = FakeClock()
        make = Maker(clock)
        idle, busy = TaskKey(ANN, "idle"), TaskKey(ANN, "busy")
        await store.commit(make.begin(idle))
        begun = await committed(store, make.begin(busy))
        clock.advance(10)
        moment = clock.now().isoformat()
        clock.advance(0.5)
        await store.commit(make.change(begun.task))
        assert [token.key for token in await store.list_ready(quiet_since=moment)] == [idle]
        assert {token.key for token in await store.list_ready(quiet_since=clock.now().isoformat())} == {idle}
        clock.advance(1)
        assert {token.key for token in await store.list_ready(quiet_since=clock.now().isoformat())} == {
            idle,
            busy,
        }

    async def test_a_token_says_by_which_version_it_was_caused(self, store: Store, make: Maker) -> None:
        """So two sweeps of a task that nobody touches are one wake-up, and those of a task that has moved on
        are two.
        """
        begun = await committed(store, make.begin(KEY, Mail("alpha")))
        causes = [token.cause for _ in range(2) for token in await store.list_ready()]
        assert causes[0] == causes[1] != ""
        await store.commit(make.change(begun.task))
        (token,) = await store.list_ready()
        assert token.cause not in ("", causes[0])

    async def test_running_tasks_past_their_deadline_are_overdue(self, store: Store, make: Maker) -> None:
        for name, deadline in (("past", NOW - 1), ("now", NOW), ("future", NOW + 1), ("never", None)):
            await store.commit(make.begin(TaskKey(ANN, name), deadline=deadline))
        overdue = await due_tasks(store, NOW)
        assert {key.task_id for key in overdue} == {"past", "now"}
        assert all(key == TaskKey(ANN, key.task_id) for key in overdue)

    async def test_a_task_that_has_stopped_is_not_overdue_and_may_get_a_new_deadline(
        self, store: Store, make: Maker
    ) -> None:
        begun = await committed(store, make.begin(KEY, deadline=NOW - 1))
        failed = await committed(store, make.change(begun.task, transition=Transition.FAIL))
        assert await due_tasks(store, NOW) == []
        resumed = make.change(failed.task, transition=Transition.RESUME, deadline=NOW + 5)
        await store.commit(resumed)
        assert await due_tasks(store, NOW) == []
        assert await due_tasks(store, NOW + 5) == [KEY]
        again = await committed(store, make.change(resumed.task, transition=Transition.COMPLETE))
        await store.commit(make.change(again.task, transition=Transition.RESUME, deadline=None))
        assert await due_tasks(store, NOW + 10**9) == []

    async def test_a_running_task_may_get_another_deadline(self, store: Store, make: Maker) -> None:
        begun = await committed(store, make.begin(KEY))
        hurried = await committed(store, make.change(begun.task, deadline=NOW + 5))
        assert await due_tasks(store, NOW + 4) == []
        assert await due_tasks(store, NOW + 5) == [KEY]
        await store.commit(make.change(hurried.task, deadline=NOW + 50))
        assert await due_tasks(store, NOW + 5) == []

    async def test_running_tasks_of_an_instance_are_counted_up_to_a_number(
        self, store: Store, make: Maker
    ) -> None:
        assert await store.count_running(ANN, upto=5) == 0
        begun = [make.begin(TaskKey(ANN, f"{n}")) for n in range(3)]
        for change in [*begun, make.begin(TaskKey(BOB, "1"))]:
            await store.commit(change)
        assert await store.count_running(ANN, upto=5) == 3
        assert await store.count_running(ANN, upto=2) == 2
        assert await store.count_running(BOB, upto=5) == 1
        await store.commit(make.change(begun[1].task, transition=Transition.COMPLETE))
        assert await store.count_running(ANN, upto=5) == 2

    async def test_active_instances_are_those_with_a_running_task(self, store: Store, make: Maker) -> None:
        assert await store.count_active_instances() == 0
        begun = await committed(store, make.begin(TaskKey(ANN, "1")))
        await store.commit(make.begin(TaskKey(ANN, "2")))
        assert await store.count_active_instances() == 1
        bobs = await committed(store, make.begin(TaskKey(BOB, "1")))
        assert await store.count_active_instances() == 2
        await store.commit(make.change(bobs.task, transition=Transition.PAUSE))
        assert await store.count_active_instances() == 1
        await store.commit(make.change(begun.task, transition=Transition.COMPLETE))
        assert await store.count_active_instances() == 1
