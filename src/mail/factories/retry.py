"""What to do when a model could not be called: a decision, made from what went wrong. No I/O here.

failure ──► Trouble ──► RetryPolicy.decide ──► Retry(after) | Stop ──► error_for
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from mail.errors import ContextWindowExceeded, ModelAccessDenied, ModelError, ModelRefusal, ModelUnavailable


class Cause(StrEnum):
    """What went wrong."""

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
class Trouble:
    """Why a call failed.

    Attributes:
        status: of the HTTP answer, if there was one.
        retry_after: seconds for which the provider asked not to be called.
    """

    cause: Cause
    status: int | None = None
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class Retry:
    """Call again `after` so many seconds."""

    after: float


@dataclass(frozen=True, slots=True)
class Stop:
    """Give up."""


ATTEMPTS: Mapping[Cause, int] = MappingProxyType(
    {
        Cause.RATE_LIMIT: 8,
        Cause.OUTAGE: 6,
        Cause.CONNECTION: 6,
        Cause.TIMEOUT: 3,
        Cause.MALFORMED: 3,
    }
)
"""How many attempts there are when this goes wrong; what isn't here would go wrong again."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """When to call again.

    Waits double from `first` to `longest` seconds, less up to a half by chance, so that agents which were turned
    away together don't come back together. A provider's own wish is followed, plus up to a tenth.
    Nothing is begun for which less than `least` seconds would remain.
    """

    attempts: Mapping[Cause, int] = field(default_factory=lambda: ATTEMPTS)
    first: float = 1.0
    longest: float = 30.0
    least: float = 1.0

    def decide(self, trouble: Trouble, attempt: int, left: float | None, chance: float) -> Retry | Stop:
        """What to do after the `attempt`-th attempt (from 1) has failed.

        `left` is how many seconds remain in all (None: any number), `chance` a random number in [0, 1).
        """
        if attempt >= self.attempts.get(trouble.cause, 0):
            return Stop()
        if trouble.retry_after is not None:
            after = trouble.retry_after * (1 + 0.1 * chance)
        else:
            after = min(self.first * 2 ** (attempt - 1), self.longest) * (1 - 0.5 * chance)
        return Stop() if left is not None and after + self.least > left else Retry(after)


_ERRORS: Mapping[Cause, tuple[type[ModelError], str]] = MappingProxyType(
    {
        Cause.RATE_LIMIT: (ModelUnavailable, "{llm} is called too often for its provider's limits{tries}"),
        Cause.QUOTA: (ModelUnavailable, "the account's quota for {llm} is used up"),
        Cause.OUTAGE: (ModelUnavailable, "the provider of {llm} is out of order{status}{tries}"),
        Cause.TIMEOUT: (ModelUnavailable, "{llm} did not answer in time{tries}"),
        Cause.CONNECTION: (ModelUnavailable, "the connection to {llm} broke{tries}"),
        Cause.MALFORMED: (ModelError, "{llm} wrote tool calls that can't be read{tries}"),
        Cause.TRUNCATED: (
            ModelError,
            "{llm} stopped at its limit of tokens in the middle of a tool call; raise max_tokens",
        ),
        Cause.FILTERED: (ModelRefusal, "the safety filter of {llm} stopped its reply"),
        Cause.CONTEXT: (
            ContextWindowExceeded,
            "what it would have to read no longer fits into the context window of {llm}",
        ),
        Cause.ACCESS: (ModelAccessDenied, "the provider of {llm} does not accept the API key{status}"),
        Cause.REJECTED: (
            ModelRefusal,
            "the provider of {llm} refuses the request{status}; the server's log says more",
        ),
    }
)


def error_for(trouble: Trouble, llm: str, attempts: int) -> ModelError:
    """What is raised after the last attempt; its text is fit to be told to others."""
    kind, text = _ERRORS[trouble.cause]
    return kind(
        text.format(
            llm=llm,
            status=f" (HTTP {trouble.status})" if trouble.status else "",
            tries=f", {attempts} times" if attempts > 1 else "",
        )
    )
