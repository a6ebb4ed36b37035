"""Delete a task with everything that it stores."""

from typing import Literal

from fastapi import Request
from pydantic import Field

from mail.core.task.audit import Act
from mail.http.access import AdminOrUser, GivenTask, OtherOwner, named_instance
from mail.http.audit import audited
from mail.http.bodies import JSON, Answered
from mail.http.openapi import answers, make_router
from mail.http.service import service_of


class DeletedTask(Answered):
    """The task does not exist any more; its id may be used for a new one."""

    task_id: str
    status: Literal["deleted"]
    stored_bytes: int = Field(description="The size of what it stored, which counts no longer for its owner.")


router = make_router("tasks")


@router.delete("/task", summary="Delete a task", **answers(DeletedTask, 400, 404, 409))
async def delete_task(
    request: Request, caller: AdminOrUser, task_id: GivenTask, owner: OtherOwner = None
) -> JSON:
    """Delete a task that has stopped: its messages, events, histories and answers. This can't be undone.

    409 if it is on hold, is running, or has mail for other swarms; cancel it first. Its forks keep their copies. Admins
    can delete the tasks of others.
    """
    service = service_of(request)
    instance = named_instance(caller, owner, service.runtime.swarm.name)
    async with audited(request, caller, Act.DELETE_TASK, task_id, owner=instance):
        task = await service.runtime.delete(instance, task_id)
    return JSON({"task_id": task_id, "status": "deleted", "stored_bytes": task.stored_bytes})
