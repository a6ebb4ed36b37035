"""The meter of a turn, which adds up what its models cost."""

from collections.abc import Mapping

from mail.core.task.costs import NO_MODELS, NO_USAGE, Usage, add_models


class UsageMeter:
    """Adds up the reports of one turn.

    Attributes:
        spent: the sum so far, including earlier attempts at the turn.
        models: the reports to this meter, by model; under an empty name those without one.
        last: the last report.
    """

    last: Usage = NO_USAGE

    def __init__(self, spent: Usage = NO_USAGE, models: Mapping[str, Usage] = NO_MODELS) -> None:
        """Start from the sums of earlier attempts at the turn, in total and by model."""
        self.spent = spent
        self.models: dict[str, Usage] = {}
        self._earlier = models

    @property
    def spent_by_model(self) -> dict[str, Usage]:
        """The sums so far by model, including earlier attempts at the turn."""
        return add_models(self._earlier, self.models) if self._earlier or self.models else {}

    def add(self, usage: Usage, model: str = "") -> None:
        """Add one report."""
        self.spent += usage
        self.last = usage
        self.models[model] = self.models.get(model, NO_USAGE) + usage
