"""From the events of a generation to the response object."""

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Any, Literal, NamedTuple

from mail.core.decisions.conversation import Conversation
from mail.core.decisions.items import Answer, Question
from mail.core.task.client_tools import ClientTool, ClientTools
from mail.core.task.costs import NO_USAGE, Usage
from mail.core.task.events import Event, EventKind
from mail.http.inputs import own_name
from mail.http.openai.submission import ResponseId

JSONObject = dict[str, Any]

Status = Literal["in_progress", "completed", "incomplete", "failed", "cancelled"]

UNANSWERED = ("failed", "cancelled")
"""How a response ends without an answer: then its error says why."""


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
    return {"type": "function", **tool.renamed(own_name(tool.name)).model_dump()}


class Work:
    """The output of one generation of a task, from its events so far.

    Attributes:
        began: time of its first event, in ISO 8601.
        has_begun: whether it has one.
        end: the event that ended it; None while it runs.
        usage: the usage of its model calls.
    """

    def __init__(self, generation: int = 1) -> None:
        """Read a generation, counted from the first event that will be read; each one ends with a terminal event."""
        self.began = ""
        self.has_begun = False
        self.end: Event | None = None
        self.usage = NO_USAGE
        self._to_skip = generation - 1
        self._is_out_of_steps = self._is_cancelled = False
        self._reader = Conversation()
        self._questions: dict[str, Question] = {}
        self._files: tuple[JSONObject, ...] = ()

    @classmethod
    async def of(cls, timeline: AsyncGenerator[Event], generation: int = 1) -> "Work":
        """Read a generation's events from a task's timeline, without keeping them."""
        work = cls(generation)
        async with aclosing(timeline):
            async for event in timeline:
                work.read(event)
                if work.end is not None:
                    break
        return work

    def read(self, event: Event) -> None:
        """Read the task's next event."""
        if not self.has_begun:
            self.began = event.timestamp  # it may begin with the end of the previous one
        if self._to_skip:
            self._to_skip -= event.is_terminal
            return
        self.has_begun = True
        self._is_out_of_steps |= event.is_out_of_steps
        self._is_cancelled |= event.kind is EventKind.TASK_CANCELLED
        if event.is_terminal:
            self.end = event
        if event.extra.usage is not None:
            self.usage += event.extra.usage
        for item in self._reader.read(event):
            if isinstance(item, Question):
                self._questions[item.id] = item
            elif isinstance(item, Answer):
                self._files = item.files

    @property
    def status(self) -> Status:
        """Return OpenAI's status; incomplete is an answer that was given because of the step limit."""
        match self.end:
            case None:
                return "in_progress"
            case _ if self._is_cancelled:
                return "cancelled"
            case Event(kind=EventKind.TASK_ERROR):
                return "failed"
        return "incomplete" if self._is_out_of_steps else "completed"

    def output(self, response_id: ResponseId, said: str = "") -> list[JSONObject]:
        """Return the output's items: the answer, or the calls that wait for their results.

        `said` is text that was streamed before such calls.
        """
        end = self.end
        if end is None or self.status in UNANSWERED:
            return []
        name = response_id.name
        if not end.is_pause:
            return [message_item(response_id, end.text, self.status, self._files)]
        calls = [
            {
                "type": "function_call",
                "id": f"fc_{name}_{n}",
                "call_id": response_id.call(call.call_id),
                "name": own_name(call.name),
                "arguments": json.dumps(call.arguments),
                "status": "completed",
            }
            for n, call in enumerate(item for item in self._questions.values() if item.is_open)
        ]
        return [message_item(response_id, said, self.status), *calls] if said else calls


def message_item(
    response_id: ResponseId, text: str, status: Status, files: Sequence[JSONObject] = ()
) -> JSONObject:
    """Return the item of an answer."""
    annotations = [{"type": "file_path", "file_id": file["id"], "index": 0} for file in files]
    content = {"type": "output_text", "text": text, "annotations": annotations, "logprobs": []}
    item_id = f"msg_{response_id.name}"
    return {"type": "message", "id": item_id, "role": "assistant", "status": status, "content": [content]}


def describe(response_id: ResponseId, echo: Echo, work: Work, said: str = "") -> JSONObject:
    """Return the response object of OpenAI's API; for `said`, see `Work.output`."""
    status, end = work.status, work.end
    return {
        "id": str(response_id),
        "object": "response",
        "created_at": _seconds(work.began),
        "completed_at": _seconds(end.timestamp) if end is not None and status == "completed" else None,
        "status": status,
        "error": {"code": "server_error", "message": end.text} if end and status in UNANSWERED else None,
        "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
        "output": work.output(response_id, said),
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
