"""Limits of a task's generation, and of what a task stores."""

from dataclasses import replace

from pydantic import Field

from mail.core.protocol.values import Value, value

TURNS_PER_STEP = 20
"""Turns caused by system messages are not steps; a loop of them ends after this many turns per allowed step."""

FAULTS_IN_A_ROW = 5
"""Consecutive faulty turns after which an agent has failed; the sender is notified, or the task ends."""

ANSWER_SECONDS = 3_600.0
"""How long a request to another swarm may remain unanswered before it expires."""

BROADCAST_SECONDS = 60.0
"""The same for a broadcast to other swarms, which need not be answered."""

UNREACHABLE_SECONDS = 30.0
"""How long mail to another swarm is retried if that takes no connection, and has not answered recently."""

OPEN_REQUESTS = 256
"""The number of unanswered requests that a task stores; the oldest are dropped first, so that it stays small."""

DEAD_LETTERS = 1_000
"""The number of dead letters that a task lists; older ones are found in its timeline only."""

MAIL_PER_READING = 64
"""The number of messages that a manual turn reads besides its own, so that one commit stays small."""

READING_BYTES = 250_000
"""The total size of their bodies, for the same reason."""

FORKED_MAIL_BYTES = 16 * 1024 * 1024
"""The total size of the mail that waits in a fork when it begins, as its first commit has all of it."""

LAST_TURN_SECONDS = 120.0
"""How long a task may exceed its time budget, so that its supervisor can finish it."""

MIN_COST = 1e-6


class Budget(Value):
    """Limits on what one generation of a task may use, checked before each turn; one that is not set doesn't apply.

    Attributes:
        turns: turns of any kind.
        tokens: tokens read and written by models.
        cost: in US dollars.
        seconds: of wall time.
    """

    turns: int | None = Field(default=None, strict=True, ge=1, le=1_000_000)
    tokens: int | None = Field(default=None, strict=True, ge=1, le=10**15)
    cost: float | None = Field(default=None, strict=True, gt=0, le=1e12, allow_inf_nan=False)
    seconds: float | None = Field(default=None, strict=True, gt=0, le=10_000_000, allow_inf_nan=False)

    def left(self, turns: int, tokens: int, cost: float, seconds: float | None) -> "Budget":
        """Return the budget less what was used, never zero; `seconds` is the time that is left."""
        return Budget(
            turns=None if self.turns is None else max(1, self.turns - turns),
            tokens=None if self.tokens is None else max(1, self.tokens - tokens),
            cost=None if self.cost is None else max(MIN_COST, self.cost - cost),
            seconds=None if seconds is None else max(1.0, seconds),
        )

    def tightened(self, other: "Budget") -> "Budget":
        """Return the smaller of each limit."""
        return Budget(
            turns=_smaller(self.turns, other.turns),
            tokens=_smaller(self.tokens, other.tokens),
            cost=_smaller(self.cost, other.cost),
            seconds=_smaller(self.seconds, other.seconds),
        )


def _smaller[Number: (int, float)](one: Number | None, other: Number | None) -> Number | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


NO_BUDGET = Budget()


@value(kw_only=True)
class Limits:
    """The limits of one generation of a task.

    Attributes:
        steps: messages that agents may process for each message of a person, except system messages (SPEC, section 5).
        turns: turns of any kind, for each message of a person.
        deadline: when the task ends with an error as its caller asked, in seconds since the epoch.
        budget: what it may use.
        finish_by: when, by that budget, its supervisor must finish it, in seconds since the epoch.
    """

    steps: int
    turns: int
    deadline: float | None = None
    budget: Budget = NO_BUDGET
    finish_by: float | None = None

    def within(self, budget: Budget, now: float) -> "Limits":
        """Return the limits with a budget that starts now."""
        finish_by = None if budget.seconds is None else now + budget.seconds
        return Limits(
            steps=self.steps, turns=self.turns, deadline=self.deadline, budget=budget, finish_by=finish_by
        )

    @property
    def is_timed(self) -> bool:
        """Whether any limit is a time."""
        return self.deadline is not None or self.finish_by is not None

    @property
    def ends_at(self) -> float | None:
        """When the task ends with an error, in seconds since the epoch: at its deadline, or soon after `finish_by`."""
        if self.finish_by is None:
            return self.deadline
        return _smaller(self.deadline, self.finish_by + LAST_TURN_SECONDS)

    def without_time(self) -> "Limits":
        """Return the limits without a deadline and a time to finish by."""
        return replace(self, deadline=None, finish_by=None)
