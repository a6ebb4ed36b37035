"""Switches of agents to another model than their first one, while that can't be used; and the breakers of models."""

from collections.abc import Callable
from enum import StrEnum
from typing import Protocol

from mail.core.protocol.values import value


class SwitchCause(StrEnum):
    """Why an agent's calls go to another model than before."""

    RATE_LIMIT = "rate_limit"
    OUTAGE = "outage"
    CONTEXT = "context"
    RECOVERED = "recovered"


@value(kw_only=True)
class Switch:
    """A switch of an agent to another model, which holds in its task.

    Attributes:
        model: the model that calls go to from now on.
        previous: the model that they went to before.
        until: when the agent's first model may be tried again, in seconds since the epoch; None for the rest of the
            task.
    """

    model: str
    previous: str
    cause: SwitchCause
    until: float | None = None

    @property
    def text(self) -> str:
        """The switch in words, without the agent."""
        if self.cause is SwitchCause.RECOVERED:
            return f"calls {self.model} again, in place of {self.previous}"
        why = {
            SwitchCause.RATE_LIMIT: "is called too often",
            SwitchCause.OUTAGE: "is unavailable",
            SwitchCause.CONTEXT: "can't read a history of this length",
        }
        return f"calls {self.model} in place of {self.previous}, which {why[self.cause]}"


@value
class Breaker:
    """The breaker of a model that has failed. While it is open, the model is not called.

    Attributes:
        until: when one call may try the model again, in seconds since the epoch.
        failures: those in a row.
        is_tried: whether that call runs, and others wait for it.
    """

    until: float
    failures: int
    cause: SwitchCause
    is_tried: bool = False


type BreakerChange = Callable[[Breaker | None, float], Breaker | None]
"""Makes of the breaker of a model the next one, at a time in seconds since the epoch; None is closed."""


class Breakers(Protocol):
    """Keeps the breakers of models, together with other processes."""

    def now(self) -> float:
        """Return the time by which breakers open and close, in seconds since the epoch."""

    def breaker(self, model: str) -> Breaker | None:
        """Return the breaker of a model as this process knows it; None if it is closed."""

    async def learn_breakers(self, *models: str, once: bool = False) -> None:
        """Read the breakers and limits of models, unless they were read a moment ago, or ever (`once`)."""

    async def change_breaker(self, model: str, change: BreakerChange) -> bool:
        """Change the breaker of a model for all processes, and return whether this call has changed it."""
