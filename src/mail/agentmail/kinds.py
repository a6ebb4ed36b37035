"""The vocabulary of Agent Mail: message types, and the values of their fields.

`UNKNOWN`, the empty string, is what lenient parsing returns for a missing or invalid value. Like any empty string it is
false.
"""

from enum import StrEnum


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
