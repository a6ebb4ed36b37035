"""How long actions may take: in a turn, or until they finish later."""

from typing import Any, Literal, NamedTuple

from mail.core.protocol.clock import read_duration
from mail.errors import ConfigurationError

Finishes = Literal["now", "later"]
"""Whether an action returns its result, or may return `LATER` and finish after its turn."""


class Timing(NamedTuple):
    """The time limits of an action, in seconds, as `ActionCore` has them."""

    timeout: float | None
    finish_within: float | None
    heartbeat: float | None


def read_timing(name: str, finishes: Finishes, timeout: Any, heartbeat: Any) -> Timing:
    """Return the time limits of the action `name`. Raises ConfigurationError for settings that make no sense.

    Durations are seconds, or text such as `90s`, `15m`, `2h`, `3d` and `1w`.
    """
    where = f"action {name!r}: "
    limit, beat = (
        _seconds(f"{where}{setting}", given)
        for setting, given in (("timeout", timeout), ("heartbeat", heartbeat))
    )
    match finishes:
        case "later":
            if limit is None:
                raise ConfigurationError(
                    f"{where}finishes='later' needs a timeout for the result, such as '3d'"
                )
            return Timing(None, limit, beat)
        case "now":
            if beat is not None:
                raise ConfigurationError(f"{where}heartbeat is only for actions with finishes='later'")
            return Timing(limit, None, None)
    raise ConfigurationError(f"{where}finishes must be 'now' or 'later', not {finishes!r}")


def _seconds(what: str, given: Any) -> float | None:
    if not isinstance(given, str):
        return given  # type: ignore[no-any-return]  # `ActionCore` checks it
    try:
        return read_duration(given)
    except ValueError as error:
        raise ConfigurationError(f"{what} must be {error}") from error
