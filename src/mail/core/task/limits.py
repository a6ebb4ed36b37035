"""How far a task may go before somebody must finish it."""

from pydantic import Field

from mail.core.protocol.values import Value

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

DEAD_LETTERS = 1_000
"""Dead letters that a task lists, for the same reason; older ones are in its timeline alone."""

MAIL_PER_READING = 64
"""Messages that a turn of manual mode reads besides the one it is for: a commit on DynamoDB changes 100 items at most."""

READING_BYTES = 250_000
"""How large the bodies of those may be together, so that what is kept of them fits into one item."""


LAST_TURN_SECONDS = 120.0
"""How much longer than its budget allows a task may go on, so that its supervisor can finish it."""


MIN_COST = 1e-6


class Budget(Value):
    """What one generation of a task may use up; None where there is no limit. It is checked before each turn.

    Attributes:
        turns: turns of any kind.
        tokens: what its models read and write, together.
        cost: in US dollars.
        seconds: of wall time.
    """

    turns: int | None = Field(default=None, strict=True, ge=1, le=1_000_000)
    tokens: int | None = Field(default=None, strict=True, ge=1, le=10**15)
    cost: float | None = Field(default=None, strict=True, gt=0, le=1e12, allow_inf_nan=False)
    seconds: float | None = Field(default=None, strict=True, gt=0, le=10_000_000, allow_inf_nan=False)

    def left(self, turns: int, tokens: int, cost: float, seconds: float | None) -> "Budget":
        """What is left of it; never nothing at all, as a limit can't be zero. `seconds` are those that are left."""
        return Budget(
            turns=None if self.turns is None else max(1, self.turns - turns),
            tokens=None if self.tokens is None else max(1, self.tokens - tokens),
            cost=None if self.cost is None else max(MIN_COST, self.cost - cost),
            seconds=None if seconds is None else max(1.0, seconds),
        )

    def tightened(self, other: "Budget") -> "Budget":
        """The smaller of each."""
        pairs = {name: (self[name], other[name]) for name in Budget.model_fields}
        return Budget.model_construct(
            **{
                name: min((each for each in pair if each is not None), default=None)
                for name, pair in pairs.items()
            }
        )


NO_BUDGET = Budget()


class Limits(Value):
    """The limits of one generation of a task.

    Attributes:
        steps: messages that agents may process, those of the system aside (SPEC, section 5).
        turns: turns of any kind.
        deadline: seconds since the epoch at which whoever asked wants it to end with an error, if any.
        budget: what it may use up.
        finish_by: seconds since the epoch from when on its supervisor has to finish it, by that budget.
    """

    steps: int
    turns: int
    deadline: float | None = None
    budget: Budget = NO_BUDGET
    finish_by: float | None = None

    def within(self, budget: Budget, now: float) -> "Limits":
        """The limits with a budget, which begins to count now."""
        finish_by = None if budget.seconds is None else now + budget.seconds
        return self.model_copy(update={"budget": budget, "finish_by": finish_by})

    @property
    def ends_at(self) -> float | None:
        """Seconds since the epoch at which the task ends with an error: at its deadline, or soon after `finish_by`."""
        last = None if self.finish_by is None else self.finish_by + LAST_TURN_SECONDS
        return min((each for each in (self.deadline, last) if each is not None), default=None)

    def without_time(self) -> "Limits":
        """The same, with neither a deadline nor a time to finish by."""
        return self.model_copy(update={"deadline": None, "finish_by": None})
