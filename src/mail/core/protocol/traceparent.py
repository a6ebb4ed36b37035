"""W3C Trace Context as plain text: traces of tasks across queues, processes and swarms.

A task stores its `traceparent` and sends it with mail to other swarms, in `routing_info` and as an HTTP header, even
without tracing on this server. `mail.adapters.telemetry` creates spans if tracing is configured.
"""

import re
from collections.abc import Mapping

TRACEPARENT = "traceparent"
"""The name of the header, and of the key in `routing_info`."""

_FORM = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def read_traceparent(given: object) -> str:
    """Return a received `traceparent`; empty if it is invalid (https://www.w3.org/TR/trace-context/)."""
    return given if isinstance(given, str) and _FORM.fullmatch(given) else ""


def traceparent_in(routing_info: Mapping[str, object] | None) -> str:
    """Return the `traceparent` of a message; empty if it has none."""
    return read_traceparent((routing_info or {}).get(TRACEPARENT))


def same_trace(one: str, other: str) -> bool:
    """Return whether two `traceparent` belong to one trace."""
    return one.split("-")[1:2] == other.split("-")[1:2]
