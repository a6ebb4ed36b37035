"""Store: random sequences of everything that may happen to it, compared with a model in plain Python after each."""

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    precondition,
    rule,
)
from pydantic_core import to_json
from support.engines.adapters import STORES, StoreAdapter
from support.engines.dynamodb import ENGINES
from support.engines.postgres import has_postgres
from support.plugins.tiers import sized

import mail.adapters.sqlite.store
from mail.core.protocol.message import MAILMessage, Tier
from mail.core.task.change import InboxEntry, TaskChange, Turn
from mail.core.task.context import Portion
from mail.core.task.events import Event
from mail.core.task.leases import Lease, Park, due_of, urgent_mail
from mail.core.task.ports import Busy, Idle, WakeUp, read_history
from mail.core.task.task import LIFECYCLE, Task, TaskKey, TaskStatus, Transition
from mail.core.task.turn_state import Checkpoint, Receipt
from mail.errors import LeaseLost, TaskNotFound, VersionConflict
from mail.testing.changes import ANN, BOB, NOW, SWARM, Mail, Maker, checkpoint
from mail.testing.clock import FakeClock
from mail.testing.contracts import due_tasks, end_expired

pytestmark = pytest.mark.full

KEYS = [TaskKey(instance, task_id) for instance in (ANN, BOB) for task_id in ("one", "two")]
AGENTS = list(SWARM.agents)

keys = st.sampled_from(KEYS)
mailboxes = st.sampled_from(AGENTS)
letters = st.lists(st.builds(Mail, mailboxes, st.sampled_from(list(Tier)), st.text(max_size=8)), max_size=4)
some_letters = letters.filter(bool)
transitions = st.none() | st.sampled_from(list(Transition))
histories = st.none() | st.lists(st.fixed_dictionaries({"content": st.text(max_size=5)}), max_size=3)


BETWEEN = 0.25
"""Seconds between the end of a lease and any time at which a rule looks."""

FORGOTTEN = ""
"""The token of a lease whose process has ended, in a store that knows only that it was there."""


@dataclass
class Model:
    """A task as the store must show it."""

    task: Task
    inbox: list[InboxEntry] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    histories: dict[str, list[list[dict[str, object]]]] = field(default_factory=dict)
    responses: dict[int, MAILMessage] = field(default_factory=dict)
    leases: dict[str, Lease] = field(default_factory=dict)
    checkpoints: dict[tuple[str, int], Checkpoint] = field(default_factory=dict)
    moments: list[tuple[Task, list[InboxEntry]]] = field(default_factory=list)
    was_committed: bool = False

    def apply(self, change: TaskChange) -> None:
        self.task = change.task
        self.was_committed = True
        if change.consumed is not None:
            self.inbox.remove(change.consumed)
            self.checkpoints.pop((change.consumed.mailbox, change.consumed.seq), None)
        self.inbox += change.deliveries
        self.events += change.events
        for record in change.histories:
            self.histories.setdefault(record.agent, []).append(record.entries)
        self.moments.append((change.task, list(self.inbox)))
        if change.response is not None:
            self.responses[change.task.generation.number] = change.response
        if change.turn is not None:
            del self.leases[change.turn.mailbox]

    def head(self, mailbox: str) -> InboxEntry | None:
        mine = [entry for entry in self.inbox if entry.mailbox == mailbox]
        return min(mine, key=lambda entry: (entry.tier, entry.seq), default=None)


class StoreMachine(RuleBasedStateMachine):
    """Several workers, each with turns in hand that may be stale, and people who write at any time."""

    make_adapter: ClassVar[Callable[[Path], StoreAdapter]]

    turns: Bundle[Turn] = Bundle("turns")

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.loop = asyncio.new_event_loop()
        self.adapter = type(self).make_adapter(self.folder)
        self.run(self.adapter.open())
        self.clock = FakeClock()
        self.make = Maker(self.clock)
        self.now = NOW
        self.models: dict[TaskKey, Model] = {}
        self.began: list[TaskKey] = []
        self.steps = 0

    def teardown(self) -> None:
        self.run(self.compare())
        self.run(self.adapter.close())
        self.loop.close()
        shutil.rmtree(self.folder)

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(coroutine)

    def refused(self, change: TaskChange, *errors: type[Exception]) -> None:
        with pytest.raises(errors) as refusal:
            self.run(self.adapter.store.commit(change))
        if isinstance(refusal.value, VersionConflict) and refusal.value.current is not None:
            assert refusal.value.current == self.models[change.key].task

    @rule(key=keys, mail=some_letters, lifetime=st.none() | st.integers(0, 100))
    def begin(self, key: TaskKey, mail: list[Mail], lifetime: int | None) -> None:
        deadline = None if lifetime is None else self.now + lifetime
        self.clock.advance(0.001)  # tasks that start at the same moment are listed in any order
        change = self.make.begin(key, *mail, deadline=deadline)
        if key in self.models:
            self.refused(change, VersionConflict)
            return
        self.run(self.adapter.store.commit(change))
        self.models[key] = Model(change.task)
        self.models[key].apply(change)
        self.began.append(key)

    @rule(key=keys, mail=letters, transition=transitions, lifetime=st.none() | st.integers(0, 100))
    def write(
        self, key: TaskKey, mail: list[Mail], transition: Transition | None, lifetime: int | None
    ) -> None:
        """A person writes to the task, or something outside a turn ends it."""
        model = self.models.get(key)
        if model is None:
            return
        if (model.task.status, transition) not in LIFECYCLE:
            transition = None
        deadline = None if lifetime is None else self.now + lifetime
        change = self.make.change(model.task, *mail, transition=transition, deadline=deadline)
        self.run(self.adapter.store.commit(change))
        model.apply(change)

    @rule(
        target=turns,
        key=keys,
        mailbox=mailboxes,
        term=st.integers(1, 30),
        known=st.integers(0, 3),
    )
    def open(self, key: TaskKey, mailbox: str, term: int, known: int) -> Any:
        lease = self.make.lease(self.now + term + BETWEEN)
        model = self.models.get(key)
        records = model.histories.get(mailbox, []) if model is not None else []
        known = min(known, len(records))
        opened = self.run(
            self.adapter.store.open_turn(key, mailbox, lease, now=self.now, history_after=known)
        )
        if model is None:
            assert opened == Idle(None)
            return multiple()
        held = model.leases.get(mailbox)
        head = model.head(mailbox)
        if held is not None and held.expires > self.now and not held.is_over(model.task, mailbox):
            assert opened == Busy()
            return multiple()
        if head is None or not model.task.is_running:
            assert opened == Idle(model.task)
            return multiple()
        portions = [
            Portion(n, record, len(to_json(record))) for n, record in enumerate(records[known:], known + 1)
        ]
        saved = model.checkpoints.get((mailbox, head.seq))
        others = sum(other.expires > self.now for name, other in model.leases.items() if name != mailbox)
        assert opened == Turn(model.task, head, lease, portions, saved, others, replaced=opened.replaced)
        assert self.is_same(opened.replaced, held)
        model.leases[mailbox] = lease
        return opened

    @rule(
        turn=turns,
        term=st.integers(1, 30),
        ended_by_mail=st.booleans(),
        contents=st.none() | st.text(max_size=5),
    )
    def park(self, turn: Turn, term: int, ended_by_mail: bool, contents: str | None) -> None:
        """A turn that can't run now leaves its mailbox to nobody."""
        model = self.models[turn.task.key]
        urgent = urgent_mail(turn.task, turn.mailbox) if ended_by_mail else None
        reason = Park(on="weather", since=self.now, urgent=urgent)
        parked = turn.lease.parked(self.now + term + BETWEEN, 0, turn.entry.seq, reason)
        saved = None if contents is None else checkpoint(contents)
        held = model.leases.get(turn.mailbox)
        if held is not None and held.token == parked.token:
            return  # a store behind a network takes it for a repeated request
        if not self.holds(turn):
            with pytest.raises(LeaseLost):
                self.run(self.adapter.store.park(turn, parked, saved))
            return
        self.run(self.adapter.store.park(turn, parked, saved))
        model.leases[turn.mailbox] = parked
        model.was_committed = False
        if saved is not None:
            model.checkpoints[turn.mailbox, turn.entry.seq] = saved

    @staticmethod
    def is_same(found: Lease | None, known: Lease | None) -> bool:
        """Compare leases, but for their times, which a store may count by its own clock."""
        if found is None or known is None:
            return found is known
        same = found.attempt == known.attempt and found.park == known.park
        return same and known.token in (found.token, FORGOTTEN)

    def holds(self, turn: Turn) -> bool:
        lease = self.models[turn.task.key].leases.get(turn.mailbox)
        return lease is not None and lease.token == turn.lease.token

    @rule(turn=turns, contents=st.lists(st.text(max_size=5), min_size=1, max_size=2), started=st.booleans())
    def save_checkpoint(self, turn: Turn, contents: list[str], started: bool) -> None:
        model = self.models[turn.task.key]
        saved = checkpoint(*contents)
        if started:
            saved = saved.with_receipt(0, Receipt(state=Receipt.State.STARTED))
        if self.holds(turn):
            self.run(self.adapter.store.save_checkpoint(turn, saved))
            model.checkpoints[turn.mailbox, turn.entry.seq] = saved
            return
        with pytest.raises(LeaseLost):
            self.run(self.adapter.store.save_checkpoint(turn, saved))

    @rule(held=st.lists(turns, unique_by=lambda turn: turn.lease.token, max_size=3), term=st.integers(1, 30))
    def renew(self, held: list[Turn], term: int) -> None:
        """Workers say that they are alive; those that have lost their leases learn it."""
        expires = self.now + term + BETWEEN
        lost = self.run(self.adapter.store.renew(held, expires=expires))
        assert lost == {turn.lease.token for turn in held if not self.holds(turn)}
        for turn in held:
            if self.holds(turn):
                leases = self.models[turn.task.key].leases
                leases[turn.mailbox] = replace(leases[turn.mailbox], expires=expires)

    @rule()
    def take_expired(self) -> None:
        """Parks that are over, and leases of workers that are gone, are handed out once, if their tasks have work."""
        expired = self.run(end_expired(self.adapter.store, self.now))
        found = {(each.task.key, each.mailbox): each.lease for each in expired}
        assert len(found) == len(expired)
        for key, model in self.models.items():
            for mailbox, lease in model.leases.items():
                is_expired = 0 < lease.expires <= self.now
                if (key, mailbox) in found:
                    assert is_expired
                    assert self.is_same(found[key, mailbox], lease)
                    model.leases[mailbox] = replace(lease, expires=0.0)
                else:
                    assert not (is_expired and model.task.is_running)

    @rule(turn=consumes(turns))
    def release(self, turn: Turn) -> None:
        self.run(self.adapter.store.release(turn))
        if self.holds(turn):
            del self.models[turn.task.key].leases[turn.mailbox]

    @rule(turn=turns, mail=letters, consume=st.booleans(), history=histories, transition=transitions)
    def commit(
        self,
        turn: Turn,
        mail: list[Mail],
        consume: bool,
        history: list[dict[str, object]] | None,
        transition: Transition | None,
    ) -> None:
        """A turn ends, decided on the task as it is now; that of a worker whose lease is lost must not."""
        model = self.models[turn.task.key]
        if transition is Transition.RESUME or (model.task.status, transition) not in LIFECYCLE:
            transition = None
        change = self.make.change(
            model.task, *mail, turn=turn, consume=consume, history=history, transition=transition
        )
        if not self.holds(turn):
            self.refused(change, LeaseLost)
            return
        self.run(self.adapter.store.commit(change))
        model.apply(change)

    @rule(turn=turns, mail=letters)
    def commit_on_a_version_that_has_passed(self, turn: Turn, mail: list[Mail]) -> None:
        model = self.models[turn.task.key]
        if turn.task.version == model.task.version:
            return
        change = self.make.change(turn.task, *mail, turn=turn, history=[{"never": "seen"}])
        self.refused(change, VersionConflict if self.holds(turn) else LeaseLost)

    @rule(key=keys, mail=letters)
    def commit_on_a_version_to_come(self, key: TaskKey, mail: list[Mail]) -> None:
        model = self.models.get(key)
        unborn = self.make.change(model.task).task if model else self.make.begin(key).task
        self.refused(self.make.change(unborn, *mail), VersionConflict, TaskNotFound)

    @rule(key=keys, nth=st.integers(0, 50))
    def look_back(self, key: TaskKey, nth: int) -> None:
        """The task as any of its events left it is what it was then."""
        model = self.models.get(key)
        if model is None:
            return
        at = 1 + nth % model.task.seq
        task, inbox = next(moment for moment in model.moments if moment[0].seq >= at)
        snapshot = self.run(self.adapter.store.read_snapshot(key, at))
        assert snapshot.task == task
        assert sorted((mailbox, tier, seq) for tier, seq, mailbox in snapshot.waiting) == sorted(
            map(place, inbox)
        )

    @rule(seconds=st.sampled_from([0.5, 10, 31]))
    def let_time_pass(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: self.is_durable)
    @rule()
    def reopen(self) -> None:
        self.run(self.adapter.reopen())
        if not self.adapter.leases_outlive_process:
            for model in self.models.values():
                model.leases = {
                    mailbox: Lease(FORGOTTEN, 0.0, lease.attempt) if lease.park is None else lease
                    for mailbox, lease in model.leases.items()
                }

    is_durable: ClassVar[bool] = True
    forgets_parks: ClassVar[bool] = False
    """Whether a commit may hide that a park makes its task due."""
    compares_every: ClassVar[int] = 1
    """Steps from one look at everything to the next."""

    @invariant()
    def shows_what_was_committed(self) -> None:
        self.steps += 1
        if self.steps % self.compares_every == 0:
            self.run(self.compare())

    async def compare(self) -> None:
        store = self.adapter.store
        for key, model in self.models.items():
            assert await store.load(key) == model.task
            inbox = await store.read_inbox(key)
            assert sorted(map(place, inbox)) == sorted(map(place, model.inbox))
            assert [entry.tier for entry in inbox] == sorted(entry.tier for entry in inbox)
            assert {place(entry): entry.message for entry in inbox} == {
                place(entry): entry.message for entry in model.inbox
            }
            assert await store.read_events(key) == model.events
            for agent in AGENTS:
                expected = [entry for record in model.histories.get(agent, []) for entry in record]
                assert await read_history(store, key, agent) == expected
            for generation in range(model.task.generation.number + 2):
                assert await store.read_response(key, generation) == model.responses.get(generation)
        for key in set(KEYS) - set(self.models):
            assert await store.load(key) is None
        await self.compare_lists()

    async def compare_lists(self) -> None:
        store = self.adapter.store
        running = {key: model for key, model in self.models.items() if model.task.is_running}
        ready = await store.list_ready()
        assert len(ready) == len(set(ready))
        assert set(ready) == {
            WakeUp(key, mailbox, head.tier)
            for key, model in running.items()
            for mailbox in AGENTS
            if (head := model.head(mailbox)) is not None
        }
        due_keys = await due_tasks(store, self.now)
        assert len(due_keys) == len(set(due_keys))
        for key, model in self.models.items():
            due = due_of(model.task, model.leases.values())
            is_due = model.task.is_running and due is not None and due <= self.now
            assert is_due or key not in due_keys
            if not (self.forgets_parks and model.was_committed) or model.task.is_overdue(self.now):
                assert key in due_keys or not is_due
        assert await store.count_active_instances() == len({key.instance for key in running})
        for instance in (ANN, BOB):
            newest = [self.models[key].task for key in reversed(self.began) if key.instance == instance]
            assert (await store.list_tasks(instance)).tasks == newest
            for status in TaskStatus:
                listed = await store.list_tasks(instance, status=status)
                assert listed.tasks == [task for task in newest if task.status is status]


def place(entry: InboxEntry) -> tuple[str, int, int]:
    return entry.mailbox, entry.tier, entry.seq


class MemoryMachine(StoreMachine):
    make_adapter = STORES["sqlite-memory"]
    is_durable = False


class SlowMachine(StoreMachine):
    make_adapter = STORES["sqlite-slow"]


class ForgetfulMachine(SlowMachine):
    """The embedded store with room for one task in memory, so that it keeps reading from its file."""

    def __init__(self) -> None:
        self._patch = patch.object(mail.adapters.sqlite.store, "CACHED_TASKS", 1)
        self._patch.start()
        super().__init__()

    def teardown(self) -> None:
        super().teardown()
        self._patch.stop()


class NetworkMachine(StoreMachine):
    """A store behind a network, where a look at everything takes a hundred requests."""

    compares_every = 8


NETWORK_MACHINES = {
    f"DynamoDB-{engine}": type(
        f"{engine}Machine",
        (NetworkMachine,),
        {"make_adapter": STORES[f"dynamodb-{engine}"], "forgets_parks": True},
    )
    for engine in ENGINES
}
if has_postgres():
    NETWORK_MACHINES["Postgres"] = type(
        "PostgresMachine", (NetworkMachine,), {"make_adapter": STORES["postgres"]}
    )

often = settings(max_examples=sized(fast=6, full=6, soak=1000), stateful_step_count=40)
seldom = settings(
    max_examples=sized(fast=1, full=1, soak=200),
    stateful_step_count=30,
    suppress_health_check=[HealthCheck.too_slow],
)  # the first example may have to wait until its engine has started

for machine in (MemoryMachine, SlowMachine, ForgetfulMachine):
    machine.TestCase.settings = often
for machine in NETWORK_MACHINES.values():
    machine.TestCase.settings = seldom

MemoryMachine.TestCase.pytestmark = [pytest.mark.fast]  # type: ignore[attr-defined]
SlowMachine.TestCase.pytestmark = [pytest.mark.soak]  # type: ignore[attr-defined]  # the forgetful one does it, too
if machine := NETWORK_MACHINES.get("DynamoDB-ministack"):  # moto has shown it
    machine.TestCase.pytestmark = [pytest.mark.soak]  # type: ignore[attr-defined]
TestMemory = MemoryMachine.TestCase
TestSlow = SlowMachine.TestCase
TestForgetful = ForgetfulMachine.TestCase
globals().update({f"Test{name}": machine.TestCase for name, machine in NETWORK_MACHINES.items()})  # type: ignore[attr-defined]
