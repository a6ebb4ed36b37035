"""Delete everything of a caller, and hold what nobody may delete. For admins."""

from typing import Annotated, Literal

from fastapi import Depends, Path, Query, Request
from pydantic import Field, StringConstraints

from mail.core.protocol.message import TaskId
from mail.core.protocol.values import fill
from mail.core.task.audit import Act
from mail.core.task.deletion import LegalHold
from mail.errors import BadRequest
from mail.http.access import Admin, named_instance
from mail.http.audit import audited, refuse_session
from mail.http.bodies import JSON, Answered, Given, JSONBody
from mail.http.openapi import answers, make_router
from mail.http.service import service_of

MAX_REASON = 500

_NAME = "The caller: `role:id`, such as `user:ann`, or `role:id@swarm`."
_TASK = "The task that is on hold; null for everything of the caller."

GivenCaller = Annotated[str, Path(description=_NAME)]


class CallerHold(Answered):
    """What nobody may delete, and no retention."""

    caller: str = Field(description="Its owner, as `role:id@swarm`.")
    task_id: str | None = Field(description=_TASK)
    reason: str
    by: str = Field(description="The admin who has set it.")
    since: str = Field(description="When, in ISO 8601.")


class Holds(Answered):
    """All holds, the oldest first."""

    holds: list[CallerHold]


class PostHold(Given):
    """A hold to set."""

    caller: str = Field(description=_NAME)
    task_id: TaskId | None = Field(default=None, description=_TASK)
    reason: Annotated[str, StringConstraints(min_length=1, max_length=MAX_REASON, strip_whitespace=True)] = (
        Field(description="The reason, which admins see.")
    )


class HoldLifted(Answered):
    """The hold is lifted."""

    status: Literal["lifted"]
    caller: str
    task_id: str | None


class DeletionOfCaller(Answered):
    """How far the deletion of a caller has come."""

    by: str = Field(description="The admin who has begun it.")
    begun: str = Field(description="When, in ISO 8601.")
    ended: str | None = Field(
        description="When everything was deleted, which is remembered for 30 days; null before that."
    )
    tasks: int = Field(description="How many tasks are deleted.")
    left: int = Field(description="How many could not be deleted yet; that is tried again.")
    problem: str = Field(description="Why, for one of them.")


class CallerState(Answered):
    """What the server knows about the deletion of a caller."""

    caller: str = Field(description="As `role:id@swarm`.")
    deletion: DeletionOfCaller | None = Field(description="The last one; null if there was none.")
    holds: list[CallerHold]


router = make_router("callers")
_body = JSONBody(PostHold)


@router.get("/callers/{caller}", summary="Get the deletion of a caller", **answers(CallerState, 400))
async def get_caller(request: Request, admin: Admin, caller: GivenCaller) -> JSON:
    """Return how far the deletion of a caller has come, and what of the caller is on hold. Only for admins."""
    return JSON(
        await _describe(request, named_instance(admin, caller, service_of(request).runtime.swarm.name))
    )


@router.delete(
    "/callers/{caller}",
    summary="Delete everything of a caller",
    status_code=202,
    **answers(CallerState, 400, 409),
)
async def delete_caller(request: Request, admin: Admin, caller: GivenCaller) -> JSON:
    """Begin to delete everything of a caller: tasks, files, schedules, webhooks, tokens and idempotency keys.

    Tasks that run are cancelled, and what the caller begins meanwhile is deleted, too. This can't be undone, and
    resumes after a crash. 409 if something of the caller is on hold, or `mail.toml` declares a schedule of the caller.
    Only for admins.
    """
    service = service_of(request)
    swarm = service.runtime.swarm.name
    instance, by = named_instance(admin, caller, swarm), str(admin.principal(swarm))
    async with audited(request, admin, Act.DELETE_CALLER, instance):
        refuse_session(admin, f"mail caller delete {caller}")
        if instance == by:
            raise BadRequest("you can't delete yourself; another admin can")
        await service.runtime.deletions.begin(instance, by)
    service.revoke()
    return JSON(await _describe(request, instance), status_code=202)


@router.get("/holds", summary="List holds", **answers(Holds))
async def get_holds(request: Request, admin: Admin) -> JSON:
    """Return all holds, the oldest first. Only for admins."""
    swarm = service_of(request).runtime.swarm.name
    found = await service_of(request).documents.holds()
    return JSON({"holds": [_show(hold) for hold in found if hold.caller.endswith(f"@{swarm}")]})


@router.post("/holds", summary="Set a hold", status_code=201, **answers(CallerHold, 404))
async def post_hold(request: Request, admin: Admin, body: Annotated[PostHold, Depends(_body)]) -> JSON:
    """Keep a task, or everything of a caller, from being deleted by anybody, and by its age. Only for admins.

    A new hold replaces the one on the same task or caller.
    """
    runtime = service_of(request).runtime
    instance, by = (
        named_instance(admin, body.caller, runtime.swarm.name),
        str(admin.principal(runtime.swarm.name)),
    )
    async with audited(
        request, admin, Act.SET_HOLD, body.task_id or instance, owner=instance, reason=body.reason
    ):
        refuse_session(admin, f"mail caller hold {body.caller}")
        hold = await runtime.deletions.hold(instance, body.task_id, body.reason, by)
    return JSON(_show(hold), status_code=201)


@router.delete("/holds", summary="Lift a hold", **answers(HoldLifted, 400, 404))
async def delete_hold(
    request: Request,
    admin: Admin,
    caller: Annotated[str, Query(description=_NAME)],
    task_id: Annotated[TaskId | None, Query(description=_TASK)] = None,
) -> JSON:
    """Lift a hold. Other holds on the same caller or on tasks of the caller stay. Only for admins."""
    runtime = service_of(request).runtime
    instance = named_instance(admin, caller, runtime.swarm.name)
    async with audited(request, admin, Act.LIFT_HOLD, task_id or instance, owner=instance):
        refuse_session(admin, f"mail caller release {caller}")
        await runtime.deletions.lift(instance, task_id)
    return JSON({"status": "lifted", "caller": instance, "task_id": task_id})


async def _describe(request: Request, instance: str) -> dict[str, object]:
    documents = service_of(request).documents
    deletion = await documents.caller_deletion(instance)
    return {
        "caller": instance,
        "deletion": None if deletion is None else fill(DeletionOfCaller, deletion),
        "holds": [_show(hold) for hold in await documents.holds() if hold.caller == instance],
    }


def _show(hold: LegalHold) -> dict[str, object]:
    return fill(CallerHold, hold)
