"""Watch a task: its events, as they happen."""

from typing import Annotated

from fastapi import Header, Query, Request
from fastapi.responses import Response

from mail.core.protocol.message import TaskId
from mail.errors import BadRequest
from mail.http.access import AdminOrUser, OtherOwner
from mail.http.break_glass import Reason, load_opened
from mail.http.openapi import make_router, problems
from mail.http.service import service_of
from mail.http.sse import EVENT_STREAM, stream_events

MAX_SEQ = 2**53
"""Larger numbers are not exact in every client."""

Items = Annotated[
    bool, Query(description="Whether to include what the events add to the conversation or change in it.")
]
EventId = Annotated[int | None, Query(ge=0, le=MAX_SEQ, description="As `Last-Event-ID`.")]

router = make_router("tasks")


@router.get(
    "/task/stream",
    summary="Watch a task",
    response_class=Response,
    responses={
        200: {"description": "The events, to the end of the task.", "content": EVENT_STREAM},
        204: {"description": "The task has stopped, and the caller has seen every event: don't reconnect."},
        **problems(400, 404),
    },
)
async def stream_task(
    request: Request,
    caller: AdminOrUser,
    task_id: Annotated[TaskId, Query(description="The task.")],
    last_event_id: EventId = None,
    live: Annotated[
        bool, Query(description="Whether to include live events: what agents do, when they do it.")
    ] = False,
    deltas: Annotated[
        bool,
        Query(description="Whether to include live events and the text that models write, piece by piece."),
    ] = False,
    items: Items = False,
    last_event_id_header: Annotated[
        int | None,
        Header(
            alias="Last-Event-ID",
            ge=0,
            le=MAX_SEQ,
            description="The last event seen; 0 or none: from the start.",
        ),
    ] = None,
    owner: OtherOwner = None,
    reason: Reason = None,
) -> Response:
    """Stream the task's events after the last one seen, as they happen; `caller` and `reason` are those of `/task`."""
    service = service_of(request)
    service.holding(request).open_stream()
    task = await load_opened(request, caller, task_id, owner, reason)
    after = last_event_id_header if last_event_id_header is not None else last_event_id or 0
    if after > task.seq:
        raise BadRequest(f"the task has no event {after} yet; its last one is {task.seq}")
    if after == task.seq and not task.is_running:
        return Response(status_code=204)
    seconds = service.stream_seconds
    return stream_events(
        request, task.key, after=after, live=live, deltas=deltas, items=items, seconds=seconds
    )
