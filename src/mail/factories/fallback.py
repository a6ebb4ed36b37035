"""Other models for an agent whose first one can't be used.

A call goes to the model that the agent's task uses at the moment: the first one, or one that it has been switched to.
A failure that another model may not have switches to the next one, after one short retry. The switch holds in the task
until the *breaker* of the first model closes, so that the provider's cache isn't lost at every turn.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any

from mail.core.decisions.fallback import OPEN_SECONDS, closed, opened, tried
from mail.core.task.fallback import Breaker, BreakerChange, Breakers, Switch, SwitchCause
from mail.core.turns.context import TURN
from mail.errors import ConfigurationError, ModelError
from mail.factories.models import context_window
from mail.factories.options import check_options
from mail.factories.retry import ATTEMPTS_BEFORE_ANOTHER, Cause, Failure, Retry, RetryPolicy, Stop

logger = logging.getLogger(__name__)

MANY_MODELS = 5
"""Models that an agent may have."""

CAUSES: Mapping[Cause, SwitchCause] = MappingProxyType(
    {
        Cause.RATE_LIMIT: SwitchCause.RATE_LIMIT,
        Cause.BUSY: SwitchCause.RATE_LIMIT,
        Cause.QUOTA: SwitchCause.RATE_LIMIT,
        Cause.OUTAGE: SwitchCause.OUTAGE,
        Cause.TIMEOUT: SwitchCause.OUTAGE,
        Cause.CONNECTION: SwitchCause.OUTAGE,
        Cause.REFUSED: SwitchCause.OUTAGE,
        Cause.UNKNOWN_HOST: SwitchCause.OUTAGE,
        Cause.TLS: SwitchCause.OUTAGE,
        Cause.NO_REPLY: SwitchCause.OUTAGE,
        Cause.CONTEXT: SwitchCause.CONTEXT,
    }
)
"""The failures that another model may not have. Refusals, invalid requests and missing keys are not among them."""

SETTABLE = (SwitchCause.RATE_LIMIT, SwitchCause.OUTAGE, SwitchCause.CONTEXT)


@dataclass(frozen=True, slots=True)
class Target:
    """A model, and its own options in place of those that say where the agent's calls go."""

    llm: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Fallback:
    """The models of an agent: its first one, and the others by the cause of a switch, in order."""

    first: Target
    others: Mapping[SwitchCause, tuple[Target, ...]]

    @property
    def targets(self) -> list[Target]:
        """All models, the first one first, each once."""
        found = {self.first.llm: self.first}
        for each in self.others.values():
            found |= {target.llm: target for target in each if target.llm not in found}
        return list(found.values())

    def find(self, llm: str) -> Target | None:
        """Return the model of this name; None if the settings don't have it any more."""
        return next((target for target in self.targets if target.llm == llm), None)

    def held(self, stored: Switch | None, now: float) -> Target | None:
        """Return the model that a task has been switched to, while that holds; else None."""
        if stored is None or (stored.until is not None and stored.until <= now):
            return None
        return self.find(stored.model)

    def following(
        self, cause: SwitchCause, tried: Sequence[str], is_open: Callable[[str], bool]
    ) -> Target | None:
        """Return the model to try after those that were `tried`, the last of which has failed; None for no other.

        Models whose breakers are open come last. After an exceeded context window only a larger one helps.
        """
        left = [each for each in (*self.others.get(cause, ()), self.first) if each.llm not in tried]
        if cause is SwitchCause.CONTEXT:
            window = context_window(tried[-1]) or 0
            left = [each for each in left if (context_window(each.llm) or window + 1) > window]
        return next((each for each in left if not is_open(each.llm)), left[0] if left else None)


def read_fallback(
    where: str, llm: str | Sequence[str], given: object, *, tool_format: Any = "responses"
) -> tuple[str, Fallback | None]:
    """Return the name of an agent's first model, and its models if there are several.

    Args:
        where: the agent, for messages.
        llm: the model, or all of them in order.
        given: the other ones: a name or a dictionary with `llm` and options of its calls, a list of them, or such
            lists by cause: `rate_limit`, `outage`, `context`.

    Raises ConfigurationError.
    """
    if isinstance(llm, str):
        first, rest = llm, given or ()
    else:
        if given:
            raise ConfigurationError(f"{where}: give either several models or fallback, not both")
        if not llm:
            raise ConfigurationError(f"{where}: the list of models is empty")
        first, rest = llm[0], llm[1:]
    by_cause = rest if isinstance(rest, Mapping) and "llm" not in rest else dict.fromkeys(SETTABLE, rest)
    others: dict[SwitchCause, tuple[Target, ...]] = {}
    for cause, entries in by_cause.items():
        if cause not in SETTABLE:
            raise ConfigurationError(
                f"{where}: fallback has no cause {cause!r}; it must be one of {', '.join(SETTABLE)}"
            )
        listed = [entries] if isinstance(entries, str | Mapping) else entries
        if not isinstance(listed, Iterable):
            raise ConfigurationError(f"{where}: fallback must be names of models, not {listed!r}")
        others[SwitchCause(cause)] = tuple(_read_target(where, each, tool_format) for each in listed)
    fallback = Fallback(Target(first), others)
    names = [target.llm for target in fallback.targets]
    if len(names) > MANY_MODELS:
        raise ConfigurationError(f"{where}: at most {MANY_MODELS} models are allowed, not {len(names)}")
    return first, fallback if len(names) > 1 else None


def _read_target(where: str, given: object, tool_format: Any) -> Target:
    if isinstance(given, str) and given:
        return Target(given)
    if isinstance(given, Mapping) and isinstance(given.get("llm"), str):
        options = {name: value for name, value in given.items() if name != "llm"}
        check_options(f"{where}, fallback", options, llm=given["llm"], tool_format=tool_format)
        return Target(given["llm"], options)
    raise ConfigurationError(
        f"{where}: a model of fallback is a name, or a dictionary with llm and options, not {given!r}"
    )


# -------------------------------------------------------------------------------------------------- calling


class SwitchingPolicy:
    """A retry policy that gives up early if another model can be called instead.

    Attributes:
        waits: whether the call waits for a permit of its model.
        failure: the failure after which it has given up.
        following: the model to call then; None if there is no other.
    """

    def __init__(
        self, policy: RetryPolicy, find: Callable[[SwitchCause], Target | None], *, waits: bool
    ) -> None:
        self.waits = waits
        self.least = policy.least
        self.failure: Failure | None = None
        self.following: Target | None = None
        self._policy = policy
        self._find = find

    def with_patience(self, seconds: float) -> "SwitchingPolicy":
        """Return the policy for calls that can wait so long if there is no other model."""
        self._policy = self._policy.with_patience(seconds)
        return self

    def attempts_after(self, cause: Cause) -> int:
        """Return how many attempts there are in all, of which one has just failed."""
        attempts = self._policy.attempts_after(cause)
        return attempts if self.following is None else min(attempts, ATTEMPTS_BEFORE_ANOTHER)

    def decide(self, failure: Failure, attempt: int, left: float | None, chance: float) -> Retry | Stop:
        """Decide as the retry policy does; at most one short retry, if there is another model."""
        cause = CAUSES.get(failure.cause)
        self.failure, self.following = failure, None if cause is None else self._find(cause)
        if self.following is None:
            return self._policy.decide(failure, attempt, left, chance)
        return self._policy.decide_once(failure, attempt, left, chance)


type Call[Output] = Callable[[Target, SwitchingPolicy, float | None], Awaitable[Output]]
"""Calls a model, for as many seconds at most in one attempt (None for no limit)."""


class _NoBreakers:
    """Keeps no breakers, for agents that no server runs."""

    def now(self) -> float:
        return time.time()

    def breaker(self, _model: str) -> Breaker | None:
        return None

    async def learn_breakers(self, *_models: str, once: bool = False) -> None:
        pass

    async def change_breaker(self, _model: str, _change: BreakerChange) -> bool:
        return False


def running_breakers() -> Breakers:
    """Return the breakers of the server that runs the turn."""
    return TURN.get().services.permits or _NoBreakers()


async def call_in_order[Output](
    agent: str, fallback: Fallback, policy: RetryPolicy, call: Call[Output]
) -> Output:
    """Call the model that the task uses, and others after failures that they may not have.

    Reports a switch to the running turn. Raises ModelError, whose text lists the failures of all models.
    """
    turn, breakers = TURN.get(), running_breakers()
    first, stored = fallback.first, turn.switch
    target, cause = await _begin(fallback, stored, breakers)
    called: list[str] = []
    errors: list[ModelError] = []
    busy: Target | None = None
    hold = 0.0
    is_last = False

    def find(cause: SwitchCause) -> Target | None:
        if cause is SwitchCause.CONTEXT and turn.may_cut:
            return None
        return fallback.following(cause, [*called, target.llm], partial(_is_open, breakers))

    while True:
        other, breaker = find(SwitchCause.RATE_LIMIT), breakers.breaker(target.llm)
        is_only = busy is None and (other is None or _is_open(breakers, other.llm))
        trying = SwitchingPolicy(policy, find, waits=is_only or is_last)
        try:
            output = await call(
                target, trying, _share(turn.deadline) if len(called) + 1 < len(fallback.targets) else None
            )
        except ModelError as error:
            failure = trying.failure
            is_busy = failure is not None and failure.cause is Cause.BUSY
            if is_busy:
                busy, hold = busy or target, breakers.now() + OPEN_SECONDS
            else:
                errors.append(error)
            if busy is not None and trying.following is None and not is_last:
                called.append(target.llm)
                target, cause, is_last = busy, SwitchCause.RATE_LIMIT, True
                continue
            if failure is None or trying.following is None:
                if len(errors) == 1:
                    raise
                raise type(error)("; ".join(each.detail for each in errors)) from error
            cause = CAUSES[failure.cause]
            if cause is not SwitchCause.CONTEXT and not is_busy:
                opening = partial(opened, cause=cause, retry_after=failure.retry_after)
                await breakers.change_breaker(target.llm, opening)
            await breakers.learn_breakers(*(each.llm for each in fallback.targets))
            following = find(cause) or trying.following
            called.append(target.llm)
            target = following
            logger.warning("agent %s: %s; %s is called instead", agent, error.detail, target.llm)
            continue
        if breaker is not None:
            await breakers.change_breaker(target.llm, closed)
        if turn.activity is not None:
            breaker = breakers.breaker(first.llm)
            until = hold if breaker is None else breaker.until
            held = None if cause is SwitchCause.CONTEXT else until
            turn.activity.switch = _report(target.llm, cause, first.llm, stored, held)
        return output


async def _begin(fallback: Fallback, stored: Switch | None, breakers: Breakers) -> tuple[Target, SwitchCause]:
    """Return the model to call first, and the cause if it is not the agent's first one."""
    first = fallback.first
    if stored is not None and (held := fallback.held(stored, breakers.now())) is not None:
        return held, stored.cause
    await breakers.learn_breakers(first.llm)
    tries = await breakers.change_breaker(first.llm, tried)
    if tries or (breaker := breakers.breaker(first.llm)) is None:
        return first, SwitchCause.RECOVERED
    if stored is not None and (held := fallback.find(stored.model)) is not None:
        return held, stored.cause
    await breakers.learn_breakers(*(each.llm for each in fallback.targets))
    other = fallback.following(breaker.cause, [first.llm], partial(_is_open, breakers))
    return (first, SwitchCause.RECOVERED) if other is None else (other, breaker.cause)


def _is_open(breakers: Breakers, llm: str) -> bool:
    breaker = breakers.breaker(llm)
    return breaker is not None and breaker.until > breakers.now()


def _report(
    llm: str, cause: SwitchCause, first: str, stored: Switch | None, until: float | None
) -> Switch | None:
    """Return what a call by this model changes for the task; None for nothing."""
    before = first if stored is None else stored.model
    if llm == first:
        return None if stored is None else Switch(model=llm, previous=before, cause=SwitchCause.RECOVERED)
    if stored is not None and stored.model == llm and (stored.until is None or until in (0.0, stored.until)):
        return None
    return Switch(model=llm, previous=before, cause=cause, until=until)


def _share(deadline: float | None) -> float | None:
    """Return the seconds that one model may hang, so that the turn has as many left for the others."""
    return None if deadline is None else max(0.0, deadline - asyncio.get_running_loop().time()) / 2
