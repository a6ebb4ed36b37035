"""What events say beside their texts: a typed value for each kind that says more. It is JSON only where it leaves core.

In JSON, a field without a default always stands; any other only if it differs from its default.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, asdict, fields
from itertools import filterfalse
from typing import Any, NamedTuple

from mail.core.protocol.values import value
from mail.core.task.approvals import DecisionName
from mail.core.task.costs import Usage
from mail.core.task.fallback import SwitchCause
from mail.core.task.turn_state import TurnTiming


@value(kw_only=True, slots=False)
class Extra:
    """What any event may say.

    Attributes:
        agent: the agent of this swarm that it concerns; empty for none.
        usage, timing: the cost and the timing of the agent's turn, in the first event of that.
        more: data of an event of another program or version, under names that its kind doesn't have here.
    """

    agent: str = ""
    usage: Usage | None = None
    timing: TurnTiming | None = None
    more: Mapping[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the data as clients receive it and stores keep it."""
        data = dict(filterfalse(SHAPES[type(self)].is_default, vars(self).items()))
        if self.usage is not None:
            data["usage"] = asdict(data.pop("usage"))
        if self.timing is not None:
            data["timing"] = data.pop("timing").as_json()
        return data | data.pop("more") if self.more else data


NO_EXTRA = Extra()


@value(kw_only=True, slots=False)
class MessageExtra(Extra):
    """Of a message from the system or an admin, or for copies of an agent.

    Attributes:
        out_of_steps: whether it is the notice of a reached limit.
        redrives: the seq of its dead letter, if it is redriven.
        copies: the copies of agents that receive it.
    """

    out_of_steps: bool = False
    redrives: int | None = None
    copies: Sequence[str] = ()


@value(kw_only=True, slots=False)
class CallExtra(Extra):
    """Of a tool call.

    Attributes:
        reasoning: the model's thoughts before it.
        reasoning_ref: else the call of this turn that has them.
        preamble: the text before it.
    """

    tool_name: str
    tool_args: dict[str, Any]
    tool_call_id: str
    reasoning: str = ""
    reasoning_ref: str | None = None
    preamble: str = ""


@value(kw_only=True, slots=False)
class ContextExtra(Extra):
    """Of a cut of an agent's context.

    Attributes:
        begin: the first portion of its history that it still reads.
        references: the last portion whose long results are references.
        summary: what stands for the portions before the first; empty if nothing does.
    """

    begin: int
    references: int
    summary: str = ""


@value(kw_only=True, slots=False)
class AwaitExtra(Extra):
    """Of an agent that waits for mail, with the reason that it gives."""

    reason: str | None


@value(kw_only=True, slots=False)
class SwitchExtra(Extra):
    """Of an agent whose calls go to another `model` than the `previous` one; see `mail.core.task.fallback.Switch`."""

    model: str
    previous: str
    cause: SwitchCause
    until: float | None = None


@value(kw_only=True, slots=False)
class ActionExtra(Extra):
    """Of an action: when it began, in seconds `after` its turn, or how many `seconds` it took; None if unknown.

    `attempts` is their number if there were several. The id is that of a call that has finished later.
    """

    after: float | None = None
    seconds: float | None = None
    attempts: int | None = None
    tool_call_id: str = ""


@value(kw_only=True, slots=False)
class OpenExtra(Extra):
    """Of an admin who has read the task of another caller: `by` whom, and for which `reason`."""

    by: str
    reason: str


@value(kw_only=True, slots=False)
class WaitExtra(Extra):
    """Of a call whose result comes later: by `finish_by`, in seconds since the epoch."""

    tool_call_id: str
    tool_name: str
    finish_by: float


@value(kw_only=True, slots=False)
class TimerExtra(Extra):
    """Of mail that comes later: when, in seconds since the epoch."""

    timer_id: str
    due: float


@value(kw_only=True, slots=False)
class PauseExtra(Extra):
    """Of a call that waits for the user; the id is that of a call of an action, or of one that has waited before."""

    needs_approval: bool = False
    tool_call_id: str = ""


@value(kw_only=True, slots=False)
class ReviewExtra(Extra):
    """Of a call whose reviewers are asked for a decision, by `decide_by`, in seconds since the epoch.

    Attributes:
        hook: the id of the webhook that gets the request; empty if none does.
    """

    tool_call_id: str
    approval_id: str
    reviewers: Sequence[str]
    decide_by: float | None = None
    hook: str = ""


@value(kw_only=True, slots=False)
class DecisionExtra(Extra):
    """Of a person's decision on a call; see `mail.core.task.turn_state.Decision`."""

    tool_call_id: str
    decision: DecisionName
    by: str | None
    reason: str
    arguments: dict[str, Any] | None = None
    answer: str | None = None


@value(kw_only=True, slots=False)
class TextExtra(Extra):
    """Of text without a tool call.

    Attributes:
        taken_as: the tool that the text stands for; None for a remark, which has its `content`.
        target: the agent that it answers.
    """

    taken_as: str | None
    target: str = ""
    content: str = ""


@value(kw_only=True, slots=False)
class GuardExtra(Extra):
    """Of what guards have decided on a `message`, a `call`, a `result` or an `answer` of an agent.

    Attributes:
        guards: the guard, or all of them if none had an objection.
        outcome: `allow`, `replace`, `refuse`, or `ask` for a person's decision.
        reason: why it refuses, or what it asks.
        failed: whether the guard has failed, so that its setting has decided.
        tool_name, tool_call_id: of the call; empty for text without one.
    """

    guards: Sequence[str]
    on: str
    outcome: str
    reason: str = ""
    failed: bool = False
    tool_name: str = ""
    tool_call_id: str = ""

    @property
    def is_usual(self) -> bool:
        """Whether no guard had an objection, which only a trace shows."""
        return self.outcome == "allow" and not self.failed


@value(kw_only=True, slots=False)
class DeadLetterExtra(Extra):
    """Of mail that left its mailbox unprocessed.

    Attributes:
        message_seq: the seq of the message, or of the first event that was not delivered; None if no event has
            announced the message, which the dead letter's own then has.
        message_id, msg_type, sender, subject: of the message; empty for a webhook's events.
        upto: the seq of the last event that was not delivered.
    """

    mailbox: str
    reason: str
    attempts: int
    message_seq: int | None
    message_id: str = ""
    msg_type: str = ""
    sender: str = ""
    subject: str = ""
    upto: int | None = None


@value(kw_only=True, slots=False)
class RedriveExtra(Extra):
    """Of a dead letter that is redriven, and the principal who does it."""

    dead_letter: int
    by: str


@value(kw_only=True, slots=False)
class DiscardExtra(Extra):
    """Of dead letters that are discarded."""

    dead_letters: Sequence[int]
    by: str


@value(kw_only=True, slots=False)
class DeliveryExtra(Extra):
    """Of events sent to a webhook, and the status of the response to the last."""

    hook: str
    from_: int  # `from` in JSON, which is a word of Python
    to: int
    status: int | None
    attempts: int

    def as_json(self) -> dict[str, Any]:
        return {"from" if name == "from_" else name: fact for name, fact in super().as_json().items()}


@value(kw_only=True, slots=False)
class FailedDeliveryExtra(Extra):
    """Of an event that could not be sent to a webhook, which is retried after `retry` seconds, if at all."""

    hook: str
    seq: int
    status: int | None
    reason: str
    attempts: int
    retry: float | None


@value(kw_only=True, slots=False)
class RemovedWebhookExtra(Extra):
    """Of a webhook that the task no longer has."""

    hook: str
    reason: str = ""


@value(kw_only=True, slots=False)
class ForkExtra(Extra):
    """Of a fork: the task and its last event that the fork has inherited; what its actions do, unless they run."""

    forked_from: str
    at: int
    actions: str = ""


@value(kw_only=True, slots=False)
class ScheduleExtra(Extra):
    """Of a schedule: the id and the owner of the task of a failed `run`, and how many have failed in a row."""

    run: str
    caller: str
    failures: int


@value(kw_only=True, slots=False)
class HistoryExtra(Extra):
    """Of an agent that begins with an earlier history.

    Attributes:
        entries: how many entries it has, in an imported task.
        portions: how many turns have written it, in a fork.
    """

    entries: int = 0
    portions: int = 0


@value(kw_only=True, slots=False)
class EndExtra(Extra):
    """Of the end of a generation.

    Attributes:
        unread_from: the seq of the first question that was not read before this answer.
        question: what the task asks while it is paused, in words; None for another end.
    """

    unread_from: int | None = None
    question: str | None = None


class Shape(NamedTuple):
    """The fields of a class, by their keys in JSON; whether a field, with its value, may be absent."""

    keys: Mapping[str, str]
    is_default: Callable[[tuple[str, object]], bool]
    required: frozenset[str]


class _Shapes(dict[type[Extra], Shape]):
    def __missing__(self, cls: type[Extra]) -> Shape:
        keys = {each.name.removesuffix("_"): each.name for each in fields(cls) if each.name != "more"}
        defaults = {each.name: each.default for each in fields(cls) if each.default is not MISSING}
        shape = Shape(keys, defaults.items().__contains__, frozenset(keys).difference(defaults))
        self[cls] = shape
        return shape


SHAPES: Mapping[type[Extra], Shape] = _Shapes()
"""The fields of each class."""
