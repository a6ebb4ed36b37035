"""The limits of a provider of models, and the document in which all processes share what is left of them."""

from dataclasses import field
from typing import Protocol

from pydantic import Field

from mail.core.protocol.values import Value, value
from mail.core.task.fallback import Breaker, Breakers


class ModelLimits(Value):
    """Limits on the calls of models; one that is not set doesn't apply.

    Attributes:
        requests_per_minute: calls that begin.
        tokens_per_minute: tokens that calls read and write.
        concurrent: calls at the same time.
    """

    requests_per_minute: int | None = Field(default=None, strict=True, ge=1)
    tokens_per_minute: int | None = Field(default=None, strict=True, ge=1)
    concurrent: int | None = Field(default=None, strict=True, ge=1)


NO_LIMITS = ModelLimits()


@value
class Line:
    """The calls of a caller that wait.

    Attributes:
        issued, called: how many tickets it was given, and how many of them were called up.
        ready: when the last one that was called up has its slot, in seconds since the epoch.
        last: when it last asked.
    """

    issued: int = 0
    called: int = 0
    ready: float = 0.0
    last: float = 0.0


@value
class Running:
    """The calls of one process that run; it counts as gone after a time, in seconds since the epoch."""

    calls: int
    until: float


@value
class Permits:
    """What is left of the limits of a model, or of all models that share them.

    Attributes:
        at: when it was so, in seconds since the epoch.
        slots: how many calls may begin; less than 0 if some have been promised for later.
        tokens, seconds: what a call takes on average.
        closed_until: until when the provider takes no call.
        learnt: the limits that the provider has told.
        lines: the calls that wait, by caller, in the order in which they are called up.
        running: the calls that run, by process.
        breakers: those that are open, by model.
    """

    at: float = 0.0
    slots: float = 1.0
    tokens: float = 1_000.0
    seconds: float = 5.0
    closed_until: float = 0.0
    learnt: ModelLimits = NO_LIMITS
    lines: dict[str, Line] = field(default_factory=dict)
    running: dict[str, Running] = field(default_factory=dict)
    breakers: dict[str, Breaker] = field(default_factory=dict)


@value
class Ask:
    """A call that wants to begin, with its ticket if it has waited before; else 0.

    One that `waits` gets a ticket if it may not begin; another one goes to another model.
    """

    caller: str
    ticket: int = 0
    waits: bool = True


@value
class Reply:
    """The answer to a call: it may begin after `wait` seconds, or asks again then, with its ticket."""

    may_begin: bool
    wait: float = 0.0
    ticket: int = 0


@value
class Report:
    """What a process says of its calls.

    Attributes:
        running: those that run now.
        ended, tokens, seconds: those that have ended since its last report, and what they took in all.
        unused: permits of its last block that it has not used.
    """

    running: int = 0
    ended: int = 0
    tokens: int = 0
    seconds: float = 0.0
    unused: int = 0


class PermitGate(Protocol):
    """Lets calls of a model begin within its limits."""

    async def take(self, caller: str, ticket: int = 0, *, waits: bool = True) -> Reply:
        """Ask whether a call of a caller may begin, with the ticket that it has got before (`Ask`)."""

    async def end(self, tokens: int, seconds: float) -> None:
        """Note that a call has ended, and what it took."""


class PermitSource(Breakers, Protocol):
    """Keeps the limits of models and their breakers, together with other processes."""

    def gate(self, model: str) -> PermitGate | None:
        """Return the gate for calls of a model; None if it has no limits."""

    async def refuse(self, model: str, learnt: ModelLimits, seconds: float) -> None:
        """Keep calls of a model back for so many seconds, as its provider has refused one, and told its limits."""
