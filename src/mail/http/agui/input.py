"""What an input says to its thread: the messages that agents have not read, and the answers to what the task waits for.

An input has the whole conversation. New are the messages after the last one of an agent, or after one that was sent
before. Of a thread that there is not yet, all of them are.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from ag_ui import core as ag
from pydantic_core import to_json

from mail.core.decisions.approvals import GivenApproval
from mail.core.decisions.items import Question
from mail.core.protocol.values import value
from mail.core.task.client_tools import ClientTools
from mail.core.task.task import Task
from mail.errors import BadRequest, QuestionOpen
from mail.http.inputs import Called, Entry, GivenFile, Returned, Said, Uploaded, client_tool, read_base64
from mail.http.runs import Reply

OURS = "mail-"
"""Begins the ids of the messages that this server writes."""

ABANDONED = "The user gave no answer."

NO_RESULT = "The application gave no result."

_AGENTS = ("assistant", "tool", "activity", "reasoning")
"""The roles of messages that people didn't write."""


def call_id_of(question: Question) -> str:
    """Return the id of a call, for a client: no other call of its thread has this id."""
    return f"call-{question.id}"


def key_of(thread_id: str, message: ag.Message) -> str:
    """Return the idempotency key of a message."""
    return f"agui-{sha256(f'{thread_id}\n{message.id}'.encode()).hexdigest()}"


def content_of(message: ag.Message) -> bytes:
    """Return what a message that is sent again, under the same id, must be."""
    return message.model_dump_json().encode()


def unread(given: ag.RunAgentInput, task: Task | None) -> list[ag.Message]:
    """Return the messages that the agents of a task have not read; one that is sent again with another text is new."""
    if task is None:
        return [each for each in given.messages if each.role not in ("activity", "reasoning")]
    sent, new = {(each.key, each.digest) for each in task.submitted}, list[ag.Message]()
    for message in reversed(given.messages):
        if message.role == "assistant" or message.id.startswith(OURS):
            break
        if message.role in _AGENTS:
            continue
        if (key_of(given.thread_id, message), sha256(content_of(message)).hexdigest()) in sent:
            break
        new.append(message)
    return new[::-1]


def entries_of(messages: Sequence[ag.Message], context: str) -> list[Entry]:
    """Return messages as a conversation, from which one for agents is composed; the context comes first."""
    entries: list[Entry] = [Said("system", (context,))] if context else []
    for message in messages:
        match message:
            case ag.AssistantMessage():
                if message.content:
                    entries.append(Said("assistant", (message.content,)))
                entries += [
                    Called(call.id, call.function.name, call.function.arguments)
                    for call in message.tool_calls or ()
                ]
            case ag.ToolMessage():
                entries.append(Returned(message.tool_call_id, _result(message)))
            case ag.UserMessage(content=list() as parts):
                entries.append(Said("user", tuple(map(_part, parts))))
            case ag.UserMessage() | ag.SystemMessage() | ag.DeveloperMessage():
                entries.append(Said(message.role, (str(message.content),)))
    return entries


def _part(part: ag.ContentPart) -> str | GivenFile:
    """Return a part of a message. What can't be read here is named in words, as a run must not fail because of it."""
    if isinstance(part, ag.TextPart):
        return part.text
    source, about = part.source, part.metadata if isinstance(part.metadata, dict) else {}
    name = str(about.get("filename") or about.get("name") or "")
    if isinstance(source, ag.DataSource):
        return read_base64(f"data:{source.mime_type};base64,{source.value}", name)
    if isinstance(source, ag.FileSource) and source.provider == "mail":
        return Uploaded(source.value)
    if source.value.startswith("data:"):
        return read_base64(source.value, name)
    return f"[{' '.join(filter(None, (part.type, name)))}: {source.value}]"


def _result(message: ag.ToolMessage) -> str:
    """Return the result of a call as text; files that it has are only named."""
    parts = message.content
    read = [parts] if isinstance(parts, str) else map(_part, parts)
    text = "\n".join(each if isinstance(each, str) else "" for each in read)
    return "\n".join(filter(None, (message.error and f"ERROR: {message.error}", text)))


def context_of(given: ag.RunAgentInput) -> str:
    """Return what the application tells of itself, for agents: its context and its state."""
    told = [f"{each.description}: {each.value}" for each in given.context or ()]
    if given.state:
        told.append(f"The state of the application: {to_json(given.state).decode()}")
    return "\n\n".join(told)


def client_tools_of(tools: Sequence[ag.Tool] | None) -> ClientTools | None:
    """Return the tools of the application. Raises pydantic.ValidationError."""
    declared = tuple(client_tool(each.name, each.description, each.parameters) for each in tools or ())
    return ClientTools(tools=declared) if declared else None


@value
class Answers:
    """The answers of an input to what a task asks; `takes_text` if its message is the answer to the only question."""

    reply: Reply
    takes_text: bool = False


def read_answers(
    given: ag.RunAgentInput, questions: Sequence[Question], tools: ClientTools | None, *, has_text: bool
) -> Answers | None:
    """Return the answers to open questions, of which calls of `tools` are the application's; None for no answer.

    Entries for what isn't asked are ignored. Raises QuestionOpen if others remain without an answer, and BadRequest for
    one that decides nothing.
    """
    entries = {entry.interrupt_id: entry for entry in given.resume or ()}
    results = {each.tool_call_id: each for each in given.messages if isinstance(each, ag.ToolMessage)}
    approvals, contents, left = list[GivenApproval](), dict[str, str](), list[Question]()
    for question in questions:
        call_id = call_id_of(question)
        if (entry := entries.get(call_id)) is not None and question.needs_approval:
            approvals.append(_decision(question, entry))
        elif entry is not None:
            contents[question.call_id] = ABANDONED if entry.status == "cancelled" else _text(entry.payload)
        elif call_id in results:
            contents[question.call_id] = _result(results[call_id])
        elif has_text and tools is not None and tools.holds(question.name):
            contents[question.call_id] = NO_RESULT
        else:
            left.append(question)
    if not (approvals or contents or has_text):
        return None
    if len(questions) == len(left) == 1 and not left[0].needs_approval:
        return Answers(Reply(), takes_text=True)
    if left:
        raise QuestionOpen(
            f"thread {given.thread_id!r} waits for answers: resume it, with an entry for each of "
            f"{', '.join(map(call_id_of, left))}"
        )
    given_results = tuple({"call_id": each, "content": text} for each, text in contents.items())
    return Answers(Reply(approvals=tuple(approvals), results=given_results))


def _decision(question: Question, entry: ag.ResumeEntry) -> GivenApproval:
    if entry.status == "cancelled":
        return GivenApproval(decision="reject", call_id=question.call_id, reason=ABANDONED)
    match entry.payload:
        case bool() as approved:
            payload = {"approved": approved}
        case {"approved": bool()} as payload:
            pass
        case _:
            raise BadRequest(
                f"the payload for {entry.interrupt_id} must be {{'approved': true}} or {{'approved': false}}, as its "
                "responseSchema says"
            )
    arguments = payload.get("editedArgs") if payload["approved"] else None
    decision = "reject" if not payload["approved"] else "approve" if arguments is None else "edit"
    return GivenApproval.model_validate(
        {
            "decision": decision,
            "call_id": question.call_id,
            "arguments": arguments,
            "reason": payload.get("reason") or "",
        }
    )


def _text(payload: Any) -> str:
    return payload if isinstance(payload, str) else to_json(payload).decode()


def has_user_message(entries: Sequence[Entry]) -> bool:
    """Return whether a person says something."""
    return any(isinstance(each, Said) and each.role == "user" and each.content for each in entries)
