"""`/interswarm/*`: messages from other swarms, and from callers to agents of other swarms."""

from typing import Annotated, Any, Literal

from fastapi import Depends, Request
from fastapi.responses import Response
from pydantic import Field, model_validator

from mail.auth.keys import Caller
from mail.core.decisions.submit import Submission
from mail.core.engine.admission import Received
from mail.core.protocol.address import parse_agent_address
from mail.core.protocol.interswarm import MAILInterswarmMessage
from mail.core.protocol.message import DEFAULT_SUBJECT, MAILMessage, TaskId
from mail.core.protocol.values import is_none
from mail.http.access import AdminOrUser, Agent
from mail.http.bodies import JSON, Answered, Given, JSONBody
from mail.http.openapi import answers, make_router
from mail.http.preferences import PREFER, read_preference
from mail.http.routes.message import RESPONSES, accepted, answer_with_events, await_answer, task_headers
from mail.http.service import service_of
from mail.http.sse import stream_events
from mail.http.submission import PARAMETERS, Terms, follow_trace, submit


class PostInterswarm(Given):
    """A message from another swarm. All ten fields are required."""

    message: MAILInterswarmMessage

    @model_validator(mode="after")
    def _is_complete(self) -> "PostInterswarm":
        if self.message.auth_token is None:
            raise ValueError("message.auth_token must be text; it may be empty")
        if self.message.metadata is None:
            raise ValueError("message.metadata must be an object; it may be empty")
        return self


class Delivered(Answered):
    """The message is stored, and will be processed."""

    swarm: str
    task_id: str
    status: Literal["success"]
    local_runner: str = Field(
        description="The principal under which the caller's tasks are stored; a contributor from now on."
    )


class PostInterswarmMessage(Given):
    """A message to agents of other swarms."""

    user_token: str | None = Field(
        default=None,
        description="Accepted for older clients and ignored: the bearer token identifies the sender.",
    )
    body: str = Field(min_length=1, description="The text.")
    targets: list[str] = Field(
        min_length=1,
        max_length=64,
        description="The agents to answer, as `agent@swarm`; a request has one target.",
    )
    subject: str | None = Field(default=None, description="The default is `New Message`.")
    msg_type: Literal["request", "broadcast"] | None = Field(
        default=None, description="The default is `request`."
    )
    task_id: TaskId | None = Field(default=None, description="The id of the task to begin or continue.")
    drop_question: bool | None = Field(default=None, exclude_if=is_none, description="As in `POST /message`.")
    routing_info: dict[str, Any] | None = Field(default=None, description="Sent with the message, unchanged.")
    stream: bool | None = Field(default=None, description="Whether to answer with a stream of events.")
    ignore_stream_pings: bool | None = Field(
        default=None, description="Whether to leave `ping` events out of the stream."
    )

    def submission(self, terms: Terms) -> Submission:
        """Return the message for the runtime; the stream's options are passed on to the other swarms.

        A single target that is an agent of the receiving swarm itself makes it a message to that agent.
        """
        hints = {"stream": self.stream, "ignore_stream_pings": self.ignore_stream_pings}
        routing_info = {
            **(self.routing_info or {}),
            **{name: value for name, value in hints.items() if value is not None},
        }
        agent, swarm = parse_agent_address(self.targets[0])
        is_local = len(self.targets) == 1 and swarm in (None, terms.swarm)
        return Submission(
            body=self.body,
            subject=DEFAULT_SUBJECT if self.subject is None else self.subject,
            msg_type=self.msg_type or "request",
            entrypoint=agent if is_local else None,
            is_direct=is_local,
            targets=() if is_local else tuple(self.targets),
            routing_info=None if is_local else routing_info or None,
            drop_question=bool(self.drop_question),
            task_id=terms.task_id,
            ceiling=terms.ceiling,
            expects=terms.expects,
            idempotency_key=terms.idempotency,
        )


class InterswarmAnswer(Answered):
    """The answer of the other swarms."""

    response: MAILMessage
    events: list[dict[str, Any]] | None


router = make_router("interswarm")
_delivery = JSONBody(PostInterswarm)
_message = JSONBody(PostInterswarmMessage)


@router.post("/interswarm/forward", summary="Deliver a new task to the swarm", **answers(Delivered, 404))
async def forward(
    request: Request, caller: Agent, body: Annotated[PostInterswarm, Depends(_delivery)]
) -> JSON:
    """Begin a task for another swarm, or deliver another message for it. Only for swarms.

    The same `message_id` is accepted only once.
    """
    return await _receive(request, caller, body, back=False)


@router.post("/interswarm/back", summary="Deliver a message for a known task", **answers(Delivered, 404))
async def back(request: Request, caller: Agent, body: Annotated[PostInterswarm, Depends(_delivery)]) -> JSON:
    """Deliver an answer, a message or the completion of a task in which this swarm takes part. Only for swarms."""
    return await _receive(request, caller, body, back=True)


async def _receive(request: Request, caller: Caller, body: PostInterswarm, *, back: bool) -> JSON:
    service = service_of(request)
    await service.refresh()
    follow_trace(request)
    received: Received = await service.runtime.receive(caller.id, body.message, back=back)
    return JSON(
        {
            "swarm": service.runtime.swarm.name,
            "task_id": received.key.task_id,
            "status": "success",
            "local_runner": received.runner,
        }
    )


@router.post(
    "/interswarm/message",
    summary="Send a message to agents of other swarms",
    response_model=InterswarmAnswer,
    responses=RESPONSES,
    openapi_extra={"parameters": [PREFER, *PARAMETERS]},
)
async def send_message(
    request: Request, caller: AdminOrUser, body: Annotated[PostInterswarmMessage, Depends(_message)]
) -> Response:
    """Write to agents of other swarms, in a task of the caller's own, and wait for their answer.

    A client that disconnects never cancels the task.
    """
    service = service_of(request)
    await service.refresh()
    submitted = await submit(request, caller.principal(service.runtime.swarm.name), body)
    headers = task_headers(submitted)
    if body.stream:
        return stream_events(
            request,
            submitted.key,
            after=submitted.after,
            until_answer_to=submitted.seq,
            headers=headers,
            pings=not body.ignore_stream_pings,
        )
    preference = read_preference(request.headers.getlist("prefer"))
    message = await await_answer(request, submitted, preference.within(service.wait_limit(request)))
    if message is None:
        return accepted(request, submitted, preference, headers)
    return await answer_with_events(request, submitted, message.as_json(), preference, headers)
