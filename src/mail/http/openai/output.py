"""From the events of a generation to the response object."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple

from mail.core.task.client_tools import ClientTool, ClientTools
from mail.core.task.events import Event, EventKind
from mail.core.task.usage import NO_USAGE, Usage
from mail.http.openai.submission import ResponseId

JSONObject = dict[str, Any]

Status = Literal["in_progress", "completed", "incomplete", "failed"]


class Echo(NamedTuple):
    """What a response tells again of its request.

    Attributes:
        toolbox: the tools that were lent.
        notes: the fields of `mail.http.openai.submission.ECHOED` that were given.
        swarm: the model, where the request names none.
    """

    toolbox: ClientTools | None
    notes: JSONObject
    swarm: str

    def fields(self) -> JSONObject:
        """As they stand in a response."""
        tools = [] if self.toolbox is None else [_declare(tool) for tool in self.toolbox.tools]
        return {
            "background": False,
            "instructions": None,
            "metadata": {},
            "model": self.swarm,
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "store": True,
            "tool_choice": "auto",
            **self.notes,
            "tools": tools,
        }


def _declare(tool: ClientTool) -> JSONObject:
    return {"type": "function", **tool.model_dump()}


class Work(NamedTuple):
    """What has happened in one generation of a task, so far.

    Attributes:
        began: when it began, in ISO 8601.
    """

    began: str
    events: Sequence[Event]

    @classmethod
    def of(cls, timeline: Sequence[Event], generation: int) -> "Work":
        """The generation's part of a task's timeline: each generation ends with one terminal event."""
        ends = [position + 1 for position, event in enumerate(timeline) if event.is_terminal]
        begin, end = [0, *ends, None][generation - 1 : generation + 1]
        events = timeline[begin:end]
        first = events[0] if events else timeline[-1]  # it may have begun with the end of the one before it
        return cls(first.timestamp, events)

    def at_first(self) -> "Work":
        """The same before anything has come of it."""
        return Work(self.began, ())

    @property
    def end(self) -> Event | None:
        """What has ended it; None while it goes on."""
        return self.events[-1] if self.events and self.events[-1].is_terminal else None

    @property
    def status(self) -> Status:
        """As OpenAI calls it: incomplete is an answer that was given because the steps were used up."""
        match self.end:
            case None:
                return "in_progress"
            case Event(kind=EventKind.TASK_ERROR):
                return "failed"
        return "incomplete" if any(event.is_out_of_steps for event in self.events) else "completed"

    @property
    def usage(self) -> Usage:
        """What its models were paid."""
        spent = [Usage(**event.extra["usage"]) for event in self.events if "usage" in event.extra]
        return sum(spent, NO_USAGE)

    def output(self, response_id: ResponseId) -> list[JSONObject]:
        """The items of the output: the calls that wait for their results, or the answer."""
        end = self.end
        if end is None or end.kind is EventKind.TASK_ERROR:
            return []
        name = str(response_id).removeprefix("resp_")
        if any(event.kind is EventKind.BREAKPOINT_TOOL_CALL for event in self.events):
            calls = json.loads(
                end.text
            )  # the engine wrote it, in the style of the agent's API (SPEC, section 8)
            return [
                {
                    "type": "function_call",
                    "id": f"fc_{name}_{n}",
                    "call_id": call.get("call_id", call["id"]),
                    "name": call["name"],
                    "arguments": call["arguments"],
                    "status": "completed",
                }
                for n, call in enumerate(calls)
            ]
        content = {"type": "output_text", "text": end.text, "annotations": [], "logprobs": []}
        return [
            {
                "type": "message",
                "id": f"msg_{name}",
                "role": "assistant",
                "status": self.status,
                "content": [content],
            }
        ]


def describe(response_id: ResponseId, echo: Echo, work: Work) -> JSONObject:
    """The response object of OpenAI's API."""
    status, end = work.status, work.end
    return {
        "id": str(response_id),
        "object": "response",
        "created_at": _seconds(work.began),
        "completed_at": _seconds(end.timestamp) if end is not None and status == "completed" else None,
        "status": status,
        "error": {"code": "server_error", "message": end.text} if end and status == "failed" else None,
        "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
        "output": work.output(response_id),
        "usage": None if end is None else _describe_usage(work.usage),
        "max_output_tokens": None,
        "reasoning": {"effort": None, "summary": None},
        "temperature": None,
        "text": {"format": {"type": "text"}},
        "top_p": None,
        "truncation": "disabled",
        **echo.fields(),
    }


def _seconds(timestamp: str) -> int:
    return int(datetime.fromisoformat(timestamp).timestamp())


def _describe_usage(usage: Usage) -> JSONObject:
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }
