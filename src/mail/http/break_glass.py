"""Breaking the glass: an admin reads the task of another caller, with a reason that its owner and the audit see."""

from typing import Annotated

from fastapi import Query, Request

from mail.auth.keys import Caller
from mail.core.task.audit import MAX_TEXT, Act
from mail.core.task.task import Task
from mail.errors import BadRequest, Forbidden
from mail.http.access import named_instance
from mail.http.audit import audited
from mail.http.service import service_of
from mail.http.task_json import load_task

Reason = Annotated[
    str | None,
    Query(
        max_length=MAX_TEXT,
        description="Why an admin reads the task of another `caller`, who sees it in the task.",
    ),
]


async def load_opened(
    request: Request, caller: Caller, task_id: str, owner: str | None, reason: str | None
) -> Task:
    """Return a task to read: the caller's own, or for admins that of an `owner`, who sees them and their `reason`.

    The first read in an hour is an event of the task, and an entry of the audit. Raises TaskNotFound, Forbidden and
    BadRequest.
    """
    service = service_of(request)
    if owner is None:
        return await load_task(service, caller, task_id)
    swarm = service.runtime.swarm.name
    principal, instance = caller.principal(swarm), named_instance(caller, owner, swarm)
    if instance == str(principal):
        return await load_task(service, caller, task_id)
    if not service.break_glass:
        raise Forbidden(
            "admins can't read other callers' tasks here; break_glass = true in [server.auth] would let them"
        )
    reason = (reason or "").strip()
    if not reason:
        raise BadRequest(
            "say why you read another caller's task: add reason=…; its owner and the audit see it"
        )
    async with audited(request, caller, Act.OPEN_TASK, task_id, owner=instance, reason=reason) as entry:
        task = await load_task(service, caller, task_id, owner)
        if not entry.is_again:
            await service.runtime.admission.open_task(principal, task, reason)
            task = await load_task(service, caller, task_id, owner)
    return task
