"""Drafts of the swarm: save one, try it in forks of tasks, and let new tasks use it."""

from typing import Annotated, Any, Literal

from fastapi import Depends, Path, Request
from pydantic import Field, TypeAdapter

from mail.auth.keys import Caller
from mail.core.decisions.swarm_drafts import as_draft, change_entry, change_swarm, differences
from mail.core.task.audit import Act
from mail.core.task.swarm import SwarmCore
from mail.core.task.swarm_drafts import MAX_REVISIONS, AgentChanges, DraftName, Revision, SwarmDraft
from mail.errors import BadRequest, DraftNotFound, DraftOutdated, Forbidden
from mail.http.access import Admin
from mail.http.audit import audited, refuse_session
from mail.http.bodies import JSON, Answered, Given, JSONBody
from mail.http.openapi import answers, make_router
from mail.http.routes.swarm import served_swarm
from mail.http.service import service_of
from mail.swarms_json.current import CurrentSwarm


class PostDraft(Given):
    """What a draft changes, in place of what it has changed before."""

    agents: dict[str, AgentChanges] = Field(
        min_length=1, description="The changes of agents, by their names."
    )
    testers: list[str] = Field(
        default=[],
        max_length=100,
        description="The callers, such as `user:ann`, who may try it in forks of their tasks, besides admins.",
    )


class DraftSummary(Answered):
    """A draft of the swarm."""

    name: str
    agents: list[str] = Field(description="The agents that it changes.")
    by: str = Field(description="Who has saved it last.")
    at: str = Field(description="When, in ISO 8601.")
    base: str = Field(description="The version of the swarm that it changes, by its digest.")
    is_current: bool = Field(
        description="Whether it changes the swarm that runs. If not, it can't be tried or published until it is saved "
        "again."
    )
    published: Literal["", "applied", "outdated"] = Field(
        description="`applied` if new tasks use it; `outdated` if it is published, but the swarm has changed in the "
        "code or was replaced since, so that they don't."
    )


class DraftList(Answered):
    """The drafts of the swarm, by name."""

    drafts: list[DraftSummary]


class DraftRevision(Answered):
    """A draft as somebody has saved it."""

    agents: dict[str, AgentChanges]
    base: str
    by: str
    at: str
    testers: list[str] = Field(default=[], description="Absent if there are none.")


class DescribedDraft(DraftSummary):
    """A draft, what it changes, and its earlier revisions."""

    testers: list[str] = Field(description="Who may try it, besides admins.")
    changes: dict[str, AgentChanges] = Field(description="Its changes, by agent, as `POST` takes them.")
    differences: str = Field(
        description="The changes of the swarm that runs, as a unified diff; empty if it has no such agent any more."
    )
    entry: dict[str, Any] | None = Field(
        description="The entry of swarms.json with the changes, to put in place of the present one; null for a swarm "
        "that was built in Python."
    )
    revisions: list[DraftRevision] = Field(
        description=f"The last {MAX_REVISIONS}, oldest first. To undo a change, save an earlier one again."
    )


class DraftDeleted(Answered):
    """The draft is deleted. Tasks that run on it continue."""

    status: Literal["deleted"]
    name: str


router = make_router("swarms")
_body = JSONBody(PostDraft)
_Name = Annotated[str, Path(description="The name of the draft.")]
_check_name = TypeAdapter(DraftName, config={"defer_build": True})


@router.get("/drafts", summary="List drafts of the swarm", **answers(DraftList, 404))
async def get_drafts(request: Request, caller: Admin) -> JSON:
    """Return the drafts by name. Only for admins."""
    swarm = await _refreshed(request)
    drafts = await service_of(request).documents.swarm_drafts()
    return JSON({"drafts": [_summary(swarm, draft) for draft in drafts]})


@router.get("/drafts/{name}", summary="Look at a draft", **answers(DescribedDraft, 404))
async def get_draft(request: Request, caller: Admin, name: _Name) -> JSON:
    """Return a draft with its changes and its earlier revisions. Only for admins."""
    swarm = await _refreshed(request)
    return JSON(_describe(swarm, await service_of(request).documents.swarm_draft(name)))


@router.post("/drafts/{name}", summary="Save a draft", **answers(DescribedDraft, 404, 413))
async def post_draft(
    request: Request, caller: Admin, name: _Name, body: Annotated[PostDraft, Depends(_body)]
) -> JSON:
    """Save a draft as a new revision; no task uses it until one is forked with it. Only for admins."""
    swarm = await _refreshed(request)
    async with audited(request, caller, Act.SAVE_DRAFT, name):
        try:
            _check_name.validate_python(name)
        except ValueError:
            raise BadRequest(
                "the name of a draft has up to 63 lower-case letters, digits, '-' and '_', and begins with none of "
                "the latter two"
            ) from None
        change_swarm(swarm.unchanged, body.agents)
        service = service_of(request)
        now = service.runtime.clock.now().isoformat()
        by = str(caller.principal(service.runtime.swarm.name))
        revision = Revision(
            agents=body.agents, base=swarm.unchanged.digest, by=by, at=now, testers=tuple(body.testers)
        )
        draft = await service.documents.add_revision(name, revision)
    return JSON(_describe(swarm, draft))


@router.delete("/drafts/{name}", summary="Delete a draft", **answers(DraftDeleted, 404))
async def delete_draft(request: Request, caller: Admin, name: _Name) -> JSON:
    """Delete a draft. Tasks that run on it continue; if it is published, new ones still use it. Only for admins."""
    async with audited(request, caller, Act.DELETE_DRAFT, name):
        if not await service_of(request).documents.remove_draft(name):
            raise DraftNotFound(f"there is no draft {name[:64]!r} of the swarm")
    return JSON({"status": "deleted", "name": name})


@router.post("/drafts/{name}/publish", summary="Publish a draft", **answers(DescribedDraft, 404, 409))
async def publish_draft(request: Request, caller: Admin, name: _Name) -> JSON:
    """Let new tasks use the latest revision of a draft, in place of one that was published before. Only for admins.

    Running tasks do what the `on_update` of the swarm says. It applies until another one is published, it is
    withdrawn, or the swarm is changed in the code or replaced. A browser's session can't publish one.
    """
    swarm = await _refreshed(request)
    service = service_of(request)
    async with audited(request, caller, Act.PUBLISH_DRAFT, name):
        refuse_session(caller, f"mail draft publish {name}")
        draft = await service.documents.swarm_draft(name)
        await swarm.publish(name, draft.latest, str(caller.principal(service.runtime.swarm.name)))
    return JSON(_describe(swarm, draft))


@router.delete("/drafts/{name}/publish", summary="Withdraw a published draft", **answers(DraftSummary, 404))
async def withdraw_draft(request: Request, caller: Admin, name: _Name) -> JSON:
    """Let new tasks use the swarm without the draft again. Only for admins. A browser's session can't do it."""
    swarm = await _refreshed(request)
    async with audited(request, caller, Act.WITHDRAW_DRAFT, name):
        refuse_session(caller, f"mail draft withdraw {name}")
        if swarm.published is None or swarm.published.name != name:
            raise DraftNotFound(f"draft {name[:64]!r} is not published")
        revision = swarm.published.revision
        await swarm.withdraw()
    return JSON(_summary(swarm, SwarmDraft(name=name, revisions=(revision,))))


async def draft_to_try(request: Request, caller: Caller, name: str) -> SwarmCore:
    """Return the swarm with a draft, for a fork that tries it. Raises Forbidden, DraftNotFound or DraftOutdated."""
    swarm = await _refreshed(request)
    try:
        latest = (await service_of(request).documents.swarm_draft(name)).latest
        may_try = caller.role == "admin" or f"{caller.role}:{caller.id}" in latest.testers
    except DraftNotFound:
        if caller.role == "admin":
            raise
        may_try = False
    if not may_try:
        raise Forbidden(
            "only admins and the testers of a draft can try it; an admin names you: "
            f"mail draft save NAME AGENT --tester {caller.role}:{caller.id}"
        )
    if latest.base != swarm.unchanged.digest:
        raise DraftOutdated(
            f"draft {name!r} was saved for version {latest.base}, and {swarm.unchanged.digest} runs; look at its "
            "differences, and save it again"
        )
    return as_draft(swarm.unchanged, latest.agents)


async def _refreshed(request: Request) -> CurrentSwarm:
    swarm = served_swarm(request)
    await swarm.refresh()
    return swarm


def _summary(swarm: CurrentSwarm, draft: SwarmDraft) -> dict[str, Any]:
    latest, published = draft.latest, swarm.published
    is_published = published is not None and published.name == draft.name
    return {
        "name": draft.name,
        "agents": list(latest.agents),
        "by": latest.by,
        "at": latest.at,
        "base": latest.base,
        "is_current": latest.base == swarm.unchanged.digest,
        "published": "" if not is_published else "applied" if swarm.is_applied else "outdated",
    }


def _describe(swarm: CurrentSwarm, draft: SwarmDraft) -> dict[str, Any]:
    latest, present = draft.latest, swarm.unchanged
    try:
        shown = differences(present, latest)
    except BadRequest:
        shown = ""
    return {
        **_summary(swarm, draft),
        "testers": latest.testers,
        "changes": _as_json(latest)["agents"],
        "differences": shown,
        "entry": None if present.entry is None else change_entry(present.entry, latest.agents),
        "revisions": [_as_json(revision) for revision in draft.revisions],
    }


def _as_json(revision: Revision) -> dict[str, Any]:
    return revision.model_dump(mode="json", exclude_defaults=True)
