"""`POST /task/fork`: a new task out of any moment of another one."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request

from mail.core.engine.runtime import Forked
from mail.http.access import AdminOrUser
from mail.http.bodies import JSON, JSONBody
from mail.http.idempotency import follow_trace
from mail.http.openapi import PROTECTED, problems
from mail.http.schemas import ForkedTask, PostFork
from mail.http.service import service_of

router = APIRouter(tags=["tasks"])
_body = JSONBody(PostFork)


@router.post(
    "/task/fork",
    status_code=201,
    summary="Make a new task out of a moment of another",
    response_model=ForkedTask,
    responses=problems(400, 404, 409, 413, *PROTECTED),
    openapi_extra=_body.docs(),
)
async def fork_task(request: Request, caller: AdminOrUser, body: Annotated[PostFork, Depends(_body)]) -> JSON:
    """Make a new task of the caller's that goes on from where another one was, with its histories and its mail.

    It is paused if that one was running, until a message resumes it; with `run` it goes on at once.
    """
    service = service_of(request)
    follow_trace(request)
    await service.refresh()
    principal = caller.principal(service.runtime.swarm.name)
    ceiling = service.ceiling(principal)
    made = await service.runtime.fork(principal, body.task_id, at=body.at, run=body.run, ceiling=ceiling)
    return JSON(_describe(made, body.task_id), status_code=201)


def _describe(made: Forked, forked_from: str) -> dict[str, Any]:
    task = made.task
    return {
        "task_id": task.task_id,
        "forked_from": forked_from,
        "at": made.at,
        "status": task.status.value,
        "generation": task.generation,
        "seq": task.seq,
        "waiting": sum(map(sum, task.pending.values())),
    }
