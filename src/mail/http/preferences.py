"""The `Prefer` header (RFC 7240): how long a client wants to wait for the answer."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

_RESPOND_ASYNC = re.compile(r"respond-async", re.IGNORECASE)
_WAIT = re.compile(r"wait *= *\"?(\d{1,9})\"?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Preference:
    """What a client prefers.

    Attributes:
        patience: seconds to wait for the answer before it is told where to look; 0 for at once, None for no end.
        applied: the part of the header that is honoured, for `Preference-Applied`.
    """

    patience: float | None = None
    applied: str | None = None

    def within(self, limit: float | None) -> float | None:
        """The patience, where no more than `limit` seconds can be granted."""
        return min((seconds for seconds in (self.patience, limit) if seconds is not None), default=None)


def read_preference(headers: Iterable[str]) -> Preference:
    """Read `respond-async` and `wait=<seconds>`; as the RFC has it, anything else is ignored."""
    waits: float | None = None
    is_async = False
    for part in ",".join(headers).split(","):
        preference = part.partition(";")[0].strip()
        if _RESPOND_ASYNC.fullmatch(preference):
            is_async = True
        elif waits is None and (found := _WAIT.fullmatch(preference)):
            waits = float(found[1])
    if waits is not None:
        return Preference(waits, f"{'respond-async, ' if is_async else ''}wait={waits:.0f}")
    return Preference(0.0, "respond-async") if is_async else Preference()
