"""Classification of the errors that litellm, httpx and asyncio raise."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from mail.factories.items import MalformedReply
from mail.factories.retry import Cause, Failure

FAULTS = (ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, NameError, TypeError)
"""Programming errors, which litellm also reports as a broken connection; a retry would fail again."""

QUOTA = "insufficient_quota"
"""OpenAI's code of a 429 that waiting can't solve; litellm has no type for it."""


class CallFailed(Exception):
    """A call that ended without a usable reply."""

    def __init__(self, cause: Cause) -> None:
        super().__init__(cause.value)
        self.cause = cause


def classify(litellm: Any, error: Exception) -> Failure | None:
    """Return the failure that an error stands for; None for a bug in this program."""
    import httpx

    match error:
        case CallFailed():
            return Failure(error.cause)
        case MalformedReply():
            return Failure(Cause.MALFORMED)
        case litellm.ContextWindowExceededError():
            return Failure(Cause.CONTEXT, 400)
        case litellm.ContentPolicyViolationError():
            return Failure(Cause.FILTERED, 400)
        case TimeoutError() | litellm.Timeout() | litellm.openai.APITimeoutError() | httpx.TimeoutException():
            return Failure(Cause.TIMEOUT)
        case ConnectionError() | httpx.TransportError():  # not converted by litellm
            return Failure(Cause.CONNECTION)
        case litellm.APIConnectionError():
            *_, root = _chain(error)
            return None if isinstance(root, FAULTS) else Failure(Cause.CONNECTION)
    status = getattr(error, "status_code", None)
    return _by_status(error, status) if isinstance(status, int) else None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Iterate over an error and its causes."""
    before: BaseException | None = error
    while before is not None:
        yield before
        before = before.__cause__ or before.__context__


def _by_status(error: Exception, status: int) -> Failure:
    wait = retry_after(_headers(error), datetime.now(UTC))
    if status == 429:
        is_final = any(QUOTA in _codes(each) for each in _chain(error))
        return Failure(Cause.QUOTA if is_final else Cause.RATE_LIMIT, status, wait)
    if status in (401, 403):
        return Failure(Cause.ACCESS, status)
    if status == 408:
        return Failure(Cause.TIMEOUT, status, wait)
    if status == 409 or status >= 500:
        return Failure(Cause.OUTAGE, status, wait)
    return Failure(Cause.REJECTED, status)


def _codes(error: BaseException) -> list[Any]:
    """Return the provider's own codes of an error, from its SDK and its response."""
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
    """Return the seconds to wait that a provider requests: OpenAI's milliseconds, or RFC 9110's seconds or date."""
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
