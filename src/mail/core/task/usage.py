"""What language models were paid for: tokens and money, added up from calls to turns, agents and tasks.

Whatever calls a model says so with `report_usage`. The engine listens while a turn runs, in `USAGE_METER`.
"""

from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Self

from mail.core.protocol.values import Value


class Usage(Value):
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

    def __sub__(self, other: Self) -> Self:
        rest = {field: self[field] - other[field] for field in self.keys()}
        return self.model_copy(update={**rest, "cost": round(rest["cost"], 10)})

    def __bool__(self) -> bool:
        return self.calls > 0


NO_USAGE = Usage()

NO_MODELS: Mapping[str, Usage] = MappingProxyType({})

MANY_MODELS = 32
"""How many models a task tells apart: agents may choose names as they like, and every commit writes them."""

OTHER_MODELS = "other"
"""Under which name the rest is kept: what comes after those, and what was reported without a name."""


def add_models(spent: Mapping[str, Usage], more: Mapping[str, Usage]) -> dict[str, Usage]:
    """Both together, by model: those that are known first, MANY_MODELS at most, and the rest under OTHER_MODELS."""
    sums = dict(spent)
    for model, usage in more.items():
        name = model or OTHER_MODELS
        if name not in sums and len(sums.keys() - {OTHER_MODELS}) >= MANY_MODELS:
            name = OTHER_MODELS
        sums[name] = sums.get(name, NO_USAGE) + usage
    return sums


class UsageMeter:
    """Adds up what is reported while it listens.

    Attributes:
        spent: what it has come to so far, in earlier runs of the turn as well.
        models: what has been reported to it, by model; empty for a model without a name.
    """

    def __init__(self, spent: Usage = NO_USAGE, models: Mapping[str, Usage] = NO_MODELS) -> None:
        """It goes on from what earlier runs of a turn have come to, in sum and by model."""
        self.spent = spent
        self.models: dict[str, Usage] = {}
        unnamed = {OTHER_MODELS: spent} if spent else {}  # an earlier version kept no models
        self._earlier = models or unnamed

    @property
    def spent_by_model(self) -> dict[str, Usage]:
        """What it has come to so far by model, in earlier runs of the turn as well."""
        return add_models(self._earlier, self.models)

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
