"""The questions of a paused task to its owner, in words."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from hashlib import sha256
from typing import Any

from mail.cli.output import one_line

MARK = 16
"""Characters of a digest that command lines repeat: too many to find other arguments with the same."""


@dataclass(frozen=True, slots=True)
class Question:
    """A call that waits for a person: for its result, or for an approval.

    Attributes:
        agent: who asks; empty if unknown.
        arguments_text: the arguments as the server has served them; empty if it has not.
        asks: set for a question to the task's owner; it may have a `routing_info`, which names a thread.
        decision: the decision on it, which takes effect once the task's other calls are decided, too.
    """

    call_id: str
    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    needs_approval: bool = False
    agent: str = ""
    arguments_text: str = ""
    reviewers: Sequence[str] = ()
    asks: Mapping[str, Any] | None = None
    decision: str | None = None

    @property
    def thread_id(self) -> str:
        """The thread of a question to the task's owner; empty if it names none."""
        return str(((self.asks or {}).get("routing_info") or {}).get("thread_id", ""))

    @property
    def digest(self) -> str | None:
        """The SHA-256 of the arguments, which binds a decision to them; None if their text is unknown."""
        return sha256(self.arguments_text.encode()).hexdigest() if self.arguments_text else None

    def __str__(self) -> str:
        from mail.core.protocol.question_text import describe_question

        return one_line(
            describe_question(
                self.agent,
                self.name,
                self.arguments,
                needs_approval=self.needs_approval,
                reviewers=self.reviewers,
            )
        )


def questions_of(calls: Iterable[Mapping[str, Any]]) -> tuple[Question, ...]:
    """Return the undecided `pending_tool_calls` of a task."""
    names = [each.name for each in fields(Question)]
    return tuple(
        Question(**{name: call[name] for name in names if call.get(name) is not None})
        for call in calls
        if not call.get("decision")
    )
