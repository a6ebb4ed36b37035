"""Reading Server-Sent Events."""

import json
from collections.abc import AsyncIterator
from typing import Any


async def read_events(lines: AsyncIterator[str]) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    """The events of a MAIL server's stream, given its lines: the kind of each, and its JSON object."""
    fields: dict[str, str] = {}
    async for line in lines:
        if not line and "data" in fields:
            yield fields.get("event", "message"), json.loads(fields["data"])
            fields = {}
        name, _, value = line.partition(":")
        if name in ("event", "data"):
            fields[name] = value.removeprefix(" ")
