"""`POST /message`: send the swarm a message."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal
from urllib.parse import quote, urlencode

from fastapi import Request
from fastapi.responses import Response
from pydantic import Field

from mail.core.decisions.approvals import GivenApproval
from mail.core.decisions.cancel import MAX_REASON
from mail.core.decisions.submit import DEFAULT_SUBJECT, ResumeFrom, Submission
from mail.core.engine.watch import Submitted
from mail.core.protocol.message import MAILMessage, TaskId
from mail.core.task.limits import Budget
from mail.errors import AnswerTooLarge, Subject
from mail.http.access import RoleGate
from mail.http.bodies import JSON, Answered, Given, GivenWebhook, JSONBody
from mail.http.large_answers import answer
from mail.http.openapi import PROTECTED, make_router, problems
from mail.http.preferences import PREFER, Preference, read_preference
from mail.http.service import Service, service_of
from mail.http.sse import EVENT_STREAM, stream_events
from mail.http.submission import PARAMETERS, Terms, submit
from mail.http.task_json import AnswerEvent, PendingToolCall, answer_pieces, pending_calls


class CallApproval(Given):
    """A person's decision on a call that waits for approval."""

    decision: Literal["approve", "edit", "reject"] = Field(
        description="`approve` to run the call, `edit` to run it with other arguments, or `reject`."
    )
    call_id: str | None = Field(
        default=None, description="The call; by default, all calls on which nobody has decided yet."
    )
    arguments: dict[str, Any] | None = Field(
        default=None, description="The arguments to run the call with, instead of the model's."
    )
    reason: str = Field(
        default="", max_length=MAX_REASON, description="The agent reads why a call is rejected."
    )


class MessageOptions(Given):
    """Further settings of a message; unknown ones are ignored."""

    max_steps: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="How many steps the agents may take, for each message that joins the task, before the supervisor has to finish.",
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
        description="Decisions on the calls that wait for approval, one by one or for all of them.",
    )

    def given_approvals(self) -> tuple[GivenApproval, ...]:
        """Return the decisions for the runtime."""
        given = self.approvals
        several = [] if given is None else given if isinstance(given, list) else [given]
        return tuple(GivenApproval(**dict(each)) for each in several)


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
    task_id: TaskId | None = Field(
        default=None,
        description="The id of the task to begin or continue; the default is a new task whose id the server chooses.",
    )
    resume_from: ResumeFrom | None = Field(default=None, description="Where to resume a stopped task.")
    kwargs: MessageOptions | None = Field(default=None, description="Further settings.")
    webhook: GivenWebhook | None = Field(
        default=None, description="A webhook for the further events of the task."
    )

    def submission(self, terms: Terms) -> Submission:
        """Return the message for the runtime."""
        options = self.kwargs or MessageOptions()
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
            approvals=options.given_approvals(),
            expects=terms.expects,
            idempotency_key=terms.idempotency,
            webhook=None if self.webhook is None else self.webhook.webhook(),
        )


class Answer(Answered):
    """The swarm's answer."""

    response: str = Field(
        description="The finishing message; for a task that waits at a breakpoint, the waiting tool calls as "
        "JSON text."
    )
    events: list[AnswerEvent] | None = Field(
        description="The events since the message, if `show_events` was set."
    )
    pending_tool_calls: list[PendingToolCall] | None = Field(
        default=None,
        description="Only if the task waits at a breakpoint: the waiting tool calls, as in `GET /task`.",
    )


class AcceptedLinks(Answered):
    """Links to the task."""

    task: str
    stream: str


class Accepted(Answered):
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

RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The answer or, with `stream`, a stream of events that ends with it.",
        "content": EVENT_STREAM,
        "headers": TASK_HEADERS,
    },
    202: ACCEPTED,
    **problems(400, 404, 412, 413, 422, *PROTECTED),
}
"""Documentation of the responses to a message."""

router = make_router("messages")
_gate = RoleGate("admin", "user")
_body = JSONBody(PostMessage)


@router.post(
    "/message",
    summary="Send the swarm a message",
    response_model=Answer,
    responses=RESPONSES,
    openapi_extra={**_body.docs(), **_gate.docs(), "parameters": [PREFER, *PARAMETERS]},
)
async def post_message(request: Request) -> Response:
    """Begin a task, write to a running one, or resume a stopped one, and wait for the answer.

    A client that disconnects never cancels the task.
    """
    # Called here rather than injected: on this hot path, resolving two dependencies takes FastAPI as long as
    # everything else that it does for a request.
    caller = await _gate(request)
    body = await _body(request)
    service = service_of(request)
    await service.refresh()
    submitted = await submit(request, caller.principal(service.runtime.swarm.name), body)
    headers = task_headers(submitted)
    if body.stream:
        return stream_events(
            request, submitted.key, after=submitted.after, until_answer_to=submitted.seq, headers=headers
        )
    preference = read_preference(request.headers.getlist("prefer"))
    message = await await_answer(service, submitted, preference.within(service.wait_limit(request)))
    if message is None:
        return accepted(request, submitted, preference, headers)
    response, more = message.message.body, dict[str, Any]()
    if message.message.subject == Subject.BREAKPOINT_TOOL_CALL:
        task = await service.runtime.store.load(submitted.key)
        if (
            task is not None and task.generation.breakpoint is not None
        ):  # another swarm's answer may have that subject
            more["pending_tool_calls"] = pending_calls(task)
    if body.show_events:
        return await answer_with_events(request, submitted, response, preference, headers, more)
    return JSON({"response": response, "events": None, **more}, headers=headers)


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
    pieces = answer_pieces(service, submitted, response, more)
    try:
        return await answer(service.large_answers, None, pieces, headers)
    except AnswerTooLarge:
        return accepted(request, submitted, preference, headers)


def task_headers(submitted: Submitted) -> dict[str, str]:
    """Return the headers with the task's id and the event after which the message's stream begins."""
    return {"X-Task-ID": quote(submitted.key.task_id, safe=""), "X-Last-Event-ID": str(submitted.after)}


async def await_answer(service: Service, submitted: Submitted, seconds: float | None) -> MAILMessage | None:
    """Return the finishing message; None when the time is up or the server stops."""
    if seconds == 0:
        return None
    try:
        async with service.stopping.cuts_short():
            return await service.runtime.wait(submitted, seconds)
    except TimeoutError:
        return None


def accepted(request: Request, submitted: Submitted, preference: Preference, headers: dict[str, str]) -> JSON:
    """Return the response without an answer: 202, with links to the task."""
    root = request.scope.get("root_path", "")
    task_id = submitted.key.task_id
    task = f"{root}/task?{urlencode({'task_id': task_id})}"
    stream = f"{service_of(request).stream_url or root}/task/stream?{urlencode({'task_id': task_id, 'last_event_id': submitted.after})}"
    headers = {**headers, "Location": task}
    if preference.applied:
        headers["Preference-Applied"] = preference.applied
    links = {"task": task, "stream": stream}
    return JSON({"task_id": task_id, "links": links}, status_code=202, headers=headers)
