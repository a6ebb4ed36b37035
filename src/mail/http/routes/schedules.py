"""Schedules: messages that the server posts at the times of a cron expression."""

from typing import Annotated, Any, Literal

from fastapi import Depends, Path, Request
from pydantic import Field, ValidationError

from mail.auth.keys import Caller
from mail.core.protocol.clock import format_time
from mail.core.protocol.error_text import explain
from mail.core.task.audit import Act
from mail.core.task.schedules import FAILING, Missed, Overlap, RunState, Schedule, ScheduleName, ScheduleState
from mail.errors import BadRequest, ScheduleNotFound
from mail.http.access import AdminOrUser, named_instance
from mail.http.audit import audited, refuse_session
from mail.http.bodies import JSON, Answered, Given, JSONBody
from mail.http.openapi import answers, make_router
from mail.http.service import Service, service_of

_FIELDS = Schedule.model_fields


class ScheduleChanges(Given):
    """What to change in a schedule; fields that are not given stay."""

    cron: str | None = Field(default=None, description=_FIELDS["cron"].description)
    timezone: str | None = Field(default=None, description=_FIELDS["timezone"].description)
    entrypoint: str | None = Field(default=None, description=_FIELDS["entrypoint"].description)
    subject: str | None = Field(default=None, description=_FIELDS["subject"].description)
    body: str | None = Field(default=None, description=_FIELDS["body"].description)
    overlap: Overlap | None = Field(default=None, description=_FIELDS["overlap"].description)
    missed: Missed | None = Field(default=None, description=_FIELDS["missed"].description)
    enabled: bool | None = Field(default=None, description=_FIELDS["enabled"].description)


class NewSchedule(ScheduleChanges):
    """A schedule to create."""

    name: ScheduleName = Field(description="Its name, which is part of the ids of its tasks.")
    cron: str = Field(description=_FIELDS["cron"].description)
    body: str = Field(description=_FIELDS["body"].description)
    caller: str | None = Field(
        default=None, description="The owner of its tasks, `role:id`, if it is not you; for admins."
    )


class Run(Answered):
    """A run of a schedule."""

    at: str = Field(description="The time that it is for, in ISO 8601.")
    task_id: str = Field(description="The id of its task, if it has one: a skipped or refused run has none.")
    state: RunState = Field(
        description="`waiting` for the end of the one before, `starting`, or as its task; a paused one is `running`."
    )
    reason: str = Field(description="Why it failed or was skipped; else empty.")


class DescribedSchedule(Answered):
    """A schedule, and what has become of it."""

    name: str
    cron: str
    timezone: str
    entrypoint: str | None
    subject: str | None
    body: str
    caller: str = Field(description="The owner of its tasks.")
    overlap: Overlap
    missed: Missed
    enabled: bool
    declared: bool = Field(
        description="Whether it is declared in the server's `mail.toml`, and can't be changed here."
    )
    changed_by: str = Field(description="Who has changed it last.")
    next: str | None = Field(description="When it runs next, in ISO 8601; null while it is disabled.")
    failures: int = Field(description="How many runs have failed since one was completed.")
    is_failing: bool = Field(description=f"Whether `failures` is {FAILING} or more.")
    runs: list[Run] = Field(description="Those that have not ended, and the last ten others, newest first.")


class ScheduleList(Answered):
    """The schedules that the caller may see, by name."""

    schedules: list[DescribedSchedule]


class ScheduleDeleted(Answered):
    """The schedule is deleted; the tasks of its runs stay."""

    status: Literal["deleted"]
    name: str


router = make_router("schedules")
_new, _changes = JSONBody(NewSchedule), JSONBody(ScheduleChanges)
_Name = Annotated[str, Path(description="The name of the schedule.")]


def describe(state: ScheduleState) -> dict[str, Any]:
    """Return a schedule as clients read it."""
    return {
        **state.spec.model_dump(mode="json"),
        "declared": state.declared,
        "changed_by": state.by,
        "next": None if state.next is None else format_time(state.next),
        "failures": state.failures,
        "is_failing": state.failures >= FAILING,
        "runs": [
            {
                "at": format_time(run.at),
                "task_id": run.task_id(state.spec.name),
                "state": run.state.value,
                "reason": run.reason,
            }
            for run in sorted(state.runs, key=lambda run: -run.at)
        ],
    }


async def _visible(service: Service, caller: Caller, name: str) -> ScheduleState:
    """Return a schedule. Raises ScheduleNotFound, too, for one of another caller, unless an admin asks."""
    state = await service.runtime.schedules.read(name)
    if caller.role != "admin" and state.spec.caller != str(caller.principal(service.runtime.swarm.name)):
        raise ScheduleNotFound(f"you have no schedule {name[:64]!r}; GET /schedules lists yours")
    return state


@router.get("/schedules", summary="List schedules", response_model=ScheduleList)
async def get_schedules(request: Request, caller: AdminOrUser) -> JSON:
    """Return the caller's schedules; for admins, those of all callers."""
    runtime = service_of(request).runtime
    own = str(caller.principal(runtime.swarm.name))
    found = [
        each for each in await runtime.schedules.all() if caller.role == "admin" or each.spec.caller == own
    ]
    return JSON({"schedules": [describe(state) for state in found]})


@router.get("/schedules/{name}", summary="Look at a schedule", **answers(DescribedSchedule, 404))
async def get_schedule(request: Request, caller: AdminOrUser, name: _Name) -> JSON:
    """Return a schedule with its last runs."""
    return JSON(describe(await _visible(service_of(request), caller, name)))


@router.post("/schedules", summary="Create a schedule", status_code=201, **answers(DescribedSchedule, 409))
async def post_schedule(
    request: Request, caller: AdminOrUser, body: Annotated[NewSchedule, Depends(_new)]
) -> JSON:
    """Create a schedule, whose runs are tasks of the caller or, for admins, of another one.

    They count to that caller's limits and budget. A browser's session can't create one.
    """
    refuse_session(caller, "mail schedule create NAME")
    service = service_of(request)
    await service.refresh()
    owner = named_instance(caller, body.caller, service.runtime.swarm.name)
    async with audited(request, caller, Act.CREATE_SCHEDULE, body.name, owner=owner):
        spec = _schedule({**body.model_dump(exclude_none=True), "caller": owner})
        by = str(caller.principal(service.runtime.swarm.name))
        state = await service.runtime.schedules.save(spec, by, is_new=True)
    return JSON(describe(state), status_code=201)


@router.post(
    "/schedules/{name}",
    summary="Change, disable or enable a schedule",
    **answers(DescribedSchedule, 404, 409),
)
async def change_schedule(
    request: Request, caller: AdminOrUser, name: _Name, body: Annotated[ScheduleChanges, Depends(_changes)]
) -> JSON:
    """Change what is given; runs that wait are dropped with a change of their times.

    A browser's session can only disable it, or enable it again.
    """
    service = service_of(request)
    await service.refresh()
    given = body.model_dump(exclude_none=True)
    if given.keys() != {"enabled"}:
        refuse_session(caller, f"mail schedule change {name}")
    before = await _visible(service, caller, name)
    async with audited(request, caller, Act.CHANGE_SCHEDULE, name, owner=before.spec.caller):
        spec = _schedule({**before.spec.model_dump(), **given})
        by = str(caller.principal(service.runtime.swarm.name))
        state = await service.runtime.schedules.save(spec, by, is_new=False)
    return JSON(describe(state))


@router.delete("/schedules/{name}", summary="Delete a schedule", **answers(ScheduleDeleted, 404, 409))
async def delete_schedule(request: Request, caller: AdminOrUser, name: _Name) -> JSON:
    """Delete a schedule. The tasks of its runs stay, and continue."""
    service = service_of(request)
    state = await _visible(service, caller, name)
    async with audited(request, caller, Act.DELETE_SCHEDULE, name, owner=state.spec.caller):
        await service.runtime.schedules.delete(name)
    return JSON({"status": "deleted", "name": name})


@router.post("/schedules/{name}/run", summary="Run a schedule now", status_code=202, **answers(Run, 404))
async def run_schedule(request: Request, caller: AdminOrUser, name: _Name) -> JSON:
    """Begin a run now, whether or not the schedule is enabled or its last run has ended; its times stay.

    Two requests within a second begin one run.
    """
    service = service_of(request)
    await service.refresh()
    state = await _visible(service, caller, name)
    async with audited(request, caller, Act.RUN_SCHEDULE, name, owner=state.spec.caller):
        state, _ = await service.runtime.schedules.run_now(name)
    return JSON(describe(state)["runs"][0], status_code=202)


def _schedule(fields: dict[str, Any]) -> Schedule:
    """Return a schedule of these fields. Raises BadRequest."""
    try:
        return Schedule.model_validate(fields)
    except ValidationError as error:
        raise BadRequest(f"the schedule is not valid: {explain(error)}") from error
