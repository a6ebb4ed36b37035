"""Guards: functions that judge what an agent is about to do, before anything of it leaves its turn."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import field, replace
from enum import StrEnum
from math import inf
from typing import Any, Literal, get_args

from mail.core.protocol.values import value
from mail.errors import ConfigurationError

Stage = Literal["message", "call", "result", "answer"]

STAGES: tuple[Stage, ...] = get_args(Stage)

GUARD_SECONDS = 30.0
"""Seconds that a guard may take, unless it says otherwise."""

MAX_GUARDS = 10
"""Guards of an agent, those of its swarm included."""

MAX_REASON = 500
"""Characters of a guard's reason or question."""

TEXT = -1
"""The place of what an agent writes outside of its calls, which have their index as place."""


@value(kw_only=True)
class Act:
    """What a guard judges.

    Attributes:
        on: a `message` to agents or other swarms, a `call` of an action or another tool that is not MAIL's, the
            `result` of an action, or an `answer` to the user.
        agent: the agent that acts.
        caller: the owner of the task, as `role:id@swarm`.
        task_id: the id of the task.
        text: what is judged. Of a message its subject, an empty line and its body; of a call its arguments as JSON.
        tool: the tool that the agent calls; empty for text without a call.
        arguments: those of the call; empty for text without one.
        target: who gets a message, or `user`; empty if that isn't known yet.
    """

    on: Stage
    agent: str
    caller: str
    task_id: str
    text: str
    tool: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    target: str = ""


@value
class Allow:
    """The act may happen; use the constant `ALLOW`."""


ALLOW = Allow()


@value
class Replace:
    """The act may happen with other words: a text or, for a call, its arguments as a mapping or as JSON."""

    by: str | Mapping[str, Any]


@value
class Refuse:
    """The act does not happen. Its agent reads the reason, and so may people: quote nothing secret in it."""

    reason: str


@value
class AskPerson:
    """A person decides on the call, as with `needs_approval`. Only for calls of actions."""

    question: str = ""


Ruling = Allow | Replace | Refuse | AskPerson


@value(kw_only=True)
class Guard:
    """A guard, ready to run.

    Attributes:
        function: judges an act.
        on: the acts that it judges.
        timeout: seconds that it may take.
        fails_open: whether an act is allowed if the guard raises an exception or takes too long; otherwise refused.
        checkpointed: whether what it judges is stored before, and its verdict after, so that a crash repeats neither
            the reply nor the verdict: for guards that cost something, such as those that ask a model.

    Raises ConfigurationError for invalid settings.
    """

    name: str
    function: Callable[[Act], Awaitable[Ruling]]
    on: frozenset[Stage]
    timeout: float = GUARD_SECONDS
    fails_open: bool = False
    checkpointed: bool = False

    def __post_init__(self) -> None:
        if not self.name:
            raise ConfigurationError("a guard needs a name")
        if not self.on or not self.on <= {*STAGES}:
            raise ConfigurationError(f"guard {self.name!r}: on must be one or more of {', '.join(STAGES)}")
        if isinstance(self.timeout, bool) or not 0 < self.timeout < inf:
            raise ConfigurationError(f"guard {self.name!r}: timeout must be a number of seconds above 0")


Guards = tuple[Guard, ...]

REPLIES: frozenset[Stage] = frozenset({"message", "call", "answer"})
"""What a model says, and not what an action returns."""

WORDS: frozenset[Stage] = frozenset({"message", "answer"})
"""What an agent writes to others."""


def judges(guards: Iterable[Guard], stages: frozenset[Stage]) -> bool:
    """Return whether one of the guards judges one of these."""
    return any(not guard.on.isdisjoint(stages) for guard in guards)


class Outcome(StrEnum):
    """What a guard has decided."""

    ALLOW = "allow"
    REPLACE = "replace"
    REFUSE = "refuse"
    ASK = "ask"


@value(kw_only=True)
class Verdict:
    """What a guard has decided on an act of a turn.

    Attributes:
        place: the index of the call, or `TEXT`.
        reason: why it refuses, or what it asks.
        by: what replaces the text; of a call its arguments in JSON.
        failed: whether the guard has failed, so that its setting has decided.
    """

    on: Stage
    place: int
    guard: str
    outcome: Outcome
    reason: str = ""
    by: str = ""
    failed: bool = False


@value(kw_only=True)
class Judgement:
    """The verdicts on a turn so far.

    Attributes:
        is_applied: whether those on the agent's reply are complete, and have changed it. Until then the checkpoint has
            the reply as the model gave it.
    """

    verdicts: tuple[Verdict, ...] = ()
    is_applied: bool = False

    def and_(self, verdict: Verdict) -> "Judgement":
        """Return the judgement with a further verdict."""
        return replace(self, verdicts=(*self.verdicts, verdict))

    def find(self, stage: Stage, place: int, guard: str) -> Verdict | None:
        """Return what a guard has decided, if it has."""
        wanted = (stage, place, guard)
        return next((each for each in self.verdicts if (each.on, each.place, each.guard) == wanted), None)

    def refusal(self, place: int) -> Verdict | None:
        """Return what refuses the call at a place, or the text; None if nothing does."""
        return next((each for each in self._replies(place) if each.outcome is Outcome.REFUSE), None)

    def asks(self, place: int) -> bool:
        """Return whether a person must approve the call at a place."""
        return any(each.outcome is Outcome.ASK for each in self._replies(place))

    def question(self, place: int) -> str:
        """Return what guards ask a person about the call at a place: a line for each."""
        return "\n".join(each.reason for each in self._replies(place) if each.outcome is Outcome.ASK)

    def _replies(self, place: int) -> Iterable[Verdict]:
        return (each for each in self.verdicts if each.place == place and each.on != "result")


NO_JUDGEMENT = Judgement()
