"""From what litellm, httpx and asyncio raise to what went wrong."""

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from mail.factories.assembly import MalformedReply
from mail.factories.retry import Cause, Trouble

FAULTS = (ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, NameError, TypeError)
"""What litellm calls a broken connection as well, though a program was wrong; it would be again."""


class Troubled(Exception):
    """A call that came to an end, but not to one that helps."""

    def __init__(self, cause: Cause) -> None:
        super().__init__(cause.value)
        self.cause = cause


def read_trouble(litellm: Any, error: Exception) -> Trouble | None:
    """What went wrong; None where it is no trouble of a call, but a fault in this program."""
    match error:
        case Troubled():
            return Trouble(error.cause)
        case MalformedReply():
            return Trouble(Cause.MALFORMED)
        case litellm.ContextWindowExceededError():
            return Trouble(Cause.CONTEXT, 400)
        case litellm.ContentPolicyViolationError():
            return Trouble(Cause.FILTERED, 400)
        case TimeoutError() | litellm.Timeout():
            return Trouble(Cause.TIMEOUT)
    names = {kind.__name__ for kind in type(error).__mro__}
    if "TimeoutException" in names or "APITimeoutError" in names:
        return Trouble(Cause.TIMEOUT)
    if "TransportError" in names or isinstance(
        error, ConnectionError
    ):  # httpx's, where litellm lets them through
        return Trouble(Cause.CONNECTION)
    status = getattr(error, "status_code", None)
    if not isinstance(status, int):
        return None
    if isinstance(error, litellm.APIConnectionError):
        return None if isinstance(_root(error), FAULTS) else Trouble(Cause.CONNECTION)
    return _by_status(error, status)


def _root(error: BaseException) -> BaseException:
    while (before := error.__cause__ or error.__context__) is not None:
        error = before
    return error


def _by_status(error: Exception, status: int) -> Trouble:
    wait = retry_after(_headers(error), datetime.now(UTC))
    if status == 429:
        quota = "insufficient_quota" in str(error) or "exceeded your current quota" in str(error)
        return Trouble(Cause.QUOTA if quota else Cause.RATE_LIMIT, status, wait)
    if status in (401, 403):
        return Trouble(Cause.ACCESS, status)
    if status == 408:
        return Trouble(Cause.TIMEOUT, status, wait)
    if status == 409 or status >= 500:
        return Trouble(Cause.OUTAGE, status, wait)
    return Trouble(Cause.REJECTED, status)


def _headers(error: Exception) -> Mapping[str, str]:
    found = getattr(error, "litellm_response_headers", None)
    if not found:
        found = getattr(getattr(error, "response", None), "headers", None)
    return {str(name).lower(): str(value) for name, value in dict(found or {}).items()}


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds for which a provider asks not to be called: OpenAI's milliseconds, or RFC 9110's seconds or date."""
    with suppress(KeyError, ValueError):
        return max(0.0, float(headers["retry-after-ms"]) / 1000)
    value = headers.get("retry-after")
    if value is None:
        return None
    with suppress(ValueError):
        return max(0.0, float(value))
    with suppress(ValueError, TypeError):
        return max(0.0, (parsedate_to_datetime(value) - now).total_seconds())
    return None
