"""The error tree. Every error says what to change, and knows how it is shown.

    MAILError                       500  ::runtime_error::
    ├── BadRequest                  400  the caller must change the request
    │   ├── UnknownEntrypoint
    │   ├── NotPaused               a breakpoint result for a task that waits for none
    │   ├── BadBreakpointResult
    │   ├── NotCancellable          the task has ended already
    │   ├── BadToolbox              tools that a caller lends
    │   ├── TaskMovedOn
    │   ├── AlreadyRegistered, NotRegistered  of `mail.exchange`
    │   └── MalformedMessage, UnknownMessage   of `mail.agentmail`
    ├── Unauthenticated             401
    │   └── InvalidSignature        of `mail.webhooks`: a request that the server has not sent
    ├── Forbidden                   403
    ├── TaskNotFound                404
    ├── DeadLetterNotFound          404
    ├── ThreadNotFound              404
    ├── WebhookNotFound             404
    ├── SwarmFixed                  404
    ├── SwarmNotFound               404
    ├── MetricsOff                  404
    ├── MomentNotKept               409  a task can't be read any more as it was then
    ├── PreconditionFailed          412  the task is not as the caller takes it to be
    ├── PayloadTooLarge             413
    ├── IdempotencyConflict         422  a key that was used for another request
    ├── RateLimited                 429  ask again after `retry_after` seconds
    │   ├── TooManyTasks            the caller has as many running as it may
    │   └── MailboxFull             as much waits for the agent as may
    ├── AuthServiceUnavailable      503
    ├── ConfigurationError          the operator must change a file, flag or variable
    ├── AgentUnavailable            an agent can't take its turn; the text is told to others
    │   └── ModelError              its language model gave no output
    │       ├── ContextWindowExceeded
    │       ├── ModelAccessDenied
    │       ├── ModelRefusal        the request is wrong, and would be again
    │       └── ModelUnavailable    limits, outages, no time left
    ├── StepFailed                  an agent gave no response in manual mode
    ├── AgentFault                  told to the agent that caused it, as a system message
    │   ├── ToolCallFault           ::tool_call_error::
    │   ├── UnknownRecipient        ::agent_error::
    │   ├── InvalidRecipient        ::invalid_recipient::
    │   ├── UnreachableSwarm        ::runtime_error::
    │   ├── ImproperResponseToUser  ::improper_response_to_user::
    │   └── ActionFailed            of `mail.stdlib`
    └── StoreError
        ├── VersionConflict         another commit of the task came first
        ├── LeaseLost               the turn belongs to somebody else now
        └── StoreUnavailable        503  the database can't write now

An HTTP front door maps an error by `http_status`; the engine maps an `AgentFault` by `subject`.
"""

from enum import StrEnum
from typing import Any, ClassVar


class Subject(StrEnum):
    """Subjects written by the runtime: labels for the reader, never read as control (SPEC, section 5)."""

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
    HELP = "::help::"
    MANUAL_STEP = "::manual_step::"
    INTERSWARM_TASK_COMPLETE = "::interswarm_task_complete::"


class MAILError(Exception):
    """Something went wrong in MAIL."""

    http_status: ClassVar[int] = 500
    subject: ClassVar[Subject] = Subject.RUNTIME_ERROR

    def __init__(self, detail: str | None = None) -> None:
        self.detail = detail or (type(self).__doc__ or "").split("\n")[0]
        super().__init__(self.detail)


class BadRequest(MAILError, ValueError):
    """The request is not valid."""

    http_status = 400


class UnknownEntrypoint(BadRequest):
    """The named entrypoint is no agent that takes messages from users."""


class NotPaused(BadRequest):
    """The task is not waiting for the result of a breakpoint tool."""


class BadBreakpointResult(BadRequest):
    """The breakpoint results don't match the tool calls that wait for them."""


class NotCancellable(BadRequest):
    """The task has ended already."""


class BadClientTools(BadRequest):
    """The tools that the caller lends don't fit together, or with those of the swarm."""


class TaskMovedOn(BadRequest):
    """The task still runs, or has gone on since the answer that was to be continued."""


class Unauthenticated(MAILError):
    """Send a valid API key as 'Authorization: Bearer <key>'."""

    http_status = 401


class InvalidSignature(Unauthenticated):
    """The request was not signed with this secret."""


class Forbidden(MAILError):
    """The caller's role may not use this endpoint."""

    http_status = 403


class DeadLetterNotFound(MAILError):
    """There is no such dead letter any more."""

    http_status = 404


class TaskNotFound(MAILError):
    """The caller has no task with this id."""

    http_status = 404


class ThreadNotFound(MAILError):
    """The caller has no thread with this id."""

    http_status = 404


class WebhookNotFound(MAILError):
    """The caller has no webhook with this id."""

    http_status = 404


class SwarmFixed(MAILError):
    """This server's swarm can be neither dumped nor replaced over HTTP."""

    http_status = 404


class SwarmNotFound(MAILError):
    """No swarm of this name is registered here."""

    http_status = 404


class MetricsOff(MAILError):
    """This server keeps no metrics; its operator may set metrics in [server.telemetry]."""

    http_status = 404


class SnapshotExpired(MAILError):
    """What the task was like at this moment is not kept; choose a later one."""

    http_status = 409


class PreconditionFailed(MAILError):
    """The task has gone on since the caller looked at it."""

    http_status = 412


class IdempotencyConflict(MAILError):
    """This Idempotency-Key was used for another request."""

    http_status = 422


class PayloadTooLarge(MAILError):
    """The request body is too large."""

    http_status = 413


class RateLimited(MAILError):
    """There is more to do for this caller than it may ask for; try again later.

    Attributes:
        retry_after: after how many seconds, as the header `Retry-After` tells.
    """

    http_status = 429

    def __init__(self, detail: str | None = None, *, retry_after: int = 5) -> None:
        super().__init__(detail)
        self.retry_after = max(1, retry_after)


class TooManyTasks(RateLimited):
    """As many tasks of this caller are running as may; wait until one has ended."""


class MailboxFull(RateLimited):
    """As many messages wait for this agent as may; wait until it has read some."""


class AuthServiceUnavailable(MAILError):
    """The authentication service did not answer; try again later."""

    http_status = 503


class ConfigurationError(MAILError):
    """The configuration is not valid."""


class AgentUnavailable(MAILError):
    """The agent can't take its turn.

    The text is told to other agents and users: an agent function that raises it keeps secrets out of it.
    """

    subject = Subject.AGENT_ERROR


class ModelError(AgentUnavailable):
    """The agent's language model gave no output."""


class ContextWindowExceeded(ModelError):
    """What the agent would have to read no longer fits into its model's context window."""


class ModelAccessDenied(ModelError):
    """The provider of the agent's model does not accept the API key."""


class ModelRefusal(ModelError):
    """The provider of the agent's model refuses the request."""


class ModelUnavailable(ModelError):
    """The agent's model could not be reached in time."""


class StepFailed(MAILError):
    """The agent gave no response; its mail still waits, and the step can be taken again."""


class AgentFault(MAILError):
    """An agent did something it must be told about."""


class ToolCallFault(AgentFault):
    """A tool call is not valid: unknown tool, wrong arguments, or not now."""

    subject = Subject.TOOL_CALL_ERROR


class UnknownRecipient(AgentFault):
    """The recipient is no agent of this swarm."""

    subject = Subject.AGENT_ERROR


class InvalidRecipient(AgentFault):
    """The recipient is not among the sender's comm_targets."""

    subject = Subject.INVALID_RECIPIENT


class UnreachableSwarm(AgentFault):
    """Mail to this remote swarm can't be delivered."""


class PeerError(MAILError):
    """Another swarm could not be given its mail."""

    http_status = 502


class PeerRefused(PeerError):
    """The peer does not take the message, or is not known; to send it again would not help."""


class PeerUnavailable(PeerError):
    """The peer can't be reached, or is in trouble; try again later."""


class ImproperResponseToUser(AgentFault):
    """Agents don't write to the user; they call task_complete."""

    subject = Subject.IMPROPER_RESPONSE_TO_USER


class StoreError(MAILError):
    """The store refused a write."""


class VersionConflict(StoreError):
    """The task has moved on since it was read; read it again and decide again.

    `current` is the task as it is now, where the store has it at hand.
    """

    def __init__(self, current: Any = None) -> None:
        super().__init__()
        self.current = current


class LeaseLost(StoreError):
    """The mailbox is leased to another worker; this turn's result must be thrown away."""


class StoreUnavailable(StoreError):
    """The store can't be reached at the moment; try again later."""

    http_status = 503
