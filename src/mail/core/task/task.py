"""A task: its state, and the lifecycle of that state.

    submit ──► RUNNING ──complete──► COMPLETED ─┐
                │  ▲ ├────fail──────► FAILED ───┤
                │  │ └────pause─────► PAUSED ───┤
                │  └──────────resume────────────┘
                └─ each resume begins a new generation, with its own limits and its own answer

When a task stops, its mail stays in the mailboxes; resuming the task makes that mail deliverable again.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import field, replace
from enum import StrEnum
from itertools import compress
from typing import Any, NamedTuple

from mail.core.protocol.message import Tier
from mail.core.protocol.output_schema import OutputSchema
from mail.core.protocol.values import value
from mail.core.task.approvals import NO_ASKS, Ask, asked_by
from mail.core.task.client_tools import NO_CLIENT_TOOLS, ClientTools, TurnTools
from mail.core.task.context import AgentContext
from mail.core.task.costs import NO_USAGE, Usage
from mail.core.task.failing_calls import FailingCall
from mail.core.task.fallback import Switch
from mail.core.task.idempotency import Remembered
from mail.core.task.interswarm import Answer, OpenRequest, Peer, UnreadQuestions
from mail.core.task.limits import Limits
from mail.core.task.mailboxes import (
    CANCELLED_CALLS,
    any_goes_out,
    goes_out,
    hook_mailbox,
    hook_of,
    peer_of,
    poll_mailbox,
    polled_by,
)
from mail.core.task.schedules import ScheduleState
from mail.core.task.turn_state import Breakpoint, PausedCall, Prepaid, Resumption
from mail.core.task.waits import NO_WAITS, Waits
from mail.core.task.webhooks import TaskWebhook


def state_of[T: (Generation, Task)](cls: type[T], facts: dict[str, Any]) -> T:
    """Return a state with these attributes, for the copies that every turn makes; `replace` is for the rest.

    It sets the attributes at once, where `dataclasses.replace` reads and sets each: 2 µs instead of 24 for a turn's
    task and generation, of 250 µs for the whole turn.
    """
    made = object.__new__(cls)
    made.__dict__ = facts
    return made


UNKNOWN_SEQ = -1


class TaskStatus(StrEnum):
    """The state of a task in its lifecycle."""

    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


ASLEEP = "asleep"
"""The status by which stores look for a running task that is asleep (`Task.is_asleep`)."""


def listings_of(status: TaskStatus) -> tuple[str, ...]:
    """Return the statuses by which stores look for tasks of a status."""
    return (status, ASLEEP) if status is TaskStatus.RUNNING else (status,)


class Transition(StrEnum):
    """A change of a task's state."""

    COMPLETE = "complete"
    FAIL = "fail"
    PAUSE = "pause"
    CANCEL = "cancel"
    RESUME = "resume"


LIFECYCLE: dict[tuple[TaskStatus, Transition], TaskStatus] = {
    (TaskStatus.RUNNING, Transition.COMPLETE): TaskStatus.COMPLETED,
    (TaskStatus.RUNNING, Transition.FAIL): TaskStatus.FAILED,
    (TaskStatus.RUNNING, Transition.PAUSE): TaskStatus.PAUSED,
    (TaskStatus.RUNNING, Transition.CANCEL): TaskStatus.CANCELLED,
    (TaskStatus.PAUSED, Transition.CANCEL): TaskStatus.CANCELLED,
    (TaskStatus.PAUSED, Transition.RESUME): TaskStatus.RUNNING,
    (TaskStatus.COMPLETED, Transition.RESUME): TaskStatus.RUNNING,
    (TaskStatus.FAILED, Transition.RESUME): TaskStatus.RUNNING,
    (TaskStatus.CANCELLED, Transition.RESUME): TaskStatus.RUNNING,
}
"""The whole lifecycle; no other transition is possible."""


ENDED = (TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.CANCELLED)


class ForkActions(StrEnum):
    """Whether the actions of a fork run, except those that are declared read-only."""

    RUN = "run"
    ASK = "ask"
    REFUSE = "refuse"


class TaskKey(NamedTuple):
    """The identity of a task: its caller's instance and its id, so that callers can't address each other's tasks."""

    instance: str
    task_id: str


@value(kw_only=True)
class Cancellation:
    """The last cancellation of a task.

    Attributes:
        requested: when, in ISO 8601.
        by: the principal that requested it.
        seq: the last event before it; turns that began by then are discarded, even if the task is resumed.
    """

    requested: str
    by: str
    reason: str
    seq: int


@value(kw_only=True)
class Share:
    """A link with which anybody may read a part of the task (`mail.core.decisions.shares`).

    Attributes:
        digest: the SHA-256 of its secret, in hex.
        created: when its owner has made it, in ISO 8601.
        expires: when it expires, in seconds since the epoch.
    """

    digest: str
    created: str
    expires: float

    @property
    def number(self) -> str:
        """By what people refer to it: the beginning of its digest."""
        return self.digest[:12]


DRAFT_MARK = "~"
"""Begins the digest of a version of a swarm that is a draft."""


@value(kw_only=True, slots=False)
class Generation:
    """One run of a task, from its start or a resume to its next answer; a new one starts from these defaults.

    Attributes:
        number: counts the runs, from 1; a fork that has not been resumed has 0.
        steps, turns: used so far; see `Task.max_steps`.
        joined: the number of people's messages that it has to answer besides its first one.
        nudges: how often the task has stalled.
        spent: what its models have cost.
        limit_notice: the seq of the notice that a limit has been reached; None before that.
        limit_reached: that limit, in words.
        faults: consecutive faulty turns, per agent.
        failing_calls: calls of actions that have failed since they last succeeded, the latest failure last.
        answers_unread: whether it was begun to answer unread questions and has read none of them yet.
        breakpoint: what the task waits for while it is paused.
        answers: answers so far to a person who has written to several swarms.
        client_tools: tools that the caller runs.
        notes: data that the caller wants returned; the engine only stores it.
        output_schema: the JSON Schema that the answer must fit.
        run: counts the submissions with everything until their answers, from 1; a pause doesn't end a run.
        versions: the version of the swarm with which the run began (`SwarmCore.digest`), and that of its last turn if
            it is another one; empty if that is not known.
        began: the seq before the first event of the run, and `UNKNOWN_SEQ` of a fork, as its run began in another task.
        pins: the portions of agents' histories with messages that stay in their contexts in this run: a person's, and
            those marked with `pin`. In the first run, the entrypoint's first portion by default.
    """

    number: int = 1
    steps: int = 0
    turns: int = 0
    joined: int = 0
    nudges: int = 0
    spent: Usage = NO_USAGE
    limit_notice: int | None = None
    limit_reached: str = ""
    faults: dict[str, int] = field(default_factory=dict)
    failing_calls: tuple[FailingCall, ...] = ()
    answers_unread: bool = False
    breakpoint: Breakpoint | None = None
    answers: tuple[Answer, ...] = ()
    client_tools: ClientTools | None = None
    notes: dict[str, Any] = field(default_factory=dict)
    output_schema: OutputSchema | None = None
    run: int = 1
    versions: tuple[str, ...] = ()
    began: int = 0
    pins: dict[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def tries_draft(self) -> bool:
        """Whether the task runs on a draft of its swarm."""
        return bool(self.versions) and self.versions[0].startswith(DRAFT_MARK)

    @property
    def run_began(self) -> int | None:
        """The seq before the first event of the run; None if that is in another task."""
        return None if self.began == UNKNOWN_SEQ else self.began

    @property
    def waiting_calls(self) -> tuple[PausedCall, ...]:
        """The calls that the task waits for while it is paused."""
        return () if self.breakpoint is None else self.breakpoint.calls

    @property
    def question(self) -> str | None:
        """What the task asks while it is paused, in words; None if it asks nothing."""
        return None if self.breakpoint is None else self.breakpoint.question or None

    def after_turn(
        self,
        version: str,
        *,
        is_step: bool,
        faults: Mapping[str, int],
        failing_calls: tuple[FailingCall, ...],
    ) -> "Generation":
        """Return the generation after one more turn on a version of the swarm, which may be a step."""
        facts = {
            **vars(self),
            "steps": self.steps + is_step,
            "turns": self.turns + 1,
            "faults": faults,
            "failing_calls": failing_calls,
        }
        if self.versions and self.versions[-1] != version:
            facts["versions"] = self.versions_with(version)
        return state_of(Generation, facts)

    def versions_with(self, version: str) -> tuple[str, ...]:
        """Return its versions after a turn on a version of the swarm."""
        if not self.versions or self.versions[-1] == version:
            return self.versions
        return tuple(dict.fromkeys((self.versions[0], version)))

    def next(
        self,
        *,
        continues: bool = False,
        version: str = "",
        began: int = UNKNOWN_SEQ,
        answers_unread: bool = False,
        joined: int = 0,
        client_tools: ClientTools | None = None,
        notes: dict[str, Any] | None = None,
        output_schema: OutputSchema | None = None,
    ) -> "Generation":
        """Return the generation that follows this one, and `continues` its run or begins another, on a `version`.

        The events of another one come after `began`; they are counted only if they have been from the first run on.
        """
        return Generation(
            number=self.number + 1,
            answers_unread=answers_unread,
            joined=joined,
            client_tools=client_tools,
            notes=notes or {},
            output_schema=output_schema,
            run=self.run if continues else self.run + 1,
            versions=self.versions if continues else (version,),
            began=self.began if continues else began if self.run_began is not None else UNKNOWN_SEQ,
            pins=self.pins if continues else {},
        )


NO_MAIL = (0,) * len(Tier)
_TIERS = tuple(Tier)


@value(kw_only=True, slots=False)
class Task:
    """The state of a task: small, and of bounded size however long the task runs.

    Attributes:
        updated: the time of the last commit, in ISO 8601, UTC.
        seq: the last event's sequence number; a message has the number of the event that announces it.
        version: the number of commits so far; each commit compares and increments it.
        pending: the number of waiting messages, per mailbox and tier.
        histories: the number of history entries, per agent.
        unread_questions: questions that joined the running task; while there are any, an answer starts another
            generation.
        resumptions: the unread messages that resume an agent at a breakpoint.
        approved_calls: calls on which people have decided, and whose results their agents don't have yet. The engine
            runs the approved ones before the agent takes another turn.
        usage: what models have cost in all generations, per agent.
        models: the same per model (`mail.core.task.costs.add_models`).
        peers: the other swarms that take part, by name.
        parent_swarm: the swarm that sent the task here; None if its owner is a caller of this server.
        hops: how many swarms the task has passed through.
        received: fingerprints of recent messages from other swarms, to drop duplicates.
        manual: whether agents take turns only on request (`mail.core.decisions.manual`).
        actions: whether actions that are not read-only run, wait for a person's approval, or are refused.
        forked_from: the task that it is a fork of; empty for none.
        cancellation: the last cancellation, if any.
        prepaid: per agent, what has been charged already for the turn that it will repeat.
        switches: the agents whose calls go to another model than their first one.
        submitted: submissions accepted under idempotency keys that have not expired.
        traceparent: the start of its trace (`mail.core.protocol.traceparent`); empty without one.
        webhooks: the webhooks that receive its events, by id.
        dead_letters: the seqs of dead letters that were neither redriven nor discarded, oldest first.
        contexts: of agents whose context is large or cut.
        waits: the calls that wait for results which come later, and timers.
        schedule: what the task is, if it is a schedule of the server (`mail.core.task.schedules`).
        queued: the agents whose mail waits until one of their copies is free.
        shares: the links with which others may read it, oldest first; some may have expired.
        stored_bytes: the size of all that its commits have stored (`mail.core.task.size`), except those of versions
            that did not count it.
        history_bytes: the part of it that is in agents' histories.
        key: its identity.
    """

    instance: str
    task_id: str
    status: TaskStatus
    owner: str
    contributors: tuple[str, ...]
    entrypoint: str
    title: str | None = None
    started: str
    updated: str = ""
    seq: int = 0
    version: int = 0
    limits: Limits
    generation: Generation = field(default_factory=Generation)
    pending: dict[str, tuple[int, ...]] = field(default_factory=dict)
    histories: dict[str, int] = field(default_factory=dict)
    requests: tuple[OpenRequest, ...] = ()
    unread_questions: UnreadQuestions = ()
    resumptions: tuple[Resumption, ...] = ()
    approved_calls: tuple[Breakpoint, ...] = ()
    peers: dict[str, Peer] = field(default_factory=dict)
    parent_swarm: str | None = None
    hops: int = 0
    received: tuple[str, ...] = ()
    usage: dict[str, Usage] = field(default_factory=dict)
    models: dict[str, Usage] = field(default_factory=dict)
    prepaid: dict[str, Prepaid] = field(default_factory=dict)
    switches: dict[str, Switch] = field(default_factory=dict)
    manual: bool = False
    actions: ForkActions = ForkActions.RUN
    forked_from: str = ""
    cancellation: Cancellation | None = None
    submitted: tuple[Remembered, ...] = ()
    traceparent: str = ""
    webhooks: dict[str, TaskWebhook] = field(default_factory=dict)
    dead_letters: tuple[int, ...] = ()
    contexts: dict[str, AgentContext] = field(default_factory=dict)
    waits: Waits = NO_WAITS
    schedule: ScheduleState | None = None
    queued: tuple[str, ...] = ()
    shares: tuple[Share, ...] = ()
    stored_bytes: int = 0
    history_bytes: int = 0
    key: TaskKey = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.key = TaskKey(self.instance, self.task_id)  # type: ignore[misc]  # while it is made

    def unpaid(
        self, agent: str, seq: int, usage: Usage, models: Mapping[str, Usage]
    ) -> tuple[Usage, Mapping[str, Usage]]:
        """Return the part of the cost of an agent's turn with message `seq` that has not been charged yet."""
        paid = self.prepaid.get(agent)
        if paid is None or paid.seq != seq:
            return usage, models
        rest = {model: spent - paid.models.get(model, NO_USAGE) for model, spent in models.items()}
        return usage - paid.usage, {model: spent for model, spent in rest.items() if spent}

    def approved_calls_of(self, agent: str) -> Breakpoint | None:
        """Return the calls of an agent that the engine must run before the agent takes another turn, if any."""
        return next((waiting for waiting in self.approved_calls if waiting.agent == agent), None)

    def pins_of(self, agent: str) -> tuple[int, ...]:
        """Return the portions of an agent's history whose messages stay in its context in this run."""
        is_first = self.generation.run == 1 and agent == self.entrypoint
        return self.generation.pins.get(agent, (1,) if is_first else ())

    def client_tools_of(self, agent: str) -> ClientTools | None:
        """Return the caller's tools if the agent is the entrypoint, which may call them; else None."""
        return self.generation.client_tools if agent == self.entrypoint else None

    def turn_tools(self, agent: str) -> TurnTools:
        """Return the caller's tools that the agent may call in a turn that begins now."""
        schema = self.generation.output_schema
        if schema is None and self.generation.client_tools is None:
            return NO_CLIENT_TOOLS
        tools = self.client_tools_of(agent)
        turn = NO_CLIENT_TOOLS if tools is None else tools.in_turn(is_first=self.generation.turns == 0)
        return turn if schema is None else replace(turn, output_schema=schema)

    @property
    def max_steps(self) -> int:
        """The number of steps that this generation may take: those of its limits for each message that it answers.

        Otherwise, many messages at once would use up the steps before one of them is answered.
        """
        return self.limits.steps * (1 + self.generation.joined)

    @property
    def max_turns(self) -> int:
        """The number of turns that this generation may take, of any kind."""
        return self.limits.turns * (1 + self.generation.joined)

    @property
    def is_running(self) -> bool:
        """Whether agents may take turns."""
        return self.status is TaskStatus.RUNNING

    @property
    def has_outbound_mail(self) -> bool:
        """Whether mail waits for another swarm or a webhook, or a call to be seen to: of a stopped task, too."""
        if any_goes_out(self.pending) or self.waits.cancel_at is not None or self.waits.poll_at is not None:
            return True
        if self.peers and any(map(self.poll_at, self.peers)):
            return True
        return bool(self.webhooks) and any(hook.is_waiting for hook in self.webhooks.values())

    @property
    def is_asleep(self) -> bool:
        """Whether it runs, and nothing happens in it before an open call ends, or a timer or its schedule is due."""
        return self.listed_as == ASLEEP

    @property
    def listed_as(self) -> str:
        """The status by which stores look for it: one that is asleep is not among those that run."""
        if self.waits.due is None and self.schedule is None:
            return self.status
        is_asleep = self.status is TaskStatus.RUNNING and self.pending.keys() <= {*self.queued}
        return ASLEEP if is_asleep else self.status

    def lets_open(self, mailbox: str) -> bool:
        """Return whether turns of a mailbox may begin: an agent's while the task runs, any other always."""
        return self.status is TaskStatus.RUNNING or goes_out(mailbox)

    def poll_at(self, swarm: str) -> float:
        """Return when the tasks at a peer are polled next, in seconds since the epoch; 0 for never."""
        peer = self.peers.get(swarm)
        return 0.0 if peer is None or self.status in ENDED else peer.poll_at

    def head_tier(self, mailbox: str) -> Tier | None:
        """Return the tier of the most urgent message in a mailbox; None if it is empty."""
        counts = self.pending.get(mailbox)
        if counts is not None:
            return next(compress(_TIERS, counts), None)
        if mailbox == CANCELLED_CALLS:
            return None if self.waits.see_at is None else Tier.AGENT
        if self.peers and (swarm := polled_by(mailbox)) is not None:
            return Tier.AGENT if self.poll_at(swarm) else None
        if not self.webhooks or (hook_id := hook_of(mailbox)) is None:
            return None
        hook = self.webhooks.get(hook_id)
        return Tier.AGENT if hook is not None and hook.is_waiting else None

    def ready(self, among: Iterable[str] | None = None) -> list[tuple[str, Tier]]:
        """Return the mailboxes whose mail must be processed, each with the tier of its most urgent message.

        With `among`, only these mailboxes.
        """
        if among is None:
            among = (
                *self.pending,
                *map(hook_mailbox, self.webhooks),
                CANCELLED_CALLS,
                *map(poll_mailbox, self.peers),
            )
        agents_run = self.status is TaskStatus.RUNNING and not self.manual
        return [
            (mailbox, tier)
            for mailbox in among
            if (mailbox in self.pending or self.webhooks or self.peers or mailbox == CANCELLED_CALLS)
            and (tier := self.head_tier(mailbox)) is not None
            and (agents_run or goes_out(mailbox))
            and mailbox not in self.queued
        ]

    def not_before(self, mailbox: str) -> float:
        """Return when a mailbox may be processed, in seconds since the epoch; 0 for immediately."""
        if mailbox == CANCELLED_CALLS:
            return self.waits.see_at or 0.0
        if not (self.peers or self.webhooks) or not goes_out(mailbox):
            return 0.0
        if (hook_id := hook_of(mailbox)) is not None:
            return self.webhooks[hook_id].retry_at if hook_id in self.webhooks else 0.0
        if (swarm := polled_by(mailbox)) is not None:
            return self.poll_at(swarm)
        peer = self.peers.get(peer_of(mailbox) or "")
        return peer.retry_at if peer else 0.0

    @property
    def paused_at(self) -> Breakpoint | None:
        """The breakpoint at which it waits for decisions; None while it waits for none."""
        reached = self.generation.breakpoint
        return reached if reached is not None and reached.id and self.status is TaskStatus.PAUSED else None

    @property
    def asks(self) -> Set[Ask]:
        """Whom it asks for a decision, as the index of that has them."""
        paused_at = self.paused_at
        if paused_at is None:
            return NO_ASKS
        undecided = [call for call in paused_at.calls if call.is_undecided]
        return frozenset(
            ask for call in undecided for ask in asked_by(self.instance, paused_at.id, call.reviewers)
        )

    @property
    def deadline(self) -> float | None:
        """When it, a request, an approval or an open call expires, or a timer or schedule is due; since the epoch.

        None for never. Of a paused task, only approvals, open calls and timers are due, and of one that has ended, the
        messages that callers have posted for later.
        """
        if self.schedule is not None:
            return self.schedule.due
        earliest = self.waits.due
        if self.status is not TaskStatus.RUNNING:
            if self.status is not TaskStatus.PAUSED:
                return earliest
            by = None if self.generation.breakpoint is None else self.generation.breakpoint.approve_by
            return min((time for time in (by, earliest) if time is not None), default=None)
        limits = self.limits
        end = limits.deadline if limits.finish_by is None else limits.ends_at
        if earliest is None or (end is not None and end < earliest):
            earliest = end
        for request in self.requests:
            due = request.answer_deadline
            if due is not None and (earliest is None or due < earliest):
                earliest = due
        return earliest

    def is_overdue(self, now: float) -> bool:
        """Return whether the task's time limit, if any, has passed at `now` (seconds since the epoch)."""
        end = self.limits.ends_at
        return end is not None and now >= end
