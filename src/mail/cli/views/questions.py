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
        if self.needs_approval:
            return f"{self._asking_agent} wants to run {self._call}"
        text = self.arguments.get("question")
        if text is None and len(self.arguments) == 1:
            (text,) = self.arguments.values()
        if isinstance(text, str):
            return f"{self._asking_agent} asks: {one_line(text)}"
        return f"{self._asking_agent} waits for the result of {self._call}"

    @property
    def _asking_agent(self) -> str:
        return one_line(self.agent) or "the swarm"

    @property
    def _call(self) -> str:
        values = (
            (name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
            for name, value in self.arguments.items()
        )
        return one_line(f"{self.name}({', '.join(f'{name}: {value}' for name, value in values)})")


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
