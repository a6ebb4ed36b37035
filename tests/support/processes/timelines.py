"""Timelines that tests expect, and those of one task on two servers, made comparable by removing what differs in every
run.
"""

import json
import re
from itertools import groupby
from typing import Any

ONE_AGENT = ["new_message", "tool_call", "task_complete_call", "new_message", "task_complete"]

Event = tuple[str, dict[str, Any]]
"""A kind, and the data."""

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+(?:Z|[+-]\d\d:\d\d)")
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_MISSING = re.compile(r"\w+ will answer")


def read_record(record: dict[str, Any]) -> list[Event]:
    """The events of `GET /task`; asserts that none is missing and none there twice."""
    assert [event["id"] for event in record["events"]] == [str(n + 1) for n in range(len(record["events"]))]
    return [(event["event"], json.loads(event["data"])) for event in record["events"]]


def _untimed(data: dict[str, Any]) -> dict[str, Any]:
    """The data without what says how long something took."""
    extra = data.get("extra_data") or {}
    kept = {name: value for name, value in extra.items() if name not in ("timing", "after", "seconds")}
    return {**data, "extra_data": kept} if extra else data


def in_order(events: list[Event]) -> list[str]:
    """The events, for tasks in which one turn follows the other: ids are numbered as they come."""
    numbers: dict[str, str] = {}
    lines = [f"{kind} {_TIME.sub('<time>', json.dumps(_untimed(data)))}" for kind, data in events]
    return [
        _ID.sub(lambda found: numbers.setdefault(found[0], f"<id {len(numbers)}>"), line) for line in lines
    ]


def in_any_order(events: list[Event]) -> list[list[str]]:
    """The turns, sorted, for tasks in which several agents work at once; what a turn says is kept in order.

    Who is waited for depends on who answered first.
    """
    turns = [list(turn) for _, turn in groupby(events, key=lambda event: event[1]["timestamp"])]
    return sorted(
        [
            _MISSING.sub(
                "… will answer", _ID.sub("<id>", _TIME.sub("<time>", f"{kind} {json.dumps(_untimed(data))}"))
            )
            for kind, data in turn
        ]
        for turn in turns
    )
