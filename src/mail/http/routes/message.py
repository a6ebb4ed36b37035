"""`POST /message`: send the swarm a message."""

from collections.abc import Mapping
from functools import cache, partial
from types import MappingProxyType
from typing import Annotated, Any, Literal
from urllib.parse import quote, urlencode

from fastapi import Depends, Request
from fastapi.responses import Response
from pydantic import Field, FiniteFloat

from mail.core.decisions.approvals import GivenApproval
from mail.core.decisions.submit import ResumeFrom, Submission
from mail.core.engine.watch import SLICE_BYTES, Submitted
from mail.core.protocol.clock import read_time
from mail.core.protocol.message import DEFAULT_SUBJECT, MAILMessage, TaskId
from mail.core.protocol.output_schema import read_output
from mail.core.protocol.values import is_none
from mail.core.task.files import MAX_FILES
from mail.core.task.limits import Budget
from mail.core.task.task import TaskStatus
from mail.errors import AnswerTooLarge, BadRequest, Subject
from mail.http.access import AdminOrUser
from mail.http.answers import answer
from mail.http.audit import refuse_session
from mail.http.bodies import (
    JSON,
    Answered,
    CallDecision,
    Given,
    GivenWebhook,
    JSONBody,
    Problem,
    ignored_fields,
)
from mail.http.openapi import make_router, problems
from mail.http.preferences import PREFER, Preference, read_preference
from mail.http.service import Service, service_of
from mail.http.sse import EVENT_STREAM, stream_events
from mail.http.submission import PARAMETERS, Terms, submit
from mail.http.task_json import AnswerEvent, PendingToolCall, answer_pieces, asked

WARNINGS = "X-Warnings"
MAX_WARNINGS = 1000
"""Characters of the warnings that the header of an answer repeats."""


class CallApproval(CallDecision):
    """A person's decision on a call that waits for approval; `arguments_sha256` is only for a single call."""

    call_id: str | None = Field(
        default=None, description="The call; not needed if only one waits for a decision."
    )
    all: bool = Field(
        default=False,
        description="Whether to decide all calls that still wait for a decision; needed for several without `call_id`.",
    )


class MessageOptions(Given):
    """Further settings of a message."""

    max_steps: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="How many steps the agents may take, for each message that joins the task, before the supervisor "
        "has to finish.",
    )
    timeout: float | None = Field(
        default=None,
        gt=0,
        le=10_000_000,
        allow_inf_nan=False,
        description="Seconds after which the task ends with an error.",
    )
    budget: Budget | None = Field(
        default=None,
        description="Limits after which the supervisor has to finish the task: `turns`, `tokens`, `cost` in US "
        "dollars, `seconds`.",
    )
    breakpoint_tool_call_result: Any = Field(
        default=None,
        description="The results of the breakpoint tools that the task waits for: a JSON string, an object "
        '`{"content"}`, a list `[{"call_id", "content"}]`, or plain text.',
    )
    approvals: list[CallApproval] | CallApproval | None = Field(
        default=None,
        exclude_if=is_none,
        description="Decisions on the calls that wait for approval, as a list or a single one.",
    )


@cache
def no_options() -> MessageOptions:
    """Return the settings of a message that has none."""
    return MessageOptions()


class PostMessage(Given):
    """A message to the swarm."""

    body: str | None = Field(
        default=None, description="The text. It may only be empty when resuming from a breakpoint."
    )
    subject: str | None = Field(default=None, description="The default is `New Message`.")
    msg_type: Literal["request", "response", "broadcast", "interrupt"] | None = Field(
        default=None, description="The default is `request`."
    )
    entrypoint: str | None = Field(
        default=None,
        description="The agent to write to; the default is the task's last entrypoint, or the swarm's for a new task.",
    )
    show_events: bool | None = Field(default=None, description="Whether the answer includes the events.")
    stream: bool | None = Field(default=None, description="Whether to answer with a stream of events.")
    live: bool | None = Field(
        default=None,
        exclude_if=is_none,
        description="Whether the stream includes live events: what agents do, when they do it. Without `stream`, "
        "whether the caller is about to open one that does.",
    )
    deltas: bool | None = Field(
        default=None,
        exclude_if=is_none,
        description="Whether the stream includes live events and the text that models write, piece by piece; the same "
        "without `stream`.",
    )
    items: bool | None = Field(
        default=None,
        exclude_if=is_none,
        description="Whether the stream includes what the events add to the conversation or change in it.",
    )
    task_id: TaskId | None = Field(
        default=None,
        description="The id of the task to begin or continue; the default is a new task whose id the server chooses.",
    )
    resume_from: ResumeFrom | None = Field(default=None, description="Where to resume a stopped task.")
    drop_question: bool | None = Field(
        default=None,
        exclude_if=is_none,
        description="Whether to send the message to a task that waits for an answer, and drop its question. Without it "
        "(or `resume_from: user_response`) such a message is refused with 409.",
    )
    approvals: list[CallApproval] | CallApproval | None = Field(
        default=None,
        exclude_if=is_none,
        description="Decisions on the calls that wait for approval, as a list or a single one. They resume the task at "
        "its breakpoint, so `resume_from` isn't needed. `kwargs.approvals` means the same.",
    )
    files: list[str] | None = Field(
        default=None,
        max_length=MAX_FILES,
        exclude_if=is_none,
        description="The ids of files that go with the message, from `POST /files`.",
    )
    not_before: FiniteFloat | str | None = Field(
        default=None,
        exclude_if=is_none,
        description="When to post the message, at most 366 days ahead: ISO 8601 with its zone, or seconds since the "
        "epoch. The answer is 202 at once, or a stream that waits. A time that has passed is now.",
    )
    kwargs: MessageOptions | None = Field(default=None, description="Further settings.")
    webhook: GivenWebhook | None = Field(
        default=None, description="A webhook for the further events of the task."
    )
    output_schema: dict[str, Any] | None = Field(
        default=None,
        exclude_if=is_none,
        description="The JSON Schema that the answer must fit; the default is that of the swarm, if it has one. "
        "`response` is then JSON text, and `output` its value. At most 8,192 bytes; `$ref` may only refer to the "
        "schema itself.",
    )

    def submission(self, terms: Terms) -> Submission:
        """Return the message for the runtime."""
        options = self.kwargs or no_options()
        if self.approvals is not None and options.approvals is not None:
            raise BadRequest("approvals and kwargs.approvals are the same; send one of them")
        approvals = options.approvals if self.approvals is None else self.approvals
        return Submission(
            body=self.body or "",
            subject=DEFAULT_SUBJECT if self.subject is None else self.subject,
            msg_type=self.msg_type or "request",
            entrypoint=self.entrypoint,
            task_id=terms.task_id,
            resume_from=self.resume_from,
            steps=options.max_steps,
            timeout=options.timeout,
            budget=options.budget,
            ceiling=terms.ceiling,
            breakpoint_tool_call_result=options.breakpoint_tool_call_result,
            drop_question=bool(self.drop_question),
            approvals=() if approvals is None else _given(approvals),
            expects=terms.expects,
            idempotency_key=terms.idempotency,
            webhook=None if self.webhook is None else self.webhook.webhook(),
            live=bool(self.live or self.deltas),
            deltas=bool(self.deltas),
            output_schema=self.output_schema,
            files=tuple(self.files or ()),
            not_before=self.time_to_post(),
        )

    def time_to_post(self) -> float | None:
        """Return when to post the message, in seconds since the epoch; None for now. Raises BadRequest."""
        try:
            return None if self.not_before is None else read_time(self.not_before)
        except ValueError as error:
            raise BadRequest(f"not_before must be {error}") from error


def _given(approvals: list[CallApproval] | CallApproval) -> tuple[GivenApproval, ...]:
    """Return decisions for the runtime."""
    several = approvals if isinstance(approvals, list) else [approvals]
    if not several:
        raise BadRequest("approvals must name at least one decision")
    return tuple(GivenApproval(**dict(each)) for each in several)


class Warned(Answered):
    """An answer with warnings."""

    warnings: list[str] | None = Field(
        default=None,
        description="Only if the request has fields that this server doesn't know and has ignored: what they were.",
    )


class Answer(Warned):
    """The swarm's answer."""

    response: str = Field(
        description="The finishing message; for a task that waits at a breakpoint, the waiting tool calls as "
        "JSON text."
    )
    events: list[AnswerEvent] | None = Field(
        description="The events since the message, if `show_events` was set."
    )
    task_id: str
    status: TaskStatus = Field(description="The task's status with this answer.")
    pending_tool_calls: list[PendingToolCall] = Field(
        description="The tool calls that a paused task waits for, as in `GET /task`."
    )
    question: str | None = Field(
        description="What a paused task asks, in words, as in `GET /task`; null if it asks nothing."
    )
    output: Any = Field(
        default=None,
        description="Only if the task has an output schema, and is complete: the answer as the JSON value that "
        "`response` is the text of.",
    )


class AcceptedLinks(Answered):
    """Links to the task."""

    task: str
    stream: str


class Accepted(Warned):
    """The message is stored and will be processed."""

    task_id: str
    links: AcceptedLinks


TASK_HEADERS: dict[str, Any] = {
    "X-Task-ID": {"description": "The task's id, percent-encoded.", "schema": {"type": "string"}},
    "X-Last-Event-ID": {
        "description": "The event before the message's own, from which an interrupted stream can resume.",
        "schema": {"type": "string"},
    },
}
ACCEPTED: dict[str, Any] = {
    "description": "The message is stored; there is no answer yet.",
    "model": Accepted,
    "headers": {
        **TASK_HEADERS,
        "Location": {"description": "URL of the task.", "schema": {"type": "string"}},
        "Preference-Applied": {
            "description": "The preferences that were honoured.",
            "schema": {"type": "string"},
        },
    },
}
"""Documentation of the response of `accepted`."""


class OpenQuestion(Problem):
    """The message would drop the question of a paused task."""

    pending_tool_calls: list[PendingToolCall] = Field(description="The tool calls that the task waits for.")


OPEN_QUESTION: dict[str, Any] = {
    "description": "The task waits for an answer, and the message says neither that it is one nor to drop the "
    "question.",
    "model": OpenQuestion,
}

RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The answer or, with `stream`, a stream of events that ends with it.",
        "content": EVENT_STREAM,
        "headers": TASK_HEADERS,
    },
    202: ACCEPTED,
    **problems(404, 412, 422),
    409: OPEN_QUESTION,
}
"""Documentation of the responses to a message."""

_WARNINGS_HEADER: dict[str, Any] = {
    WARNINGS: {
        "description": "The warnings of the answer, percent-encoded; only if there are any.",
        "schema": {"type": "string"},
    }
}
_RESPONSES: dict[int | str, dict[str, Any]] = {
    **RESPONSES,
    **{
        code: RESPONSES[code] | {"headers": RESPONSES[code]["headers"] | _WARNINGS_HEADER}
        for code in (200, 202)
    },
}

router = make_router("messages")
_body = JSONBody(PostMessage)


@router.post(
    "/message",
    summary="Send the swarm a message",
    response_model=Answer,
    responses=_RESPONSES,
    openapi_extra={"parameters": [PREFER, *PARAMETERS]},
)
async def post_message(
    request: Request,
    caller: AdminOrUser,
    sent: Annotated[tuple[PostMessage, dict[str, Any]], Depends(_body.read)],
) -> Response:
    """Begin a task, write to a running one, or resume a stopped one, and wait for the answer.

    A client that disconnects never cancels the task.
    """
    body, given = sent
    if body.webhook is not None:
        refuse_session(caller, "mail webhook register URL")
    service = service_of(request)
    holding = service.holding(request)
    if body.stream:
        holding.open_stream()
    await service.refresh()
    warnings = _warnings(given)
    if body.stream:
        await holding.share_stream()
    try:
        submitted = await submit(request, caller.principal(service.runtime.swarm.name), body)
    except BaseException as error:
        await holding.close_stream()
        if not warnings or not isinstance(error, BadRequest):
            raise
        raise BadRequest("; ".join((error.detail, *warnings))) from error
    headers = task_headers(submitted)
    more: dict[str, Any] = {}
    if warnings:
        more["warnings"] = warnings
        headers[WARNINGS] = quote("; ".join(warnings)[:MAX_WARNINGS], safe=" ,;:.'?!()")
    if body.stream:
        return stream_events(
            request,
            submitted.key,
            after=submitted.after,
            until_answer_to=submitted.seq,
            headers=headers,
            live=bool(body.live),
            deltas=bool(body.deltas),
            items=bool(body.items),
        )
    preference = read_preference(request.headers.getlist("prefer"))
    if (due := body.time_to_post()) is not None and due > service.runtime.now():
        return accepted(request, submitted, preference, headers, more)
    message = await await_answer(request, submitted, preference.within(service.wait_limit(request)))
    if message is None:
        return accepted(request, submitted, preference, headers, more)
    response = message.message.body
    more |= await _state(service, submitted, message)
    is_by_agent = message.sender.address_type == "agent"
    if submitted.expects_output and is_by_agent and message.message.subject != Subject.BREAKPOINT_TOOL_CALL:
        more["output"] = read_output(message)
    if body.show_events:
        return await answer_with_events(request, submitted, response, preference, headers, more)
    return JSON({"response": response, "events": None, **more}, headers=headers)


def _warnings(given: dict[str, Any]) -> list[str]:
    """Return a warning for each field that is ignored, with where it belongs or what was probably meant."""
    warnings = ignored_fields(given, PostMessage, "", {"kwargs": MessageOptions})
    if options := given.get("kwargs"):
        warnings += ignored_fields(options, MessageOptions, "kwargs", {"": PostMessage})
    return warnings


async def _state(service: Service, submitted: Submitted, answer: MAILMessage) -> dict[str, Any]:
    """Return the task's id, its status and the calls that it waits for.

    The usual answer, an agent's completion, tells that by itself. Otherwise the task is read.
    """
    state: dict[str, Any] = {
        "task_id": submitted.key.task_id,
        "status": TaskStatus.COMPLETED,
        "pending_tool_calls": [],
        "question": None,
    }
    if answer.is_completion:
        return state
    task = await service.runtime.store.load(submitted.key)
    return state if task is None else {**state, "status": task.status, **asked(task)}


async def answer_with_events(
    request: Request,
    submitted: Submitted,
    response: str | dict[str, Any],
    preference: Preference,
    headers: dict[str, str],
    more: Mapping[str, Any] = MappingProxyType({}),
) -> Response:
    """Return the answer to a message with its events, and `more` fields; 202 if that is more than a function can send.

    The message was accepted, so this is never refused.
    """
    service = service_of(request)
    holding = service.holding(request)
    await holding.wait(SLICE_BYTES)
    pieces = answer_pieces(service, submitted, response, more, holding)
    try:
        return await answer(request, pieces, headers)
    except AnswerTooLarge:
        kept = {name: value for name, value in more.items() if name == "warnings"}
        return accepted(request, submitted, preference, headers, kept)


def task_headers(submitted: Submitted) -> dict[str, str]:
    """Return the headers with the task's id and the event after which the message's stream begins."""
    return {"X-Task-ID": quote(submitted.key.task_id, safe=""), "X-Last-Event-ID": str(submitted.after)}


async def await_answer(request: Request, submitted: Submitted, seconds: float | None) -> MAILMessage | None:
    """Return the finishing message; None when the time is up or the server stops."""
    if seconds == 0:
        return None
    service = service_of(request)
    return await service.wait(request, partial(service.runtime.wait, submitted), seconds)


def accepted(
    request: Request,
    submitted: Submitted,
    preference: Preference,
    headers: dict[str, str],
    more: Mapping[str, Any] = MappingProxyType({}),
) -> JSON:
    """Return the response without an answer: 202, with links to the task, and `more` fields."""
    root = request.scope.get("root_path", "")
    task_id = submitted.key.task_id
    task = f"{root}/task?{urlencode({'task_id': task_id})}"
    query = urlencode({"task_id": task_id, "last_event_id": submitted.after})
    stream = f"{service_of(request).stream_url or root}/task/stream?{query}"
    headers = {**headers, "Location": task}
    if preference.applied:
        headers["Preference-Applied"] = preference.applied
    links = {"task": task, "stream": stream}
    return JSON({"task_id": task_id, "links": links, **more}, status_code=202, headers=headers)
