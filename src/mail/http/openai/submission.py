"""From a request to a submission that begins a task, or continues the caller's task from its last answer.

The agents get one message. If the input is one message of a user, it has just its text; otherwise it consists of
sections, each below its role in brackets: `[instructions]`, `[user]`, `[assistant]`, …
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Self

from pydantic_core import to_json

from mail.core.decisions.submit import DEFAULT_SUBJECT, ResumeFrom, Submission, check_continues, title_of
from mail.core.task.client_tools import ClientTools
from mail.core.task.task import Task
from mail.http.openai.errors import RefusedRequest
from mail.http.openai.request import (
    FunctionCall,
    FunctionCallOutput,
    Item,
    MessageItem,
    PostResponses,
    text_of,
)

MAX_BYTES = 128 * 1024
"""Maximum size of tools, instructions and metadata together, which are stored with the task's state."""

ECHOED = (
    "background",
    "instructions",
    "metadata",
    "model",
    "parallel_tool_calls",
    "previous_response_id",
    "store",
    "tool_choice",
)
"""The fields that a response repeats."""

_ID = re.compile(r"resp_([^\x00-\x1f\x7f#]{1,256})_([1-9][0-9]{0,8})")


class ResponseId(NamedTuple):
    """The id of a response: a task, and the generation whose answer the response is."""

    task_id: str
    generation: int

    def __str__(self) -> str:
        return f"resp_{self.task_id}_{self.generation}"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Read an id; None if the text is not one."""
        found = _ID.fullmatch(text)
        return cls(found[1], int(found[2])) if found else None


class Previous(NamedTuple):
    """The response that a request continues, and its task."""

    task: Task
    generation: int

    @property
    def waiting(self) -> list[str]:
        """Ids of the calls whose results it waits for."""
        return [call.call_id for call in self.task.generation.waiting_calls]


class _Text(NamedTuple):
    """The message to the agents. The subject is the default if the body begins with the topic."""

    body: str
    subject: str = DEFAULT_SUBJECT


def make_submission(request: PostResponses, previous: Previous | None) -> Submission:
    """Return the submission for the engine. Raises RefusedRequest, and TaskMovedOn if a later response exists."""
    client_tools = request.client_tools()
    notes = request.model_dump(include=set(ECHOED), exclude_none=True)
    _check_size(client_tools, notes)
    resume_from, results = None, None
    messages: Sequence[Item] = request.input
    instructions = request.instructions
    if previous is None:
        _check_pairs(request.input, ())
        _check_text(messages)
    else:
        check_continues(previous.task, previous.generation)
        waiting = previous.waiting
        _check_pairs(request.input, waiting)
        messages = [item for item in request.input if isinstance(item, MessageItem)]
        if instructions == previous.task.generation.notes.get("instructions"):
            instructions = None  # in the agents' histories already
        if waiting:
            resume_from = ResumeFrom.BREAKPOINT_TOOL_CALL
            results = [
                {"call_id": item.call_id, "content": text_of(item.output)}
                for item in request.input
                if isinstance(item, FunctionCallOutput) and item.call_id in waiting
            ]
        else:
            resume_from = ResumeFrom.USER_RESPONSE
            _check_text(messages)
    text = _compose(instructions, messages)
    return Submission(
        body=text.body,
        subject=text.subject,
        entrypoint=request.entrypoint,
        task_id=None if previous is None else previous.task.task_id,
        continues=None if previous is None else previous.generation,
        resume_from=resume_from,
        breakpoint_tool_call_result=results,
        steps=request.max_steps,
        timeout=request.timeout,
        client_tools=client_tools,
        notes=notes,
    )


def _check_size(client_tools: ClientTools | None, notes: dict[str, Any]) -> None:
    size = len(to_json((client_tools, notes)))
    if size > MAX_BYTES:
        raise RefusedRequest(
            f"tools, instructions and metadata can have at most {MAX_BYTES} bytes together; these have {size}",
            param="tools",
        )


def _check_pairs(items: Sequence[Item], waiting: Sequence[str]) -> None:
    """Raise RefusedRequest, with OpenAI's texts, unless every call has its output and every output a call."""
    calls = {item.call_id: None for item in items if isinstance(item, FunctionCall)}
    outputs = [item.call_id for item in items if isinstance(item, FunctionCallOutput)]
    for call_id in (*waiting, *calls):
        if call_id not in outputs:
            raise RefusedRequest(f"No tool output found for function call {call_id}.", param="input")
    for call_id in outputs:
        if call_id not in waiting and call_id not in calls:
            raise RefusedRequest(
                f"No tool call found for function call output with call_id {call_id}.", param="input"
            )


def _check_text(items: Iterable[Item]) -> None:
    if not any(isinstance(item, MessageItem) and text_of(item.content) for item in items):
        raise RefusedRequest("the input has no message", param="input")


def _compose(instructions: str | None, items: Sequence[Item]) -> _Text:
    """Compose the message to the agents; with more than a user's message, the last of these gives it a subject."""
    requests = [
        text_of(item.content) for item in items if isinstance(item, MessageItem) and item.role == "user"
    ]
    if not instructions and len(items) == len(requests) == 1:
        return _Text(requests[0])
    sections = [*([("instructions", instructions)] if instructions else []), *_sections(items)]
    body = "\n\n".join(f"[{heading}]\n{content}" for heading, content in sections)
    return _Text(body, title_of(DEFAULT_SUBJECT, requests[-1])) if requests else _Text(body)


def _sections(items: Iterable[Item]) -> Iterable[tuple[str, str]]:
    for item in items:
        match item:
            case MessageItem():
                yield item.role, text_of(item.content)
            case FunctionCall():
                yield f"call {item.call_id} of the function {item.name}", item.arguments
            case FunctionCallOutput():
                yield f"result of call {item.call_id}", text_of(item.output)
