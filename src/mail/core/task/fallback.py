"""Switches of agents to another model than their first one, while that can't be used."""

from enum import StrEnum

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
