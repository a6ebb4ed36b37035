"""From the events of a generation to the response object."""

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import datetime
from typing import Any, Literal, NamedTuple

from mail.core.decisions.conversation import Conversation
from mail.core.decisions.items import Question
from mail.core.task.client_tools import ClientTool, ClientTools
from mail.core.task.costs import NO_USAGE, Usage
from mail.core.task.events import Event, EventKind
from mail.http.openai.submission import ResponseId

JSONObject = dict[str, Any]

Status = Literal["in_progress", "completed", "incomplete", "failed"]


class Echo(NamedTuple):
    """The fields of a request that its response repeats.

    Attributes:
        client_tools: the client's tools.
        notes: the given fields of `mail.http.openai.submission.ECHOED`.
        swarm: name of the swarm, the model if the request names none.
    """

    client_tools: ClientTools | None
    notes: JSONObject
    swarm: str

    def fields(self) -> JSONObject:
        """Return the fields of the response."""
        tools = [] if self.client_tools is None else [_declare(tool) for tool in self.client_tools.tools]
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


class Work:
    """What the events of one generation of a task say, so far.

    Attributes:
        began: time of its first event, in ISO 8601.
        end: the event that ended it; None while it runs.
        usage: the usage of its model calls.
    """

    began = ""
    end: Event | None = None
    usage = NO_USAGE

    def __init__(self) -> None:
        self._is_out_of_steps = False
        self._reader = Conversation()
        self._questions: dict[str, Question] = {}

    @classmethod
    async def of(cls, timeline: AsyncGenerator[Event], generation: int, *, at_first: bool = False) -> "Work":
        """Read a generation's events from a task's timeline, without keeping them; `at_first` only when it began.

        Each generation ends with one terminal event.
        """
        work, number, has_begun = cls(), 1, False
        async with aclosing(timeline):
            async for event in timeline:
                if not has_begun:
                    work.began = event.timestamp  # it may begin with the end of the previous one
                if number == generation:
                    if at_first:
                        break
                    has_begun = True
                    work._read(event)
                number += event.is_terminal
                if number > generation:
                    break
        return work

    def _read(self, event: Event) -> None:
        self._is_out_of_steps |= event.is_out_of_steps
        if event.is_terminal:
            self.end = event
        if event.extra.usage is not None:
            self.usage += event.extra.usage
        self._questions |= {item.id: item for item in self._reader.read(event) if isinstance(item, Question)}

    @property
    def status(self) -> Status:
        """Return OpenAI's status; incomplete is an answer that was given because of the step limit."""
        match self.end:
            case None:
                return "in_progress"
            case Event(kind=EventKind.TASK_ERROR):
                return "failed"
        return "incomplete" if self._is_out_of_steps else "completed"

    def output(self, response_id: ResponseId) -> list[JSONObject]:
        """Return the output's items: the calls that wait for their results, or the answer."""
        end = self.end
        if end is None or end.kind is EventKind.TASK_ERROR:
            return []
        name = str(response_id).removeprefix("resp_")
        if end.is_pause:
            return [
                {
                    "type": "function_call",
                    "id": f"fc_{name}_{n}",
                    "call_id": call.call_id,
                    "name": call.name,
                    "arguments": json.dumps(call.arguments),
                    "status": "completed",
                }
                for n, call in enumerate(item for item in self._questions.values() if item.is_open)
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
    """Return the response object of OpenAI's API."""
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
        "input_tokens_details": {
            "cached_tokens": usage.cached_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }
