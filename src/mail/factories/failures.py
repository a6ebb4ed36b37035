"""From what litellm, httpx and asyncio raise to what went wrong."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from mail.factories.assembly import MalformedReply
from mail.factories.retry import Cause, Trouble

FAULTS = (ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, NameError, TypeError)
"""What litellm calls a broken connection as well, though a program was wrong; it would be again."""

QUOTA = "insufficient_quota"
"""OpenAI's code of the 429 that no waiting helps against; litellm has no type for it."""


class Troubled(Exception):
    """A call that came to an end, but not to one that helps."""

    def __init__(self, cause: Cause) -> None:
        super().__init__(cause.value)
        self.cause = cause


def read_trouble(litellm: Any, error: Exception) -> Trouble | None:
    """What went wrong; None where it is no trouble of a call, but a fault in this program."""
    import httpx

    match error:
        case Troubled():
            return Trouble(error.cause)
        case MalformedReply():
            return Trouble(Cause.MALFORMED)
        case litellm.ContextWindowExceededError():
            return Trouble(Cause.CONTEXT, 400)
        case litellm.ContentPolicyViolationError():
            return Trouble(Cause.FILTERED, 400)
        case TimeoutError() | litellm.Timeout() | litellm.openai.APITimeoutError() | httpx.TimeoutException():
            return Trouble(Cause.TIMEOUT)
        case ConnectionError() | httpx.TransportError():  # where litellm lets them through
            return Trouble(Cause.CONNECTION)
        case litellm.APIConnectionError():
            *_, root = _chain(error)
            return None if isinstance(root, FAULTS) else Trouble(Cause.CONNECTION)
    status = getattr(error, "status_code", None)
    return _by_status(error, status) if isinstance(status, int) else None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, and what it came of."""
    before: BaseException | None = error
    while before is not None:
        yield before
        before = before.__cause__ or before.__context__


def _by_status(error: Exception, status: int) -> Trouble:
    wait = retry_after(_headers(error), datetime.now(UTC))
    if status == 429:
        is_final = any(QUOTA in _codes(each) for each in _chain(error))
        return Trouble(Cause.QUOTA if is_final else Cause.RATE_LIMIT, status, wait)
    if status in (401, 403):
        return Trouble(Cause.ACCESS, status)
    if status == 408:
        return Trouble(Cause.TIMEOUT, status, wait)
    if status == 409 or status >= 500:
        return Trouble(Cause.OUTAGE, status, wait)
    return Trouble(Cause.REJECTED, status)


def _codes(error: BaseException) -> list[Any]:
    """The provider's own codes of an error, as its SDK or its answer tells them."""
    import httpx

    codes = [getattr(error, "code", None)]
    if isinstance(error, httpx.HTTPStatusError):
        with suppress(ValueError, httpx.StreamError, LookupError, TypeError):
            codes.append(error.response.json()["error"]["code"])
    return codes


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
