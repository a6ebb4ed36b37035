"""What may go wrong on AWS any time, made to go wrong often: deliveries doubled and delayed, processes killed."""

import random
from collections import deque
from dataclasses import dataclass, field
from enum import Enum, auto


class Repeat(Enum):
    """When a message comes a second time: while it is handled, right after, or later, behind others of its group."""

    NEVER = auto()
    MEANWHILE = auto()
    AFTERWARDS = auto()
    LATER = auto()


@dataclass
class Faults:
    """How often which fault is injected, by default none.

    Attributes:
        kill: share of the invocations by queues that are killed, each at a random moment.
        duplicate: share of the messages that are delivered twice.
        delay: seconds that a delivery may be late; each is, by a random part of them.
        seed: the same seed makes the same choices, as far as timing lets it.
    """

    kill: float = 0.0
    duplicate: float = 0.0
    delay: float = 0.0
    seed: int = 0
    _owed: float = 0.0
    _durations: deque[float] = field(default_factory=lambda: deque([0.05], maxlen=200))

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)  # noqa: S311 - to be repeated, not to be secret

    def repeat(self) -> Repeat:
        """Return whether, and when, a message is delivered again."""
        if self._chance.random() >= self.duplicate:
            return Repeat.NEVER
        return self._chance.choice([Repeat.MEANWHILE, Repeat.AFTERWARDS, Repeat.LATER])

    def lateness(self) -> float:
        """By how many seconds a delivery is late."""
        return self._chance.uniform(0.0, self.delay)

    def death(self) -> float | None:
        """After how many seconds an invocation is killed, if it is.

        Some will have ended by then. What was missed is made up for, so that the share of the killed ones is kept.
        """
        self._owed += self.kill
        if self._chance.random() >= self._owed:
            return None
        return self._chance.random() * self._chance.choice(self._durations)

    def note(self, seconds: float, *, killed: bool) -> None:
        """Learn how long an invocation took that was not killed, or that one was."""
        if killed:
            self._owed -= 1.0
        else:
            self._durations.append(seconds)
