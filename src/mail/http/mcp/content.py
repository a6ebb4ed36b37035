"""A run as the content of a result, its questions as forms for people, and files in both directions."""

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mcp_types import (
    AudioContent,
    ContentBlock,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    EmbeddedResource,
    ImageContent,
    InputRequest,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from mail.core.decisions import items
from mail.core.decisions.approvals import GivenApproval
from mail.core.decisions.items import Item, Question
from mail.core.engine.files import CallerFiles
from mail.core.task.files import File, FileRef
from mail.core.task.task import TaskStatus
from mail.errors import BadRequest
from mail.http.inputs import GivenFile, Uploaded
from mail.http.runs import Progress, Reply
from mail.mcp.results import file_of

FILES = "mail://files/"
"""Begins the URI of a file."""

INLINE_BYTES = 768 * 1024
"""The images and sounds that are part of one result, as clients take 1 MB of text; others are links."""

_BLOCK: TypeAdapter[ContentBlock] = TypeAdapter(ContentBlock)


class Files:
    """The files of a caller, for one request."""

    def __init__(self, files: CallerFiles, instance: str) -> None:
        self._files = files
        self._instance = instance
        self._room = INLINE_BYTES

    async def draw(self, file: Mapping[str, Any]) -> ContentBlock:
        """Return a file of an answer: an image or sound that has room, or else a link to its resource."""
        ref = FileRef.read(file)
        kind = ref.type.partition("/")[0]
        if kind in ("image", "audio") and ref.size <= self._room:
            self._room -= ref.size
            data = await self._files.read(self._instance, ref.id)
            if data is not None:
                text = b64encode(data).decode()
                block = ImageContent if kind == "image" else AudioContent
                return block(data=text, mime_type=ref.type)
        return ResourceLink(uri=FILES + ref.id, name=ref.name, mime_type=ref.type, size=ref.size)


def read_file(number: int, given: Mapping[str, Any]) -> GivenFile:
    """Return a file of a message. Raises BadRequest."""
    try:
        block = _BLOCK.validate_python(given)
    except ValidationError as error:
        raise BadRequest(f"files[{number}] is no content block of MCP") from error
    match block:
        case ResourceLink(uri=uri) if uri.startswith(FILES):
            return Uploaded(uri.removeprefix(FILES))
        case EmbeddedResource(resource=TextResourceContents(text=text, uri=uri, mime_type=kind)):
            return File(text.encode(), uri.rpartition("/")[2], kind or "text/plain")
    if (file := file_of(block)) is None:
        raise BadRequest(
            f"files[{number}] must be an image, audio or resource whose base64 is what its mimeType says, or a "
            f"resource_link to {FILES}…"
        )
    return file


def open_questions(progress: Progress) -> list[Question]:
    """Return what a run waits for."""
    return [item for item in progress.items if isinstance(item, Question) and item.is_open]


async def draw(progress: Progress, status: TaskStatus, files: Files, *, is_typed: bool) -> dict[str, Any]:
    """Return a run as the fields of a tool's result. Its last text is for models, which need the id of the task."""
    task_id = progress.id.task_id
    blocks: list[ContentBlock] = []
    structured: dict[str, Any] = {"task_id": task_id, "status": status.value}
    for item in progress.items:
        match item:
            case items.Told():
                blocks.append(text_block(f"{item.who} wrote: {item.text}"))
            case items.Answer():
                blocks += [text_block(item.text), *[await files.draw(each) for each in item.files]]
                structured["answer"] = _value(item.text) if is_typed else item.text
            case items.Failed() if status is TaskStatus.FAILED:
                blocks.append(text_block(item.text))
            case items.Cancelled() if status is TaskStatus.CANCELLED:
                blocks.append(text_block(item.text))
    if status is TaskStatus.PAUSED and (questions := open_questions(progress)):
        structured["questions"] = [_describe(each) for each in questions]
        blocks += [text_block(_how_to_reply(task_id, each)) for each in questions]
    elif status is TaskStatus.RUNNING:
        blocks.append(text_block(f"Agents still work. Call `task` with task_id {task_id!r} for the answer."))
    blocks.append(text_block(f"(task_id: {task_id}, {status.value})"))
    has_failed = status in (TaskStatus.FAILED, TaskStatus.CANCELLED)
    return {"content": blocks, "structured_content": structured, "is_error": has_failed}


def words_of(item: Item) -> str:
    """Return what an item says of the progress of agents; empty for others."""
    match item:
        case items.Work(turns=turns, ended=None) if turns:
            return f"{', '.join(item.agents)}: turn {turns}"
        case items.Told():
            return f"{item.who}: {item.text}"
    return ""


def text_block(text: str) -> TextContent:
    """Return a text as content."""
    return TextContent(text=text)


def forms(questions: Iterable[Question]) -> dict[str, InputRequest]:
    """Return questions as forms that a client shows to its user, by ids that no other question of the task has.

    Those that others than the task's owner decide have none.
    """
    return {each.id: _form(each) for each in questions if not each.reviewers}


def read_forms(responses: Mapping[str, Any], questions: Sequence[Question]) -> Reply | None:
    """Return what people have filled in of `forms`; None if that is nothing, as others were declined or are unknown.

    Raises pydantic.ValidationError for an unknown decision.
    """
    approvals: list[GivenApproval] = []
    results: list[dict[str, Any]] = []
    for each in questions:
        match responses.get(each.id):
            case ElicitResult(action="accept", content=dict() as content) if each.needs_approval:
                approvals.append(GivenApproval.model_validate({**content, "call_id": each.call_id}))
            case ElicitResult(action="accept", content=dict() as content):
                results.append({"call_id": each.call_id, "content": str(content.get("answer", ""))})
    return Reply(approvals=tuple(approvals), results=tuple(results)) if approvals or results else None


def _form(question: Question) -> ElicitRequest:
    properties: dict[str, Any] = {"answer": {"type": "string", "title": "Answer"}}
    if question.needs_approval:
        decisions = ["approve", "reject"]
        properties = {
            "decision": {"type": "string", "title": "Decision", "enum": decisions},
            "reason": {"type": "string", "title": "Reason"},
        }
    schema = {"type": "object", "properties": properties, "required": [next(iter(properties))]}
    return ElicitRequest(params=ElicitRequestFormParams(message=_words(question), requested_schema=schema))


def _words(question: Question) -> str:
    if question.reviewers:
        return question.words
    if question.needs_approval:
        return f"The agent {question.agent} wants to call {question.words}. Approve it?"
    return question.asked.text if question.asked else f"The agent {question.agent} asks: {question.words}"


def _describe(question: Question) -> dict[str, Any]:
    return {
        "call_id": question.call_id,
        "name": question.name,
        "arguments": question.arguments,
        "needs_approval": question.needs_approval,
        "words": _words(question),
    }


def _how_to_reply(task_id: str, question: Question) -> str:
    if question.reviewers:
        return _words(question)
    how = f'results [{{"call_id": "{question.call_id}", "content": …}}] (or text, if it is the only question)'
    if question.needs_approval:
        how = f'approvals [{{"call_id": "{question.call_id}", "decision": "approve" or "reject"}}]'
    return f"{_words(question)}\n\nAsk the user. Then call `reply` with task_id {task_id!r} and {how}."


def _value(text: str) -> Any:
    """Return a typed answer as a value; as text if it is none, such as the system's answer to an error."""
    try:
        return from_json(text, allow_inf_nan=False)
    except ValueError:
        return text
