"""From a request to a submission that begins a task, or continues the caller's task from its last answer.

A client that sends the whole conversation with each request continues a paused task, too: the ids of the calls that it
returns results of name the response that made them.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

from pydantic_core import to_json

from mail.core.decisions.submit import ResumeFrom, Submission
from mail.core.protocol.values import value
from mail.core.task.client_tools import ClientTools
from mail.core.task.swarm import SwarmCore
from mail.core.task.task import Task
from mail.http.inputs import Called, Entry, Returned, Said, StoredFiles, compose, lend
from mail.http.openai.errors import RefusedRequest
from mail.http.openai.request import PostResponses
from mail.http.submission import Terms

MAX_BYTES = 128 * 1024
"""Maximum size of tools, instructions and metadata together, which are stored with the task's state."""

ECHOED = (
    "background",
    "conversation",
    "instructions",
    "metadata",
    "model",
    "parallel_tool_calls",
    "previous_response_id",
    "store",
    "text",
    "tool_choice",
)
"""The fields that a response repeats."""

_ID = re.compile(r"resp_([^\x00-\x1f\x7f#]{1,256})_([1-9][0-9]{0,8})")
_CALL_ID = re.compile(r"(resp_[^\x00-\x1f\x7f#]{1,256}?_[1-9][0-9]{0,8})_.+")


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

    @property
    def name(self) -> str:
        """Return what the ids of the items of its output have in common."""
        return f"{self.task_id}_{self.generation}"

    def call(self, call_id: str) -> str:
        """Return the id of one of its calls, for a client: no other response has a call of this id."""
        return f"{self}_{call_id}"


class Previous(NamedTuple):
    """The response that a request continues, and its task."""

    task: Task
    generation: int

    @property
    def is_last(self) -> bool:
        """Return whether the task has stopped with this response."""
        return not self.task.is_running and self.task.generation.number == self.generation

    @property
    def waiting(self) -> dict[str, str]:
        """The calls whose results it waits for: their ids by those that its client has."""
        name = ResponseId(self.task.task_id, self.generation)
        return {name.call(call.call_id): call.call_id for call in self.task.generation.waiting_calls}


@value
class Prepared:
    """A request that is ready to be submitted (`mail.http.submission.MessageBody`).

    Attributes:
        request: the request, by which a retry is recognised.
        message: its submission, without the terms.
    """

    request: PostResponses
    message: Submission

    @property
    def task_id(self) -> str | None:
        """Id of the task that it continues."""
        return self.message.task_id

    def model_dump_json(self) -> str:
        """Return the request as JSON."""
        return self.request.model_dump_json()

    def submission(self, terms: Terms) -> Submission:
        """Return the submission for the runtime."""
        return self.message.evolve(
            task_id=terms.task_id,
            ceiling=terms.ceiling,
            expects=terms.expects,
            idempotency_key=terms.idempotency,
        )


def find_continued(items: Sequence[Entry]) -> tuple[ResponseId, list[Entry]] | None:
    """Return the response to whose calls the input has the results, with the part of the input that came after it.

    None if the input has no results, or those of calls that have no response's id.
    """
    results = [item for item in items if isinstance(item, Returned)]
    found = _CALL_ID.fullmatch(results[-1].call_id) if results else None
    name = ResponseId.parse(found[1]) if found else None
    if name is None:
        return None
    prefix = name.call("")
    begin = next(
        n for n, item in enumerate(items) if not isinstance(item, Said) and item.call_id.startswith(prefix)
    )
    later: list[Entry] = [
        item
        for item in items[begin:]
        if isinstance(item, Returned) or (isinstance(item, Said) and item.role != "assistant")
    ]
    return name, later


def make_submission(
    request: PostResponses,
    items: Sequence[Entry],
    files: StoredFiles,
    previous: Previous | None,
    swarm: SwarmCore,
    entrypoint: str | None = None,
) -> Submission:
    """Return the submission for the engine, which checks whether `previous` is the last response of its task.

    Args:
        items: what the agents don't know of the request's input.
        files: what was stored of the files in it.
        swarm: the swarm, with whose tools those of the caller must not be confused.
        entrypoint: the agent to write to, unless the request names one.

    Raises RefusedRequest.
    """
    client_tools = lend(request.client_tools(), swarm)
    notes = request.model_dump(include=set(ECHOED), exclude_none=True, by_alias=True)
    _check_size(client_tools, notes)
    resume_from, results = None, None
    said = [item for item in items if isinstance(item, Said)]
    messages: Sequence[Entry] = items if previous is None else said
    instructions = request.instructions
    if previous is None:
        _check_pairs(items, {})
    else:
        waiting = previous.waiting if previous.is_last else {}
        outputs = [item for item in items if isinstance(item, Returned)]
        if previous.is_last:
            _check_pairs(items, waiting)
        if instructions == previous.task.generation.notes.get("instructions"):
            instructions = None  # in the agents' histories already
        if waiting or (outputs and not previous.is_last):
            resume_from = ResumeFrom.BREAKPOINT_TOOL_CALL
            results = [
                {"call_id": waiting.get(item.call_id, item.call_id), "content": item.text}
                for item in outputs
                if item.call_id in (*waiting, *waiting.values())
            ]
        else:
            resume_from = ResumeFrom.USER_RESPONSE
    if results is None and not any(item.in_words(files) for item in said):
        raise RefusedRequest("the input has no message", param="input")
    text = compose(instructions, messages, files)
    conversation = request.conversation
    return Submission(
        body=text.body,
        subject=text.subject,
        entrypoint=request.entrypoint or entrypoint,
        task_id=previous.task.task_id if previous else conversation.task_id if conversation else None,
        begins=previous is None and conversation is not None,
        continues=None if previous is None else previous.generation,
        resume_from=resume_from,
        breakpoint_tool_call_result=results,
        steps=request.max_steps,
        timeout=request.timeout,
        client_tools=client_tools,
        notes=notes,
        output_schema=request.output_schema(),
        files=text.files,
        live=bool(request.stream),
        deltas=bool(request.stream),
    )


def _check_size(client_tools: ClientTools | None, notes: dict[str, Any]) -> None:
    size = len(to_json((client_tools, notes)))
    if size > MAX_BYTES:
        raise RefusedRequest(
            f"tools, instructions and metadata can have at most {MAX_BYTES} bytes together; these have {size}",
            param="tools",
        )


def _check_pairs(items: Sequence[Entry], waiting: Mapping[str, str]) -> None:
    """Raise RefusedRequest, with OpenAI's texts, unless every call has its output and every output a call."""
    calls = {item.call_id for item in items if isinstance(item, Called)}
    outputs = [item.call_id for item in items if isinstance(item, Returned)]
    known = {**waiting, **{call_id: call_id for call_id in calls}}
    for call_id, own in known.items():
        if call_id not in outputs and own not in outputs:
            raise RefusedRequest(f"No tool output found for function call {call_id}.", param="input")
    for call_id in outputs:
        if call_id not in known and call_id not in waiting.values():
            raise RefusedRequest(
                f"No tool call found for function call output with call_id {call_id}.", param="input"
            )
