"""The waits of a task: calls that finish later, reminders of its agents, and messages that are posted later."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Literal

from fastapi import Path, Request

from mail.auth.keys import Caller
from mail.core.protocol.address import Principal
from mail.core.task.task import Task, TaskKey, TaskStatus
from mail.http.access import AdminOrUser, GivenTask
from mail.http.bodies import JSON, Answered
from mail.http.openapi import answers, make_router
from mail.http.service import Service, service_of
from mail.http.task_json import load_task


class CancelledWait(Answered):
    """The call or timer no longer waits."""

    id: str
    status: Literal["cancelled"]
    task_id: str
    task_status: TaskStatus


router = make_router("tasks")


@router.delete("/task/timers/{timer_id}", summary="Cancel a timer", **answers(CancelledWait, 400, 404))
async def cancel_timer(
    request: Request,
    caller: AdminOrUser,
    timer_id: Annotated[
        str, Path(max_length=100, description="Its `id`, among the `timers` of `GET /task`.")
    ],
    task_id: GivenTask,
) -> JSON:
    """Cancel a reminder of an agent, or a message that was posted with `not_before`. 404 if its mail has come already.

    A task that was to begin with this message, and has no other, is cancelled.
    """
    service = service_of(request)
    return await _cancel(service, caller, task_id, timer_id, service.runtime.cancel_wait.timer)


@router.delete(
    "/task/calls/{call_id}", summary="Cancel a call that finishes later", **answers(CancelledWait, 400, 404)
)
async def cancel_call(
    request: Request,
    caller: AdminOrUser,
    call_id: Annotated[str, Path(max_length=100, description="Its `id`, among the `calls` of `GET /task`.")],
    task_id: GivenTask,
) -> JSON:
    """Cancel a call of an action that finishes later, so that its agent reads an error. 404 if it has ended already.

    `on_cancel` of the action is called; a result of the call is refused with 409.
    """
    service = service_of(request)
    return await _cancel(service, caller, task_id, call_id, service.runtime.cancel_wait.call)


async def _cancel(
    service: Service,
    caller: Caller,
    task_id: str,
    wait_id: str,
    cancel: Callable[[Principal, TaskKey, str], Awaitable[Task]],
) -> JSON:
    task = await load_task(service, caller, task_id)
    task = await cancel(caller.principal(service.runtime.swarm.name), task.key, wait_id)
    return JSON({"id": wait_id, "status": "cancelled", "task_id": task_id, "task_status": task.status})
