"""What CloudWatch makes of metrics in a log, in its embedded format."""

from typing import Any


def sums(records: list[dict[str, Any]], *dimensions: str) -> dict[tuple[str, ...], float]:
    """Return the sum of each metric, by its name and the value of each dimension but the service."""
    found: dict[tuple[str, ...], float] = {}
    for record in records:
        for directive in record.get("_aws", {}).get("CloudWatchMetrics", ()):
            assert directive["Namespace"] == "MAIL"
            if ["service", *dimensions] not in directive["Dimensions"]:
                continue
            for name in (metric["Name"] for metric in directive["Metrics"]):
                value = record[name]
                key = (name, *(record[dimension] for dimension in dimensions))
                found[key] = found.get(key, 0) + (sum(value) if isinstance(value, list) else value)
    return found
