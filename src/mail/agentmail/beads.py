"""What becomes of beads: their states as a table, and what is known of each.

A bead is a piece of work. What a worker says of one that has ended, but for another end, comes late and is passed over
until the bead is accepted or asked for again.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from mail.agentmail.envelope import AgentMailMessage
from mail.agentmail.kinds import MessageType, SpawnStatus
from mail.agentmail.messages import (
    BeadAccepted,
    Checkpoint,
    Done,
    Failed,
    HelpRequest,
    OfferingReady,
    Progress,
    SpawnAck,
    SpawnRequest,
)
from mail.agentmail.notation import Count


class BeadState(StrEnum):
    """Where a bead is."""

    NEW = "new"
    REQUESTED = "requested"
    """A first worker has been asked for."""
    ACCEPTED = "accepted"
    WORKING = "working"
    STUCK = "stuck"
    """Its worker waits for help."""
    OFFERED = "offered"
    DONE = "done"
    FAILED = "failed"
    CHECKPOINTED = "checkpointed"
    RESPAWNED = "respawned"
    """Another worker has been asked for."""
    CLOSED = "closed"
    """It was asked for or in work when what its last message was a part of ended."""


ACTIVE = frozenset({BeadState.ACCEPTED, BeadState.WORKING, BeadState.STUCK})
"""The states in which somebody works on a bead."""

_WAITING = frozenset({BeadState.REQUESTED, BeadState.RESPAWNED})
_OPEN = ACTIVE | _WAITING | {BeadState.NEW, BeadState.OFFERED}


def _to(state: BeadState, sources: Iterable[BeadState] = BeadState) -> dict[BeadState, BeadState]:
    return dict.fromkeys(sources, state)


_UNFINISHED = ACTIVE | _WAITING

TRANSITIONS: dict[MessageType, dict[BeadState, BeadState]] = {
    MessageType.BEAD_ACCEPTED: _to(BeadState.ACCEPTED),
    MessageType.PROGRESS: _to(BeadState.WORKING, _OPEN),
    MessageType.HELP_REQUEST: _to(BeadState.STUCK, _OPEN),
    MessageType.HELP_RESPONSE: _to(BeadState.WORKING, {BeadState.STUCK}),
    MessageType.OFFERING_READY: _to(BeadState.OFFERED),
    MessageType.DONE: _to(BeadState.DONE),
    MessageType.FAILED: _to(BeadState.FAILED),
    MessageType.CHECKPOINT: _to(BeadState.CHECKPOINTED),
    MessageType.SPAWN_REQUEST: _to(BeadState.RESPAWNED)
    | _to(BeadState.REQUESTED, {BeadState.NEW, BeadState.REQUESTED}),
    MessageType.SPAWN_ACK: {state: state for state in _WAITING},
    MessageType.UNKNOWN: {},
}
"""The state after a message, by its type and the state before; a message for which there is none is passed over.

A SPAWN_ACK of a worker that could not be spawned leads back to the state before the request. No message leads to
`CLOSED`: so a bead looks whose last message is closed, until there is another one.
"""


class BeadStatus(BaseModel):
    """What is known of a bead.

    `worker` works on it, or did last. `context_usage` is in percent; `files` are all that were ever named.
    `help_request` is the one that waits for an answer.
    """

    model_config = ConfigDict(frozen=True)

    bead_id: str = ""
    title: str = ""
    state: BeadState = BeadState.NEW
    worker: str = ""
    session: str = ""
    last_progress: Progress | None = None
    last_progress_at: str = ""
    context_usage: Count = 0
    files: tuple[str, ...] = ()
    commit_sha: str = ""
    help_request: HelpRequest | None = None
    checkpoint: Checkpoint | None = None
    failure: Failed | None = None


class _Log:
    """A bead while its messages are read."""

    def __init__(self, bead_id: str) -> None:
        self._known: dict[str, object] = {"bead_id": bead_id}
        self._files: dict[str, None] = {}
        self._before_request = BeadState.NEW
        self._state = BeadState.NEW
        self._is_closed = False
        self.worker = ""

    @property
    def state(self) -> BeadState:
        """Where the bead is."""
        return BeadState.CLOSED if self._is_closed and self._state in _UNFINISHED else self._state

    def read(self, message: AgentMailMessage) -> None:
        """Take in a message, unless it comes late."""
        after = TRANSITIONS[message.type].get(self._state)
        if after is None:
            return
        before = self._move(after, message)
        known = self._known
        match message.parsed:
            case BeadAccepted(title=title):
                known |= {"title": title or known.get("title", ""), "context_usage": 0}
            case Progress(files_touched=files) as progress:
                known |= {"last_progress": progress, "last_progress_at": message.timestamp}
                self._note(files, context_usage=progress.context_usage)
            case HelpRequest(files_touched=files) as request:
                known["help_request"] = request
                self._note(files)
                if before in ACTIVE:
                    return  # whoever passes a question on doesn't take the bead over
            case OfferingReady(files=files, commit_sha=commit) | Done(files=files, commit_sha=commit):
                self._note(files, commit_sha=commit)
            case Failed(files=files, commit_sha=commit) as failure:
                known["failure"] = failure
                self._note(files, commit_sha=commit)
            case Checkpoint(commit_sha=commit) as checkpoint:
                known["checkpoint"] = checkpoint
                self._note((), commit_sha=commit, context_usage=checkpoint.context_usage)
            case SpawnRequest():
                if before not in _WAITING:
                    self._before_request = before
                return
            case SpawnAck(status=status, session=session):
                known["session"] = session
                if status is SpawnStatus.FAILED:
                    self._state = self._before_request
                return
            case _:
                return
        self.worker = message.sender

    def read_answer(self, answer: AgentMailMessage) -> None:
        """Its request for help has been answered."""
        if self._state is BeadState.STUCK:
            self._move(BeadState.WORKING, answer)

    def _move(self, after: BeadState, message: AgentMailMessage) -> BeadState:
        """Go to another state, and return the one before. What is closed closes only what it has begun."""
        before, self._state = self._state, after
        if not message.closed or after is not before:
            self._is_closed = message.closed
        return before

    def _note(self, files: tuple[str, ...], **told: object) -> None:
        self._files |= dict.fromkeys(files)
        self._known |= {name: value for name, value in told.items() if value}

    def status(self) -> BeadStatus:
        """What is known by now."""
        known = self._known | {"files": tuple(self._files), "state": self.state, "worker": self.worker}
        if self.state is not BeadState.STUCK:
            known["help_request"] = None
        return BeadStatus.model_validate(known)


class Beads:
    """All beads of a run of messages. To read a message takes the same time however many were read before."""

    def __init__(self) -> None:
        self._logs: dict[str, _Log] = {}
        self._of_thread: dict[str, str] = {}

    def read(self, message: AgentMailMessage, answered: Sequence[AgentMailMessage] = ()) -> None:
        """Take in a message, and those that it answers.

        It is about the bead it names, else about that of what it answers, else about the last named in its thread.
        """
        for request in answered:
            self.read_answer(request, message)
        named = message.bead_id
        bead_id = named or next((request.bead_id for request in answered), "")
        bead_id = bead_id or self._of_thread.get(message.thread, "")
        if not bead_id or message.type is MessageType.UNKNOWN:
            return
        if named and message.thread:
            self._of_thread[message.thread] = named
        log = self._logs.get(bead_id)
        if log is None:
            log = self._logs[bead_id] = _Log(bead_id)
        log.read(message)

    def read_answer(self, request: AgentMailMessage, answer: AgentMailMessage) -> None:
        """Return a request for help has been answered, by a message of whatever type."""
        if request.type is MessageType.HELP_REQUEST and (log := self._logs.get(request.bead_id)) is not None:
            log.read_answer(answer)

    def status(self, bead_id: str) -> BeadStatus:
        """What is known of a bead; of one that nobody has told of, only its name."""
        log = self._logs.get(bead_id)
        return log.status() if log else BeadStatus(bead_id=bead_id)

    def all(self) -> dict[str, BeadStatus]:
        """Return every bead, in the order in which they were first told of."""
        return {bead_id: log.status() for bead_id, log in self._logs.items()}

    def workers(self) -> dict[str, tuple[str, ...]]:
        """Who works on what: the beads of each worker that has any."""
        found: dict[str, list[str]] = {}
        for bead_id, log in self._logs.items():
            if log.state in ACTIVE:
                found.setdefault(log.worker, []).append(bead_id)
        return {worker: tuple(beads) for worker, beads in found.items()}
