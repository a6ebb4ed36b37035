"""Adding up the pages of `GET /usage`."""

from collections.abc import Mapping
from typing import Any

JSONObject = dict[str, Any]

_BY_NAME = ("agents", "models", "callers")


def add_usage(sums: Mapping[str, Any], page: Mapping[str, Any]) -> JSONObject:
    """What two pages come to; the second says how to go on."""
    by_name = {kind: _add_names(sums[kind], page[kind]) for kind in _BY_NAME}
    items = {} if page.get("per_task") is None else {"per_task": [*sums["per_task"], *page["per_task"]]}
    return {
        **page,
        "tasks": sums["tasks"] + page["tasks"],
        "total": _add(sums["total"], page["total"]),
        **by_name,
        **items,
    }


def _add_names(sums: Mapping[str, JSONObject], more: Mapping[str, JSONObject]) -> dict[str, JSONObject]:
    return {**sums, **{name: _add(sums.get(name, {}), usage) for name, usage in more.items()}}


def _add(one: JSONObject, other: JSONObject) -> JSONObject:
    return {field: round(one.get(field, 0) + number, 10) for field, number in other.items()}
