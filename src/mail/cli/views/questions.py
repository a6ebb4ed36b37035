"""What a paused task asks its owner, in words."""

import json
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


def questions_of(
    calls: Iterable[Mapping[str, Any]], events: Iterable[tuple[str, Mapping[str, Any]]]
) -> tuple[Question, ...]:
    """Return the undecided `pending_tool_calls` of a task; its events tell which agents ask."""
    agents: dict[str, str] = {}
    for kind, data in events:
        extra = data.get("extra_data") or {}
        if kind == "tool_call":
            agents[str(extra.get("tool_call_id"))] = str(extra.get("agent", ""))
    return tuple(
        Question(
            str(call["call_id"]),
            str(call["name"]),
            call.get("arguments") or {},
            call.get("needs_approval") is True,
            agents.get(str(call["call_id"]), ""),
        )
        for call in calls
        if not call.get("decision")
    )


def read_questions(answer: str | None, agent: str = "") -> tuple[Question, ...]:
    """Return the calls that the answer of a paused task lists; empty for any other text."""
    try:
        calls = json.loads(answer or "")
        return tuple(
            Question(
                str(call.get("call_id") or call["id"]),
                str(call["name"]),
                dict(json.loads(call["arguments"])),
                call.get("needs_approval") is True,
                agent,
            )
            for call in calls
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return ()


def asked_in(answer: str, events: Iterable[Mapping[str, Any]]) -> tuple[Question, ...]:
    """Return what an answer asks; the events of the answer tell which agent."""
    asking_agent = ""
    for event in events:
        if event["event"] == "breakpoint_tool_call":
            asking_agent = str((event["data"].get("extra_data") or {}).get("agent", ""))
    return read_questions(answer, asking_agent)
