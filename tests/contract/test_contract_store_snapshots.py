"""Store: a task can be read as any of its commits left it, and a new task made of any of them."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support.engines.adapters import StoreAdapter, count_rows, loaded
from support.plugins.tiers import sized

from mail.adapters.local.queue import LocalQueue
from mail.adapters.sqlite.database import SQLiteDatabase
from mail.adapters.sqlite.store import SQLiteStore
from mail.core.decisions.fork import fork
from mail.core.decisions.submit import Submission
from mail.core.engine.admission import Forked
from mail.core.engine.pacing import Pacer
from mail.core.engine.past_turn import read_turn
from mail.core.engine.runtime import Runtime
from mail.core.engine.watch import read_waiting
from mail.core.protocol.address import Principal
from mail.core.protocol.message import Tier
from mail.core.task.change import HistoryRecord, InboxEntry, Inheritance, TaskChange
from mail.core.task.events import EventKind
from mail.core.task.ports import Store, read_history
from mail.core.task.swarm import History, SwarmCore
from mail.core.task.task import ForkActions, Task, TaskKey, Transition
from mail.errors import BadRequest, SnapshotExpired, TaskNotFound, VersionConflict
from mail.testing.agents import (
    NAME,
    View,
    acknowledge,
    broadcast,
    build_swarm,
    complete,
    request,
    respond,
    wait,
)
from mail.testing.changes import ANN, Mail, Maker
from mail.testing.clock import FakeClock
from mail.testing.contracts import committed, everything, first_turn, open_turn

KEY = TaskKey(ANN, "task-1")
NOBODYS = TaskKey(ANN, "nobody's")
PERSON = Principal(role="user", id="ann", swarm=NAME)


def supervise(view: View) -> list[Any]:
    """Ask both workers, tell everybody, and finish once both have answered."""
    answers = [letter for letter in view.messages if letter.subject == "Response"]
    if len(view.messages) == 1:
        return [request("left"), request("right"), broadcast()]
    return [complete(f"{len(answers)} answers")] if len(answers) >= 2 else [wait()]


def answer(view: View) -> list[Any]:
    return [respond("supervisor")] if view.mail.subject == "Request" else [acknowledge("good to know")]


SWARM: SwarmCore = build_swarm({"supervisor": supervise, "left": answer, "right": answer})


@dataclass(frozen=True)
class Moment:
    """What a task was like after one of its commits."""

    task: Task
    mail: list[InboxEntry]
    histories: dict[str, list[dict[str, object]]]


class Recorded:
    """A store that takes down what each commit leaves."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.moments: list[Moment] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, change: TaskChange) -> None:
        await self._store.commit(change)
        task = await loaded(self._store, change.key)
        histories = {agent: await read_history(self._store, change.key, agent) for agent in SWARM.agents}
        self.moments.append(Moment(task, await self._store.read_inbox(change.key), histories))


def runtime_on(store: Any, swarm: SwarmCore = SWARM) -> Runtime:
    return Runtime(swarm, store, LocalQueue(), FakeClock())


async def work(runtime: Runtime, key: TaskKey) -> Task:
    """Run turns until nothing is left to do; returns what became of a task."""
    while tokens := [token for token in await runtime.store.list_ready() if token.key == key]:
        for token in tokens:
            await runtime.run_turn(token.key, token.mailbox)
    return await loaded(runtime.store, key)


@pytest.fixture
async def lived(store: Store) -> tuple[Runtime, list[Moment]]:
    """A task that was begun, answered, resumed and answered again, and all that it has been."""
    recorded = Recorded(store)
    runtime = runtime_on(recorded)
    await runtime.submit(PERSON, Submission(body="hello", task_id=KEY.task_id))
    await work(runtime, KEY)
    await runtime.submit(PERSON, Submission(body="and now?", task_id=KEY.task_id))
    await work(runtime, KEY)
    return runtime, recorded.moments


def moment_at(moments: list[Moment], at: int) -> Moment:
    """What a commit's events have done is there with the first of them."""
    return next(moment for moment in moments if moment.task.seq >= at)


def sent(mail: list[InboxEntry]) -> list[tuple[Tier, str, str, str]]:
    """What a fork keeps of its mail, in the order in which it was sent."""
    ordered = sorted(mail, key=lambda entry: (entry.seq, entry.mailbox))
    return [
        (entry.tier, entry.mailbox, entry.message.timestamp, entry.message.message.body) for entry in ordered
    ]


def in_order(mail: list[InboxEntry]) -> list[tuple[int, Tier, str, str]]:
    """Mail by the order in which it was sent; copies of one message come in any order."""
    return sorted((entry.seq, entry.tier, entry.mailbox, entry.message.id) for entry in mail)


class TestLook:
    @pytest.mark.soak(on=("moto", "postgres"))
    async def test_a_task_is_read_as_it_was_at_every_seq(self, lived: tuple[Runtime, list[Moment]]) -> None:
        runtime, moments = lived
        store, last = runtime.store, moments[-1].task.seq
        assert len(moments) > 8
        assert len({moment.task.seq for moment in moments}) == len(moments)
        for at in range(1, last + 1):
            snapshot, then = await store.read_snapshot(KEY, at), moment_at(moments, at)
            assert snapshot.task == then.task
            mail = [entry async for entry in read_waiting(store, snapshot)]
            assert in_order(mail) == in_order(then.mail)
            assert [(entry.tier, entry.seq) for entry in mail] == sorted(
                (entry.tier, entry.seq) for entry in mail
            )
            assert {entry.message.id: entry.message for entry in mail} == {
                entry.message.id: entry.message for entry in then.mail
            }
            for agent in SWARM.agents:
                n = snapshot.task.histories.get(agent, 0)
                assert await read_history(store, KEY, agent, upto=n) == then.histories[agent]

    async def test_a_long_commit_is_read_in_slices(
        self, store: Store, make: Maker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        change = await committed(store, make.begin(KEY, *(Mail("alpha", body="ä" * 200) for _ in range(300))))
        pauses: list[int] = []
        pause = Pacer.pause

        async def noting(pacer: Pacer, size: int) -> None:
            pauses.append(size)
            await pause(pacer, size)

        monkeypatch.setattr(Pacer, "pause", noting)
        assert await store.read_events(KEY) == list(change.events)
        assert len(pauses) == 2
        assert await store.read_events(KEY, after=200, limit=50) == list(change.events[200:250])

    async def test_the_present_is_the_last_moment(self, lived: tuple[Runtime, list[Moment]]) -> None:
        store, last = lived[0].store, lived[1][-1].task
        snapshot = await store.read_snapshot(KEY, last.seq)
        assert snapshot.task == await store.load(KEY)
        assert [each async for each in read_waiting(store, snapshot)] == await store.read_inbox(KEY)

    @pytest.mark.parametrize("at", [-1, 0, 3, 2**70])
    async def test_an_event_that_is_not_there_is_refused(self, store: Store, make: Maker, at: int) -> None:
        await store.commit(make.begin(KEY, Mail("alpha"), Mail("beta")))
        with pytest.raises(BadRequest, match=r"events 1 to 2; it has no event"):
            await store.read_snapshot(KEY, at)

    async def test_a_task_that_is_not_there(self, store: Store) -> None:
        with pytest.raises(TaskNotFound):
            await store.read_snapshot(NOBODYS, 1)

    async def test_mail_that_was_read_together_was_there_before(self, store: Store, make: Maker) -> None:
        turn = await first_turn(
            store, KEY, "alpha", make, *(Mail("alpha", Tier.AGENT, str(n)) for n in range(4))
        )
        also_read = [entry for entry in await store.read_inbox(KEY) if entry.seq in (2, 3)]
        await store.commit(make.change(turn.task, turn=replace(turn, also_read=tuple(also_read))))
        assert [seq for _, seq, _ in (await store.read_snapshot(KEY, 4)).waiting] == [1, 2, 3, 4]
        assert [seq for _, seq, _ in (await store.read_snapshot(KEY, 5)).waiting] == [4]

    async def test_it_survives_the_process(self, durable: StoreAdapter, make: Maker) -> None:
        turn = await first_turn(durable.store, KEY, "alpha", make, Mail("alpha"), Mail("beta"))
        await durable.store.commit(make.change(turn.task, turn=turn, transition=Transition.COMPLETE))
        before = await durable.store.read_snapshot(KEY, 1)
        store = await durable.reopen()
        assert await store.read_snapshot(KEY, 2) == before
        assert [mailbox for _, _, mailbox in before.waiting] == ["alpha", "beta"]
        assert before.task.is_running


class TestTurns:
    async def test_each_turn_is_read_as_it_was(self, lived: tuple[Runtime, list[Moment]]) -> None:
        runtime, moments = lived
        agents = []
        for before, after in pairwise(moments):
            if before.task.generation.number < after.task.generation.number:  # a person has written
                with pytest.raises(BadRequest, match="not part of a turn"):
                    await read_turn(runtime.store, SWARM, KEY, after.task.seq, Pacer())
                continue
            turn = await read_turn(runtime.store, SWARM, KEY, before.task.seq + 1, Pacer())
            assert (turn.first, turn.last) == (before.task.seq + 1, after.task.seq)
            assert [*turn.history, *(turn.output or [])] == after.histories[turn.agent]
            gone = {(entry.mailbox, entry.seq) for entry in before.mail} - {
                (entry.mailbox, entry.seq) for entry in after.mail
            }
            assert {(entry.mailbox, entry.seq) for entry in turn.mail} == gone
            agents.append(turn.agent)
        assert set(agents) == SWARM.agents.keys()
        with pytest.raises(BadRequest, match="not part of a turn"):
            await read_turn(runtime.store, SWARM, KEY, 1, Pacer())

    @pytest.mark.soak(on="moto")
    async def test_what_is_read_does_not_grow_with_the_task(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        swarm = build_swarm({"supervisor": lambda view: [complete(f"{len(view.messages)} questions")]})
        runtime = runtime_on(store, swarm)
        last: list[int] = []
        for n in range(1, 26):
            await runtime.submit(PERSON, Submission(body=f"question {n}", task_id=KEY.task_id))
            last.append((await work(runtime, KEY)).seq)
        read = count_rows(store, monkeypatch)
        counts = []
        for n in (15, 25):
            read.clear()
            turn = await read_turn(store, swarm, KEY, last[n - 1], Pacer(), limit=2)
            counts.append(len(read))
            assert "question" in str(turn.history)
            assert turn.output is not None
            assert f"{n} questions" in str(turn.output)
            assert len(turn.history) == 2
            assert n - 2 < turn.omitted < len(await read_history(store, KEY, "supervisor"))
        assert 0 < counts[1] <= counts[0]
        whole = await read_turn(store, swarm, KEY, last[-1], Pacer())
        assert whole.omitted == 0
        assert [*whole.history, *(whole.output or [])] == await read_history(store, KEY, "supervisor")

    async def test_a_commit_that_is_not_there(self, store: Store, make: Maker) -> None:
        with pytest.raises(TaskNotFound):
            await store.read_commit(NOBODYS, 1)
        await store.commit(make.begin(KEY, Mail("alpha"), Mail("beta")))
        for at in (0, 3):
            with pytest.raises(BadRequest, match=r"events 1 to 2; it has no event"):
                await store.read_commit(KEY, at)


@pytest.mark.full
class TestFork:
    async def test_one_with_an_id_is_made_once(self, lived: tuple[Runtime, list[Moment]]) -> None:
        runtime, moments = lived

        async def once() -> Forked:
            return await runtime.fork(PERSON, KEY.task_id, at=moments[-2].task.seq, run=True, new_id="new")

        first, second = await asyncio.gather(once(), once())
        assert len(first.task.histories) == 3
        assert first == second
        done = await work(runtime, first.task.key)
        assert done.seq > first.task.seq
        assert await once() == first
        assert len((await runtime.store.list_tasks(ANN)).tasks) == 2

    @pytest.mark.soak(on="moto")
    @pytest.mark.fast(on="sqlite-memory")
    async def test_a_fork_of_any_moment_comes_to_an_answer(self, lived: tuple[Runtime, list[Moment]]) -> None:
        runtime, moments = lived
        before = await everything(runtime.store, KEY)
        for at in range(1, moments[-1].task.seq + 1, sized(fast=1, full=12, soak=1)):
            then = moment_at(moments, at)
            made = await runtime.fork(PERSON, KEY.task_id, at=at, run=then.task.is_running)
            assert made.at == then.task.seq
            await self.check(runtime.store, made.task, then)
            if not then.task.is_running:
                await runtime.submit(PERSON, Submission(body="once more", task_id=made.task.task_id))
            task = await work(runtime, made.task.key)
            (end,) = [event for event in await runtime.store.read_events(task.key) if event.is_terminal]
            assert end.kind is EventKind.TASK_COMPLETE
            assert end.text.endswith("answers")
            response = await runtime.store.read_response(task.key, task.generation.number)
            assert response is not None
            assert response.message.body == end.text
        assert await everything(runtime.store, KEY) == before

    async def check(self, store: Store, task: Task, then: Moment) -> None:
        """A fork has what its moment had, under numbers of its own."""
        mail = await store.read_inbox(task.key)
        assert sent(mail) == sent(then.mail)
        assert {entry.message.message.task_id for entry in mail} <= {task.task_id}
        assert [entry.seq for entry in await store.read_events(task.key)] == list(range(1, task.seq + 1))
        for agent, history in then.histories.items():
            assert await read_history(store, task.key, agent) == history
            assert task.histories.get(agent, 0) == then.task.histories.get(agent, 0)

    async def test_a_fork_can_be_forked_and_its_moments_be_read(
        self, lived: tuple[Runtime, list[Moment]]
    ) -> None:
        runtime, moments = lived
        first = await runtime.fork(PERSON, KEY.task_id, at=moments[4].task.seq, actions=ForkActions.ASK)
        snapshot = await runtime.store.read_snapshot(first.task.key, 1)
        assert snapshot.task == first.task
        mail = [entry async for entry in read_waiting(runtime.store, snapshot)]
        assert mail == await runtime.store.read_inbox(first.task.key)
        second = await runtime.fork(PERSON, first.task.task_id, run=True)
        assert second.task.actions is ForkActions.ASK
        for agent, history in moments[4].histories.items():
            assert await read_history(runtime.store, second.task.key, agent) == history
        assert (await work(runtime, second.task.key)).status == "completed"


@pytest.mark.full
class TestLongMailOfAFork:
    """Much mail is copied in slices: the change has it without its texts."""

    SWARM: SwarmCore = build_swarm(
        {"alpha": lambda view: [complete(view.mail.body[:3])], "beta": lambda view: [wait()]}
    )

    @staticmethod
    async def original(store: Store, make: Maker) -> TaskChange:
        letters = [Mail(("alpha", "beta")[n % 2], Tier.AGENT, f"<{n}>{'ä' * 50_000}") for n in range(6)]
        return await committed(store, make.begin(KEY, *letters))

    @pytest.mark.fast(on="sqlite-memory")
    async def test_it_is_that_of_the_first_task(self, store: Store, make: Maker) -> None:
        begun = await self.original(store, make)
        runtime, changes = runtime_on(store, self.SWARM), list[TaskChange]()
        commit = store.commit

        async def noting(change: TaskChange) -> None:
            changes.append(change)
            await commit(change)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store, "commit", noting)
            made = (await runtime.fork(PERSON, KEY.task_id)).task
        assert [entry.message.message.body for change in changes for entry in change.deliveries] == [""] * 6
        mail, events = await store.read_inbox(made.key), await store.read_events(made.key)
        assert sent(mail) == sent(list(begun.deliveries))
        assert {entry.message.message.task_id for entry in mail} == {made.task_id}
        assert [event.seq for event in events] == list(range(1, made.seq + 1)) == list(range(1, 8))
        assert [event.message for event in events[1:]] == [entry.message for entry in mail]
        assert abs(made.stored_bytes - begun.task.stored_bytes) < 1000
        assert len(await store.read_events(made.key, max_bytes=1)) < 4
        assert (await store.read_commit(made.key, 1)).task == made
        for at in range(1, made.seq + 1):
            snapshot = await store.read_snapshot(made.key, at)
            assert snapshot.task == made
            assert [each async for each in read_waiting(store, snapshot)] == mail
        again = await runtime.fork(PERSON, made.task_id)
        assert sent(await store.read_inbox(again.task.key)) == sent(mail)
        await runtime.submit(PERSON, Submission(body="and?", task_id=made.task_id))
        assert (await work(runtime, made.key)).status == "completed"
        assert (await store.read_events(made.key))[: len(events)] == events

    async def test_one_with_an_id_is_made_once(self, store: Store, make: Maker) -> None:
        begun = await self.original(store, make)
        runtime = runtime_on(store, self.SWARM)
        forks = [runtime.fork(PERSON, KEY.task_id, new_id="new") for _ in range(2)]
        first, second = await asyncio.gather(*forks)
        assert first == second == await runtime.fork(PERSON, KEY.task_id, new_id="new")
        assert sent(await store.read_inbox(first.task.key)) == sent(list(begun.deliveries))
        assert len(await store.read_events(first.task.key)) == 7

    async def test_one_that_fails_midway_is_not_there(self, store: Store, make: Maker) -> None:
        begun = await self.original(store, make)
        snapshot = await store.read_snapshot(KEY, begun.task.seq)
        mail = [entry.without_texts() async for entry in read_waiting(store, snapshot)]
        made = fork(snapshot, mail, Inheritance(KEY, {}, 0), self.SWARM, PERSON, "new", make.clock)
        assert made.inherits is not None
        broken = replace(made.inherits, mail={**made.inherits.mail, made.task.seq: 99})
        with pytest.raises((SnapshotExpired, TaskNotFound)):
            await store.commit(replace(made, inherits=broken))
        assert await store.load(made.key) is None
        assert len((await store.list_tasks(ANN)).tasks) == 1
        await store.commit(made)
        assert sent(await store.read_inbox(made.key)) == sent(list(begun.deliveries))
        assert [event.seq for event in await store.read_events(made.key)] == list(range(1, 8))


def crowd(make: Maker, agents: int, entries: History, letters: int = 1) -> TaskChange:
    """A new task that brings the histories of so many agents, and so much mail."""
    change = make.begin(KEY, *(Mail("alpha", Tier.AGENT, str(n)) for n in range(max(agents, letters))))
    records = tuple(HistoryRecord(f"agent-{n}", 1, [*entries, {"n": n}]) for n in range(agents))
    counts = {record.agent: 1 for record in records}
    return replace(change, task=replace(change.task, histories=counts), histories=records)


class TestHistoriesOfANewTask:
    @pytest.mark.full(on="dynamodb-moto")
    @pytest.mark.parametrize("agents", [1, 2, pytest.param(98, marks=pytest.mark.soak), 120])
    async def test_all_are_there(self, store: Store, make: Maker, agents: int) -> None:
        change = await committed(store, crowd(make, agents, [{"role": "user", "content": "hi"}]))
        for record in change.histories:
            assert await read_history(store, KEY, record.agent) == record.entries
        assert await store.read_events(KEY) == list(change.events)
        assert [entry.seq for entry in await store.read_inbox(KEY)] == list(range(1, agents + 1))
        assert await store.load(KEY) == change.task
        for at in (1, agents):
            assert (await store.read_snapshot(KEY, at)).task == change.task

    async def test_turns_build_on_them(self, store: Store, make: Maker) -> None:
        change = await committed(store, crowd(make, 110, []))
        last = change.histories[-1].agent
        await store.commit(make.change(change.task, Mail(last), history=[{"more": True}], agent=last))
        turn = await open_turn(store, KEY, last, make)
        assert turn.history == [*change.histories[-1].entries, {"more": True}]
        assert await read_history(store, KEY, last, upto=1) == change.histories[-1].entries

    async def test_they_are_there_after_a_restart(self, durable: StoreAdapter, make: Maker) -> None:
        change = await committed(durable.store, crowd(make, 3, []))
        store = await durable.reopen()
        assert [await read_history(store, KEY, record.agent) for record in change.histories] == [
            record.entries for record in change.histories
        ]
        assert [entry.message for entry in await store.read_inbox(KEY)] == [
            entry.message for entry in change.deliveries
        ]
        (token,) = await store.list_ready()
        assert (token.key, token.mailbox) == (KEY, "alpha")

    @pytest.mark.full(on="dynamodb-moto")
    @pytest.mark.parametrize("agents", [3, pytest.param(120, marks=pytest.mark.soak)])
    async def test_nothing_of_a_task_that_is_there_changes(
        self, store: Store, make: Maker, agents: int
    ) -> None:
        first = await committed(store, crowd(make, agents, [{"of": "the first"}]))
        with pytest.raises(VersionConflict):
            await store.commit(crowd(make, agents, [{"of": "the second"}]))
        for record in first.histories:
            assert await read_history(store, KEY, record.agent) == record.entries


async def test_sqlite_shows_no_fork_before_it_is_complete(make: Maker, tmp_path: Path) -> None:
    """What a cancelled or killed copy has written is deleted."""
    with SQLiteDatabase(tmp_path / "mail.db") as database:
        store = SQLiteStore(database)
        task = (await committed(store, make.begin(KEY, *(Mail("alpha") for _ in range(4))))).task
        for n in range(4):
            change = make.change(
                task, Mail("alpha"), history=[{"n": n, "text": "x" * 300_000}], agent="alpha"
            )
            await store.commit(change)
            task = change.task
        assert 1_200_000 < task.history_bytes < 1_201_000
        snapshot = await store.read_snapshot(KEY, task.seq)
        swarm = build_swarm({"alpha": answer})
        inherited = Inheritance(KEY, {"alpha": 3}, task.history_bytes)
        made = fork(snapshot, [], inherited, swarm, PERSON, "second", make.clock)

        def rows() -> list[int]:
            return [database.execute(f"SELECT count(*) FROM {table}")[0][0] for table in ("tasks", "commits")]

        before = rows()
        copying = asyncio.create_task(store.commit(made))
        for _ in range(3):
            await asyncio.sleep(0)
        assert rows() == [2, before[1] + 1]
        assert await store.load(made.key) is None
        assert [each.task_id for each in (await store.list_tasks(None)).tasks] == [KEY.task_id]
        copying.cancel()
        with suppress(asyncio.CancelledError):
            await copying
        assert rows() == before
        store._reserve_row()
        store.discard_incomplete()
        assert rows() == before
        await store.commit(made)
        assert await read_history(store, made.key, "alpha") == await read_history(store, KEY, "alpha", upto=3)
        theirs = await read_history(store, made.key, "alpha", after=2)
        assert theirs == await read_history(store, KEY, "alpha", after=2, upto=3)
