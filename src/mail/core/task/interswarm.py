"""Other swarms: their part in a task, the requests that wait for an answer, and their entries in the registry."""

from collections.abc import Sequence
from enum import StrEnum
from itertools import groupby
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer

from mail.core.protocol.address import parse_agent_address
from mail.core.protocol.values import Value, value
from mail.core.task.files import File

SUBJECT_LENGTH = 80
"""Characters of a request's subject that its task keeps."""

SHORT_RUN = 2
"""Unread questions in a row up to which each is stored by itself."""


@value(kw_only=True)
class OpenRequest:
    """A request that has not been answered yet.

    Sender and recipient are names of agents, `agent@swarm` for remote ones. The sender is empty where the task's
    owner has written to another swarm.

    Attributes:
        seq: the seq of its message if it joined a running task, else 0; see `UnreadQuestion`.
        answer_deadline: when it expires, in seconds since the epoch; None for never.
        routing_info: the `routing_info` of its message; a response with the same one answers it.
        subject: the beginning of its subject, for answers in plain text.
    """

    request_id: str
    sender: str
    recipient: str
    seq: int = 0
    answer_deadline: float | None = None
    routing_info: dict[str, Any] | None = None
    subject: str = ""

    @property
    def sender_swarm(self) -> str | None:
        """The other swarm that waits for the answer; None for this one."""
        return parse_agent_address(self.sender)[1]

    @property
    def recipient_swarm(self) -> str | None:
        """The other swarm that must answer; None for this one."""
        return parse_agent_address(self.recipient)[1]


@value(kw_only=True)
class UnreadQuestion:
    """A message from a person, or from the parent swarm, that joined a running task and has not been read."""

    mailbox: str
    seq: int


def _in_runs(questions: Sequence[UnreadQuestion]) -> list[Any]:
    """Return questions as they are stored: a run of many as one entry, as each commit stores all of them."""
    stored: list[Any] = []
    runs = groupby(enumerate(questions), lambda each: (each[1].mailbox, each[1].seq - each[0]))
    for (mailbox, _), run in runs:
        seqs = [each.seq for _, each in run]
        ends = (mailbox, seqs[0], seqs[-1])
        stored += _run(*ends) if len(seqs) <= SHORT_RUN else [ends]
    return stored


def _from_runs(stored: Any) -> list[Any]:
    return [each for some in stored for each in (_run(*some) if isinstance(some, list) else (some,))]


def _run(mailbox: str, first: int, last: int) -> list[dict[str, Any]]:
    return [{"mailbox": mailbox, "seq": seq} for seq in range(first, last + 1)]


UnreadQuestions = Annotated[
    tuple[UnreadQuestion, ...], BeforeValidator(_from_runs), PlainSerializer(_in_runs)
]
"""Unread questions of a task, which may be thousands."""


@value(kw_only=True)
class Answer:
    """The answer of one remote agent to a person who has written to several."""

    sender: str
    body: str


@value(kw_only=True)
class RemoteTask:
    """A task at a peer that never calls this server, so that the server polls its state.

    Attributes:
        id: what the peer calls it.
        context: what the peer calls the conversation that it belongs to.
        asked_by: the agent whose message it answers; empty for a person.
        agent: the agent of the peer that was written to.
        request_id: the id of that message.
        poll_at: when its state is read next, in seconds since the epoch; 0 while it waits for an answer.
        polls: how often its state was read.
        failures: how often that has failed since it last succeeded.
        until: when it is given up, in seconds since the epoch.
    """

    id: str
    context: str
    asked_by: str
    agent: str
    request_id: str
    poll_at: float = 0.0
    polls: int = 0
    failures: int = 0
    until: float


class RemoteStatus(StrEnum):
    """What a remote task does: it works, waits for an answer to its question, or has ended."""

    WORKING = "working"
    ASKING = "asking"
    COMPLETED = "completed"
    FAILED = "failed"


@value(kw_only=True)
class RemoteState:
    """The state of a remote task.

    Attributes:
        id, context: as in `RemoteTask`; the id is empty if the peer has answered without a task.
        text: its question, its answer, or why it has failed.
        files: the files of its answer.
    """

    id: str
    context: str
    status: RemoteStatus
    text: str = ""
    files: tuple[File, ...] = ()


@value(kw_only=True)
class Peer:
    """Another swarm that takes part in a task.

    Attributes:
        agent: the remote agent that was written to, or that wrote, first; it receives the task's outcome.
        has_task: whether the peer stores the task, because it accepted or sent a message of it.
        runner: the principal under which the peer stores the task, if it said so.
        failures: consecutive failed deliveries.
        retry_at: when the next delivery is tried, in seconds since the epoch.
        retry_until: when the last delivery of the same message is tried, in seconds since the epoch.
        problem: why the last delivery failed; empty after a success.
        end_message: the id of the message that reports the task's end, while it is being delivered.
        end_delivered: whether that message was the last one delivered.
        unanswered: how many requests are no longer open although the peer has not answered them.
        remote_tasks: what the peer does for the task, if it never calls this server, or waits to do.
        context: the conversation in which a request to such a peer began last.
        poll_at: when the state of a remote task is read next; 0 for never.
    """

    agent: str
    has_task: bool = False
    runner: str = ""
    failures: int = 0
    retry_at: float = 0.0
    retry_until: float = 0.0
    problem: str = ""
    end_message: str = ""
    end_delivered: bool = False
    unanswered: int = 0
    remote_tasks: tuple[RemoteTask, ...] = ()
    context: str = ""

    @property
    def poll_at(self) -> float:
        return min((each.poll_at for each in self.remote_tasks if each.poll_at), default=0.0)


COMMON_CALLER_ID = "agent"
"""The id of the `agent` token that a server prints when it is started for the first time."""


class PeerRecord(Value):
    """A registered swarm, or an agent that is called by A2A.

    Attributes:
        base_url: the URL of the swarm's server, or of the agent's card.
        kind: the protocol by which it is called. It doesn't follow from the URL: what agents discover is called by
            MAIL only, which needs a token.
        interface: where an agent takes requests, according to its card; empty until the card has been read.
        auth_token: a reference such as `${SWARM_AUTH_TOKEN_B}`; the token itself only if the entry is volatile.
        auth: how requests are signed: with a bearer token alone, or with AWS Signature 4 too.
        caller_id: the id of the peer's token for this server; empty if that is its name.
        expires: when a volatile entry expires, in seconds since the epoch; None for never.
        registered: when, in ISO 8601, UTC.
    """

    name: str
    base_url: str
    version: str = ""
    description: str = ""
    entrypoint: str = ""
    keywords: tuple[str, ...] = ()
    public: bool = False
    metadata: dict[str, Any] = Field(default_factory=dict)
    auth_token: str = ""
    auth: Literal["bearer", "aws_iam"] = "bearer"
    caller_id: str = ""
    volatile: bool = False
    expires: float | None = None
    registered: str = ""
    kind: Literal["mail", "a2a"] = "mail"
    interface: str = ""

    @property
    def is_described(self) -> bool:
        """Whether its description has been read."""
        return bool(self.version if self.kind == "mail" else self.interface)


class PeerHealth(Value):
    """The result of a peer's last health check.

    Attributes:
        last_seen: when it last responded, in ISO 8601, UTC; empty for never.
        latency: the response time in seconds; None without a response.
    """

    is_active: bool = False
    last_seen: str = ""
    latency: float | None = None
