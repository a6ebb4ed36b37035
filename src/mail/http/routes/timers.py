"""Timers of a task: reminders of its agents, and messages that are posted later."""

from typing import Annotated, Literal

from fastapi import Path, Query, Request

from mail.core.protocol.message import TaskId
from mail.core.task.task import TaskStatus
from mail.http.access import AdminOrUser
from mail.http.bodies import JSON, Answered
from mail.http.openapi import PROTECTED, make_router, problems
from mail.http.service import service_of
from mail.http.task_json import load_task


class CancelledTimer(Answered):
    """The timer is cancelled: its mail does not come."""

    id: str
    status: Literal["cancelled"]
    task_id: str
    task_status: TaskStatus


router = make_router("tasks")


@router.delete(
    "/task/timers/{timer_id}",
    summary="Cancel a timer",
    response_model=CancelledTimer,
    responses=problems(400, 404, *PROTECTED),
)
async def cancel_timer(
    request: Request,
    caller: AdminOrUser,
    timer_id: Annotated[
        str, Path(max_length=100, description="Its `id`, among the `timers` of `GET /task`.")
    ],
    task_id: Annotated[TaskId, Query(description="The task.")],
) -> JSON:
    """Cancel a reminder of an agent, or a message that was posted with `not_before`. 404 if its mail has come already.

    A task that was to begin with this message, and has no other, is cancelled.
    """
    service = service_of(request)
    task = await load_task(service, caller, task_id)
    by = caller.principal(service.runtime.swarm.name)
    task = await service.runtime.timers.cancel(by, task.key, timer_id)
    return JSON({"id": timer_id, "status": "cancelled", "task_id": task_id, "task_status": task.status})
