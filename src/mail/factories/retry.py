"""The retry policy for model calls, without I/O.

error ──► Failure ──► RetryPolicy.decide ──► Retry(after) | Stop ──► error_for
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType

from mail.core.decisions.backoff import delay_after
from mail.errors import ContextWindowExceeded, ModelAccessDenied, ModelError, ModelRefusal, ModelUnavailable


class Cause(StrEnum):
    """The causes of failures."""

    RATE_LIMIT = "rate limit"
    BUSY = "no permit"
    QUOTA = "quota used up"
    OUTAGE = "outage"
    TIMEOUT = "timeout"
    CONNECTION = "connection lost"
    REFUSED = "connection refused"
    UNKNOWN_HOST = "unknown host"
    TLS = "TLS failure"
    NO_REPLY = "no readable reply"
    OTHER_API = "reply of another API"
    MALFORMED = "malformed reply"
    TRUNCATED = "truncated reply"
    FILTERED = "filtered reply"
    CONTEXT = "context window exceeded"
    NO_KEY = "no key"
    ACCESS = "access denied"
    FORBIDDEN = "forbidden"
    NO_PROVIDER = "unknown provider"
    NO_MODEL = "unknown model"
    REJECTED = "request rejected"


@dataclass(frozen=True, slots=True)
class Failure:
    """The failure of a call.

    Attributes:
        status: the HTTP status, if there was a response.
        retry_after: seconds to wait, if the provider requests it.
        place: the address or the provider that was called, without any secret.
        variables: environment variables that are missing, or the one with the rejected key.
        hint: the end of the error's text: `. Did you mean 'x'?`, or the provider's own codes.
        headers: those of the response that tell the provider's limits, in lower case.
    """

    cause: Cause
    status: int | None = None
    retry_after: float | None = None
    place: str = ""
    variables: tuple[str, ...] = ()
    hint: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Retry:
    """A decision to retry `after` this number of seconds."""

    after: float


@dataclass(frozen=True, slots=True)
class Stop:
    """A decision not to retry."""


ATTEMPTS: Mapping[Cause, int] = MappingProxyType(
    {
        Cause.RATE_LIMIT: 8,
        Cause.OUTAGE: 6,
        Cause.CONNECTION: 6,
        Cause.REFUSED: 6,
        Cause.UNKNOWN_HOST: 6,
        Cause.TIMEOUT: 3,
        Cause.NO_REPLY: 3,
        Cause.MALFORMED: 3,
    }
)
"""Maximum number of attempts by cause; other causes are permanent."""


ATTEMPTS_BEFORE_ANOTHER = 2
"""Maximum number of attempts, by any cause, if there is another model to call."""

SHORT_WAIT = 2.0
"""Seconds that a call waits in its turn. To wait longer, the turn is parked, or another model is called."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The retry policy for model calls.

    Delays grow from `first` to `longest` seconds (`delay_after`). A provider's requested delay is respected, plus up to
    a tenth; if it is longer than `patience` seconds, there is no retry. No attempt starts with less than `least`
    seconds left.
    """

    attempts: Mapping[Cause, int] = field(default_factory=lambda: ATTEMPTS)
    first: float = 1.0
    longest: float = 30.0
    least: float = 1.0
    patience: float = 600.0

    @property
    def waits(self) -> bool:
        """Whether a call waits for a permit; if not, it fails as BUSY, and another model is called."""
        return True

    def attempts_after(self, cause: Cause) -> int:
        """Return how many attempts there are in all, of which one has failed by this cause."""
        return self.attempts.get(cause, 0)

    def decide(self, failure: Failure, attempt: int, left: float | None, chance: float) -> Retry | Stop:
        """Decide whether to retry after the failure of an attempt, numbered from 1.

        `left` is the number of seconds left in all (None for no limit), `chance` a random number in [0, 1).
        """
        if attempt >= self.attempts_after(failure.cause):
            return Stop()
        if failure.retry_after is not None:
            if failure.retry_after > self.patience:
                return Stop()
            after = failure.retry_after * (1 + 0.1 * chance)
        else:
            after = delay_after(attempt, chance, first=self.first, longest=self.longest)
        return Stop() if left is not None and after + self.least > left else Retry(after)

    def with_patience(self, seconds: float) -> "RetryPolicy":
        """Return the policy for calls that can wait so long."""
        return replace(self, patience=seconds)

    def decide_once(self, failure: Failure, attempt: int, left: float | None, chance: float) -> Retry | Stop:
        """Decide the same for a call that another model can take over: one retry, soon, and none after a timeout."""
        decision = self.decide(failure, attempt, left, chance)
        is_short = isinstance(decision, Retry) and decision.after <= SHORT_WAIT
        is_allowed = is_short and attempt < ATTEMPTS_BEFORE_ANOTHER
        return decision if is_allowed and failure.cause is not Cause.TIMEOUT else Stop()


_ERRORS: Mapping[Cause, tuple[type[ModelError], str]] = MappingProxyType(
    {
        Cause.RATE_LIMIT: (ModelUnavailable, "{llm} is called too often for its provider's limits{tries}"),
        Cause.BUSY: (ModelUnavailable, "{llm} takes no further call now: its limit is reached"),
        Cause.QUOTA: (ModelUnavailable, "the account's quota for {llm} is used up"),
        Cause.OUTAGE: (ModelUnavailable, "{llm} is unavailable{tries}"),
        Cause.TIMEOUT: (ModelUnavailable, "{llm} did not answer in time{tries}"),
        Cause.CONNECTION: (ModelUnavailable, "the connection to {llm}{at} broke{tries}"),
        Cause.REFUSED: (
            ModelUnavailable,
            "{llm} can't be reached: nothing accepts connections{at}{tries}; is its server running?",
        ),
        Cause.UNKNOWN_HOST: (
            ModelUnavailable,
            "{llm} can't be reached: there is no host {place}{tries}; check the address and the network",
        ),
        Cause.TLS: (ModelUnavailable, "{llm} can't be reached: no secure connection{at} ({hint})"),
        Cause.NO_REPLY: (
            ModelUnavailable,
            "the endpoint of {llm} didn't answer with JSON{tries}{hint}",
        ),
        Cause.OTHER_API: (
            ModelRefusal,
            "the endpoint of {llm} answered, but not as OpenAI's Responses API; does it speak Chat Completions? "
            'Set tool_format="completions"',
        ),
        Cause.MALFORMED: (ModelError, "{llm} wrote tool calls that can't be read{tries}"),
        Cause.TRUNCATED: (
            ModelError,
            "{llm} stopped at its limit of tokens in the middle of a tool call; raise max_tokens",
        ),
        Cause.FILTERED: (ModelRefusal, "the safety filter of {llm} stopped its reply"),
        Cause.CONTEXT: (ContextWindowExceeded, "the history no longer fits into the context window of {llm}"),
        Cause.NO_KEY: (ModelAccessDenied, "{llm} has no API key: set {variables} where this agent runs"),
        Cause.ACCESS: (ModelAccessDenied, "{variables} is not accepted{at} for {llm}{status}"),
        Cause.FORBIDDEN: (ModelAccessDenied, "{variables} has no access to {llm}{at}{status}"),
        Cause.NO_PROVIDER: (
            ModelRefusal,
            "no provider is known for the model {llm!r}; write provider/model, such as openai/gpt-5-mini{hint}",
        ),
        Cause.NO_MODEL: (ModelRefusal, "there is no model {llm!r}{at}{status}{hint}"),
        Cause.REJECTED: (ModelRefusal, "the provider of {llm} rejects the request{status}{hint}"),
    }
)


def error_for(
    failure: Failure, llm: str, attempts: int, seconds: float = 0.0, *, is_same: bool = True
) -> ModelError:
    """Return the error to raise after the last attempt; its text is suitable for agents and users.

    `seconds` is the time since the first attempt, `is_same` whether all attempts failed as the last one did.
    """
    kind, text = _ERRORS[failure.cause]
    status = f"HTTP {failure.status}" if failure.status else ""
    which = f"on all {attempts} attempts" if is_same else f"on the last of {attempts} attempts"
    tries = f"{status} {which}".strip() if attempts > 1 else status
    if attempts > 1 and seconds >= 1:
        tries += f", last after {seconds:.0f} s"
    if failure.retry_after:
        tries += f"; its provider says to retry after {failure.retry_after:.0f} s"
    return kind(
        text.format(
            llm=llm,
            status=f" ({status})" if status else "",
            tries=(f": {tries}" if failure.cause is Cause.OUTAGE else f" ({tries})") if tries else "",
            place=failure.place,
            at=f" at {failure.place}" if failure.place else "",
            variables=" and ".join(failure.variables) or "the API key",
            hint=failure.hint,
        )
    )
