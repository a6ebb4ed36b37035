"""What a paused task asks its owner, in words."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mail.cli.output import one_line


@dataclass(frozen=True, slots=True)
class Question:
    """A call that waits for a person: for its result, or for an approval.

    Attributes:
        agent: who asks; empty if unknown.
    """

    call_id: str
    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    needs_approval: bool = False
    agent: str = ""

    def __str__(self) -> str:
        from mail.core.protocol.question_text import describe_question

        return one_line(
            describe_question(self.agent, self.name, self.arguments, needs_approval=self.needs_approval)
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
        )
        for call in calls
        if not call.get("decision")
    )
