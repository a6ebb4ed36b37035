"""A task: its state, and the lifecycle that the state goes through.

    submit ──► RUNNING ──complete──► COMPLETED ─┐
                │  ▲ ├────fail──────► FAILED ───┤
                │  │ └────pause─────► PAUSED ───┤
                │  └──────────resume────────────┘
                └─ each resume begins a new generation, with its own limits and its own answer

Mail that is still in a mailbox when a task stops stays there: that is the stash, and resuming the task
makes it deliverable again.
"""

from collections.abc import Iterator, Mapping, Set
from enum import StrEnum
from typing import Any, NamedTuple

from pydantic import ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from mail.core.protocol.address import parse_agent_address
from mail.core.protocol.calls import AgentToolCall, ToolFormat
from mail.core.protocol.message import Tier
from mail.core.protocol.values import Value
from mail.core.task.client_tools import NO_OFFER, ClientTools, Offer
from mail.core.task.idempotency import Remembered
from mail.core.task.interswarm import goes_out, hook_mailbox, hook_of, peer_of
from mail.core.task.limits import Limits
from mail.core.task.usage import NO_USAGE, Usage, UsageMeter, add_models
from mail.core.task.webhooks import Hook


class TaskStatus(StrEnum):
    """Where a task is in its life."""

    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Transition(StrEnum):
    """What can happen to a task as a whole."""

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
"""The whole lifecycle; what isn't here doesn't happen."""


class TaskKey(NamedTuple):
    """Where a task lives: under its caller's instance, so that nobody can name another's."""

    instance: str
    task_id: str


class OpenRequest(Value):
    """A request that has not been answered yet.

    Its ends are names of agents, `agent@swarm` for those elsewhere. The sender may be the task's owner, who has
    written to another swarm; it is empty then.

    Attributes:
        seq: that of its message, where it joined a task that was running: for a `Question`.
        due: when it lapses, in seconds since the epoch; None for never.
        routing_info: what went with its message: an answer with the same is about the same.
    """

    request_id: str
    sender: str
    recipient: str
    seq: int = 0
    due: float | None = None
    routing_info: dict[str, Any] | None = None

    @property
    def asked(self) -> str | None:
        """The other swarm that is to answer it; None for this one."""
        return parse_agent_address(self.recipient)[1]

    @property
    def asks(self) -> str | None:
        """The other swarm that waits for the answer; None for this one."""
        return parse_agent_address(self.sender)[1]


class Answer(Value):
    """What an agent of another swarm has answered to a person who has asked several of them."""

    sender: str
    body: str


class Contact(Value):
    """What a task knows of another swarm that has a part in it.

    Attributes:
        agent: the agent there that was written to first, or has written first: who is told how the task ends.
        knows: whether it has the task: it has taken a message of it, or sent one.
        runner: the principal under which it keeps the task, where it has said so.
        failures: how often in a row its mail could not be delivered.
        retry_at: when that is tried again, in seconds since the epoch.
        ending: the id of the message that tells it how the task has ended, while that is on its way.
        over: whether it has been told so, and has been given nothing since.
    """

    agent: str
    knows: bool = False
    runner: str = ""
    failures: int = 0
    retry_at: float = 0.0
    ending: str = ""
    over: bool = False


class Question(Value):
    """A message of a person, or of the swarm that asks, which has joined a running task and is not read yet."""

    mailbox: str
    seq: int


class OpenUserQuestion(Value):
    """A request to the task's owner that waits for an answer (`mail.core.task.forms.UserQuestion`)."""

    request_id: str
    answer_subjects: tuple[str, ...]
    routing_info: dict[str, Any] | None

    def is_answered_by(self, subject: str) -> bool:
        """Whether a message with this subject is its answer; case and white space don't matter."""
        return _normal(subject) in map(_normal, self.answer_subjects)


def _normal(subject: str) -> str:
    return " ".join(subject.split()).casefold()


class PausedCall(Value):
    """A breakpoint tool call that waits for its result; `asks`: the letter that it has written, if it is an appeal."""

    call_id: str
    name: str
    arguments: dict[str, Any]
    asks: OpenUserQuestion | None = None


class Breakpoint(Value):
    """Why a task is paused: `agent` waits for the user to give the results of `calls`."""

    agent: str
    tool_format: ToolFormat
    calls: tuple[PausedCall, ...]


class Cancellation(Value):
    """When a task was cancelled last.

    Attributes:
        requested: when, in ISO 8601.
        by: the principal who asked for it.
        seq: that of the last event before it; turns that began by then are discarded, also when the task goes on.
    """

    requested: str
    by: str
    reason: str
    seq: int


class Prepaid(Value):
    """What models were paid for a turn that was discarded, as far as its checkpoint says so, too.

    Whoever takes the turn up again goes on from the checkpoint, and from its sums. `seq` is that of its message.
    """

    seq: int
    usage: Usage
    models: dict[str, Usage]


class Receipt(Value):
    """How far one action of a turn has come; the store holds it before the action starts and after it ends."""

    class State(StrEnum):
        """STARTED in the store of a turn that is run again means: nobody knows."""

        STARTED = "started"
        DONE = "done"
        FAILED = "failed"

    state: State
    content: str = ""


_REPLY = {"completion", "responses"}


class Checkpoint(Value):
    """An unfinished turn: what its agent has put out, and a receipt per call that is an action (else None).

    `usage` is what its models were paid so far, and `models` which of them, so that a turn which is taken up again
    still accounts for it. As data, what the model said stands once in `replies`, and not in each of the calls that it made.
    """

    text: str | None
    calls: tuple[AgentToolCall, ...]
    receipts: tuple[Receipt | None, ...]
    usage: Usage = NO_USAGE
    models: dict[str, Usage] = Field(default_factory=dict)

    @model_serializer(mode="wrap")
    def _share_replies(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        replies: list[Any] = []
        calls = []
        for call in self.calls:
            reply = call.completion or call.responses
            if not replies or replies[-1] != reply:
                replies.append(reply)
            calls.append({**call.model_dump(exclude=_REPLY), "reply": len(replies) - 1})
        rest = serialize(self.model_copy(update={"calls": ()}))
        return {**rest, "calls": calls, "replies": replies}

    @model_validator(mode="before")
    @classmethod
    def _hand_out_replies(cls, data: Any) -> Any:
        if not isinstance(data, dict) or "replies" not in data:
            return data
        replies = data["replies"]
        calls = []
        for call in data["calls"]:
            reply = replies[call["reply"]]
            origin = "completion" if isinstance(reply, dict) else "responses"
            calls.append({**{name: value for name, value in call.items() if name != "reply"}, origin: reply})
        return {**{name: value for name, value in data.items() if name != "replies"}, "calls": calls}

    def with_receipt(self, index: int, receipt: Receipt, meter: UsageMeter | None = None) -> "Checkpoint":
        """The checkpoint once the call at `index` has got so far, and models were paid so much (None: no more)."""
        receipts = (*self.receipts[:index], receipt, *self.receipts[index + 1 :])
        spent = {} if meter is None else {"usage": meter.spent, "models": meter.spent_by_model}
        return self.model_copy(update={"receipts": receipts, **spent})


NO_MAIL = (0,) * len(Tier)
_TIERS = tuple(Tier)


class Task(Value):
    """The state of a task: small, and the same size however long the task runs.

    Attributes:
        updated: when it was committed last, in ISO 8601, UTC.
        seq: the last sequence number given to an event; messages are numbered by their event.
        version: how many commits made this state; every commit compares and raises it.
        steps, turns: used up in this generation; see `Limits`.
        pending: per mailbox, how many messages wait in each tier.
        histories: per agent, how many history records it has.
        questions: what people have sent meanwhile; while there is one, an answer begins another generation.
        unheard: whether this is such a generation, and has not read any of them yet: its end is the end of the task.
        faults: per agent, how many turns in a row were faulty.
        nudges: how often this generation has stalled.
        exhausted: the seq of the notice that a limit is reached, once it is.
        used_up: which limit that is, in words.
        usage: per agent, what its models were paid, in all generations.
        models: likewise per model (`mail.core.task.usage.add_models`).
        spent: what all of them were paid in this one.
        contacts: the other swarms that have a part in it, by name.
        asker: the other swarm from which this one got the task; None where its owner is a caller of this one.
        hops: how many swarms the task has come through.
        received: fingerprints of the messages that came from other swarms last, so that each is taken once.
        answers: what a person has been answered so far who asks several swarms at once.
        toolbox: the tools that the caller lends to the present generation.
        notes: what the caller wants to be told again of it; the engine only keeps them.
        manual: whether agents take turns only when somebody outside says so (`mail.core.decisions.manual`).
        cancellation: how it was cancelled, if it ever was.
        prepaid: per agent, what has been charged already of the turn that it will take up again.
        submitted: what was accepted under a key of its caller's, for as long as the key is remembered.
        traceparent: where its trace begins (`mail.core.protocol.traceparent`); empty where it has none.
        hooks: the webhooks that are sent its events, by their ids.
        dead: the seqs of its dead letters that nobody has redriven or discarded, the oldest first.
    """

    model_config = ConfigDict(extra="ignore")  # an earlier version may have stored more

    instance: str
    task_id: str
    status: TaskStatus
    owner: str
    contributors: tuple[str, ...]
    entrypoint: str
    title: str | None = None
    started: str
    updated: str = ""
    generation: int = 1
    seq: int = 0
    version: int = 0
    steps: int = 0
    turns: int = 0
    limits: Limits
    pending: dict[str, tuple[int, ...]] = Field(default_factory=dict)
    histories: dict[str, int] = Field(default_factory=dict)
    requests: tuple[OpenRequest, ...] = ()
    questions: tuple[Question, ...] = ()
    unheard: bool = False
    faults: dict[str, int] = Field(default_factory=dict)
    nudges: int = 0
    exhausted: int | None = None
    used_up: str = ""
    breakpoint: Breakpoint | None = None
    contacts: dict[str, Contact] = Field(default_factory=dict)
    asker: str | None = None
    hops: int = 0
    received: tuple[str, ...] = ()
    answers: tuple[Answer, ...] = ()
    usage: dict[str, Usage] = Field(default_factory=dict)
    spent: Usage = NO_USAGE
    toolbox: ClientTools | None = None
    notes: dict[str, Any] = Field(default_factory=dict)
    manual: bool = False
    cancellation: Cancellation | None = None
    prepaid: dict[str, Prepaid] = Field(default_factory=dict)
    submitted: tuple[Remembered, ...] = ()
    traceparent: str = ""
    models: dict[str, Usage] = Field(default_factory=dict)
    hooks: dict[str, Hook] = Field(default_factory=dict)
    dead: tuple[int, ...] = ()

    def stored(self, exclude: Set[str] | None = None) -> str:
        """The task as stores keep it, in JSON: what is as it is at first is left out, as every commit writes it."""
        return self.model_dump_json(exclude_defaults=True, exclude=exclude)  # type: ignore[arg-type]

    def next_generation(self) -> dict[str, Any]:
        """What changes when the task goes on after it has stopped; limits may change besides."""
        return {
            "generation": self.generation + 1,
            "steps": 0,
            "turns": 0,
            "nudges": 0,
            "spent": NO_USAGE,
            "exhausted": None,
            "faults": {},
            "unheard": False,
            "breakpoint": None,
            "answers": (),
            "toolbox": None,
            "notes": {},
        }

    def owes(
        self, agent: str, seq: int, usage: Usage, models: Mapping[str, Usage]
    ) -> tuple[Usage, Mapping[str, Usage]]:
        """What is to be charged of what models were paid for an agent's turn with the message `seq`."""
        paid = self.prepaid.get(agent)
        if paid is None or paid.seq != seq:
            return usage, models
        rest = {model: spent - paid.models.get(model, NO_USAGE) for model, spent in models.items()}
        return usage - paid.usage, {model: spent for model, spent in rest.items() if spent}

    def charged(self, agent: str, usage: Usage, models: Mapping[str, Usage]) -> dict[str, Any]:
        """What changes when the models behind an agent are paid so much, in sum and by model."""
        return {
            "usage": {**self.usage, agent: self.usage.get(agent, NO_USAGE) + usage},
            "models": add_models(self.models, models),
            "spent": self.spent + usage,
        }

    def lends(self, agent: str) -> ClientTools | None:
        """The caller's tools, for the agent that reads the caller's words; None for others."""
        return self.toolbox if agent == self.entrypoint else None

    def offer(self, agent: str) -> Offer:
        """What the agent is offered of them in a turn that begins now."""
        toolbox = self.lends(agent)
        return NO_OFFER if toolbox is None else toolbox.offer(first_turn=self.turns == 0)

    @property
    def key(self) -> TaskKey:
        """Where it lives."""
        return TaskKey(self.instance, self.task_id)

    @property
    def is_running(self) -> bool:
        """Whether agents may take turns."""
        return self.status is TaskStatus.RUNNING

    @property
    def is_delivering(self) -> bool:
        """Whether something waits for another swarm or a webhook; it is delivered even when the task has stopped."""
        return any(map(goes_out, self.pending)) or any(hook.is_waiting for hook in self.hooks.values())

    def lets_open(self, mailbox: str) -> bool:
        """Whether turns of a mailbox may be opened: an agent's while the task runs, one that goes out at all times."""
        return self.is_running or goes_out(mailbox)

    def head_tier(self, mailbox: str) -> Tier | None:
        """The tier of the most urgent message that waits in a mailbox; None when it is empty."""
        if (hook_id := hook_of(mailbox)) is not None:
            hook = self.hooks.get(hook_id)
            return Tier.AGENT if hook is not None and hook.is_waiting else None
        for index, count in enumerate(self.pending.get(mailbox, NO_MAIL)):
            if count:
                return _TIERS[index]
        return None

    def ready(self) -> Iterator[tuple[str, Tier]]:
        """The mailboxes whose mail is to be worked on, with the tier of their most urgent message."""
        agents_rest = self.manual or not self.is_running
        for mailbox in (*self.pending, *map(hook_mailbox, self.hooks)):
            tier = self.head_tier(mailbox)
            if tier is not None and (goes_out(mailbox) or not agents_rest):
                yield mailbox, tier

    def rests_until(self, mailbox: str) -> float:
        """When the mail of a mailbox may be worked on, in seconds since the epoch; 0 for at once."""
        if (hook_id := hook_of(mailbox)) is not None:
            return self.hooks[hook_id].retry_at if hook_id in self.hooks else 0.0
        contact = self.contacts.get(peer_of(mailbox) or "")
        return contact.retry_at if contact else 0.0

    @property
    def due(self) -> float | None:
        """When something is to be done if nothing happens before: at its deadline, or when a request lapses."""
        times = [request.due for request in self.requests if request.due is not None]
        if self.limits.ends_at is not None:
            times.append(self.limits.ends_at)
        return min(times, default=None)

    def is_overdue(self, now: float) -> bool:
        """Whether the deadline, if any, has passed at `now` (seconds since the epoch)."""
        return self.limits.ends_at is not None and now >= self.limits.ends_at
