"""The `Prefer` header (RFC 7240): how long a client wants to wait for the answer."""

import re
from collections.abc import Sequence
from typing import Any

from mail.core.protocol.values import value

_RESPOND_ASYNC = re.compile(r"respond-async", re.IGNORECASE)
_WAIT = re.compile(r"wait *= *\"?(\d{1,9})\"?", re.IGNORECASE)

PREFER: dict[str, Any] = {
    "name": "Prefer",
    "in": "header",
    "required": False,
    "schema": {"type": "string"},
    "description": "`respond-async` to get a response immediately, `wait=N` to wait for at most N seconds; without an "
    "answer by then, the response is 202 with links to the task.",
    "examples": {"immediately": {"value": "respond-async"}, "in ten seconds": {"value": "wait=10"}},
}
"""The header's documentation."""


@value
class Preference:
    """A client's preferences.

    Attributes:
        wait: seconds to wait for the answer before responding without it; None for no limit.
        applied: the part of the header that is honoured, for `Preference-Applied`.
    """

    wait: float | None = None
    applied: str | None = None

    def within(self, limit: float | None) -> float | None:
        """Return the seconds to wait if at most `limit` can be granted."""
        if limit is None:
            return self.wait
        return limit if self.wait is None else min(self.wait, limit)


NO_PREFERENCE = Preference()


def read_preference(headers: Sequence[str]) -> Preference:
    """Read `respond-async` and `wait=<seconds>`; ignore anything else, as the RFC demands."""
    if not headers:
        return NO_PREFERENCE
    wait: float | None = None
    is_async = False
    for part in ",".join(headers).split(","):
        preference = part.partition(";")[0].strip()
        if _RESPOND_ASYNC.fullmatch(preference):
            is_async = True
        elif wait is None and (found := _WAIT.fullmatch(preference)):
            wait = float(found[1])
    if wait is not None:
        return Preference(wait, f"{'respond-async, ' if is_async else ''}wait={wait:.0f}")
    return Preference(0.0, "respond-async") if is_async else NO_PREFERENCE
