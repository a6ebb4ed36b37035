"""From a message of A2A to a submission: its text, values and files, or the answer to what a paused task asks."""

from collections.abc import Sequence
from typing import Any

from a2a.types import Message, Role
from google.protobuf.json_format import MessageToDict
from pydantic import Field
from pydantic_core import to_json

from mail.core.decisions.submit import Submission
from mail.core.protocol.values import Value, value
from mail.core.task.files import File
from mail.core.task.limits import Budget
from mail.core.task.task import Task, TaskStatus
from mail.core.task.turn_state import PausedCall
from mail.errors import BadRequest
from mail.http.runs import Reply

ENTRYPOINT = "entrypoint"
"""The key in a message's metadata that names the agent to write to, by the id of a skill."""


@value(kw_only=True)
class Content:
    """What a message says.

    Attributes:
        text: the text of all parts but files, for agents.
        values: the values of its data parts.
        files: the bytes that it brings.
    """

    text: str
    values: tuple[Any, ...]
    files: tuple[File, ...]

    @classmethod
    def read(cls, message: Message) -> "Content":
        """Read the parts of a message. Raises BadRequest for a message of an agent, or one without content."""
        if message.role != Role.ROLE_USER:
            raise BadRequest("the role of a message to this agent must be ROLE_USER")
        texts, values, files = list[str](), list[Any](), list[File]()
        for part in message.parts:
            match part.WhichOneof("content"):
                case "text":
                    texts.append(part.text)
                case "data":
                    values.append(MessageToDict(part.data))
                    texts.append(to_json(values[-1]).decode())
                case "raw":
                    files.append(File(part.raw, part.filename, part.media_type))
                case "url":  # a caller's URL is never fetched by the server; agents may have tools for it
                    about = ", ".join(filter(None, (part.filename, part.media_type)))
                    texts.append(f"[file {about}: {part.url}]" if about else f"[file {part.url}]")
        if not texts and not files:
            raise BadRequest("the message has no parts with content")
        return cls(text="\n\n".join(texts), values=tuple(values), files=tuple(files))


def entrypoint_of(message: Message) -> str | None:
    """Return the agent that a message is for, if it says so."""
    given = MessageToDict(message.metadata).get(ENTRYPOINT)
    if given is not None and not isinstance(given, str):
        raise BadRequest(f"metadata.{ENTRYPOINT} must be the id of a skill of the agent card")
    return given


def submission_of(
    message: Message, content: Content, task: Task | None, file_ids: Sequence[str], steps: int
) -> Submission:
    """Return what a message asks of the runtime; `task` is that of its context, None for a new one.

    `steps` are those that the swarm allows.

    Raises BadRequest for one that doesn't answer what a paused task asks.
    """
    if task is not None and task.status is TaskStatus.PAUSED and task.generation.waiting_calls:
        return _answer(content, task.generation.waiting_calls)
    return Submission(
        body=content.text or "(files only)",
        entrypoint=entrypoint_of(message),
        files=tuple(file_ids),
        drop_question=task is not None and task.status is TaskStatus.PAUSED,
        **_limits(message, steps) if task is None or not task.is_running else {},
    )


class _Limits(Value):
    """What another swarm has left for its task: the keys that swarms of MAIL send each other."""

    steps_left: int | None = Field(default=None, ge=1)
    budget_left: Budget | None = None


def _limits(message: Message, steps: int) -> dict[str, Any]:
    """Return the limits that a message sets for its run, as fields of a submission; `steps` are those of the swarm."""
    given = MessageToDict(message.metadata)
    limits = _Limits.model_validate({name: _whole(given.get(name)) for name in _Limits.model_fields})
    left = steps if limits.steps_left is None else min(limits.steps_left, steps)
    return {"steps": left, "budget": limits.budget_left}


def _whole(given: Any) -> Any:
    """Return a value with its whole numbers as such: in metadata, all numbers are floats."""
    if isinstance(given, dict):
        return {name: _whole(each) for name, each in given.items()}
    return int(given) if isinstance(given, float) and given.is_integer() else given


def _answer(content: Content, calls: Sequence[PausedCall]) -> Submission:
    """Return the answer to waiting calls: a text is the result of the only one, and a data part may have decisions."""
    if content.files:
        raise BadRequest("the task waits for an answer: send text or data, and files with a later message")
    replies = [each for each in content.values if isinstance(each, dict) and each.keys() & Reply.model_fields]
    undecided = ", ".join(call.call_id for call in calls if call.is_undecided and call.reviewers is None)
    if not replies and undecided:
        raise BadRequest(
            "the task waits for approval: send a data part "
            f'{{"approvals": [{{"call_id": "…", "decision": "approve"}}]}} (or "reject") for: {undecided}'
        )
    given = [Reply.model_validate(each) for each in replies]
    return Reply(
        approvals=tuple(each for reply in given for each in reply.approvals),
        results=tuple(each for reply in given for each in reply.results),
    ).submission(content.text)
