"""Changes of a task: what a decision could return, for tests of stores, and what it did, for tests of decisions."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from mail.core.decisions.turn import settle
from mail.core.protocol.address import create_agent_address, create_system_address, create_user_address
from mail.core.protocol.clock import Clock
from mail.core.protocol.message import (
    MAILBroadcast,
    MAILInterrupt,
    MAILMessage,
    MAILPayload,
    MAILRequest,
    MessageType,
    Tier,
)
from mail.core.task.change import TaskChange, Turn
from mail.core.task.draft import Draft
from mail.core.task.events import EventKind
from mail.core.task.leases import Lease
from mail.core.task.limits import Limits
from mail.core.task.swarm import History, SwarmCore
from mail.core.task.task import Task, TaskKey, TaskStatus, Transition
from mail.core.task.turn_state import Checkpoint, Receipt
from mail.errors import Subject
from mail.testing.agents import NAME, Call, build_swarm, complete, output, turns
from mail.testing.clock import EPOCH, FakeClock

ANN = f"user:ann@{NAME}"
BOB = f"user:bob@{NAME}"
NOW = EPOCH.timestamp()

SWARM: SwarmCore = build_swarm({name: turns([complete()]) for name in ("alpha", "beta", "gamma")})


class Mail(NamedTuple):
    """A message to send: its tier decides its sender and its kind."""

    mailbox: str
    tier: Tier = Tier.AGENT
    body: str = "hello"
    subject: str = "Test"


class Maker:
    """Makes changes, with ids and times from one clock."""

    def __init__(self, clock: Clock | None = None, swarm: SwarmCore = SWARM) -> None:
        self.clock = clock or FakeClock()
        self.swarm = swarm

    def lease(self, expires: float = NOW + 60) -> Lease:
        """Return a new lease."""
        return Lease(self.clock.new_id(), expires)

    def begin(self, key: TaskKey, *mail: Mail, deadline: float | None = None, title: str = "") -> TaskChange:
        """Return the first commit of a task."""
        task = Task(
            instance=key.instance,
            task_id=key.task_id,
            status=TaskStatus.RUNNING,
            owner=key.instance,
            contributors=(key.instance,),
            entrypoint=SWARM.entrypoint,
            title=title or None,
            started=self.clock.now().isoformat(),
            limits=Limits(steps=15, turns=300, deadline=deadline),
        )
        draft = Draft(task, self.swarm, self.clock)
        self._send(draft, mail or (Mail("alpha", Tier.PERSON),))
        return draft.seal()

    def change(
        self,
        task: Task,
        *mail: Mail,
        turn: Turn | None = None,
        consume: bool = True,
        history: History | None = None,
        agent: str = "alpha",
        note: str = "something happened",
        transition: Transition | None = None,
        deadline: float | None = None,
    ) -> TaskChange:
        """Return a later commit, which ends `turn` and makes `transition` if they are given.

        A `deadline` replaces that of the task; resuming without one removes it. Without a `note` there is no event
        for it.
        """
        draft = Draft(task, self.swarm, self.clock)
        if turn is not None:
            draft.end_turn(turn, consume=consume)
        if note:
            draft.emit(EventKind.HELP_CALLED, note)
        if history is not None:
            draft.remember(turn.mailbox if turn is not None else agent, history)
        self._send(draft, mail)
        if transition is Transition.RESUME:
            draft.generation = task.generation.next()
        if deadline is not None or transition is Transition.RESUME:
            draft.limits = replace(task.limits, deadline=deadline)
        if transition is not None:
            draft.move(transition)
        if transition in (Transition.COMPLETE, Transition.FAIL, Transition.PAUSE):
            draft.finish(create_agent_address("alpha"), Subject.TASK_COMPLETE, f"the end: {note}")
        return draft.seal()

    def message(self, task_id: str, mail: Mail) -> MAILMessage:
        """Return a message of a tier."""
        common: dict[str, Any] = {"task_id": task_id, "subject": mail.subject, "body": mail.body}
        recipient = create_agent_address(mail.mailbox)
        agent = create_agent_address("beta" if mail.mailbox == "alpha" else "alpha")
        kind: MessageType = "request"
        payload: MAILPayload
        match mail.tier:
            case Tier.INTERRUPT:
                kind = "interrupt"
                payload = MAILInterrupt(
                    interrupt_id=self.clock.new_id(), sender=agent, recipients=(recipient,), **common
                )
            case Tier.BROADCAST:
                kind = "broadcast"
                payload = MAILBroadcast(
                    broadcast_id=self.clock.new_id(), sender=agent, recipients=(recipient,), **common
                )
            case tier:
                senders = {Tier.SYSTEM: create_system_address(NAME), Tier.PERSON: create_user_address("ann")}
                payload = MAILRequest(
                    request_id=self.clock.new_id(),
                    sender=senders.get(tier, agent),
                    recipient=recipient,
                    **common,
                )
        return MAILMessage(
            id=self.clock.new_id(), timestamp=self.clock.now().isoformat(), msg_type=kind, message=payload
        )

    def _send(self, draft: Draft, mail: Sequence[Mail]) -> None:
        for each in mail:
            draft.send(self.message(draft.task_id, each), (each.mailbox,))


def checkpoint(*contents: str) -> Checkpoint:
    """Return the checkpoint of a turn with finished actions, one for each content."""
    calls = output([complete(content) for content in contents])
    receipts = tuple(Receipt(state=Receipt.State.DONE, content=content) for content in contents)
    return Checkpoint(text=None, calls=tuple(calls), receipts=receipts)


class Change(NamedTuple):
    """The change of a turn, in short: the results of its calls, the mail by mailbox and subject, the task's end."""

    results: tuple[str, ...] = ()
    mail: tuple[tuple[str, str], ...] = ()
    status: TaskStatus = TaskStatus.RUNNING
    answer: str | None = None


def change_of(begun: TaskChange, *calls: Call, swarm: SwarmCore = SWARM) -> Change:
    """Return what a turn changes in which an agent has read the first message of a new task, and makes these calls.

    assert change_of(Maker().begin(key), complete("42")) == Change(("SUCCESS: task completed",), (), "completed", "42")
    """
    turn = Turn(begun.task, begun.deliveries[0], Lease("lease", NOW + 60), portions=[], checkpoint=None)
    made = Checkpoint(text=None, calls=tuple(output(calls)), receipts=(None,) * len(calls))
    change = settle(Draft(begun.task, swarm, FakeClock()), turn, made)
    entries = [entry for record in change.histories for entry in record.entries]
    return Change(
        tuple(str(entry["content"]) for entry in entries if entry.get("role") == "tool"),
        tuple((entry.mailbox, entry.message.message.subject) for entry in change.deliveries),
        change.task.status,
        change.response.message.body if change.response else None,
    )
