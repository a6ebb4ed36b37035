"""Cancel a task, and wait until it has stopped."""

import asyncio
from contextlib import suppress
from typing import Annotated, Literal

from fastapi import Depends, Request
from pydantic import Field, StringConstraints

from mail.core.decisions.cancel import MAX_REASON, StillRunning
from mail.core.protocol.message import TaskId
from mail.core.task.audit import Act
from mail.core.task.task import Task
from mail.http.access import OTHER_OWNER, AdminOrUser, named_instance
from mail.http.audit import audited
from mail.http.bodies import JSON, Answered, Given, JSONBody
from mail.http.openapi import make_router, problems
from mail.http.preferences import PREFER, read_preference
from mail.http.service import Service, service_of

TIMEOUT = 10.0
"""Seconds for which a request waits for a cancelled task to stop, unless its caller prefers another time."""

LOOK_SECONDS = 0.25
"""Seconds between checks whether a turn has ended; an event shows that a swarm has received the cancellation."""


class PostCancel(Given):
    """The task to cancel."""

    task_id: TaskId
    reason: Annotated[str, StringConstraints(max_length=MAX_REASON)] = Field(
        default="", description="Reason, for the task's timeline and other swarms."
    )
    caller: str | None = Field(
        default=None,
        description=OTHER_OWNER,
    )


class CancelledTask(Answered):
    """Progress of a cancellation."""

    task_id: str
    status: Literal["cancelled"]
    requested: str = Field(description="Time of the cancellation, in ISO 8601.")
    by: str
    reason: str
    stopped: bool = Field(
        description="Whether the task has stopped completely: no turn runs, and every other swarm has been informed."
    )
    running_agents: list[str] = Field(
        description="Agents whose turn is still running; its result will be discarded."
    )
    waiting_swarms: list[str] = Field(
        description="Other swarms that have not confirmed the cancellation yet."
    )


router = make_router("tasks")
_body = JSONBody(PostCancel)


@router.post(
    "/task/cancel",
    summary="Cancel a task",
    response_model=CancelledTask,
    responses={
        202: {
            "model": CancelledTask,
            "description": "It is cancelled, but has not stopped completely. Send the same request again for progress.",
        },
        **problems(404),
    },
    openapi_extra={"parameters": [PREFER]},
)
async def cancel_task(
    request: Request, caller: AdminOrUser, body: Annotated[PostCancel, Depends(_body)]
) -> JSON:
    """End a running or paused task. It keeps its messages, and a new message resumes it.

    No new turn begins, running turns are discarded, and the other swarms of the task are informed. Answers when all of
    that is done, or after ten seconds (`Prefer: wait=N` for another time). Admins can cancel the tasks of others; the
    task's timeline and the server's log then name them.
    """
    service = service_of(request)
    await service.refresh()
    swarm = service.runtime.swarm.name
    instance = named_instance(caller, body.caller, swarm)
    async with audited(request, caller, Act.CANCEL_TASK, body.task_id, owner=instance):
        principal = caller.principal(swarm)
        task = await service.runtime.cancel(principal, body.task_id, body.reason, instance=instance)
    preferred = read_preference(request.headers.getlist("prefer")).wait
    limits = (TIMEOUT if preferred is None else preferred, service.wait_limit(request))
    seconds = min(limit for limit in limits if limit is not None)
    left = await _await_stop(service, task, seconds)
    assert task.cancellation is not None
    return JSON(
        {
            "task_id": task.task_id,
            "status": task.status.value,
            "requested": task.cancellation.requested,
            "by": task.cancellation.by,
            "reason": task.cancellation.reason,
            "stopped": left.is_stopped,
            "running_agents": left.agents,
            "waiting_swarms": left.swarms,
        },
        status_code=200 if left.is_stopped else 202,
    )


async def _await_stop(service: Service, task: Task, seconds: float) -> StillRunning:
    """Wait until nothing of a cancelled task runs, or the time is up; return what still runs."""
    runtime = service.runtime
    left = await runtime.still_running(task)
    with suppress(TimeoutError):
        async with service.stopping.cuts_short(), asyncio.timeout(seconds):
            while not left.is_stopped:
                await runtime.store.wait_for_change(task.key, after=task.seq, seconds=LOOK_SECONDS)
                task = await runtime.store.load(task.key) or task
                left = await runtime.still_running(task)
    return left
