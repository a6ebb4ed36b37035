"""How far a task may go before somebody must finish it."""

from mail.core.record import Record

TURNS_PER_STEP = 20
"""Turns that system messages cause are no steps; this many turns for each allowed step end such a loop."""

FAULTS_IN_A_ROW = 5
"""An agent that errs this often without one good turn has failed; others are told, or the task ends."""

ANSWER_SECONDS = 3_600.0
"""How long a request to another swarm waits for its answer before the sender is told that there is none."""

BROADCAST_SECONDS = 60.0
"""The same for a broadcast to other swarms, which nobody has to answer."""

OPEN_REQUESTS = 256
"""Unanswered requests that a task remembers, so that its record stays small; the oldest go first."""

MAIL_PER_READING = 64
"""Messages that a turn of manual mode reads besides the one it is for: a commit on DynamoDB changes 100 items at most."""

READING_BYTES = 250_000
"""How large the bodies of those may be together, so that what is kept of them fits into one item."""


class Limits(Record):
    """The limits of one generation of a task.

    Attributes:
        steps: messages that agents may process, those of the system aside (SPEC, section 5).
        turns: turns of any kind.
        deadline: seconds since the epoch at which the task ends with an error, if any.
    """

    steps: int
    turns: int
    deadline: float | None = None
