"""From a request to a submission: one that begins a task, or goes on with the caller's task from its last answer.

The agents get one message. Where the input is one message of a user it holds just that; anything more is written as
sections, each below its role in brackets: `[instructions]`, `[user]`, `[assistant]`, …
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Self

from pydantic_core import to_json

from mail.core.decisions.submit import ResumeFrom, Submission, check_continues, title_of
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

MOST_BYTES = 128 * 1024
"""How large the tools, the instructions and the metadata may be together: they are kept with the task's state."""

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
"""The fields that a response tells again."""

_ID = re.compile(r"resp_([^\x00-\x1f\x7f#]{1,256})_([1-9][0-9]{0,8})")


class ResponseId(NamedTuple):
    """The name of a response: a task, and the generation of it that the response is the answer of."""

    task_id: str
    generation: int

    def __str__(self) -> str:
        return f"resp_{self.task_id}_{self.generation}"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """The inverse of `str`; None for what is no such name."""
        found = _ID.fullmatch(text)
        return cls(found[1], int(found[2])) if found else None


class Previous(NamedTuple):
    """The response that a request goes on from, and its task."""

    task: Task
    generation: int

    @property
    def waiting(self) -> list[str]:
        """The ids of the calls whose results it waits for."""
        waits = self.task.generation.breakpoint
        return [call.call_id for call in waits.calls] if waits else []


def make_submission(asked: PostResponses, previous: Previous | None) -> Submission:
    """What the request asks of the engine. Raises RefusedRequest, and TaskMovedOn for a response that is not the last."""
    toolbox, notes = asked.toolbox(), _notes(asked)
    _check_size(toolbox, notes)
    return Submission.model_validate(
        {
            "entrypoint": asked.entrypoint,
            "steps": asked.max_steps,
            "timeout": asked.timeout,
            "client_tools": toolbox,
            "notes": notes,
            **(_begin(asked) if previous is None else _go_on(asked, previous)),
        }
    )


def _begin(asked: PostResponses) -> dict[str, Any]:
    _check_pairs(asked.input, ())
    _check_words(asked.input)
    return _words(asked.instructions, asked.input)


def _go_on(asked: PostResponses, previous: Previous) -> dict[str, Any]:
    check_continues(previous.task, previous.generation)
    waiting = previous.waiting
    _check_pairs(asked.input, waiting)
    given = {"task_id": previous.task.task_id, "continues": previous.generation}
    # Agents remember what they have read, so they are told instructions only when these change.
    is_told = asked.instructions == previous.task.generation.notes.get("instructions")
    instructions = None if is_told else asked.instructions
    messages = [item for item in asked.input if isinstance(item, MessageItem)]
    if not waiting:
        _check_words(messages)
        return {**given, "resume_from": ResumeFrom.USER_RESPONSE, **_words(instructions, messages)}
    results = [
        {"call_id": item.call_id, "content": text_of(item.output)}
        for item in asked.input
        if isinstance(item, FunctionCallOutput) and item.call_id in waiting
    ]
    given |= {"resume_from": ResumeFrom.BREAKPOINT_TOOL_CALL, "breakpoint_tool_call_result": results}
    return {**given, **_words(instructions, messages)}


def _notes(asked: PostResponses) -> dict[str, Any]:
    return asked.model_dump(include=set(ECHOED), exclude_none=True)


def _check_size(toolbox: ClientTools | None, notes: dict[str, Any]) -> None:
    size = len(to_json((toolbox, notes)))
    if size > MOST_BYTES:
        raise RefusedRequest(
            f"tools, instructions and metadata may have {MOST_BYTES} bytes together, and these have {size}",
            param="tools",
        )


def _check_pairs(items: Sequence[Item], waiting: Sequence[str]) -> None:
    """Raise RefusedRequest, in OpenAI's words, unless every call has its output and every output a call."""
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


def _check_words(items: Iterable[Item]) -> None:
    if not any(isinstance(item, MessageItem) and text_of(item.content) for item in items):
        raise RefusedRequest("the input holds no message", param="input")


def _words(instructions: str | None, items: Sequence[Item]) -> dict[str, str]:
    """The `body` of the message to the agents, and a `subject` where the body doesn't begin with what it is about."""
    asked = [text_of(item.content) for item in items if isinstance(item, MessageItem) and item.role == "user"]
    if not instructions and len(items) == len(asked) == 1:
        return {"body": asked[0]}
    sections = [*([("instructions", instructions)] if instructions else []), *_sections(items)]
    words = {"body": "\n\n".join(f"[{heading}]\n{content}" for heading, content in sections)}
    if asked:
        words["subject"] = title_of(Submission.model_fields["subject"].default, asked[-1])
    return words


def _sections(items: Iterable[Item]) -> Iterable[tuple[str, str]]:
    for item in items:
        match item:
            case MessageItem():
                yield item.role, text_of(item.content)
            case FunctionCall():
                yield f"call {item.call_id} of the function {item.name}", item.arguments
            case FunctionCallOutput():
                yield f"result of call {item.call_id}", text_of(item.output)
