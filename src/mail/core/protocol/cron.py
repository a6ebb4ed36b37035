"""Cron expressions in a time zone, by the rules of Debian's cron.

Where clocks move forward, a time that they skip comes right after; where they move back, a time that they repeat comes
once. Expressions whose minute or hour begins with `*` follow the real passage of time instead.
"""

from datetime import UTC, datetime, tzinfo

from mail.core.protocol.error_text import did_you_mean
from mail.errors import BadRequest

SEARCH_SECONDS = 3600.0
"""Seconds before a time in which the first search for earlier ones looks."""

_HELP = "write five fields, minute hour day month weekday, such as 30 8 * * mon-fri"


def check_cron(cron: str, timezone: str) -> None:
    """Raise BadRequest, with what to change, for an expression that is wrong or never comes, or an unknown zone."""
    if _next(cron, _zone(timezone), 0.0) is None:
        raise BadRequest(f"the cron expression {cron!r} never comes")


def next_time(cron: str, timezone: str, after: float) -> float:
    """Return when a checked expression comes next after a time, both in seconds since the epoch."""
    found = _next(cron, _zone(timezone), after)
    assert found is not None
    return found


def latest_times(cron: str, timezone: str, after: float, until: float, most: int) -> list[float]:
    """Return when a checked expression has come after a time and until another one: the last `most` of these times."""
    zone, seconds = _zone(timezone), SEARCH_SECONDS
    while True:
        begin = max(after, until - seconds)
        found: list[float] = []
        while (at := _next(cron, zone, found[-1] if found else begin)) is not None and at <= until:
            found.append(at)
        if len(found) >= most or begin == after:
            return found[-most:]
        seconds *= 4


def _next(cron: str, zone: tzinfo, after: float) -> float | None:
    """Return when an expression comes next; None if that is not within 50 years. Raises BadRequest."""
    from cronsim import CronSim, CronSimError

    if len(cron.split()) != 5:
        raise BadRequest(f"the cron expression {cron!r} has {len(cron.split())} of 5 fields; {_HELP}")
    try:
        times = (found.timestamp() for found in CronSim(cron, datetime.fromtimestamp(after, zone)))
    except CronSimError as error:
        raise BadRequest(f"the cron expression {cron!r}: {str(error).lower()}; {_HELP}") from error
    return next((time for time in times if time > after), None)  # in a repeated hour, the first may be before


def _zone(name: str) -> tzinfo:
    """Return a time zone. Raises BadRequest."""
    if name == "UTC":
        return UTC
    from zoneinfo import ZoneInfo, available_timezones

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        hint = did_you_mean(name, available_timezones()) or "; write one such as Europe/Berlin, or UTC"
        raise BadRequest(f"there is no time zone {name!r}{hint}") from None
