"""Fault injection: duplicate and late deliveries, and killed processes, as they may happen on AWS."""

import random
from collections import deque
from dataclasses import dataclass, field
from enum import Enum, auto


class Repeat(Enum):
    """When a message is delivered again: while it is handled, right after, or later, behind its group."""

    NEVER = auto()
    CONCURRENTLY = auto()
    AFTERWARDS = auto()
    LATER = auto()


@dataclass
class Faults:
    """The rates of injected faults, by default 0.

    Attributes:
        kill: share of the queues' invocations that are killed, at a random time.
        duplicate: share of the messages that are delivered twice.
        delay: the maximum delay of a delivery in seconds; each delay is random.
        seed: seeds the random choices, which are reproducible apart from timing.
    """

    kill: float = 0.0
    duplicate: float = 0.0
    delay: float = 0.0
    seed: int = 0
    _owed: float = 0.0
    _durations: deque[float] = field(default_factory=lambda: deque([0.05], maxlen=200))

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)  # noqa: S311 - reproducible, not secret

    def repeat(self) -> Repeat:
        """Choose whether, and when, a message is delivered again."""
        if self._chance.random() >= self.duplicate:
            return Repeat.NEVER
        return self._chance.choice([Repeat.CONCURRENTLY, Repeat.AFTERWARDS, Repeat.LATER])

    def lateness(self) -> float:
        """Return the random delay of a delivery, in seconds."""
        return self._chance.uniform(0.0, self.delay)

    def death(self) -> float | None:
        """Return the seconds after which an invocation is killed; None if it isn't.

        Some invocations end earlier. Later ones make up for that, so that the share of kills stays correct.
        """
        self._owed += self.kill
        if self._chance.random() >= self._owed:
            return None
        return self._chance.random() * self._chance.choice(self._durations)

    def note(self, seconds: float, *, killed: bool) -> None:
        """Record the duration of an invocation, or that it was killed."""
        if killed:
            self._owed -= 1.0
        else:
            self._durations.append(seconds)
