"""Dead letters: what could not be processed has a line, and can be redriven or discarded."""

import asyncio
import logging
from dataclasses import replace
from typing import Any

import pytest
from dead_letters import ended, letters, loaded

from mail.adapters.local.queue import LocalQueue
from mail.adapters.sqlite.database import SQLiteDatabase
from mail.adapters.sqlite.store import SQLiteStore
from mail.core.decisions.caller_limits import CallerLimits
from mail.core.decisions.submit import Submission
from mail.core.engine.dead_letters import (
    REDRIVEN_PER_COMMIT,
    Sweep,
)
from mail.core.engine.runtime import Runtime
from mail.core.protocol.address import Principal
from mail.core.task.change import TaskChange
from mail.core.task.documents import IN_MEMORY
from mail.core.task.draft import Draft
from mail.core.task.events import EventKind
from mail.core.task.limits import DEAD_LETTERS, FAULTS_IN_A_ROW, Budget
from mail.core.task.stored import write_task
from mail.core.task.task import TaskKey, TaskStatus
from mail.errors import DeadLetterNotFound, TaskNotFound
from mail.testing.agents import View, build_swarm, complete, request, respond, wait
from mail.testing.clock import FakeClock
from mail.testing.rig import Rig, ask_once

ADMIN = Principal(role="admin", id="root", swarm="example")


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, logger="mail")


class Failing:
    """An agent that fails until it is repaired."""

    def __init__(self, policy: Any) -> None:
        self.policy = policy
        self.is_broken = True
        self.heard: list[str] = []

    def __call__(self, view: View) -> Any:
        if self.is_broken:
            raise RuntimeError("no model")
        self.heard.append(view.mail.body)
        return self.policy(view)


def answer(view: View) -> Any:
    return [complete(f"{view.mail.subject} {view.mail.body}")]


class TestBurial:
    async def test_a_message_on_which_its_agent_fails(self) -> None:
        async with Rig(build_swarm({"supervisor": Failing(answer)})) as rig:
            outcome = await rig.ask("hello", subject="Greeting")
            (letter,) = await letters(rig, outcome.key)
        (event,) = outcome.of(EventKind.DEAD_LETTER)
        assert (letter.seq, letter.mailbox, letter.attempts) == (event.seq, "supervisor", 1)
        assert (letter.sender, letter.subject, letter.msg_type) == ("ann", "Greeting", "request")
        assert letter.message_seq == 1
        assert letter.key == outcome.key
        assert letter.timestamp == event.timestamp
        assert "RuntimeError" in letter.reason
        assert "no model" not in event.text
        assert event.extra.agent == "supervisor"
        assert outcome.task.dead_letters == (event.seq,)

    async def test_what_an_agent_could_not_make_sense_of(self) -> None:
        def helpless(view: View) -> Any:
            return []

        async with Rig(build_swarm({"supervisor": helpless})) as rig:
            outcome = await rig.ask()
            (letter,) = await letters(rig, outcome.key)
        assert outcome.task.status is TaskStatus.FAILED
        assert letter.attempts == FAULTS_IN_A_ROW
        assert "faulty" in letter.reason

    async def test_a_turn_that_is_given_up(self) -> None:
        async with Rig(build_swarm({"supervisor": answer})) as rig:
            await rig.workers.stop(grace=0)
            submitted = await rig.submit()
            await rig.runtime.turns.lease(submitted.key, "supervisor", -1.0)  # its worker died
            await rig.runtime.dead_letter_turn(submitted.key, "supervisor", "it died", upto=9, attempts=5)
            (letter,) = await letters(rig, submitted.key)
        assert (letter.attempts, letter.reason) == (5, "it died")

    async def test_mail_of_an_agent_that_the_swarm_has_no_longer(self) -> None:
        def supervisor(view: View) -> Any:
            return [request("worker"), wait()] if view.mail.sender_type == "user" else [complete("done")]

        rig = Rig(build_swarm({"supervisor": supervisor, "worker": answer}))
        async with rig:
            await rig.workers.stop(grace=0)
            submitted = await rig.submit()
            await rig.runtime.run_turn(submitted.key, "supervisor")
            rig.runtime.swarm = build_swarm({"supervisor": supervisor})
            await rig.runtime.run_turn(submitted.key, "worker")
            (letter,) = await letters(rig, submitted.key)
            assert letter.mailbox == "worker"
            (outcome,) = await rig.runtime.dead_letters.redrive(ADMIN, submitted.key)
            assert "no longer has an agent 'worker'" in outcome.refusal
            assert len((await loaded(rig, submitted.key)).dead_letters) == 1

    async def test_a_task_without_any_costs_nothing(self) -> None:
        outcome = await ask_once(build_swarm({"supervisor": answer}))
        assert outcome.task.dead_letters == ()
        assert "dead" not in write_task(outcome.task)

    async def test_a_task_lists_the_newest_of_very_many(self) -> None:
        async with Rig(build_swarm({"supervisor": Failing(answer)})) as rig:
            outcome = await rig.ask()
        crowded = replace(outcome.task, dead_letters=tuple(range(1, DEAD_LETTERS + 1)))
        assert len(crowded.dead_letters) == DEAD_LETTERS
        draft = Draft(crowded, rig.swarm, rig.clock)
        seq = draft.dead_letter("supervisor", "no", 1, message=None, message_seq=1)
        assert draft.seal().task.dead_letters == (*range(2, DEAD_LETTERS + 1), seq)


class TestRedriving:
    async def test_a_failed_task_goes_on_with_it(self) -> None:
        agent = Failing(answer)
        async with Rig(build_swarm({"supervisor": agent})) as rig:
            outcome = await rig.ask("hello", subject="Greeting", notes={"order": 7})
            assert outcome.task.status is TaskStatus.FAILED
            agent.is_broken = False
            (redriven,) = await rig.runtime.dead_letters.redrive(
                ADMIN, outcome.key, outcome.task.dead_letters[0]
            )
            assert not redriven.waits
            assert not redriven.refusal
            assert await ended(rig, outcome.key, 2) == "Greeting hello"
            task = await loaded(rig, outcome.key)
            events = await rig.store.read_events(outcome.key)
        assert task.status is TaskStatus.COMPLETED
        assert task.dead_letters == ()
        assert task.generation.notes == {"order": 7}
        assert agent.heard == ["hello"]
        (told,) = [event for event in events if event.kind is EventKind.DEAD_LETTER_REDRIVEN]
        assert told.extra.as_json() == {"dead_letter": outcome.task.dead_letters[0], "by": str(ADMIN)}
        (sent,) = [event for event in events if "redrives" in event.extra.as_json()]
        assert (sent.seq, sent.extra.as_json()["redrives"]) == (redriven.seq, outcome.task.dead_letters[0])

    async def test_a_budget_of_time_begins_anew(self) -> None:
        agent = Failing(answer)
        async with Rig(build_swarm({"supervisor": agent})) as rig:
            outcome = await rig.ask("hello", budget=Budget(seconds=60))
            rig.clock.advance(3_600)  # type: ignore[attr-defined]
            agent.is_broken = False
            await rig.runtime.dead_letters.redrive(ADMIN, outcome.key)
            assert (await ended(rig, outcome.key, 2)).endswith("hello")

    async def test_an_agent_gets_the_answer_that_it_has_missed(self) -> None:
        worker = Failing(lambda view: [respond("supervisor", "42")])

        def supervisor(view: View) -> Any:
            if view.mail.body == "go on":
                return [wait()]
            if view.mail.sender_type == "user":
                return [request("worker", "how much?"), wait()]
            return [complete(view.mail.body)]

        async with Rig(build_swarm({"supervisor": supervisor, "worker": worker})) as rig:
            first = await rig.ask()  # the supervisor gets the error, and finishes with it
            assert first.task.status is TaskStatus.COMPLETED
            worker.is_broken = False
            (redriven,) = await rig.runtime.dead_letters.redrive(ADMIN, first.key)
            assert redriven.waits
            assert (await loaded(rig, first.key)).status is TaskStatus.COMPLETED
            assert worker.heard == []
            assert (await rig.ask("go on", task_id=first.key.task_id)).answer == "42"
        assert worker.heard == ["how much?"]

    async def test_a_letter_is_redriven_once_by_however_many(self) -> None:
        agent = Failing(answer)
        async with Rig(build_swarm({"supervisor": agent})) as rig:
            outcome = await rig.ask()
            agent.is_broken = False
            (seq,) = outcome.task.dead_letters
            done = await asyncio.gather(
                *(rig.runtime.dead_letters.redrive(ADMIN, outcome.key, seq) for _ in range(5)),
                return_exceptions=True,
            )
            assert await ended(rig, outcome.key, 2)
        assert sum(isinstance(each, list) for each in done) == 1
        assert sum(isinstance(each, DeadLetterNotFound) for each in done) == 4
        assert len(agent.heard) == 1

    async def test_what_fails_again_is_a_new_dead_letter(self) -> None:
        async with Rig(build_swarm({"supervisor": Failing(answer)})) as rig:
            outcome = await rig.ask()
            await rig.runtime.dead_letters.redrive(ADMIN, outcome.key)
            await ended(rig, outcome.key, 2)
            task = await loaded(rig, outcome.key)
        assert task.status is TaskStatus.FAILED
        assert len(task.dead_letters) == 1
        assert task.dead_letters != outcome.task.dead_letters

    async def test_a_person_whose_message_joins_a_running_task_is_answered(self) -> None:
        agent = Failing(answer)
        async with Rig(build_swarm({"supervisor": agent})) as rig:
            await rig.workers.stop(grace=0)
            submitted = await rig.submit("first")
            await rig.submit("second", task_id=submitted.key.task_id)
            await rig.runtime.run_turn(submitted.key, "supervisor")
            assert (await loaded(rig, submitted.key)).is_running
            agent.is_broken = False
            await rig.runtime.dead_letters.redrive(ADMIN, submitted.key)
            for _ in range(2):
                await rig.runtime.run_turn(submitted.key, "supervisor")
            task = await loaded(rig, submitted.key)
        assert agent.heard == ["second", "first"]
        assert not task.is_running
        assert task.unread_questions == ()

    async def test_all_of_a_task_in_the_order_of_their_burial(self) -> None:
        agent = Failing(lambda view: [wait("for more")])
        count = REDRIVEN_PER_COMMIT + 3
        async with Rig(build_swarm({"supervisor": agent})) as rig:
            await rig.workers.stop(grace=0)
            submitted = await rig.submit("0")
            for number in range(1, count):
                await rig.submit(str(number), task_id=submitted.key.task_id, steps=1000)
            for _ in range(count):
                await rig.runtime.run_turn(submitted.key, "supervisor")
            assert len((await loaded(rig, submitted.key)).dead_letters) == count
            agent.is_broken = False
            redriven = await rig.runtime.dead_letters.redrive(ADMIN, submitted.key)
            assert len(redriven) == count
            for _ in range(count):
                await rig.runtime.run_turn(submitted.key, "supervisor")
            assert (await loaded(rig, submitted.key)).dead_letters == ()
        assert agent.heard[:count] == [str(number) for number in range(count)]

    async def test_a_full_mailbox_takes_no_more(self) -> None:
        async with Rig(build_swarm({"supervisor": Failing(answer)})) as rig:
            outcome = await rig.ask()
            rig.runtime.caller_limits = CallerLimits(running_tasks=0)
            done = await rig.runtime.dead_letters.sweep(rig.runtime.dead_letters.redrive, ADMIN, None, None)
            assert done.outcomes == {}
            assert "which is the limit" in done.failures[outcome.key]
            assert (await loaded(rig, outcome.key)).dead_letters == outcome.task.dead_letters

    async def test_what_is_not_there(self) -> None:
        async with Rig(build_swarm({"supervisor": Failing(answer)})) as rig:
            outcome = await rig.ask()
            with pytest.raises(DeadLetterNotFound, match="no dead letter 1;"):
                await rig.runtime.dead_letters.redrive(ADMIN, outcome.key, 1)
            with pytest.raises(TaskNotFound):
                await rig.runtime.dead_letters.redrive(ADMIN, TaskKey(str(ADMIN), "nothing"))
            with pytest.raises(TaskNotFound):
                await rig.runtime.dead_letters.discard(ADMIN, TaskKey(str(ADMIN), "nothing"))


class TestDiscarding:
    async def test_it_leaves_the_list_and_stays_in_the_timeline(self) -> None:
        async with Rig(build_swarm({"supervisor": Failing(answer)})) as rig:
            outcome = await rig.ask()
            (seq,) = outcome.task.dead_letters
            assert await rig.runtime.dead_letters.discard(ADMIN, outcome.key, seq) == [seq]
            task = await loaded(rig, outcome.key)
            events = await rig.store.read_events(outcome.key)
            with pytest.raises(DeadLetterNotFound):
                await rig.runtime.dead_letters.discard(ADMIN, outcome.key, seq)
            assert await rig.runtime.dead_letters.discard(ADMIN, outcome.key) == []
        assert task.dead_letters == ()
        assert task.status is TaskStatus.FAILED
        assert events[-1].kind is EventKind.DEAD_LETTER_DISCARDED
        assert events[-1].extra.as_json() == {"dead_letters": [seq], "by": str(ADMIN)}
        assert any(event.seq == seq for event in events)

    async def test_one_that_comes_meanwhile_stays(self) -> None:
        """Discarding all covers those that there were."""

        class Overtaken(SQLiteStore):
            """Another commit comes first once, and buries something."""

            is_overtaken = False

            async def commit(self, change: TaskChange) -> None:
                if change.events[0].kind is EventKind.DEAD_LETTER_DISCARDED and not self.is_overtaken:
                    self.is_overtaken = True
                    await dead_letter(self, "new")
                await super().commit(change)

        async def dead_letter(store: SQLiteStore, reason: str) -> int:
            task = await store.load(key)
            assert task is not None
            draft = Draft(task, swarm, clock)
            seq = draft.dead_letter("supervisor", reason, 1, message=None, message_seq=1)
            await store.commit(draft.seal())
            return seq

        swarm, clock = build_swarm({"supervisor": answer}), FakeClock()
        with SQLiteDatabase(IN_MEMORY) as database:
            store = Overtaken(database)
            runtime = Runtime(swarm, store, LocalQueue(), clock)
            key = (await runtime.submit(ADMIN, Submission(body="hi"))).key
            old = await dead_letter(store, "old")
            assert await runtime.dead_letters.discard(ADMIN, key) == [old]
            task = await store.load(key)
        assert task is not None
        assert store.is_overtaken
        assert task.dead_letters == (old + 1,)


class TestListing:
    async def test_of_one_caller_and_of_the_swarm(self) -> None:
        async with Rig(build_swarm({"supervisor": Failing(answer)})) as rig:
            bob = Principal(role="user", id="bob", swarm=rig.swarm.name)
            hers, his = await rig.ask("a"), await rig.ask("b", caller=bob)
            of_ann = await rig.runtime.dead_letters.page(str(rig.user), limit=10, cursor=None)
            of_all = await rig.runtime.dead_letters.page(None, limit=10, cursor=None)
        assert [listed.dead_letter.key for listed in of_ann.dead_letters] == [hers.key]
        assert {listed.dead_letter.key for listed in of_all.dead_letters} == {hers.key, his.key}
        assert of_ann.dead_letters[0].status is TaskStatus.FAILED

    async def test_those_of_a_task_stay_on_one_page_the_newest_first(self) -> None:
        async with Rig(build_swarm({"supervisor": Failing(answer)})) as rig:
            keys = []
            for number in range(4):
                outcome = await rig.ask(f"{number}")
                keys.append(outcome.key)
                for _ in range(number):
                    await rig.ask("again", task_id=outcome.key.task_id)
            seen, cursor, sizes = [], None, []
            while True:
                page = await rig.runtime.dead_letters.page(None, limit=3, cursor=cursor)
                seen += [listed.dead_letter for listed in page.dead_letters]
                sizes.append(len(page.dead_letters))
                cursor = page.cursor
                if cursor is None:
                    break
        assert sizes == [4, 3, 3]
        assert [letter.key for letter in seen] == [keys[3]] * 4 + [keys[2]] * 3 + [keys[1]] * 2 + [keys[0]]
        assert [letter.seq for letter in seen[:4]] == sorted(
            (letter.seq for letter in seen[:4]), reverse=True
        )

    async def test_only_the_events_that_are_needed_are_read(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with Rig(build_swarm({"supervisor": Failing(answer)})) as rig:
            outcome = await rig.ask()
            for _ in range(300):
                task = await loaded(rig, outcome.key)
                draft = Draft(task, rig.swarm, rig.clock)
                draft.emit(EventKind.AWAIT_MESSAGE, "something else")
                await rig.store.commit(draft.seal())
            read_events, read = rig.store.read_events, []

            async def count(*args: Any, **options: Any) -> Any:
                read.append(await read_events(*args, **options))
                return read[-1]

            monkeypatch.setattr(rig.store, "read_events", count)
            assert len(await letters(rig, outcome.key)) == 1
            assert [len(events) for events in read] == [1]
            (redriven,) = await rig.runtime.dead_letters.redrive(ADMIN, outcome.key)
            assert redriven.seq
            assert [len(events) for events in read] == [1, 1, 1]

    async def test_other_swarms_tasks_in_the_same_store(self) -> None:
        async with Rig(build_swarm({"supervisor": Failing(answer)})) as rig:
            await rig.ask(caller=Principal(role="user", id="ann", swarm="other"))
            page = await rig.runtime.dead_letters.page(None, limit=10, cursor=None)
            done: Sweep[int] = await rig.runtime.dead_letters.sweep(
                rig.runtime.dead_letters.discard, ADMIN, None, None
            )
        assert page.dead_letters == []
        assert done.outcomes == {}
