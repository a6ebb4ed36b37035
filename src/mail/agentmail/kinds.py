"""The vocabulary of Agent Mail: message types, and the words that stand in their fields.

In the enumerations of field values the empty text, `UNKNOWN`, is what lenient reading makes of a value that is missing
or is none of the words; it is false, as the empty text of any other field is.
"""

from enum import StrEnum


class MessageType(StrEnum):
    """What a message says; the order is that in which a subject is searched for them."""

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
    """Why a worker asks for help."""

    STUCK = "STUCK"
    SPEC_UNCLEAR = "SPEC_UNCLEAR"
    BLOCKED = "BLOCKED"
    TECHNICAL = "TECHNICAL"
    UNKNOWN = ""


class FailureType(StrEnum):
    """Why an implementation failed."""

    TESTS_FAIL = "TESTS_FAIL"
    BUILD_FAIL = "BUILD_FAIL"
    SPEC_IMPOSSIBLE = "SPEC_IMPOSSIBLE"
    CONTEXT_HIGH = "CONTEXT_HIGH"
    ERROR = "ERROR"
    UNKNOWN = ""


class CheckpointReason(StrEnum):
    """Why a worker stops with its work half done."""

    CONTEXT_HIGH = "CONTEXT_HIGH"
    MANUAL = "MANUAL"
    TIMEOUT = "TIMEOUT"
    UNKNOWN = ""


class ValidationResult(StrEnum):
    """What a worker's own check of its work came to."""

    PASS = "PASS"  # noqa: S105
    FAIL = "FAIL"
    UNKNOWN = ""

    @property
    def passed(self) -> bool:
        """Whether the check has passed; one that isn't told of has not."""
        return self is ValidationResult.PASS


class SpawnStatus(StrEnum):
    """What became of a request for a worker."""

    SPAWNED = "spawned"
    FAILED = "failed"
    UNKNOWN = ""
