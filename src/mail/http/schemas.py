"""What travels over HTTP: the bodies that clients send, and the shapes of the answers.

Requests tolerate unknown fields, and `null` for any field that may be left out, as clients in use send both.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints
from pydantic_core import PydanticCustomError

from mail.core.decisions.cancel import MAX_REASON
from mail.core.decisions.submit import ResumeFrom, Submission
from mail.core.protocol.message import MAILMessage, TaskId
from mail.core.protocol.suggest import did_you_mean
from mail.core.task.documents import CallerRole
from mail.core.task.events import EventKind
from mail.core.task.limits import Budget
from mail.core.task.task import OpenUserQuestion, TaskStatus
from mail.core.task.usage import Usage
from mail.core.task.webhooks import DEFAULT_EVENTS, NEVER_SENT, Webhook

HealthText = Annotated[str, StringConstraints(min_length=1, max_length=256, pattern=r"^[^\x00-\x1f\x7f]+$")]


class Given(BaseModel):
    """A body that clients send."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Answered(BaseModel):
    """A body that the server sends."""

    model_config = ConfigDict(extra="allow")


class MessageOptions(Given):
    """Further settings of a message; others are ignored."""

    max_steps: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="How many steps the agents may take before the supervisor has to finish.",
    )
    timeout: float | None = Field(
        default=None,
        gt=0,
        le=10_000_000,
        allow_inf_nan=False,
        description="Seconds after which the task ends with an error.",
    )
    budget: Budget | None = Field(
        default=None,
        description="What the task may use up before its supervisor has to finish it: `turns`, `tokens`, `cost` in US "
        "dollars, `seconds`.",
    )
    breakpoint_tool_call_result: Any = Field(
        default=None,
        description="The results of the breakpoint tools that the task waits for: a JSON string, an object "
        '`{"content"}`, a list `[{"call_id", "content"}]`, or plain text.',
    )


EVERY = "*"
"""Stands for all kinds of events."""


_SENDABLE = tuple(kind.value for kind in EventKind if kind not in NEVER_SENT)


def _may_be_sent(events: Any) -> Any:
    """Tell of the first kind that can't be sent, with those that can: else each of them would be two errors."""
    if not isinstance(events, list):
        return events
    wrong = [event for event in events if event not in (EVERY, *_SENDABLE)]
    if not wrong:
        return events
    if wrong[0] in tuple(NEVER_SENT):
        raise PydanticCustomError(
            "never_sent", "{kind} is about webhooks, and never sent", {"kind": wrong[0]}
        )
    name = str(wrong[0])[:40]
    raise PydanticCustomError(
        "no_event_kind",
        "there is no kind of event {name}; there are {known}, and * for all{hint}",
        {
            "name": repr(name),
            "known": ", ".join(_SENDABLE),
            "hint": did_you_mean(name, _SENDABLE),
        },
    )


class GivenWebhook(Given):
    """A URL that events are to be sent to."""

    url: str = Field(description="Where they are posted to: `https://…`.")
    secret_ref: str | None = Field(
        default=None,
        description="Where the server has the secret that requests are signed with: `${WEBHOOK_SECRET_…}`. The default "
        "is no signature.",
    )
    events: (
        Annotated[list[Literal["*"] | EventKind], Field(min_length=1), BeforeValidator(_may_be_sent)] | None
    ) = Field(
        default=None,
        description="The kinds of events, `*` for all. The default is what ends or pauses a task: "
        f"{', '.join(kind.value for kind in DEFAULT_EVENTS)}.",
    )

    def webhook(self) -> Webhook:
        """The webhook as the runtime takes it."""
        events = DEFAULT_EVENTS if self.events is None else _kinds(self.events)
        return Webhook(url=self.url, secret_ref=self.secret_ref or "", events=events)


def _kinds(events: list[Literal["*"] | EventKind]) -> tuple[EventKind, ...]:
    kinds = {event for event in events if isinstance(event, EventKind)}
    return () if EVERY in events else tuple(kind for kind in EventKind if kind in kinds)


class PostMessage(Given):
    """A person's message to the swarm."""

    body: str | None = Field(
        default=None, description="The text. It may only be empty when resuming from a breakpoint."
    )
    subject: str | None = Field(default=None, description="The default is `New Message`.")
    msg_type: Literal["request", "response", "broadcast", "interrupt"] | None = Field(
        default=None, description="The default is `request`."
    )
    entrypoint: str | None = Field(
        default=None,
        description="The agent to write to; the default is the swarm's entrypoint, or the one that the task "
        "has had.",
    )
    show_events: bool | None = Field(default=None, description="Whether the answer holds the events.")
    stream: bool | None = Field(default=None, description="Whether to answer with a stream of events.")
    task_id: TaskId | None = Field(
        default=None,
        description="A new task's id, or the task to go on with; the default is a new task with an id of the "
        "server's.",
    )
    resume_from: ResumeFrom | None = Field(
        default=None, description="From where to go on with a task that has stopped."
    )
    kwargs: MessageOptions | None = Field(default=None, description="Further settings.")
    webhook: GivenWebhook | None = Field(
        default=None, description="Where what happens in the task from now on is sent to."
    )

    def submission(self) -> Submission:
        """The message as the runtime takes it."""
        options = self.kwargs or MessageOptions()
        given = {
            "subject": self.subject,
            "msg_type": self.msg_type,
            "entrypoint": self.entrypoint,
            "task_id": self.task_id,
            "resume_from": self.resume_from,
            "steps": options.max_steps,
            "timeout": options.timeout,
            "budget": options.budget,
            "breakpoint_tool_call_result": options.breakpoint_tool_call_result,
            "webhook": self.webhook and self.webhook.webhook(),
        }
        return Submission.model_validate(
            {"body": self.body or "", **{name: value for name, value in given.items() if value is not None}}
        )


class PostHealth(Given):
    """A new health status."""

    status: HealthText


class PostSwarmsLoad(Given):
    """Another swarm."""

    swarm: str = Field(alias="json", description="The swarm, as the JSON text of an entry of swarms.json.")


class GetTask(Given):
    """Which task, where the query doesn't say."""

    task_id: TaskId | None = None


class PostCancel(Given):
    """Which task to cancel."""

    task_id: TaskId
    reason: Annotated[str, StringConstraints(max_length=MAX_REASON)] = Field(
        default="", description="Why; the task's timeline and other swarms are told."
    )


class PostFork(Given):
    """Which task to fork, and at which moment."""

    task_id: TaskId
    at: int | None = Field(
        default=None,
        strict=True,
        description="The id (seq) of an event: the moment after what happened with it; the default is now.",
    )
    run: bool = Field(
        default=False,
        description="Whether the fork of a running moment goes on at once; otherwise it is paused until it gets a message.",
    )


class Problem(Answered):
    """What is wrong, and what to change."""

    detail: str


class SwarmInfo(Answered):
    """What a swarm says of itself."""

    name: str
    version: str
    description: str
    entrypoint: str
    keywords: list[str]
    public: bool


class Root(Answered):
    """Which service this is."""

    name: Literal["mail"]
    status: Literal["running"]
    protocol_version: str
    swarm: SwarmInfo
    uptime: float = Field(description="Seconds since the server started.")


class Health(Answered):
    """How the swarm is."""

    status: str
    swarm_name: str
    timestamp: str


class SwarmLoaded(Answered):
    """The swarm runs from now on."""

    status: Literal["success"]
    swarm_name: str


class SwarmDump(Answered):
    """The swarm is in the log."""

    status: Literal["dumped"]
    swarm_name: str
    swarm: dict[str, Any] = Field(description="An entry of swarms.json, less what looks like a secret.")


class SwarmState(Answered):
    """Whether the swarm takes messages."""

    name: str
    status: Literal["ready"]


class Status(Answered):
    """How busy the server is, and the caller."""

    swarm: SwarmState
    active_users: int = Field(description="How many callers have a running task.")
    user_mail_ready: bool = Field(description="Whether the caller has any task.")
    user_task_running: bool = Field(description="Whether the caller has a running task.")


class Whoami(Answered):
    """Who the caller is."""

    id: str
    role: CallerRole


class _EventEntry(Answered):
    event: EventKind
    id: str
    retry: int | None
    comment: str | None


class AnswerEvent(_EventEntry):
    """An event of the task."""

    data: dict[str, Any]


class RecordedEvent(_EventEntry):
    """An event of the task; `data` is an object, as JSON text."""

    data: str


class StreamEvent(Answered):
    """One Server-Sent Event. A stream ends with `task_complete` or `task_error`."""

    event: EventKind | Literal["ping"]
    id: str | None = Field(default=None, description="For `Last-Event-ID`; a ping has none.")
    data: str = Field(
        description="A JSON object. Ordinary events: `{timestamp, description, task_id, extra_data}`; a ping:"
        " `{timestamp, task_id}`; the last event: `{timestamp, task_id, response}`."
    )


class Answer(Answered):
    """What the swarm answers."""

    response: str = Field(
        description="The finishing message; for a task that waits at a breakpoint, the waiting tool calls as "
        "JSON text."
    )
    events: list[AnswerEvent] | None = Field(
        description="What has happened, where `show_events` asked for it."
    )


class AcceptedLinks(Answered):
    """Where to look for the answer."""

    task: str
    stream: str


class Accepted(Answered):
    """The message is stored and will be worked on."""

    task_id: str
    links: AcceptedLinks


class QueuedMessage(Answered):
    """A message that waits in a mailbox."""

    mailbox: str
    priority: int
    seq: int
    message: MAILMessage


class PendingToolCall(Answered):
    """A breakpoint tool call that waits for its result."""

    call_id: str
    name: str
    arguments: dict[str, Any]
    asks: OpenUserQuestion | None = Field(
        default=None,
        description="The request to the owner that the call has sent, if it is an appeal: a message whose subject "
        "is one of `answer_subjects`, in any case, is its answer.",
    )


class TaskUsage(Answered):
    """What the language models behind a task were paid, in all its generations."""

    total: Usage
    agents: dict[str, Usage] = Field(description="Per agent that has called a model.")
    models: dict[str, Usage] = Field(
        description="Per model; `other` for those without a name, and for those past the first 32."
    )


class CancelledTask(Answered):
    """What became of a request to cancel a task."""

    task_id: str
    status: Literal["cancelled"]
    requested: str = Field(description="When it was cancelled, in ISO 8601.")
    by: str
    reason: str
    stopped: bool = Field(
        description="Whether nothing of it is left: no turn, and no swarm that doesn't know."
    )
    running_agents: list[str] = Field(
        description="Agents whose turn still runs; what comes of it is discarded."
    )
    waiting_swarms: list[str] = Field(description="Other swarms that have not taken the word yet.")


class ForkedTask(Answered):
    """A task that was made out of another one."""

    task_id: str
    forked_from: str = Field(description="The other one.")
    at: int = Field(description="The last of the events that had happened in it.")
    status: TaskStatus
    generation: int = Field(description="0 until it is resumed for the first time.")
    seq: int = Field(description="The last event of the new task so far.")
    waiting: int = Field(description="How many messages wait in its mailboxes.")


class TaskRecord(Answered):
    """All there is to know of a task."""

    task_id: str
    task_owner: str
    task_contributors: list[str]
    start_time: str
    events: list[RecordedEvent]
    is_running: bool
    task_message_queue: list[QueuedMessage] = Field(
        description="The mail that waits; a stopped task keeps it until it is resumed."
    )
    remote_swarms: list[str]
    completed: bool = Field(
        description="Whether the task has stopped, for whatever reason; `status` tells which."
    )
    title: str | None
    status: TaskStatus
    entrypoint: str
    generation: int = Field(description="How often the task was begun or resumed.")
    steps: int = Field(description="Steps taken in this generation.")
    max_steps: int
    pending_tool_calls: list[PendingToolCall] = Field(
        description="The breakpoint tool calls that a paused task waits for."
    )
    cancellation: dict[str, Any] | None = Field(
        description="When it was cancelled last, by whom and why; null where it never was."
    )
    budget: dict[str, Any] | None = Field(description="What this generation may use up; null for no limits.")
    dead_letters: list[int] = Field(
        description="The events that are dead letters which nobody has redriven or discarded."
    )
    usage: TaskUsage
    seq: int = Field(
        description="The id of its last event, which `GET /task?at=` and `POST /task/fork` take."
    )
