"""The error tree. Every error says what to change, and has an HTTP status and a subject.

    MAILError                       500  ::runtime_error::
    ├── BadRequest                  400  the caller must change the request
    │   ├── UnknownEntrypoint
    │   ├── NotPaused               a breakpoint result for a task that isn't paused
    │   ├── BadBreakpointResult
    │   ├── BadApproval             a decision that is not for a waiting call, or can't be applied
    │   ├── NotCancellable          the task has ended already
    │   ├── BadClientTools          tools sent by a client
    │   ├── TaskMovedOn
    │   ├── AlreadyRegistered, NotRegistered  of `mail.exchange`
    │   └── MalformedMessage, UnknownMessage   of `mail.agentmail`
    ├── Unauthenticated             401
    │   └── InvalidSignature        of `mail.webhooks`: a request that isn't signed by the server
    ├── Forbidden                   403
    ├── NotFound                    404
    │   ├── TaskNotFound, ThreadNotFound, DeadLetterNotFound, FileNotFound, TimerNotFound, WebhookNotFound
    │   ├── CallbackNotFound        no call has this token
    │   ├── ScheduleNotFound, ShareNotFound, TokenNotFound, SwarmNotFound
    │   └── SwarmFixed, TokensElsewhere, MetricsOff  not of this server
    ├── Conflict                    409
    │   ├── DecisionTooLate         no call of the task waits for a decision any more
    │   │   └── AlreadyDecided      a person has decided on the call before
    │   ├── CallbackClosed          a call takes neither a result nor a heartbeat any more
    │   ├── QuestionOpen            a message would drop the question that a paused task asks
    │   ├── ArgumentsDiffer, TaskBusy, ScheduleTaken, ScheduleDeclared
    │   └── SnapshotExpired         the task's state at that time is no longer stored
    ├── TextGone                    410  a text of the task is no longer stored
    ├── PreconditionFailed          412  the task has changed since the caller read it
    ├── PayloadTooLarge             413
    │   ├── AnswerTooLarge          a function can't send so much at once
    │   └── TaskFull                the limit of bytes that a task may store is reached
    ├── IdempotencyConflict         422  a key used for another request
    ├── RateLimited                 429  retry after `retry_after` seconds
    │   ├── TooManyTasks            the caller's limit of running tasks is reached
    │   └── MailboxFull             the limit of waiting messages is reached
    ├── NotInstalled                501  the server lacks the packages of a feature
    ├── Overloaded                  503  the requests of all callers hold too much memory
    ├── AuthServiceUnavailable      503
    ├── ConfigurationError          the operator must change a file, flag or variable
    ├── AgentUnavailable            an agent can't take its turn; agents and users see the text
    │   └── ModelError              the agent's language model failed
    │       ├── ContextWindowExceeded
    │       ├── ModelAccessDenied
    │       ├── ModelRefusal        the request is invalid; a retry won't help
    │       └── ModelUnavailable    rate limits, outages, timeouts
    ├── RetryLater                  raised by an action or an agent: its turn continues later
    │   └── ProviderBusy            raised for a model: its provider takes no call now
    ├── StepFailed                  a step failed in manual mode
    ├── TaskFailed                  of `mail.Swarm`: a task ended without an answer
    ├── PeerError                   502  mail could not be delivered to another swarm
    │   ├── PeerRefused             a retry won't help
    │   └── PeerUnavailable         try again later
    │       └── PeerUnreachable     no connection can be made
    ├── AgentFault                  sent to the agent that caused it, as a system message
    │   ├── ToolCallFault           ::tool_call_error::
    │   │   └── UnknownTool         ::action_error::
    │   ├── UnknownRecipient        ::agent_error::
    │   ├── InvalidRecipient        ::invalid_recipient::
    │   ├── UnreachableSwarm        ::runtime_error::
    │   ├── ImproperResponseToUser  ::improper_response_to_user::
    │   └── ActionFailed            of `mail.stdlib`
    └── StoreError
        ├── VersionConflict         another commit of the task came first
        ├── LeaseLost               another worker has the lease of the turn
        └── StoreUnavailable        503  the database is unavailable
            └── WrittenLater        a later version has stored what this one can't read

BadRequest, ConfigurationError and ToolCallFault are ValueErrors, too. HTTP responses use `http_status`; the engine's
messages to agents use `subject`.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, ClassVar

LONGEST_PARK = 86_400
"""Seconds for which a turn may be parked in all."""


class Subject(StrEnum):
    """Subjects written by the runtime (SPEC, section 5).

    They are labels for readers. Only between swarms does one count: `::task_complete::` on a response ends the task.
    """

    TASK_COMPLETE = "::task_complete::"
    BREAKPOINT_TOOL_CALL = "::breakpoint_tool_call::"
    ACTION_COMPLETE = "::action_complete::"
    ACTION_ERROR = "::action_error::"
    TOOL_CALL_ERROR = "::tool_call_error::"
    AGENT_ERROR = "::agent_error::"
    INVALID_RECIPIENT = "::invalid_recipient::"
    IMPROPER_RESPONSE_TO_USER = "::improper_response_to_user::"
    MAXIMUM_STEPS_REACHED = "::maximum_steps_reached::"
    RUNTIME_ERROR = "::runtime_error::"
    TASK_ERROR = "::task_error::"
    TASK_TIMEOUT = "::task_timeout::"
    TASK_CANCELLED = "::task_cancelled::"
    REMINDER = "::reminder::"
    HELP = "::help::"
    MANUAL_STEP = "::manual_step::"
    INTERSWARM_TASK_COMPLETE = "::interswarm_task_complete::"


class MAILError(Exception):
    """Something went wrong in MAIL.

    Attributes:
        retry_after: seconds until a retry makes sense, if it may help; the header `Retry-After`.
    """

    http_status: ClassVar[int] = 500
    subject: ClassVar[Subject] = Subject.RUNTIME_ERROR
    retry_after: float | None = None

    def __init__(self, detail: str | None = None) -> None:
        self.detail = detail or (type(self).__doc__ or "").split("\n")[0]
        super().__init__(self.detail)


class BadRequest(MAILError, ValueError):
    """The request is not valid."""

    http_status = 400


class UnknownEntrypoint(BadRequest):
    """The entrypoint must be an agent that takes messages from users."""


class NotPaused(BadRequest):
    """The task is not waiting for the result of a breakpoint tool."""


class BadBreakpointResult(BadRequest):
    """The breakpoint results don't match the tool calls that wait for them."""


class BadApproval(BadRequest):
    """The decision is not for a call that waits for approval, or can't be applied."""


class NotCancellable(BadRequest):
    """The task has ended already."""


class BadClientTools(BadRequest):
    """The client tools conflict with each other, or with the tools of the swarm."""


class TaskMovedOn(BadRequest):
    """The task is still running, or has continued since that response."""


class Unauthenticated(MAILError):
    """Send a valid API key as 'Authorization: Bearer <key>'."""

    http_status = 401


class SignInLinkInvalid(Unauthenticated):
    """This sign-in link has expired or was used before; the command mail ui makes a new one."""


class InvalidSignature(Unauthenticated):
    """The request was not signed with this secret."""


class Forbidden(MAILError):
    """The caller's role may not use this endpoint."""

    http_status = 403


class NotFound(MAILError):
    """The caller has nothing of this name or id."""

    http_status = 404


class HoldNotFound(NotFound):
    """Nothing is on hold under this name; GET /holds lists what is."""


class DeadLetterNotFound(NotFound):
    """This dead letter no longer exists."""


class TaskNotFound(NotFound):
    """The caller has no task with this id."""


class CallbackNotFound(NotFound):
    """No call has this token; use the token that the action's `ctx.callback` had."""


class ApprovalNotFound(NotFound):
    """No call with this approval waits for your decision; it may be decided, or its task may have ended."""


class ShareNotFound(NotFound):
    """This link was revoked or has expired, or its task was deleted; the person who gave it can give a new one."""


class CallNotFound(NotFound):
    """The task has no call with this id that waits for its result; it may have ended."""


class TimerNotFound(NotFound):
    """The task has no timer with this id; it may have fired, or been cancelled."""


class FileNotFound(NotFound):
    """The caller has no file with this id."""


class ThreadNotFound(NotFound):
    """The caller has no thread with this id."""


class WebhookNotFound(NotFound):
    """The caller has no webhook with this id."""


class DraftNotFound(NotFound):
    """There is no draft of the swarm of this name; GET /drafts lists them."""


class ScheduleNotFound(NotFound):
    """There is no schedule of this name."""


class TokenNotFound(NotFound):
    """No token has this number."""


class TokensElsewhere(NotFound):
    """An external authentication service issues this server's keys: it has no tokens or sign-in links of its own."""


class SwarmFixed(NotFound):
    """This server's swarm can be neither dumped nor replaced over HTTP."""


class SwarmNotFound(NotFound):
    """No swarm of this name is registered here."""


class MetricsOff(NotFound):
    """This server keeps no metrics; its operator may set metrics in [server.telemetry]."""


class Conflict(MAILError):
    """The request does not fit the present state."""

    http_status = 409


class SnapshotExpired(Conflict):
    """The task's state at that time is no longer stored; choose a later one."""


class DecisionTooLate(Conflict):
    """No call of this task waits for a decision any more."""


class AlreadyDecided(DecisionTooLate):
    """Somebody has decided on this call before; the first decision counts."""


class CallbackClosed(Conflict):
    """The call takes neither a result nor a heartbeat any more."""


class DraftOutdated(Conflict):
    """The swarm has changed since the draft was saved; look at it, and save it again."""


class ScheduleTaken(Conflict):
    """There is a schedule of this name already."""


class ScheduleDeclared(Conflict):
    """The schedule is declared in the server's mail.toml; change it there."""


class TaskBusy(Conflict):
    """The task is running or has mail to deliver; cancel it, and try again."""


class TaskHeld(Conflict):
    """The task is on hold, and can't be deleted; an admin can lift the hold."""


class CallerHeld(Conflict):
    """Something of the caller is on hold; lift the hold first."""


class ArgumentsDiffer(Conflict):
    """The decision was made for other arguments than those of the call; look at the call again."""


class QuestionOpen(Conflict):
    """The task waits for an answer, and this message is none.

    Attributes:
        calls: the tool calls that wait (`PausedCall`).
    """

    def __init__(self, detail: str | None = None, calls: Sequence[Any] = ()) -> None:
        super().__init__(detail)
        self.calls = tuple(calls)


class TextGone(MAILError):
    """A text of this task is no longer stored: its retention has ended, or somebody has deleted it."""

    http_status = 410


class TaskDeleted(MAILError):
    """The task that was begun with this Idempotency-Key has been deleted; use another key for another one."""

    http_status = 410


class PreconditionFailed(MAILError):
    """The task has changed since the caller read it."""

    http_status = 412


class IdempotencyConflict(MAILError):
    """This Idempotency-Key was used for another request."""

    http_status = 422


class PayloadTooLarge(MAILError):
    """The request body is too large."""

    http_status = 413


class AnswerTooLarge(PayloadTooLarge):
    """The answer is too large to be sent at once; ask for a part of it."""


class TaskFull(PayloadTooLarge):
    """This task has stored as much as it may; begin a new one."""


class StorageFull(PayloadTooLarge):
    """This caller has stored as much as it may; delete tasks."""


class RateLimited(MAILError):
    """This caller has reached a limit; try again later."""

    http_status = 429
    retry_after: int

    def __init__(self, detail: str | None = None, *, retry_after: int = 5) -> None:
        super().__init__(detail)
        self.retry_after = max(1, retry_after)


class Overloaded(MAILError):
    """The server's requests hold all the memory that they may hold; try again in a moment."""

    http_status = 503
    retry_after = 1


class TooManyTasks(RateLimited):
    """This caller has reached its limit of running tasks; wait until one ends."""


class MailboxFull(RateLimited):
    """This agent has reached its limit of waiting messages; wait until it has read some."""


class NotInstalled(MAILError):
    """The server lacks the packages of this feature."""

    http_status = 501


class AuthServiceUnavailable(MAILError):
    """The authentication service did not answer; try again later."""

    http_status = 503
    retry_after = 5


class ConfigurationError(MAILError, ValueError):
    """The configuration is not valid."""


class SwarmInvalid(ConfigurationError):
    """The swarm is not valid.

    Attributes:
        problems: the path of each problem in the swarm, such as `agents.0.name`, and what to change there.
    """

    def __init__(self, detail: str, problems: Sequence[tuple[str, str]]) -> None:
        super().__init__(detail)
        self.problems = tuple(problems)


class AgentUnavailable(MAILError):
    """The agent can't take its turn.

    Other agents and users see the text: an agent function that raises this must keep secrets out of it.
    """

    subject = Subject.AGENT_ERROR


class ModelError(AgentUnavailable):
    """The agent's language model returned no output."""


class ContextWindowExceeded(ModelError):
    """The agent's prompt no longer fits into its model's context window."""


class ModelAccessDenied(ModelError):
    """The provider of the agent's model does not accept the API key."""


class ModelRefusal(ModelError):
    """The provider of the agent's model rejects the request."""


class ModelUnavailable(ModelError):
    """The agent's model could not be reached in time."""


class RetryLater(MAILError):
    """Raise this in an action to have the same call made again after so many seconds.

    Meanwhile the turn is parked: no worker waits for it, and it costs nothing. The call gets the same arguments and
    the same `idempotency_key`. The wait also ends when the agent gets mail from a person or the system, or an
    interrupt. An agent function may raise it, too. After 24 hours in all, the agent reads an error instead.

    Attributes:
        retry_after: the seconds, at most 86,400; less than 1 counts as 1.
    """

    retry_after: float

    def __init__(self, seconds: float, detail: str | None = None) -> None:
        if not 0 <= seconds <= LONGEST_PARK:
            raise ValueError(f"RetryLater takes 0 to {LONGEST_PARK} seconds, not {seconds!r}")
        super().__init__(detail or f"it can't be done now; try again in {seconds:g} s")
        self.retry_after = max(1.0, seconds)


class ProviderBusy(RetryLater):
    """The provider of a model takes no call for a while; nothing but time ends the wait.

    Attributes:
        provider: its name, such as `anthropic`.
        attempts: how many attempts at the call have failed.
        ticket: its place among the calls of its caller that wait, if limits are kept for the model; else 0.
    """

    def __init__(self, seconds: float, provider: str, attempts: int = 0, ticket: int = 0) -> None:
        super().__init__(
            min(seconds, LONGEST_PARK), f"{provider} takes no call now; try again in {seconds:.0f} s"
        )
        self.provider = provider
        self.attempts = attempts
        self.ticket = ticket


class StepFailed(MAILError):
    """The agent did not respond; its mail still waits, and the step can be retried."""


class TaskFailed(MAILError):
    """The task has ended without an answer.

    Attributes:
        task_id: the id of the task, which can be continued.
        status: `failed` or `cancelled`.
    """

    def __init__(self, detail: str | None = None, *, task_id: str = "", status: str = "failed") -> None:
        super().__init__(detail)
        self.task_id = task_id
        self.status = status


class PeerError(MAILError):
    """The mail could not be delivered to another swarm."""

    http_status = 502


class PeerRefused(PeerError):
    """The peer rejects the message, or is unknown; a retry won't help."""


class PeerUnavailable(PeerError):
    """The peer can't be reached, or is failing; try again later."""


class PeerUnreachable(PeerUnavailable):
    """No connection to the peer can be made; try again later.

    Attributes:
        last_answer: when the peer last answered, in seconds since the epoch; None for never.
    """

    last_answer: float | None = None


class AgentFault(MAILError):
    """An agent's mistake, which a system message explains to it."""


class ToolCallFault(AgentFault, ValueError):
    """A tool call is not valid: wrong arguments, or not now."""

    subject = Subject.TOOL_CALL_ERROR


class UnknownTool(ToolCallFault):
    """The agent has no tool of this name."""

    subject = Subject.ACTION_ERROR


class Refused(AgentFault):
    """A guard has refused what the agent was about to do."""

    subject = Subject.TOOL_CALL_ERROR


class UnknownRecipient(AgentFault):
    """The recipient is not an agent of this swarm."""

    subject = Subject.AGENT_ERROR


class InvalidRecipient(AgentFault):
    """The recipient is not among the sender's comm_targets."""

    subject = Subject.INVALID_RECIPIENT


class UnreachableSwarm(AgentFault):
    """Mail to this remote swarm can't be delivered."""


class ImproperResponseToUser(AgentFault):
    """Agents don't write to the user; they call task_complete."""

    subject = Subject.IMPROPER_RESPONSE_TO_USER


class StoreError(MAILError):
    """The store rejected a write."""


class VersionConflict(StoreError):
    """The task has changed since it was read; read it and decide again.

    `current` is the present task, if the store has it at hand.
    """

    def __init__(self, current: Any = None) -> None:
        super().__init__()
        self.current = current


class LeaseLost(StoreError):
    """Another worker has the lease of the mailbox; this turn's result must be discarded."""


class StoreUnavailable(StoreError):
    """The store can't be reached now; try again later."""

    http_status = 503
    retry_after = 5


class WrittenLater(StoreUnavailable):
    """A later version of MAIL has stored this: go forward to that version, or restore the database from before."""
