"""Callbacks: the result of a call that finishes later, or a report on it. The token of the call is the only key."""

from typing import Annotated, Any

from fastapi import Depends, Request
from pydantic import Field, StringConstraints
from pydantic_core import to_json

from mail.core.protocol.clock import format_time
from mail.core.task.callbacks import MAX_PROGRESS, CallResult, CallState
from mail.errors import BadRequest, CallbackNotFound
from mail.http.bodies import JSON, Answered, Given, JSONBody
from mail.http.openapi import answers, make_router
from mail.http.service import address_of, service_of


class PostCallback(Given):
    """The result of a call, why it failed, or a sign that it is alive: exactly one of them."""

    result: Any = Field(default=None, description="The result: text, or JSON, which the agent reads as text.")
    error: Annotated[str, StringConstraints(min_length=1)] | None = Field(
        default=None, description="Why the work failed."
    )
    progress: Annotated[str, StringConstraints(min_length=1, max_length=MAX_PROGRESS)] | None = Field(
        default=None,
        description="How far the work has come, for people who look at the task. It is a heartbeat, too.",
    )
    heartbeat: bool | None = Field(default=None, description="`true`: the work has not ended.")


class CalledBack(Answered):
    """What the call has come to."""

    status: CallState = Field(
        description="`finished` or `failed` after a result; else it still runs or waits."
    )
    due: str | None = Field(
        description="When the call fails unless it has a result or a heartbeat before, in ISO 8601; null once it has "
        "ended."
    )


router = make_router("tasks")
_body = JSONBody(PostCallback)


async def _known_token(request: Request, token: str) -> str:
    """Return the token of a request. Raises CallbackNotFound for another one, and RateLimited for many of these."""
    service = service_of(request)
    try:
        await service.runtime.callbacks.check(token)
    except (BadRequest, CallbackNotFound):  # of a task whose name is none
        service.rates.admit_stranger(address_of(request))
        raise CallbackNotFound from None
    return token


@router.post("/callbacks/{token}", summary="Finish a call", **answers(CalledBack, 404, 409, 429))
async def post_callback(
    request: Request,
    token: Annotated[str, Depends(_known_token)],
    body: Annotated[PostCallback, Depends(_body)],
) -> JSON:
    """Finish a call of an action that finishes later, or report on it. The token is all that it needs: no API key.

    The agent that has made the call reads the result as a message. The same result again is answered in the same way,
    and another one with 409, as is a result that comes too late.
    """
    service = service_of(request)
    await service.refresh()
    callbacks = service.runtime.callbacks
    has_result = "result" in body.model_fields_set  # it may be null
    is_report = bool(body.progress or body.heartbeat)
    if has_result + (body.error is not None) + is_report != 1:
        raise BadRequest("send a result, an error, or a progress or heartbeat: one of them")
    if is_report:
        reported = await callbacks.report(token, body.progress)
    elif body.error is not None:
        reported = await callbacks.finish(token, CallResult(body.error, has_failed=True))
    else:
        text = body.result if isinstance(body.result, str) else to_json(body.result).decode()
        reported = await callbacks.finish(token, CallResult(text))
    due = None if reported.due is None else format_time(reported.due)
    return JSON({"status": reported.state.value, "due": due})
