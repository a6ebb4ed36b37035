"""What language models were paid for: tokens and money, added up from calls to turns, agents and tasks.

Whatever calls a model says so with `report_usage`. The engine listens while a turn runs, in `USAGE_METER`.
"""

from contextvars import ContextVar
from typing import Self

from mail.core.record import Record


class Usage(Record):
    """What some calls of models came to.

    Attributes:
        calls: how many calls there were, the failed ones that were paid for included.
        input_tokens: all tokens read; `cached_tokens` of them came from the provider's cache.
        output_tokens: all tokens written; `reasoning_tokens` of them were reasoning.
        cost: in US dollars, by litellm's price table; calls of models that it doesn't know add nothing.
        unpriced_calls: how many calls were of such models.
    """

    calls: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    cost: float = 0.0
    unpriced_calls: int = 0

    @property
    def tokens(self) -> int:
        """All tokens, read and written."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Self) -> Self:
        sums = {field: self[field] + other[field] for field in self.keys()}
        return self.model_copy(update={**sums, "cost": round(sums["cost"], 10)})

    def __bool__(self) -> bool:
        return self.calls > 0


NO_USAGE = Usage()


class UsageMeter:
    """Adds up what is reported while it listens.

    Attributes:
        spent: what it has come to so far, in earlier runs of the turn as well.
        models: what has been reported to it, by model; empty for a model without a name.
    """

    def __init__(self, spent: Usage = NO_USAGE) -> None:
        self.spent = spent
        self.models: dict[str, Usage] = {}

    def add(self, usage: Usage, model: str = "") -> None:
        """Take in one report."""
        self.spent += usage
        self.models[model] = self.models.get(model, NO_USAGE) + usage


USAGE_METER: ContextVar[UsageMeter | None] = ContextVar("USAGE_METER", default=None)
"""Who listens; None where nobody does, as outside of turns."""


def report_usage(usage: Usage, model: str = "") -> None:
    """Tell whoever runs this code what a call of a model came to."""
    meter = USAGE_METER.get()
    if meter is not None:
        meter.add(usage, model)
