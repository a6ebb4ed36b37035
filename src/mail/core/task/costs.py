"""Costs of language models: tokens and money, added up from calls to turns, agents and tasks.

Code that calls a model reports it with `report_usage` (`mail.core.turns.context`).
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from pydantic import ConfigDict

from mail.core.protocol.values import value


@value(kw_only=True)
class Usage:
    """The cost of one or more model calls.

    Attributes:
        calls: the number of calls, including failed ones that were charged.
        input_tokens: all tokens read, including the `cached_tokens` from the provider's cache, and the
            `cache_write_tokens` that the call has added to it.
        output_tokens: all tokens written, including the `reasoning_tokens`.
        cost: in US dollars, by the table of models; calls of models missing there add nothing.
        unpriced_calls: the number of calls of such models.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")  # for the API's schema

    calls: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    cost: float = 0.0
    unpriced_calls: int = 0

    @property
    def tokens(self) -> int:
        """All tokens, read and written."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            calls=self.calls + other.calls,
            input_tokens=self.input_tokens + other.input_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            cost=round(self.cost + other.cost, 10),
            unpriced_calls=self.unpriced_calls + other.unpriced_calls,
        )

    def __neg__(self) -> "Usage":
        return Usage(
            calls=-self.calls,
            input_tokens=-self.input_tokens,
            cached_tokens=-self.cached_tokens,
            cache_write_tokens=-self.cache_write_tokens,
            output_tokens=-self.output_tokens,
            reasoning_tokens=-self.reasoning_tokens,
            cost=-self.cost,
            unpriced_calls=-self.unpriced_calls,
        )

    def __sub__(self, other: "Usage") -> "Usage":
        return self + -other

    def __bool__(self) -> bool:
        return self.calls > 0


NO_USAGE = Usage()

NO_MODELS: Mapping[str, Usage] = MappingProxyType({})

MANY_MODELS = 32
"""How many models a task tells apart: agents choose the names, and every commit writes them."""

OTHER_MODELS = "other"
"""The name for all models beyond that number, and for reports without a name."""


def add_models(spent: Mapping[str, Usage], more: Mapping[str, Usage]) -> dict[str, Usage]:
    """Return the sums by model; names beyond MANY_MODELS are summed up as OTHER_MODELS."""
    sums = dict(spent)
    for model, usage in more.items():
        name = model or OTHER_MODELS
        if name not in sums and len(sums.keys() - {OTHER_MODELS}) >= MANY_MODELS:
            name = OTHER_MODELS
        sums[name] = sums.get(name, NO_USAGE) + usage
    return sums
