"""The header `Retry-After` of servers, webhooks' receivers and providers of models."""

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_SECONDS = re.compile(r"-?[0-9]{1,9}(\.[0-9]*)?")


def read_retry_after(header: str, now: datetime) -> float | None:
    """Return the seconds in a header `Retry-After`, a number or a date (RFC 9110, 10.2.3); None if it has neither.

    Some providers send fractions of a second.
    """
    header = header.strip()
    if _SECONDS.fullmatch(header):
        return max(0.0, float(header))
    try:
        until = parsedate_to_datetime(header)
    except (ValueError, OverflowError):  # the latter for a far time zone
        return None
    return max(0.0, (until.replace(tzinfo=until.tzinfo or UTC) - now).total_seconds())
