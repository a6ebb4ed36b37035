"""The lifecycle of beads as a table, and the status of each bead.

A bead is a piece of work. After its end, late messages of workers are ignored, except another end, until the bead is
accepted or requested again.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from mail.agentmail.envelope import AgentMailMessage
from mail.agentmail.messages import (
    BeadAccepted,
    Checkpoint,
    Done,
    Failed,
    HelpRequest,
    MessageType,
    OfferingReady,
    Progress,
    SpawnAck,
    SpawnRequest,
    SpawnStatus,
)
from mail.agentmail.notation import Count


class BeadState(StrEnum):
    """The state of a bead."""

    NEW = "new"
    REQUESTED = "requested"
    """A first worker was requested."""
    ACCEPTED = "accepted"
    WORKING = "working"
    STUCK = "stuck"
    """Its worker waits for help."""
    OFFERED = "offered"
    DONE = "done"
    FAILED = "failed"
    CHECKPOINTED = "checkpointed"
    RESPAWNED = "respawned"
    """Another worker was requested."""
    CLOSED = "closed"
    """It was requested or in progress when the task of its last message ended."""


ACTIVE = frozenset({BeadState.ACCEPTED, BeadState.WORKING, BeadState.STUCK})
"""The states in which a worker works on a bead."""

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
"""The next state, by message type and present state; a message without an entry is ignored.

A SPAWN_ACK of a failed spawn returns to the state before the request. No message leads to `CLOSED`: a bead appears
closed while its last message is closed. An offered bead appears done once its offer is acknowledged, until its worker
works on.
"""


class BeadStatus(BaseModel):
    """The status of a bead.

    `worker` is the present or last worker, `session` its session if a SPAWN_ACK named one. `context_usage` is in
    percent; `files` are all files ever named; `help_request` is the one that waits for an answer; `failure` is the
    last one, until somebody works on the bead again.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

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
    """The status of a bead while its messages are read."""

    def __init__(self, bead_id: str) -> None:
        self._known: dict[str, object] = {"bead_id": bead_id}
        self._files: dict[str, None] = {}
        self._before_request = BeadState.NEW
        self._state = BeadState.NEW
        self._is_closed = False
        self._offer: AgentMailMessage | None = None
        self._is_accepted = False
        self._next_session = ""
        self.worker = ""

    @property
    def state(self) -> BeadState:
        """The present state."""
        if self._is_closed and self._state in _UNFINISHED:
            return BeadState.CLOSED
        return BeadState.DONE if self._is_accepted and self._state is BeadState.OFFERED else self._state

    def read(self, message: AgentMailMessage) -> None:
        """Read a message; ignore it if it is late."""
        after = TRANSITIONS[message.type].get(self._state)
        if after is None:
            return
        before = self._move(after, message)
        known = self._known
        if after not in _WAITING:
            known["failure"] = None
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
                    return  # forwarding a question doesn't make its sender the worker
            case OfferingReady(files=files, commit_sha=commit):
                self._offer, self._is_accepted = message, message.acknowledged
                self._note(files, commit_sha=commit)
            case Done(files=files, commit_sha=commit):
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
                if status is SpawnStatus.FAILED:
                    self._state = self._before_request
                else:
                    self._next_session = session
                return
            case _:
                return
        if self._next_session or message.sender != self.worker:
            known["session"], self._next_session = self._next_session, ""
        self.worker = message.sender

    def read_answer(self, answer: AgentMailMessage) -> None:
        """Note that its request for help was answered."""
        if self._state is BeadState.STUCK:
            self._move(BeadState.WORKING, answer)

    def accept(self, offer: AgentMailMessage) -> None:
        """Note that an offer was acknowledged; an earlier one than the last has no effect."""
        last = self._offer
        if last is not None and (offer.id, offer.timestamp, offer.parsed) == (
            last.id,
            last.timestamp,
            last.parsed,
        ):
            self._is_accepted = True

    def _move(self, after: BeadState, message: AgentMailMessage) -> BeadState:
        """Change the state; return the previous one. A closed message closes the bead only if it changed the state."""
        before, self._state = self._state, after
        if not message.closed or after is not before:
            self._is_closed = message.closed
        return before

    def _note(self, files: tuple[str, ...], **fields: object) -> None:
        self._files |= dict.fromkeys(files)
        self._known |= {name: value for name, value in fields.items() if value}

    def status(self) -> BeadStatus:
        """Return the present status."""
        known = self._known | {"files": tuple(self._files), "state": self.state, "worker": self.worker}
        if not self.worker:
            known["session"] = self._next_session
        if self.state is not BeadState.STUCK:
            known["help_request"] = None
        return BeadStatus.model_validate(known)


class Beads:
    """All beads of a sequence of messages. Reading a message takes constant time."""

    def __init__(self) -> None:
        self._logs: dict[str, _Log] = {}
        self._of_thread: dict[str, str] = {}

    def read(self, message: AgentMailMessage, answered: Sequence[AgentMailMessage] = ()) -> None:
        """Read a message, and the messages that it answers.

        It is about the bead that it names, else that of the message it answers, else the last one named in its thread.
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
        """Note that a request for help or an offer was answered, by a message of any type."""
        if request.type is MessageType.HELP_REQUEST and (log := self._logs.get(request.bead_id)) is not None:
            log.read_answer(answer)
        self.acknowledge(request)

    def acknowledge(self, request: AgentMailMessage) -> None:
        """Note that a message was acknowledged; an offer is thereby accepted."""
        if (
            request.type is MessageType.OFFERING_READY
            and (log := self._logs.get(request.bead_id)) is not None
        ):
            log.accept(request)

    def status(self, bead_id: str) -> BeadStatus:
        """Return the status of a bead; of an unknown one, only its id."""
        log = self._logs.get(bead_id)
        return log.status() if log else BeadStatus(bead_id=bead_id)

    def all(self) -> dict[str, BeadStatus]:
        """Return the status of every bead, in the order of their first messages."""
        return {bead_id: log.status() for bead_id, log in self._logs.items()}

    def workers(self) -> dict[str, tuple[str, ...]]:
        """Return the beads of each worker, without workers that have none."""
        found: dict[str, list[str]] = {}
        for bead_id, log in self._logs.items():
            if log.state in ACTIVE:
                found.setdefault(log.worker, []).append(bead_id)
        return {worker: tuple(beads) for worker, beads in found.items()}
