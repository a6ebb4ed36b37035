"""The retry policy for model calls, without I/O.

error ──► Failure ──► RetryPolicy.decide ──► Retry(after) | Stop ──► error_for
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from mail.errors import ContextWindowExceeded, ModelAccessDenied, ModelError, ModelRefusal, ModelUnavailable


class Cause(StrEnum):
    """The causes of failures."""

    RATE_LIMIT = "rate limit"
    QUOTA = "quota used up"
    OUTAGE = "outage"
    TIMEOUT = "timeout"
    CONNECTION = "connection lost"
    MALFORMED = "malformed reply"
    TRUNCATED = "truncated reply"
    FILTERED = "filtered reply"
    CONTEXT = "context window exceeded"
    ACCESS = "access denied"
    REJECTED = "request rejected"


@dataclass(frozen=True, slots=True)
class Failure:
    """The failure of a call.

    Attributes:
        status: the HTTP status, if there was a response.
        retry_after: seconds to wait, if the provider requests it.
    """

    cause: Cause
    status: int | None = None
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class Retry:
    """A decision to retry `after` this number of seconds."""

    after: float


@dataclass(frozen=True, slots=True)
class Stop:
    """A decision not to retry."""


ATTEMPTS: Mapping[Cause, int] = MappingProxyType(
    {Cause.RATE_LIMIT: 8, Cause.OUTAGE: 6, Cause.CONNECTION: 6, Cause.TIMEOUT: 3, Cause.MALFORMED: 3}
)
"""Maximum number of attempts by cause; other causes are permanent."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The retry policy for model calls.

    Delays double from `first` to `longest` seconds, minus up to a half at random, so that agents which failed
    together don't retry together. A provider's requested delay is respected, plus up to a tenth. No attempt starts with
    less than `least` seconds left.
    """

    attempts: Mapping[Cause, int] = field(default_factory=lambda: ATTEMPTS)
    first: float = 1.0
    longest: float = 30.0
    least: float = 1.0

    def decide(self, failure: Failure, attempt: int, left: float | None, chance: float) -> Retry | Stop:
        """Decide whether to retry after the failure of an attempt, numbered from 1.

        `left` is the number of seconds left in all (None for no limit), `chance` a random number in [0, 1).
        """
        if attempt >= self.attempts.get(failure.cause, 0):
            return Stop()
        if failure.retry_after is not None:
            after = failure.retry_after * (1 + 0.1 * chance)
        else:
            after = min(self.first * 2 ** (attempt - 1), self.longest) * (1 - 0.5 * chance)
        return Stop() if left is not None and after + self.least > left else Retry(after)


_ERRORS: Mapping[Cause, tuple[type[ModelError], str]] = MappingProxyType(
    {
        Cause.RATE_LIMIT: (ModelUnavailable, "{llm} is called too often for its provider's limits{tries}"),
        Cause.QUOTA: (ModelUnavailable, "the account's quota for {llm} is used up"),
        Cause.OUTAGE: (ModelUnavailable, "the provider of {llm} is unavailable{status}{tries}"),
        Cause.TIMEOUT: (ModelUnavailable, "{llm} did not answer in time{tries}"),
        Cause.CONNECTION: (ModelUnavailable, "the connection to {llm} broke{tries}"),
        Cause.MALFORMED: (ModelError, "{llm} wrote tool calls that can't be read{tries}"),
        Cause.TRUNCATED: (
            ModelError,
            "{llm} stopped at its limit of tokens in the middle of a tool call; raise max_tokens",
        ),
        Cause.FILTERED: (ModelRefusal, "the safety filter of {llm} stopped its reply"),
        Cause.CONTEXT: (ContextWindowExceeded, "the history no longer fits into the context window of {llm}"),
        Cause.ACCESS: (ModelAccessDenied, "the provider of {llm} does not accept the API key{status}"),
        Cause.REJECTED: (
            ModelRefusal,
            "the provider of {llm} rejects the request{status}; the server's log says more",
        ),
    }
)


def error_for(failure: Failure, llm: str, attempts: int) -> ModelError:
    """Return the error to raise after the last attempt; its text is suitable for agents and users."""
    kind, text = _ERRORS[failure.cause]
    return kind(
        text.format(
            llm=llm,
            status=f" (HTTP {failure.status})" if failure.status else "",
            tries=f", {attempts} times" if attempts > 1 else "",
        )
    )
