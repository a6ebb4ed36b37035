"""Following a task over queues, processes and swarms: W3C Trace Context, as plain text.

The `traceparent` of a task is kept in its record and goes with its mail to other swarms, in `routing_info` and as the
HTTP header of that name, whether anybody traces here or not. Spans are made by `mail.adapters.telemetry`, where that is wanted.
"""

import re
from collections.abc import Mapping

TRACEPARENT = "traceparent"
"""The name of the header, and of the key in `routing_info`."""

_FORM = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def read_traceparent(given: object) -> str:
    """A `traceparent` as others give it; empty where it is none (https://www.w3.org/TR/trace-context/)."""
    return given if isinstance(given, str) and _FORM.fullmatch(given) else ""


def traceparent_in(routing_info: Mapping[str, object] | None) -> str:
    """That of a message; empty where it has none."""
    return read_traceparent((routing_info or {}).get(TRACEPARENT))


def same_trace(one: str, other: str) -> bool:
    """Whether two `traceparent` are of one trace."""
    return one.split("-")[1:2] == other.split("-")[1:2]
