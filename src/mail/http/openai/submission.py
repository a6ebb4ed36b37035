"""From a request to a submission that begins a task, or continues the caller's task from its last answer.

The agents get one message. If the input is one message of a user, it has just its text; otherwise it consists of
sections, each below its role in brackets: `[instructions]`, `[user]`, `[assistant]`, …

A client that sends the whole conversation with each request continues a paused task, too: the ids of the calls that it
returns results of name the response that made them.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

from pydantic_core import to_json

from mail.core.decisions.submit import DEFAULT_SUBJECT, ResumeFrom, Submission, title_of
from mail.core.engine.files import CallerFiles
from mail.core.protocol.values import value
from mail.core.task.client_tools import MAX_TOOL_NAME, RESERVED, ClientTools
from mail.core.task.files import MAX_FILES, FileRef
from mail.core.task.swarm import SwarmCore
from mail.core.task.task import Task
from mail.http.openai.errors import RefusedRequest
from mail.http.openai.request import (
    FilePart,
    FunctionCall,
    FunctionCallOutput,
    Item,
    MessageItem,
    PostResponses,
    Text,
    text_of,
)
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

LENT = "caller__"
"""Begins the names of those of the caller's tools that have the name of a tool of MAIL or of the swarm."""

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


def own_name(name: str) -> str:
    """Return the name that a tool of the caller has for the caller."""
    return name.removeprefix(LENT)


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


class _Text(NamedTuple):
    """The message to the agents. The subject is the default if the body begins with the topic."""

    body: str
    subject: str = DEFAULT_SUBJECT


def find_continued(items: Sequence[Item]) -> tuple[ResponseId, list[Item]] | None:
    """Return the response to whose calls the input has the results, with the part of the input that came after it.

    None if the input has no results, or those of calls that have no response's id.
    """
    results = [item for item in items if isinstance(item, FunctionCallOutput)]
    found = _CALL_ID.fullmatch(results[-1].call_id) if results else None
    name = ResponseId.parse(found[1]) if found else None
    if name is None:
        return None
    prefix = name.call("")
    begin = next(
        n
        for n, item in enumerate(items)
        if isinstance(item, FunctionCall | FunctionCallOutput) and item.call_id.startswith(prefix)
    )
    later: list[Item] = [
        item
        for item in items[begin:]
        if isinstance(item, FunctionCallOutput)
        or (isinstance(item, MessageItem) and item.role != "assistant")
    ]
    return name, later


def make_submission(
    request: PostResponses,
    items: Sequence[Item],
    files: Mapping[FilePart, FileRef],
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
    messages: Sequence[Item] = items
    instructions = request.instructions
    if previous is None:
        _check_pairs(items, {})
        _check_text(messages, files)
    else:
        waiting = previous.waiting if previous.is_last else {}
        messages = [item for item in items if isinstance(item, MessageItem)]
        outputs = [item for item in items if isinstance(item, FunctionCallOutput)]
        if previous.is_last:
            _check_pairs(items, waiting)
        if instructions == previous.task.generation.notes.get("instructions"):
            instructions = None  # in the agents' histories already
        if waiting or (outputs and not previous.is_last):
            resume_from = ResumeFrom.BREAKPOINT_TOOL_CALL
            results = [
                {"call_id": waiting.get(item.call_id, item.call_id), "content": text_of(item.output)}
                for item in outputs
                if item.call_id in (*waiting, *waiting.values())
            ]
        else:
            resume_from = ResumeFrom.USER_RESPONSE
            _check_text(messages, files)
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
        files=tuple(dict.fromkeys(ref.id for ref in files.values()))[-MAX_FILES:],
        live=bool(request.stream),
        deltas=bool(request.stream),
    )


def lend(tools: ClientTools | None, swarm: SwarmCore) -> ClientTools | None:
    """Return the caller's tools under names that no tool of the swarm has (`own_name` gives back theirs).

    Raises RefusedRequest for names that are then too long.
    """
    if tools is None:
        return None
    taken = {*RESERVED, *swarm.actions, *swarm.breakpoint_tools}

    def lent(name: str) -> str:
        return f"{LENT}{name}" if name in taken or name.startswith(LENT) else name

    if long := [tool.name for tool in tools.tools if len(lent(tool.name)) > MAX_TOOL_NAME]:
        raise RefusedRequest(f"the names of these tools are too long: {', '.join(long)}", param="tools")
    return ClientTools(
        tools=tuple(tool.renamed(lent(tool.name)) for tool in tools.tools),
        required=tuple(map(lent, tools.required)),
        parallel=tools.parallel,
    )


async def store_files(files: CallerFiles, instance: str, items: Iterable[Item]) -> dict[FilePart, FileRef]:
    """Return the files of messages, after storing those of which they have the bytes."""
    stored: dict[FilePart, FileRef] = {}
    for item in items:
        for part in item.content if isinstance(item, MessageItem) else ():
            if isinstance(part, FilePart) and part not in stored:
                stored[part] = (
                    await files.find(instance, part.file_id)
                    if part.file_id
                    else await files.put(instance, part.file())
                )
    return stored


def _check_size(client_tools: ClientTools | None, notes: dict[str, Any]) -> None:
    size = len(to_json((client_tools, notes)))
    if size > MAX_BYTES:
        raise RefusedRequest(
            f"tools, instructions and metadata can have at most {MAX_BYTES} bytes together; these have {size}",
            param="tools",
        )


def _check_pairs(items: Sequence[Item], waiting: Mapping[str, str]) -> None:
    """Raise RefusedRequest, with OpenAI's texts, unless every call has its output and every output a call."""
    calls = {item.call_id for item in items if isinstance(item, FunctionCall)}
    outputs = [item.call_id for item in items if isinstance(item, FunctionCallOutput)]
    known = {**waiting, **{call_id: call_id for call_id in calls}}
    for call_id, own in known.items():
        if call_id not in outputs and own not in outputs:
            raise RefusedRequest(f"No tool output found for function call {call_id}.", param="input")
    for call_id in outputs:
        if call_id not in known and call_id not in waiting.values():
            raise RefusedRequest(
                f"No tool call found for function call output with call_id {call_id}.", param="input"
            )


def _check_text(items: Iterable[Item], files: Mapping[FilePart, FileRef]) -> None:
    if not any(isinstance(item, MessageItem) and _read(item.content, files) for item in items):
        raise RefusedRequest("the input has no message", param="input")


def _read(content: Iterable[Text | FilePart], files: Mapping[FilePart, FileRef]) -> str:
    """Return the text of a message, with its files in words."""
    return "\n\n".join(files[part].in_words if isinstance(part, FilePart) else part.text for part in content)


def compose(instructions: str | None, items: Sequence[Item], files: Mapping[FilePart, FileRef]) -> _Text:
    """Compose the message to the agents; with more than a user's message, the last of these gives it a subject."""
    asked = [item.content for item in items if isinstance(item, MessageItem) and item.role == "user"]
    if not instructions and len(items) == len(asked) == 1:
        return _Text(text_of(asked[0]) or _read(asked[0], files))
    sections = [*([("instructions", instructions)] if instructions else []), *_sections(items, files)]
    body = "\n\n".join(f"[{heading}]\n{content}" for heading, content in sections)
    return _Text(body, title_of(DEFAULT_SUBJECT, _read(asked[-1], files))) if asked else _Text(body)


def _sections(items: Iterable[Item], files: Mapping[FilePart, FileRef]) -> Iterable[tuple[str, str]]:
    for item in items:
        match item:
            case MessageItem():
                yield item.role, _read(item.content, files)
            case FunctionCall():
                yield f"call {item.call_id} of the function {item.name}", item.arguments
            case FunctionCallOutput():
                yield f"result of call {item.call_id}", text_of(item.output)
