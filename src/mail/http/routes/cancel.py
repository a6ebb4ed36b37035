"""`POST /task/cancel`: a task is stopped from outside."""

import asyncio
from contextlib import suppress
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request

from mail.core.decisions.cancel import StillRunning
from mail.core.task.task import Task
from mail.http.access import AdminOrUser
from mail.http.bodies import JSON, JSONBody
from mail.http.openapi import PROTECTED, problems
from mail.http.preferences import read_preference
from mail.http.routes.message import PREFER
from mail.http.schemas import CancelledTask, PostCancel
from mail.http.service import Service, service_of

TIMEOUT = 10.0
"""Seconds for which a request waits for a task to have stopped, where its caller says nothing else."""

LOOK_SECONDS = 0.25
"""How often it is looked whether a turn has ended; that it has taken the word, a swarm shows by an event."""

router = APIRouter(tags=["tasks"])
_body = JSONBody(PostCancel)


@router.post(
    "/task/cancel",
    summary="Cancel a task",
    response_model=CancelledTask,
    responses={
        202: {
            "model": CancelledTask,
            "description": "It is cancelled; some of it still has to end. The same request again tells how far it is.",
        },
        **problems(400, 404, 413, *PROTECTED),
    },
    openapi_extra={**_body.docs(), "parameters": [PREFER]},
)
async def cancel_task(
    request: Request, caller: AdminOrUser, body: Annotated[PostCancel, Depends(_body)]
) -> JSON:
    """End a task that runs or is paused. Its mail stays, and a new message resumes it.

    No turn begins any more; those that run are discarded, and other swarms that have a part in it are told. Answers
    as soon as that is done, or after ten seconds (`Prefer: wait=N` for another time).
    """
    service = service_of(request)
    await service.refresh()
    principal = caller.principal(service.runtime.swarm.name)
    task = await service.runtime.cancel(principal, body.task_id, body.reason)
    patience = read_preference(request.headers.getlist("prefer")).patience
    limits = (TIMEOUT if patience is None else patience, service.patience(request))
    seconds = min(limit for limit in limits if limit is not None)
    left = await _await_stop(service, task, seconds)
    return JSON(_describe(task, left), status_code=200 if left.is_stopped else 202)


async def _await_stop(service: Service, task: Task, seconds: float) -> StillRunning:
    """What is left of a cancelled task, once nothing is or the time is up."""
    runtime = service.runtime
    left = await runtime.still_running(task)
    with suppress(TimeoutError):
        async with service.stopping.cuts_short(), asyncio.timeout(seconds):
            while not left.is_stopped:
                await runtime.store.wait_for_change(task.key, after=task.seq, seconds=LOOK_SECONDS)
                task = await runtime.store.load(task.key) or task
                left = await runtime.still_running(task)
    return left


def _describe(task: Task, left: StillRunning) -> dict[str, Any]:
    assert task.cancellation is not None
    return {
        "task_id": task.task_id,
        "status": task.status.value,
        "requested": task.cancellation.requested,
        "by": task.cancellation.by,
        "reason": task.cancellation.reason,
        "stopped": left.is_stopped,
        "running_agents": left.agents,
        "waiting_swarms": left.swarms,
    }
