"""The state of a turn that is not finished: its checkpoint, or the breakpoint at which it paused its task."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, field, replace
from enum import StrEnum
from hashlib import sha256
from typing import Any, ClassVar

from pydantic import ConfigDict

from mail.core.protocol.calls import AgentToolCall, ToolFormat
from mail.core.protocol.question_text import describe_question, question_argument
from mail.core.protocol.values import value
from mail.core.task.approvals import APPROVAL_MARK, Approval
from mail.core.task.callbacks import Callback
from mail.core.task.context import Preparation
from mail.core.task.costs import NO_USAGE, Usage
from mail.core.task.fallback import Switch
from mail.core.task.files import FileRef
from mail.core.task.guards import Judgement, Verdict


@value(kw_only=True)
class Receipt:
    """How far one action of a turn has come; stored before the action starts and after it ends.

    Attributes:
        after: when the action began, in seconds after the beginning of the turn; None if it has not begun.
        seconds: how long it took, with all attempts.
        attempts: their number.
        apart: the bytes of its result that are stored apart, as the agent sees only the beginning.
        callback: what finishes the call, if its action finishes later.
    """

    class State(StrEnum):
        """STARTED in the checkpoint of a repeated turn means that the action's outcome is unknown.

        HELD: the action does not run before a person has approved the call. WAITING: its work has begun, and finishes
        later; so does that of a STARTED one with a callback which may not be repeated.
        """

        STARTED = "started"
        DONE = "done"
        FAILED = "failed"
        HELD = "held"
        WAITING = "waiting"

    state: State
    content: str = ""
    after: float | None = None
    seconds: float | None = None
    attempts: int = 1
    apart: int = 0
    callback: Callback | None = None


@value(kw_only=True)
class CallTiming:
    """The timing of a model call: its begin, in seconds `after` the turn's, and its duration with all attempts."""

    model: str
    after: float
    seconds: float
    attempts: int = 1


@value(kw_only=True)
class TurnTiming:
    """The timing of a turn, for its record.

    Attributes:
        began: when it, or its first attempt, began, in ISO 8601.
        seconds: its duration so far, earlier attempts included.
    """

    began: str
    seconds: float
    model_calls: tuple[CallTiming, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the timing in the JSON of the turn's first event."""
        shown: dict[str, Any] = {"began": self.began, "seconds": self.seconds}
        if self.model_calls:
            shown["model_calls"] = [
                {name: fact for name, fact in asdict(call).items() if (name, fact) != ("attempts", 1)}
                for call in self.model_calls
            ]
        return shown

    @classmethod
    def from_json(
        cls, began: str, seconds: float, model_calls: Iterable[Mapping[str, Any]] = ()
    ) -> "TurnTiming":
        """Return the timing that `as_json` has returned, field by field."""
        calls = tuple([CallTiming(**call) for call in model_calls])
        return cls(began=began, seconds=seconds, model_calls=calls)


@value(kw_only=True)
class Checkpoint:
    """An unfinished turn.

    Attributes:
        text: what the agent said, if anything.
        calls: its tool calls.
        receipts: one per call that runs an action, None for the rest.
        usage, models: what its models have cost so far, in total and by model; a repeated turn still reports it.
        timing: the turn's timing; None for a quick turn that calls no model and no action.
        switch: the switch to another model that its call has made or prolonged, if any.
        approved: whether the calls are those of an earlier turn, which a person has approved (`Task.approved_calls`).
        attempt: the attempt at the turn (`Lease.attempt`) in which its last action ended.
        preparation: what the turn does to the agent's context; None for nothing.
        files: the files of the task that it mentions, by id; they are not stored, but found again.
        judgement: what guards have decided so far; None if nothing.
    """

    text: str | None
    calls: tuple[AgentToolCall, ...]
    receipts: tuple[Receipt | None, ...]
    usage: Usage = NO_USAGE
    models: dict[str, Usage] = field(default_factory=dict)
    timing: TurnTiming | None = None
    switch: Switch | None = None
    approved: bool = False
    attempt: int = 1
    preparation: Preparation | None = None
    files: Mapping[str, FileRef] = field(default_factory=dict)
    judgement: Judgement | None = None

    @property
    def is_called(self) -> bool:
        """Whether it has the agent's output; else the agent is called with the prepared context."""
        return self.preparation is None or self.preparation.is_called

    @property
    def ended(self) -> int:
        """The number of its actions that have ended."""
        over = (Receipt.State.DONE, Receipt.State.FAILED, Receipt.State.WAITING)
        return sum(receipt is not None and receipt.state in over for receipt in self.receipts)

    def refusal(self, place: int) -> Verdict | None:
        """Return what refuses the call at an index, or the text (`TEXT`); None if nothing does."""
        return None if self.judgement is None else self.judgement.refusal(place)

    def asks(self, index: int) -> bool:
        """Return whether a guard has a person approve the call at this index."""
        return self.judgement is not None and self.judgement.asks(index)

    def place(self, index: int) -> str:
        """Return the place of the call at `index` among those of its turn, which a repeated call keeps."""
        return f"{'approved' if self.approved else 'called'} {index}"

    def with_receipt(self, index: int, receipt: Receipt | None) -> "Checkpoint":
        """Return the checkpoint with the receipt of the call at `index`; None takes it back."""
        return replace(self, receipts=(*self.receipts[:index], receipt, *self.receipts[index + 1 :]))


@value(kw_only=True)
class Prepaid:
    """Cost of a discarded turn that its task has been charged for already.

    If its checkpoint is kept, the repeated turn continues with the checkpoint's sums, which include this cost.

    Attributes:
        seq: the seq of the turn's message.
    """

    seq: int
    usage: Usage
    models: dict[str, Usage]


@value(kw_only=True)
class OpenUserQuestion:
    """A question to the task's owner that waits for an answer (`mail.core.task.swarm.UserQuestion`)."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")  # for the API's schema

    request_id: str
    answer_subjects: tuple[str, ...]
    routing_info: dict[str, Any] | None

    def is_answered_by(self, subject: str) -> bool:
        """Return whether a message with this subject answers it; case and whitespace are ignored."""
        return _normal(subject) in map(_normal, self.answer_subjects)


def _normal(subject: str) -> str:
    return " ".join(subject.split()).casefold()


@value(kw_only=True)
class Decision:
    """The decision on a call that needs approval, or the answer to its question.

    Attributes:
        is_approved: whether the engine runs the call; else it is rejected, or answered.
        by: the principal who decided; empty if nobody did in time.
        arguments: those that the person has put in place of the model's; None to keep them.
        answer: the answer to the question that the call asks; empty for other decisions.
    """

    is_approved: bool
    by: str = ""
    reason: str = ""
    arguments: dict[str, Any] | None = None
    answer: str = ""


@value(kw_only=True)
class PausedCall:
    """A call that waits for a person: for the result of a breakpoint tool, or for the approval of an action.

    Attributes:
        asks: the question that it put to the user, if any.
        needs_approval: whether it is a call of an action, which the engine runs if a person approves it.
        reviewers: who decides on it, or answers its question; None for the task's owner.
        approve_within: seconds after which it is escalated or counts as decided; None for no limit.
        approve_by: that time, in seconds since the epoch.
        question: what guards ask about it; empty if none does.
        approval: the decision, if there is one, or the result that its owner gives while other calls wait.
    """

    call_id: str
    name: str
    arguments: dict[str, Any]
    asks: OpenUserQuestion | None = None
    needs_approval: bool = False
    reviewers: Approval | None = None
    approve_within: float | None = None
    approve_by: float | None = None
    question: str = ""
    approval: Decision | None = None

    @property
    def arguments_text(self) -> str:
        """The arguments as JSON text, as clients receive it: in ASCII, so that no character in it is invisible."""
        return json.dumps(self.arguments)

    @property
    def digest(self) -> str:
        """The SHA-256 of that text, in hexadecimal."""
        return sha256(self.arguments_text.encode()).hexdigest()

    @property
    def question_argument(self) -> str | None:
        """The name of the argument that holds its question; None if it asks none."""
        return None if self.needs_approval else question_argument(self.arguments)

    @property
    def is_held(self) -> bool:
        """Whether it waits for a decision: on a call of an action, or by the reviewers who answer its question."""
        return self.needs_approval or self.reviewers is not None

    @property
    def is_undecided(self) -> bool:
        """Whether it still waits for a decision."""
        return self.is_held and self.approval is None

    @property
    def needs_result(self) -> bool:
        """Whether it still waits for a result of the task's owner."""
        return not self.is_held and self.approval is None


@value(kw_only=True)
class Breakpoint:
    """Why a task is paused: `agent` needs the results of `calls`, or their approval, from the user.

    Attributes:
        woken_by: the seq of a message that only wakes the engine to run approved calls, and that the agent does not
            read.
        id: begins with its time, and names its approvals; empty without any.
    """

    agent: str
    tool_format: ToolFormat
    calls: tuple[PausedCall, ...]
    woken_by: int | None = None
    id: str = ""

    def approval_id(self, call: PausedCall) -> str:
        """Return what names the approval of a call to those who may decide."""
        return f"{self.id}{APPROVAL_MARK}{self.calls.index(call)}"

    @property
    def question(self) -> str:
        """What the undecided calls ask, in words: a line for each."""
        return "\n".join(
            describe_question(
                self.agent,
                call.name,
                call.arguments,
                needs_approval=call.needs_approval,
                reviewers=call.reviewers.by if call.reviewers else (),
            )
            for call in self.calls
            if call.approval is None
        )

    @property
    def approve_by(self) -> float | None:
        """When the first undecided call counts as rejected, in seconds since the epoch; None for never."""
        times = [call.approve_by for call in self.calls if call.is_undecided and call.approve_by is not None]
        return min(times, default=None)


@value(kw_only=True)
class Resumption:
    """An unread message that resumes `agent` at a breakpoint; the results were added to the agent's history.

    Attributes:
        portions: the number of portions of that history; if there are more, the agent has read the results already.
    """

    seq: int
    agent: str
    portions: int
