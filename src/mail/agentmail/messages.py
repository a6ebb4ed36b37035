"""The typed messages: their vocabulary, and one class per type with the place of each field in the body.

Values are frozen and serializable. Surrounding white space and empty paths are dropped. Any field may be empty, as
lenient parsing leaves it (`UNKNOWN` for a missing or invalid word); the place of a field tells whether a strict
message needs it.
"""

from enum import StrEnum
from functools import cache
from typing import Annotated, ClassVar, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from mail.agentmail.notation import (
    COUNT,
    FILES,
    FLAG,
    PERCENT,
    PLACES,
    TIMESTAMP,
    Count,
    Files,
    Line,
    Place,
    Section,
    Stripped,
    Whole,
    choice,
    constant,
    never,
)


class MessageType(StrEnum):
    """The type of a message, in order of precedence in subjects."""

    BEAD_ACCEPTED = "BEAD_ACCEPTED"
    OFFERING_READY = "OFFERING_READY"
    HELP_REQUEST = "HELP_REQUEST"
    HELP_RESPONSE = "HELP_RESPONSE"
    SPAWN_REQUEST = "SPAWN_REQUEST"
    SPAWN_ACK = "SPAWN_ACK"
    CHECKPOINT = "CHECKPOINT"
    PROGRESS = "PROGRESS"
    FAILED = "FAILED"
    DONE = "DONE"
    UNKNOWN = "UNKNOWN"


TYPED = tuple(kind for kind in MessageType if kind is not MessageType.UNKNOWN)
"""The types that a subject can name."""

SUCCESSES = frozenset({MessageType.OFFERING_READY, MessageType.DONE})
COMPLETIONS = SUCCESSES | {MessageType.FAILED, MessageType.CHECKPOINT}
ACK_REQUIRED = frozenset({MessageType.HELP_REQUEST, MessageType.OFFERING_READY, MessageType.SPAWN_REQUEST})


class IssueType(StrEnum):
    """The reason for a help request."""

    STUCK = "STUCK"
    SPEC_UNCLEAR = "SPEC_UNCLEAR"
    BLOCKED = "BLOCKED"
    TECHNICAL = "TECHNICAL"
    UNKNOWN = ""


class FailureType(StrEnum):
    """The reason for a failure."""

    TESTS_FAIL = "TESTS_FAIL"
    BUILD_FAIL = "BUILD_FAIL"
    SPEC_IMPOSSIBLE = "SPEC_IMPOSSIBLE"
    CONTEXT_HIGH = "CONTEXT_HIGH"
    ERROR = "ERROR"
    UNKNOWN = ""


class CheckpointReason(StrEnum):
    """The reason for a checkpoint."""

    CONTEXT_HIGH = "CONTEXT_HIGH"
    MANUAL = "MANUAL"
    TIMEOUT = "TIMEOUT"
    UNKNOWN = ""


class ValidationResult(StrEnum):
    """The result of a worker's own check."""

    PASS = "PASS"  # noqa: S105
    FAIL = "FAIL"
    UNKNOWN = ""

    @property
    def passed(self) -> bool:
        """Whether the check has passed; a missing result has not."""
        return self is ValidationResult.PASS


class SpawnStatus(StrEnum):
    """The outcome of a spawn request."""

    SPAWNED = "spawned"
    FAILED = "failed"
    UNKNOWN = ""


_PASS, _FAIL = ValidationResult.PASS, ValidationResult.FAIL
_CHECK = choice(ValidationResult, {"TRUE": _PASS, "YES": _PASS, "OK": _PASS, "FALSE": _FAIL, "NO": _FAIL})


class Typed(BaseModel):
    """The base class of typed messages. `bead_id` is read from the body, else from the subject."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    bead_labels: ClassVar[tuple[str, ...]] = ("Bead", "Accepted bead")
    """The labels of the bead in the body, in the order of search; the first one is written."""

    names_bead: ClassVar[bool] = True
    """Whether the body of a strict message must name the bead."""

    type: MessageType
    bead_id: Stripped = ""


class BeadAccepted(Typed):
    """A worker has taken a bead."""

    bead_labels = ("Accepted bead", "Bead")

    type: Literal[MessageType.BEAD_ACCEPTED] = MessageType.BEAD_ACCEPTED
    title: Annotated[Stripped, Line("Title")] = ""
    started_at: Annotated[Stripped, Line("Starting implementation at", TIMESTAMP)] = ""


class Progress(Typed):
    """The progress of a worker. `context_usage` is in percent of its context window."""

    type: Literal[MessageType.PROGRESS] = MessageType.PROGRESS
    step: Annotated[Stripped, Line("Step")] = ""
    status: Annotated[Stripped, Line("Status")] = ""
    context_usage: Annotated[Count, Line("Context usage", PERCENT)] = 0
    files_touched: Annotated[Files, Line("Files touched", FILES, needed=never)] = ()


class HelpRequest(Typed):
    """A worker needs help."""

    type: Literal[MessageType.HELP_REQUEST] = MessageType.HELP_REQUEST
    issue_type: Annotated[IssueType, Line("Issue Type", choice(IssueType))] = IssueType.UNKNOWN
    problem: Annotated[Stripped, Section("Problem")] = ""
    what_i_tried: Annotated[Stripped, Section("What I Tried")] = ""
    files_touched: Annotated[Files, Section("Files Touched", FILES, needed=never)] = ()
    question: Annotated[Stripped, Section("Question")] = ""


class HelpResponse(Typed):
    """The answer to a request for help: the whole body."""

    names_bead = False

    type: Literal[MessageType.HELP_RESPONSE] = MessageType.HELP_RESPONSE
    guidance: Annotated[Stripped, Whole()] = ""


class Completed(Typed):
    """The fields that both messages of success share."""

    status: Annotated[Stripped, Line("Status", constant("DONE"))] = "DONE"
    commit_sha: Annotated[Stripped, Line("Commit", under="Changes", bullet=True)] = ""
    files: Annotated[Files, Line("Files", FILES, under="Changes", bullet=True)] = ()
    tests: Annotated[ValidationResult, Line("Tests", _CHECK, under="Self-Validation", bullet=True)] = (
        ValidationResult.UNKNOWN
    )
    lint: Annotated[ValidationResult, Line("Lint", _CHECK, under="Self-Validation", bullet=True)] = (
        ValidationResult.UNKNOWN
    )
    build: Annotated[ValidationResult, Line("Build", _CHECK, under="Self-Validation", bullet=True)] = (
        ValidationResult.UNKNOWN
    )
    summary: Annotated[Stripped, Section("Summary")] = ""

    @property
    def validated(self) -> bool:
        """Whether tests, lint and build have all passed, according to the worker."""
        return self.tests.passed and self.lint.passed and self.build.passed


class OfferingReady(Completed):
    """The work is complete and waits for review."""

    type: Literal[MessageType.OFFERING_READY] = MessageType.OFFERING_READY


class Done(Completed):
    """The work is complete; no answer is expected."""

    type: Literal[MessageType.DONE] = MessageType.DONE


class Failed(Typed):
    """The work has failed; partial work may have been committed."""

    type: Literal[MessageType.FAILED] = MessageType.FAILED
    status: Annotated[Stripped, Line("Status", constant("FAILED"))] = "FAILED"
    failure_type: Annotated[FailureType, Line("Type", choice(FailureType), under="Failure", bound=True)] = (
        FailureType.UNKNOWN
    )
    reason: Annotated[Stripped, Line("Reason", under="Failure", bound=True)] = ""
    internal_attempts: Annotated[Count, Line("Internal Attempts", COUNT, under="Failure")] = 0
    commit_sha: Annotated[Stripped, Line("Commit", under="Partial Progress", bullet=True, needed=never)] = ""
    files: Annotated[Files, Line("Files", FILES, under="Partial Progress", bullet=True, needed=never)] = ()
    recommendation: Annotated[Stripped, Section("Recommendation")] = ""


class Checkpoint(Typed):
    """A worker stops half way, and leaves notes for its successor."""

    type: Literal[MessageType.CHECKPOINT] = MessageType.CHECKPOINT
    reason: Annotated[CheckpointReason, Line("Reason", choice(CheckpointReason))] = CheckpointReason.UNKNOWN
    commit_sha: Annotated[Stripped, Line("Commit", under="Progress", bullet=True)] = ""
    description: Annotated[Stripped, Line("Description", under="Progress", bullet=True)] = ""
    context_usage: Annotated[Count, Line("Context usage", PERCENT, under="Progress", bullet=True)] = 0
    next_steps: Annotated[Stripped, Section("Next Steps for Successor")] = ""


class SpawnRequest(Typed):
    """A request for a worker on a bead, which may resume from the commit `checkpoint`."""

    bead_labels = ("Issue", "Bead")

    type: Literal[MessageType.SPAWN_REQUEST] = MessageType.SPAWN_REQUEST
    resume: Annotated[bool, Line("Resume", FLAG)] = False
    checkpoint: Annotated[Stripped, Line("Checkpoint", needed=lambda request: request.resume)] = ""
    orchestrator: Annotated[Stripped, Line("Orchestrator")] = ""


class SpawnAck(Typed):
    """The answer to a request for a worker; `session` is the worker's session."""

    bead_labels = ("Issue", "Bead")

    type: Literal[MessageType.SPAWN_ACK] = MessageType.SPAWN_ACK
    status: Annotated[SpawnStatus, Line("Status", choice(SpawnStatus))] = SpawnStatus.UNKNOWN
    session: Annotated[Stripped, Line("Session", needed=lambda ack: ack.status is SpawnStatus.SPAWNED)] = ""


class Unknown(Typed):
    """A message of no type; it may still name a bead."""

    names_bead = False

    type: Literal[MessageType.UNKNOWN] = MessageType.UNKNOWN


type TypedMessage = (
    BeadAccepted
    | Progress
    | HelpRequest
    | HelpResponse
    | OfferingReady
    | Done
    | Failed
    | Checkpoint
    | SpawnRequest
    | SpawnAck
    | Unknown
)

Parsed = Annotated[TypedMessage, Field(discriminator="type")]

CLASSES: dict[MessageType, type[TypedMessage]] = {
    kind.model_fields["type"].default: kind for kind in get_args(TypedMessage.__value__)
}


@cache
def layout(kind: type[Typed]) -> dict[str, Place]:
    """Return the place of each field of a typed message except its bead, in the order of writing."""
    return {
        name: place
        for name, field in kind.model_fields.items()
        for place in field.metadata
        if isinstance(place, PLACES)
    }
