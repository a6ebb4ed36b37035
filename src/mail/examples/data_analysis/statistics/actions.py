"""Figures of numbers."""

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from pydantic import Field

from mail.api.actions import action
from mail.core.protocol.error_text import did_you_mean
from mail.errors import ToolCallFault

Numbers = Annotated[
    list[Annotated[float, Field(allow_inf_nan=False)]], Field(min_length=1, max_length=10_000)
]

METRICS: dict[str, Callable[[Sequence[float]], Any]] = {
    "count": len,
    "sum": math.fsum,
    "mean": statistics.fmean,
    "median": statistics.median,
    "mode": statistics.mode,
    "min": min,
    "max": max,
    "range": lambda numbers: max(numbers) - min(numbers),
    "variance": lambda numbers: statistics.variance(numbers) if len(numbers) > 1 else None,
    "std": lambda numbers: statistics.stdev(numbers) if len(numbers) > 1 else None,
    "quartiles": lambda numbers: (
        statistics.quantiles(numbers, method="inclusive") if len(numbers) > 1 else None
    ),
}
"""Each figure by its name; variance and standard deviation are those of a sample."""


@action(read_only=True)
def calculate_statistics(data: Numbers, metrics: list[str] | None = None) -> dict[str, Any]:
    """Describe numbers. Returns JSON: figures by name; null for those that need more numbers.

    Args:
        data: the numbers.
        metrics: count, sum, mean, median, mode, min, max, range, variance, std, quartiles; by default all.
    """
    wanted = metrics or list(METRICS)
    for name in wanted:
        if name not in METRICS:
            hint = did_you_mean(name, METRICS) or f"; there are: {', '.join(METRICS)}"
            raise ToolCallFault(f"there is no metric {name!r}{hint}")
    return {name: _rounded(METRICS[name](data)) for name in wanted}


@action(read_only=True)
def run_correlation(x: Numbers, y: Numbers) -> dict[str, Any]:
    """Compare two lists of numbers. Returns JSON: Pearson's correlation, its strength, and the line that fits best.

    Args:
        x: the first numbers.
        y: the second numbers, as many.
    """
    if len(x) != len(y) or len(x) < 2:
        raise ToolCallFault(f"x has {len(x)} numbers and y has {len(y)}; give two or more pairs")
    try:
        correlation = statistics.correlation(x, y)
    except statistics.StatisticsError:
        raise ToolCallFault("x or y is constant, so there is no correlation") from None
    slope, intercept = statistics.linear_regression(x, y)
    size = abs(correlation)
    strength = "strong" if size >= 0.7 else "moderate" if size >= 0.4 else "weak" if size >= 0.1 else "none"
    figures = {"correlation": correlation, "slope": slope, "intercept": intercept}
    return {"pairs": len(x), "strength": strength} | {
        name: _rounded(value) for name, value in figures.items()
    }


def _rounded(value: Any) -> Any:
    match value:
        case float():
            return round(value, 6)
        case list():
            return [_rounded(each) for each in value]
    return value
