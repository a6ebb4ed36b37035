"""Classification of the errors that litellm, httpx and asyncio raise."""

import re
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from json import JSONDecodeError
from typing import Any

from mail.core.protocol.retry_after import read_retry_after
from mail.factories.items import MalformedReply
from mail.factories.models import ModelRequest
from mail.factories.providers import key_variable, missing_variables, name_hint, provider_of, similar_model
from mail.factories.rates import limits_of
from mail.factories.retry import Cause, Failure

FAULTS = (ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, NameError, TypeError)
"""Programming errors, which litellm also reports as a broken connection; a retry would fail again."""

QUOTA = "insufficient_quota"
"""OpenAI's code of a 429 that waiting can't solve; litellm has no type for it."""

NO_SUCH_MODEL = "model_not_found"
"""OpenAI's code for an unknown model; other providers send only the status 404."""

_BROKEN_OFF = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)

_IDENTIFIER = re.compile(r"[A-Za-z_][\w.\[\]-]{0,60}")


class CallFailed(Exception):
    """A call that ended without a usable reply."""

    def __init__(self, cause: Cause) -> None:
        super().__init__(cause.value)
        self.cause = cause


def classify(litellm: Any, error: Exception, request: ModelRequest) -> Failure | None:
    """Return the failure that an error stands for; None for a bug in this program."""
    match error:
        case CallFailed(cause=Cause.NO_REPLY):
            return _no_reply(request)
        case CallFailed():
            return Failure(error.cause)
        case MalformedReply():
            return Failure(Cause.MALFORMED)
        case litellm.ContextWindowExceededError():
            return Failure(Cause.CONTEXT, 400)
        case litellm.ContentPolicyViolationError():
            return Failure(Cause.FILTERED, 400)
    failure = _of_connection(litellm, error)
    if failure is None or request.own_address is None:  # a call without a key fails wherever it gets to
        failure = _of_name_or_key(litellm, error, request) or failure
    failure = failure or _of_response(litellm, error, request)
    return failure and replace(failure, place=failure.place or _place(litellm, error, request))


def _of_connection(litellm: Any, error: Exception) -> Failure | None:
    """Return the failure of an error that came instead of a response; None if it isn't one."""
    # Timeouts of litellm have no cause; its other errors carry one of a lower layer.
    if isinstance(error, TimeoutError | litellm.Timeout | litellm.openai.APITimeoutError):
        return Failure(Cause.TIMEOUT)
    chain = [each for each in _chain(error) if not _is_litellms(each)]
    if any(_is_response(litellm, each) for each in chain):
        return None
    if any(
        isinstance(each, litellm.httpx.ConnectError) for each in chain
    ):  # later ones are broken connections
        for each in chain:
            if isinstance(each, ssl.SSLError) and not isinstance(each, _BROKEN_OFF):
                reason = getattr(each, "verify_message", None) or each.reason or type(each).__name__
                return Failure(Cause.TLS, hint=reason)
    causes = (
        (socket.gaierror, Cause.UNKNOWN_HOST),
        (ConnectionRefusedError, Cause.REFUSED),
        (litellm.httpx.TimeoutException, Cause.TIMEOUT),
        (
            (ConnectionError, ssl.SSLError, litellm.httpx.TransportError, litellm.openai.APIConnectionError),
            Cause.CONNECTION,
        ),
    )
    return next((Failure(cause) for kind, cause in causes for each in chain if isinstance(each, kind)), None)


def _of_name_or_key(litellm: Any, error: Exception, request: ModelRequest) -> Failure | None:
    """Return the failure of a call for which litellm has no provider or no key; None if it has both."""
    if (
        isinstance(error, litellm.BadRequestError)
        and not request.names_provider
        and provider_of(litellm, request.llm) is None
    ):
        return Failure(Cause.NO_PROVIDER, hint=name_hint(litellm, request.llm))
    if request.has_own_key:
        return None
    is_denied = getattr(error, "status_code", None) in (401, 403)
    if not is_denied and _has_response(litellm, error):
        return None
    if missing := missing_variables(litellm, request.llm):
        return Failure(Cause.NO_KEY, variables=missing)
    if any(type(each) is litellm.openai.OpenAIError for each in _chain(error)):  # raised before the request
        return Failure(Cause.NO_KEY)
    return None


def _has_response(litellm: Any, error: Exception) -> bool:
    """Return whether the provider sent a response, or a fault of this program prevented it."""
    return any(_is_response(litellm, each) or isinstance(each, FAULTS) for each in _chain(error))


def _is_response(litellm: Any, error: BaseException) -> bool:
    """Return whether an error stands for a response."""
    sent = (litellm.httpx.HTTPStatusError, litellm.openai.APIStatusError)
    return isinstance(error, sent) and not _is_litellms(error)


def _is_litellms(error: BaseException) -> bool:
    """Return whether an error is of litellm's own kinds: they derive from the SDK's, and carry made-up requests."""
    return hasattr(error, "llm_provider")


def _of_response(litellm: Any, error: Exception, request: ModelRequest) -> Failure | None:
    if isinstance(error, litellm.APIConnectionError):
        *_, root = _chain(error)
        return None if isinstance(root, FAULTS) else Failure(Cause.CONNECTION)
    status = getattr(error, "status_code", None)
    return _by_status(litellm, error, status, request) if isinstance(status, int) else None


def _place(litellm: Any, error: Exception, request: ModelRequest) -> str:
    """Return the host that was called or, if the error doesn't tell, the provider."""
    for each in _chain(error):
        if isinstance(each, litellm.httpx.RequestError) or _is_response(litellm, each):
            with suppress(RuntimeError, AttributeError):  # the former if the error has no request
                url = each.request.url  # type: ignore[attr-defined]  # each of them has it
                return f"{url.host}:{url.port}" if url.port else str(url.host)
    return provider_of(litellm, request.llm) or ""


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Iterate over an error and its causes."""
    before: BaseException | None = error
    while before is not None:
        yield before
        before = before.__cause__ or before.__context__


def _by_status(litellm: Any, error: Exception, status: int, request: ModelRequest) -> Failure:
    headers = _headers(error)
    wait = retry_after(headers, datetime.now(UTC))
    codes = [code for each in _chain(error) for code in _codes(litellm, each)]
    if status == 429:
        cause = Cause.QUOTA if QUOTA in codes else Cause.RATE_LIMIT
        return Failure(cause, status, wait, limits=limits_of(headers))
    if status == 404 or NO_SUCH_MODEL in codes:
        similar = similar_model(litellm, request.llm)
        return Failure(Cause.NO_MODEL, status, hint=f". Did you mean {similar!r}?" if similar else "")
    if status in (401, 403):
        variable = None if request.has_own_key else key_variable(litellm, request.llm)
        variables = () if variable is None else (variable,)
        return Failure(Cause.ACCESS if status == 401 else Cause.FORBIDDEN, status, variables=variables)
    if not _has_response(litellm, error) and _is_unreadable(error, status):
        return _no_reply(request)
    if status == 200 and request.uses_responses:  # JSON without the fields of a response
        return Failure(Cause.OTHER_API, status)
    if status == 408:
        return Failure(Cause.TIMEOUT, status, wait)
    if status == 409 or status >= 500:
        return Failure(Cause.OUTAGE, status, wait)
    named = dict.fromkeys(code for code in codes if isinstance(code, str) and _IDENTIFIER.fullmatch(code))
    return Failure(Cause.REJECTED, status, hint=f": {', '.join(named)}" if named else "")


def _no_reply(request: ModelRequest) -> Failure:
    address = request.own_address
    return Failure(Cause.NO_REPLY, hint=f"; is {address} the address of its API?" if address else "")


def _is_unreadable(error: Exception, status: int) -> bool:
    """Return whether litellm found no reply in a response: a page, or nothing. It then makes up the status."""
    if not getattr(error, "is_pre_first_chunk", True):  # litellm's word for a stream that broke in the middle
        return False
    return status >= 500 or any(isinstance(each, JSONDecodeError) for each in _chain(error))


def _codes(litellm: Any, error: BaseException) -> list[Any]:
    """Return the provider's code of an error and the parameter at fault, from its SDK and its response."""
    codes = [getattr(error, "code", None), getattr(error, "param", None)]
    if isinstance(error, litellm.httpx.HTTPStatusError):
        with suppress(ValueError, litellm.httpx.StreamError, LookupError, TypeError):
            told = error.response.json()["error"]
            codes += [told.get("code"), told.get("param")]
    return codes


def _headers(error: Exception) -> Mapping[str, str]:
    """Return the headers of the response that an error stands for; for some providers, only its causes have them."""
    headers: dict[str, str] = {}
    for each in _chain(error):
        response = getattr(each, "response", None)
        for found in (getattr(response, "headers", None), getattr(each, "litellm_response_headers", None)):
            headers |= {str(name).lower(): str(value) for name, value in dict(found or {}).items()}
    return headers


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return the seconds to wait that a provider requests: OpenAI's milliseconds, or RFC 9110's seconds or date."""
    with suppress(KeyError, ValueError):
        return max(0.0, float(headers["retry-after-ms"]) / 1000)
    return read_retry_after(headers.get("retry-after", ""), now)
