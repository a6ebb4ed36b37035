"""Classification of the errors of a call, by the types that its libraries raise, and by what a provider answers."""

import re
import socket
import ssl
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from json import JSONDecodeError
from typing import Any

from mail.core.protocol.retry_after import read_retry_after
from mail.factories.items import MalformedReply
from mail.factories.models import ModelRequest
from mail.factories.providers import key_variable, similar_model
from mail.factories.retry import Cause, Failure

FAULTS = (ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, NameError, TypeError)
"""Programming errors, which libraries also report as a broken connection; a retry would fail again."""

CODES: Mapping[str, Cause] = {
    "insufficient_quota": Cause.QUOTA,  # a 429 that waiting can't solve
    "model_not_found": Cause.NO_MODEL,  # other providers send only the status 404
    "DeploymentNotFound": Cause.NO_MODEL,
    "context_length_exceeded": Cause.CONTEXT,
    "content_filter": Cause.FILTERED,
    "content_policy_violation": Cause.FILTERED,
    "rate_limit_exceeded": Cause.RATE_LIMIT,
}
"""What codes of OpenAI and Azure stand for."""

_TOO_LONG = re.compile(
    "context (length|window)|(input|prompt) is too long|exceeds? the (available )?context", re.IGNORECASE
)
"""In the text of a status 400: Bedrock, vLLM, Ollama and llama.cpp have no code for it."""

_UNKNOWN = re.compile("model identifier is invalid")
"""In the text of Bedrock's status 400 for a model that doesn't exist."""

_LIMITS = re.compile(r"(x-ratelimit-|anthropic-ratelimit-|retry-after)")
_BROKEN_OFF = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
_IDENTIFIER = re.compile(r"[A-Za-z_][\w.\[\]-]{0,60}")


class CallFailed(Exception):
    """A call that ended without a usable reply."""

    def __init__(self, cause: Cause) -> None:
        super().__init__(cause.value)
        self.cause = cause


def of_reply(error: Exception, request: ModelRequest) -> Failure | None:
    """Return the failure of a reply that is unusable; None for any other error."""
    match error:
        case CallFailed(cause=Cause.NO_REPLY) | JSONDecodeError():
            return no_reply(request)
        case CallFailed():
            return Failure(error.cause)
        case MalformedReply():
            return Failure(Cause.MALFORMED)
    return None


def no_reply(request: ModelRequest) -> Failure:
    """Return the failure of a response that is none of a model."""
    address = request.own_address
    return Failure(Cause.NO_REPLY, hint=f"; is {address} the address of its API?" if address else "")


def of_connection(error: Exception) -> Failure | None:
    """Return the failure of an error that came instead of a response; None if it isn't one."""
    # Timeouts of litellm have no cause; its other errors carry one of a lower layer.
    if isinstance(error, (TimeoutError, *_kinds("APITimeoutError"))):
        return Failure(Cause.TIMEOUT)
    raised = [each for each in chain(error) if not is_litellms(each)]
    if any(is_response(each) for each in raised):
        return None
    if any(isinstance(each, _kinds("ConnectError")) for each in raised):  # later ones are broken connections
        for each in raised:
            if isinstance(each, ssl.SSLError) and not isinstance(each, _BROKEN_OFF):
                reason = getattr(each, "verify_message", None) or each.reason or type(each).__name__
                return Failure(Cause.TLS, hint=reason)
    lost: tuple[type[BaseException], ...] = (
        ConnectionError,
        ssl.SSLError,
        *_kinds("TransportError", "APIConnectionError"),
    )
    causes: tuple[tuple[tuple[type[BaseException], ...], Cause], ...] = (
        ((socket.gaierror,), Cause.UNKNOWN_HOST),
        ((ConnectionRefusedError,), Cause.REFUSED),
        (_kinds("TimeoutException"), Cause.TIMEOUT),
        (lost, Cause.CONNECTION),
    )
    return next(
        (Failure(cause) for kinds, cause in causes for each in raised if isinstance(each, kinds)), None
    )


def of_status(
    request: ModelRequest,
    status: int,
    *,
    codes: Collection[Any] = (),
    headers: Mapping[str, str] | None = None,
    text: str = "",
) -> Failure:
    """Return the failure that a provider's answer stands for.

    Args:
        codes: what the provider calls the error, and the parameter at fault.
        text: what it says, for providers without a code.
    """
    limits = limits_of(headers or {})
    wait = retry_after(limits, datetime.now(UTC))
    cause = next((CODES[code] for code in codes if isinstance(code, str) and code in CODES), None)
    if status == 429:
        return Failure(cause if cause is Cause.QUOTA else Cause.RATE_LIMIT, status, wait, headers=limits)
    if status == 404 or cause is Cause.NO_MODEL or (status == 400 and _UNKNOWN.search(text)):
        similar = similar_model(request.llm)
        return Failure(Cause.NO_MODEL, status, hint=f". Did you mean {similar!r}?" if similar else "")
    if status in (401, 403):
        variable = None if request.has_own_key else key_variable(request.llm)
        variables = () if variable is None else (variable,)
        return Failure(Cause.ACCESS if status == 401 else Cause.FORBIDDEN, status, variables=variables)
    if cause in (Cause.CONTEXT, Cause.FILTERED):
        return Failure(cause, status)
    if status in (400, 413) and _TOO_LONG.search(text):
        return Failure(Cause.CONTEXT, status)
    if status == 408:
        return Failure(Cause.TIMEOUT, status, wait)
    if status == 409 or status >= 500:
        return Failure(Cause.OUTAGE, status, wait, headers=limits)
    named = dict.fromkeys(code for code in codes if isinstance(code, str) and _IDENTIFIER.fullmatch(code))
    return Failure(Cause.REJECTED, status, hint=f": {', '.join(named)}" if named else "")


# --------------------------------------------------------------------------------------- parts of errors

_PACKAGES = ("httpx", "httpx2", "openai")


def _kinds(*names: str) -> tuple[type[BaseException], ...]:
    """Return the errors of these names, of the packages that are imported: the others have raised nothing."""
    packages = [sys.modules[name] for name in _PACKAGES if sys.modules.get(name) is not None]
    return tuple(getattr(package, name) for package in packages for name in names if hasattr(package, name))


def chain(error: BaseException) -> Iterator[BaseException]:
    """Iterate over an error and its causes."""
    before: BaseException | None = error
    while before is not None:
        yield before
        before = before.__cause__ or before.__context__


def is_response(error: BaseException) -> bool:
    """Return whether an error stands for a response."""
    return isinstance(error, _kinds("HTTPStatusError", "APIStatusError")) and not is_litellms(error)


def is_litellms(error: BaseException) -> bool:
    """Return whether an error is of litellm's own kinds: they derive from the SDK's, and carry made-up requests."""
    return hasattr(error, "llm_provider")


def placed(failure: Failure, error: Exception) -> Failure:
    """Return the failure with the host that was called, and its port, if the error tells them."""
    return failure if failure.place else replace(failure, place=_place_of(error))


def _place_of(error: Exception) -> str:
    for each in chain(error):
        if isinstance(each, _kinds("RequestError", "APIConnectionError")) or is_response(each):
            with suppress(RuntimeError, AttributeError):  # the former if the error has no request
                url = each.request.url  # type: ignore[attr-defined]  # each of them has it
                if not is_litellms(each):
                    return f"{url.host}:{url.port}" if url.port else str(url.host)
    return ""


def codes_of(error: BaseException) -> list[Any]:
    """Return the provider's code of an error and the parameter at fault, from its SDK and its response."""
    codes = [getattr(error, "code", None), getattr(error, "param", None)]
    if isinstance(error, _kinds("HTTPStatusError")):
        with suppress(ValueError, LookupError, TypeError, RuntimeError):  # the last, if the body was not read
            told = error.response.json()["error"]  # type: ignore[attr-defined]
            codes += [told.get("code"), told.get("param")]
    return codes


def headers_of(error: Exception) -> Mapping[str, str]:
    """Return the headers of the response that an error stands for; for some providers, only its causes have them."""
    headers: dict[str, str] = {}
    for each in chain(error):
        response = getattr(each, "response", None)
        for found in (getattr(response, "headers", None), getattr(each, "litellm_response_headers", None)):
            headers |= {str(name).lower(): str(value) for name, value in dict(found or {}).items()}
    return headers


def limits_of(headers: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers that tell the provider's limits, in lower case and without litellm's prefix."""
    lower = {str(name).lower().removeprefix("llm_provider-"): str(value) for name, value in headers.items()}
    return {name: value for name, value in lower.items() if _LIMITS.match(name)}


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return the seconds to wait that a provider requests: OpenAI's milliseconds, or RFC 9110's seconds or date."""
    with suppress(KeyError, ValueError):
        return max(0.0, float(headers["retry-after-ms"]) / 1000)
    return read_retry_after(headers.get("retry-after", ""), now)
