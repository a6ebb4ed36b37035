"""Approvals: the calls that wait for the caller's decision, its tasks that need it, and the page of a link."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any
from urllib.parse import parse_qs

from fastapi import Depends, Path, Query, Request
from fastapi.responses import HTMLResponse, Response
from pydantic import Field
from pydantic_core import to_json

from mail.core.decisions.approvals import GivenApproval
from mail.core.decisions.needs import Need
from mail.core.decisions.reviewers import show_call
from mail.core.engine.needs import TaskNeed
from mail.core.engine.reviews import Review
from mail.core.task.approvals import DecisionName, LinkHolder
from mail.core.task.audit import Act
from mail.core.task.size import json_size, paused_size
from mail.errors import ApprovalNotFound, BadRequest, MAILError
from mail.http.access import AdminOrUser, NextCursor
from mail.http.account import LIST_BYTES
from mail.http.answers import answer, array_pieces, object_pieces
from mail.http.audit import audited
from mail.http.bodies import JSON, Answered, CallDecision, JSONBody, read_body
from mail.http.openapi import answers, make_router
from mail.http.service import Service, address_of, service_of
from mail.http.task_json import reading
from mail.http.task_records import EVENT_PAGE_BYTES, SUMMARY_BYTES, TaskSummary, task_summary

MAX_PAGE = 50
"""The most tasks on a page."""

MAX_FORM_BYTES = 16_384


class WaitingApproval(Answered):
    """A call that waits for a decision, as its task's owner and its reviewers see it."""

    id: str
    agent: str = Field(description="The agent that wants to make the call.")
    name: str = Field(description="The action.")
    arguments: dict[str, Any]
    arguments_text: str = Field(
        description="The arguments as JSON text in ASCII, for the `arguments_sha256` of a decision."
    )
    arguments_sha256: str = Field(description="The SHA-256 of `arguments_text`, in hexadecimal.")
    needs_approval: bool = Field(
        description="Whether to decide if the call runs; else it asks for an `answer`."
    )
    question: str = Field(
        description="The question, if an argument has it; of a call to approve, what guards ask about it."
    )
    asked: str = Field(description="When the task paused, in ISO 8601.")
    decide_by: str | None = Field(
        description="When others are asked, too, or the call is decided without a person; null for never."
    )
    requested_by: str = Field(description="The owner of the task, `role:id@swarm`.")
    reviewers: list[str] = Field(
        description="The roles and callers who may decide in place of the owner; empty for none."
    )
    task_id: str | None = Field(description="The task, if it is yours; else null.")
    title: str | None = Field(description="Its title, if it is yours and has one; else null.")
    can_decide: bool = Field(description="Whether you may decide.")


class NeedyTask(Answered):
    """A task of yours that needs you, or waits for others."""

    need: Need = Field(
        description="`question`: it waits for your answer; `dead_letters`: messages could not be processed; "
        "`failure`: it has failed in the last 7 days; `others`: it waits for swarms, reviewers, or calls that finish "
        "later."
    )
    reason: str = Field(
        description="The answer of a task that has failed, or why its last dead letter could not be processed; "
        "empty for others."
    )
    task: TaskSummary = Field(
        description="The task; its `pending_tool_calls` leave out calls that need approval or wait for reviewers: "
        "these are in `approvals` of those who may decide."
    )


class Approvals(Answered):
    """A page of calls that wait for a decision, oldest first."""

    approvals: list[WaitingApproval]
    tasks: list[NeedyTask] | None = Field(
        description="On the first page: your tasks that need you or wait for others, the last changed first, at most "
        "20 of each kind; null if they are those that you have `known`."
    )
    as_of: str | None = Field(
        description="For a request with `known`: what to send next time; null if the server can't tell cheaply whether "
        "your tasks have changed."
    )
    next_cursor: str | None = Field(description="Leads to the next page; null on the last one.")


class Decided(Answered):
    """The decision is made; nobody can change it any more."""

    id: str
    decision: DecisionName


router = make_router("approvals")
_decision = JSONBody(CallDecision)
_Id = Annotated[str, Path(description="The `id` of the approval.")]


def _shown(found: Review, own: str) -> dict[str, Any]:
    is_own = found.task.instance == own
    return {
        **show_call(found.task, found.paused_at, found.call),
        "task_id": found.task.task_id if is_own else None,
        "title": found.task.title if is_own else None,
        "can_decide": found.can_decide,
    }


@router.get("/approvals", summary="List approvals", **answers(Approvals, 400))
async def get_approvals(
    request: Request,
    caller: AdminOrUser,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE, description="The most tasks on a page.")] = 20,
    cursor: NextCursor = None,
    known: Annotated[
        str | None,
        Query(
            max_length=1000,
            description="`as_of` of an earlier answer, whose `tasks` are left out if they are the same. At first, any "
            "other text.",
        ),
    ] = None,
) -> Response:
    """List what waits for you: calls of your tasks and those that you may review, oldest first, and your tasks."""
    service = service_of(request)
    own = caller.principal(service.runtime.swarm.name)
    found, size, read, following = list[Review](), 0, 0, None
    await service.holding(request).wait(LIST_BYTES)
    try:
        async with aclosing(service.runtime.reviews.waiting(own, limit=limit + 1, cursor=cursor)) as waiting:
            async for at, calls in waiting:
                if read == limit or size > EVENT_PAGE_BYTES:
                    following = at
                    break
                read += 1
                size += sum(json_size(each.call.arguments) for each in calls)
                found += calls
    except ApprovalNotFound:
        raise BadRequest("cursor must be the next_cursor of a page") from None
    as_of = None if cursor or known is None else await service.runtime.last_change(str(own))
    is_known = as_of is not None and known == as_of
    needy = [] if cursor or is_known else await service.runtime.needs(str(own))
    service.holding(request).take(0)
    reading(service, request, *(each.task for each in needy if each.need is Need.QUESTION), events=0)

    async def members() -> AsyncGenerator[tuple[str, object]]:
        yield "approvals", array_pieces(_shown_calls(service, found, str(own)))
        yield "tasks", None if is_known else array_pieces(_shown_tasks(service, needy))
        yield "as_of", as_of
        yield "next_cursor", following

    return await answer(request, object_pieces(members()), advice="list fewer with limit")


async def _shown_calls(service: Service, found: list[Review], own: str) -> AsyncGenerator[bytes]:
    for each in found:
        await service.runtime.pacer.pause(json_size(each.call.arguments))
        yield to_json(_shown(each, own))


async def _shown_tasks(service: Service, needy: list[TaskNeed]) -> AsyncGenerator[bytes]:
    for each in needy:
        calls = paused_size(each.task.generation.breakpoint) if each.need is Need.QUESTION else 0
        await service.runtime.pacer.pause(SUMMARY_BYTES + calls)
        task = task_summary(each.task, approvals=False)
        yield to_json({"need": each.need, "reason": each.reason, "task": task})


@router.get("/approvals/{approval_id}", summary="Show an approval", **answers(WaitingApproval, 404))
async def get_approval(request: Request, caller: AdminOrUser, approval_id: _Id) -> JSON:
    """Show a call that waits for a decision, of your tasks, or that you may review."""
    service = service_of(request)
    own = caller.principal(service.runtime.swarm.name)
    found = await service.runtime.reviews.find(own, approval_id)
    await service.holding(request).pause(json_size(found.call.arguments))
    return JSON(_shown(found, str(own)))


@router.post("/approvals/{approval_id}", summary="Decide on a call", **answers(Decided, 404, 409))
async def post_approval(
    request: Request,
    caller: AdminOrUser,
    approval_id: _Id,
    body: Annotated[CallDecision, Depends(_decision)],
) -> JSON:
    """Decide on a call; its task resumes when no decision is missing. The first decision counts.

    The task's timeline says who has decided what, and when.
    """
    service = service_of(request)
    await service.refresh()
    own, reviews = caller.principal(service.runtime.swarm.name), service.runtime.reviews
    owner = (await reviews.find(own, approval_id)).task.owner
    async with audited(request, caller, Act.DECIDE, approval_id, owner=owner):
        decision = await reviews.decide(own, approval_id, GivenApproval(**dict(body)))
    return JSON({"id": approval_id, "decision": decision})


# ------------------------------------------------------------------------------------------------ the link


@router.get("/approvals/{approval_id}/{token}", include_in_schema=False)
async def get_link(request: Request, approval_id: str, token: str) -> HTMLResponse:
    """Return the page on which who has the link of a call decides; reading it changes nothing."""
    return await _answer_link(request, approval_id, token)


@router.post("/approvals/{approval_id}/{token}", include_in_schema=False)
async def post_link(request: Request, approval_id: str, token: str) -> HTMLResponse:
    """Take the decision of who has the link of a call, from the form of its page."""
    return await _answer_link(request, approval_id, token, await read_body(request, MAX_FORM_BYTES))


async def _answer_link(
    request: Request, approval_id: str, token: str, form: bytes | None = None
) -> HTMLResponse:
    from mail.http.approval_page import HEADERS, decided, form_of, problem

    service = service_of(request)
    try:
        holder = await _known_link(request, service, approval_id, token)
        if form is None:
            found = await service.runtime.reviews.find(holder, approval_id)
            await service.holding(request).pause(json_size(found.call.arguments))
            page = form_of(show_call(found.task, found.paused_at, found.call))
        else:
            await service.refresh()
            given = {name: values[-1] for name, values in parse_qs(form.decode("ascii", "replace")).items()}
            decision = CallDecision.model_validate(given)
            owner = (await service.runtime.reviews.find(holder, approval_id)).task.owner
            async with audited(request, holder, Act.DECIDE, approval_id, owner=owner):
                await service.runtime.reviews.decide(holder, approval_id, GivenApproval(**dict(decision)))
            page = decided(decision.decision)
    except (MAILError, ValueError) as error:
        status = error.http_status if isinstance(error, MAILError) else 400
        return HTMLResponse(problem(error), status_code=status, headers=HEADERS)
    return HTMLResponse(page, headers=HEADERS)


async def _known_link(request: Request, service: Service, approval_id: str, token: str) -> LinkHolder:
    """Return who has a link. Raises ApprovalNotFound for another one, and RateLimited for many of these."""
    try:
        return await service.runtime.reviews.link_holder(approval_id, token)
    except ApprovalNotFound:
        service.rates.admit_stranger(address_of(request))
        raise
