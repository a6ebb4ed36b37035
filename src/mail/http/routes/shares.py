"""Links with which a task's owner lets others read it, and what they show."""

from typing import Annotated, Any, Literal

from fastapi import Depends, Path, Query, Request
from fastapi.responses import Response
from pydantic import Field

from mail.auth.keys import find_bearer
from mail.auth.shares import new_code, read_code
from mail.core.decisions.items import Item
from mail.core.decisions.shares import share_with, shown, shown_title, valid_shares
from mail.core.engine.watch import read_page
from mail.core.protocol.clock import format_time
from mail.core.protocol.message import TaskId
from mail.core.task.approvals import ShareHolder
from mail.core.task.audit import Act
from mail.core.task.task import Share, Task, TaskStatus
from mail.errors import BadRequest, ShareNotFound, Unauthenticated
from mail.http.access import AdminOrUser, GivenTask, OtherOwner, named_instance
from mail.http.answers import answer, array_pieces, each, encoded, object_pieces
from mail.http.audit import audited
from mail.http.bodies import JSON, Answered, Given, JSONBody
from mail.http.conversations import read_items
from mail.http.openapi import answers, make_router
from mail.http.routes.tokens import NO_STORE
from mail.http.service import address_of, service_of
from mail.http.task_json import load_task, reading
from mail.http.task_records import EVENT_PAGE_BYTES

DAYS = 7
"""Days for which a link can be used, by default; and at most, if a browser's session makes it."""

MOST_DAYS = 90


class PostShare(Given):
    """The task, and for how long."""

    task_id: TaskId
    days: float = Field(
        default=DAYS,
        gt=0,
        le=MOST_DAYS,
        description=f"Days after which the link expires; a browser's session may ask for {DAYS}.",
    )


class TaskShare(Answered):
    """A link to a task that can be used."""

    number: str = Field(description="By what it is revoked.")
    created: str = Field(description="In ISO 8601.")
    expires: str = Field(description="In ISO 8601.")


class NewTaskShare(TaskShare):
    """A new link."""

    code: str = Field(
        description="The code for `/ui#shared=CODE` at this server's address; it is not shown again."
    )


class TaskShares(Answered):
    """The links to a task that can be used."""

    shares: list[TaskShare]


class ShareRevoked(Answered):
    """Nobody can use the link any more."""

    status: Literal["revoked"]
    number: str


class SharedTask(Answered):
    """What a link shows of a task."""

    title: str | None
    status: TaskStatus
    task_owner: str
    start_time: str
    updated: str = Field(description="When it has last changed.")
    expires: str = Field(description="When the link expires.")
    items: list[Item] = Field(
        description="What the page's events add to the conversation or change in it; an item replaces the one with its "
        "id. They are those of `GET /task`, without what the models were given and thought, what actions got and "
        "returned, errors, and other tasks."
    )
    next: int | None = Field(description="`after` of the next page; null on the last one.")
    seq: int = Field(description="`after` for what comes later.")


router = make_router("tasks")
_body = JSONBody(PostShare)


@router.post("/task/shares", summary="Share a task", status_code=201, **answers(NewTaskShare, 400, 404))
async def post_share(
    request: Request, caller: AdminOrUser, body: Annotated[PostShare, Depends(_body)]
) -> JSON:
    """Make a link with which anybody can read the conversation and the trace of one of your tasks, until it expires.

    It shows no prompts, no reasoning, no arguments or results of actions, no errors and no other tasks.
    """
    service = service_of(request)
    runtime = service.runtime
    by = caller.principal(runtime.swarm.name)
    async with audited(request, caller, Act.SHARE_TASK, body.task_id, owner=str(by)) as entry:
        if caller.is_session and body.days > DAYS:
            raise BadRequest(
                f"a browser's session shares a task for {DAYS} days at most; use an API key, or fewer days"
            )
        task = await load_task(service, caller, body.task_id)
        code, digest = new_code(task.key)
        now = runtime.clock.now()
        given = Share(digest=digest, created=now.isoformat(), expires=now.timestamp() + body.days * 86_400)
        entry.on = f"{given.number} of {body.task_id}"
        await runtime.admission.share(by, task, given)
    return JSON({**_as_json(given), "code": code}, status_code=201, headers=NO_STORE)


@router.get("/task/shares", summary="List the links to a task", **answers(TaskShares, 400, 404))
async def get_shares(
    request: Request, caller: AdminOrUser, task_id: GivenTask, owner: OtherOwner = None
) -> JSON:
    """Return the links to a task that can be used, oldest first. Admins can name another owner."""
    service = service_of(request)
    task = await load_task(service, caller, task_id, owner)
    now = service.runtime.clock.now().timestamp()
    return JSON({"shares": list(map(_as_json, valid_shares(task, now)))})


@router.delete("/task/shares/{number}", summary="Revoke a link to a task", **answers(ShareRevoked, 400, 404))
async def delete_share(
    request: Request,
    caller: AdminOrUser,
    number: Annotated[str, Path(description="The `number` of the link.")],
    task_id: GivenTask,
    owner: OtherOwner = None,
) -> JSON:
    """Revoke a link at once. Admins can revoke those of other owners."""
    service = service_of(request)
    swarm = service.runtime.swarm.name
    instance = named_instance(caller, owner, swarm)
    async with audited(request, caller, Act.REVOKE_SHARE, f"{number[:64]} of {task_id}", owner=instance):
        task = await load_task(service, caller, task_id, owner)
        await service.runtime.admission.revoke_share(caller.principal(swarm), task, number)
    return JSON({"status": "revoked", "number": number})


@router.get("/task/shared", summary="Read a shared task", **answers(SharedTask, 400, 404, 413, 429))
async def get_shared(
    request: Request,
    after: Annotated[int, Query(ge=0, le=2**53, description="The last event whose items are known.")] = 0,
) -> Response:
    """Return what a link shows of its task, a page at a time. Instead of a key, send the code of the link."""
    service = service_of(request)
    task, share = await _linked(request)
    holder = ShareHolder(share.number)
    async with audited(request, holder, Act.READ_SHARE, task.task_id, owner=task.owner):
        pacer = reading(service, request, task)
    store = service.runtime.store
    events = await read_page(store, task.key, pacer, after=after, upto=task.seq, max_bytes=EVENT_PAGE_BYTES)
    reader = await service.conversations.reader(store, task, after, pacer)
    items = shown(await read_items(reader, events, pacer))
    service.conversations.keep(task, reader)
    last = events[-1].seq if events else after
    members: dict[str, Any] = {
        "title": shown_title(task),
        "status": task.status,
        "task_owner": task.owner,
        "start_time": task.started,
        "updated": task.updated,
        "expires": format_time(share.expires),
        "items": array_pieces(encoded(items, pacer)),
        "next": last if events and last < task.seq else None,
        "seq": last,
    }
    return await answer(request, object_pieces(each(members.items())), NO_STORE)


async def _linked(request: Request) -> tuple[Task, Share]:
    """Return the task and the link whose code a request has. Raises ShareNotFound, and RateLimited by address."""
    service = service_of(request)
    service.rates.admit_stranger(address_of(request))
    try:
        key, digest = read_code(find_bearer(request.headers))
        runtime = service.runtime
        is_here = key.instance.endswith(f"@{runtime.swarm.name}")
        task = await runtime.store.load(key) if is_here else None
        if task is not None and (share := share_with(task, digest, runtime.clock.now().timestamp())):
            return task, share
        raise ShareNotFound
    except (BadRequest, Unauthenticated):
        raise ShareNotFound from None


def _as_json(share: Share) -> dict[str, Any]:
    return {"number": share.number, "created": share.created, "expires": format_time(share.expires)}
