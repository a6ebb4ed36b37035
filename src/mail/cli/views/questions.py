"""The questions of a paused task to its owner, in words."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
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
    """

    call_id: str
    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    needs_approval: bool = False
    agent: str = ""
    arguments_text: str = ""
    reviewers: tuple[str, ...] = ()

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
    return tuple(
        Question(
            str(call["call_id"]),
            str(call["name"]),
            call.get("arguments") or {},
            call.get("needs_approval") is True,
            str(call.get("agent") or ""),
            str(call.get("arguments_text") or ""),
            tuple(call.get("reviewers") or ()),
        )
        for call in calls
        if not call.get("decision")
    )
