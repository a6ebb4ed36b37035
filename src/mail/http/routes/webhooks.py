"""Webhooks: URLs that receive the events of tasks."""

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import Depends, Path, Query, Request
from pydantic import Field

from mail.core.engine.webhooks import NO_WEBHOOKS
from mail.core.protocol.message import TaskId
from mail.core.task.audit import Act
from mail.core.task.webhooks import MAX_HOOKS, TaskWebhook, Webhook, WebhookRecord, host_of
from mail.errors import BadRequest, Forbidden, WebhookNotFound
from mail.http.access import AdminOrUser, named_instance
from mail.http.audit import audited, refuse_session
from mail.http.bodies import EVERY, JSON, Answered, GivenWebhook, JSONBody
from mail.http.openapi import answers, make_router
from mail.http.service import Service, service_of
from mail.http.task_json import load_task

NEWEST = 200
"""How many of the newest tasks are searched for the webhooks of all callers."""


class RegisteredWebhook(Answered):
    """A webhook for the tasks that the caller begins."""

    id: str
    url: str
    secret_ref: str | None
    events: list[str] = Field(description="The kinds of events to send; `*` for all.")
    created: str = Field(description="Time of the registration, in ISO 8601.")


class WebhookState(Answered):
    """The delivery state of a task's webhook."""

    id: str
    url: str
    secret_ref: str | None
    events: list[str]
    delivered_to: int = Field(description="The `seq` up to which every event has been delivered or skipped.")
    waits_to: int | None = Field(description="The `seq` of the last waiting event; null if none waits.")
    failures: int = Field(description="How often in a row the next one could not be sent.")
    next_try: str | None = Field(description="Time of the next attempt, in ISO 8601; null for immediately.")


class CallersWebhook(Answered):
    """A webhook of any caller, as admins see it: without the path of its URL, and without the name of its secret."""

    id: str
    caller: str = Field(description="The caller whose tasks' events it receives.")
    host: str = Field(description="The scheme and host of its URL.")
    is_signed: bool = Field(description="Whether its requests are signed.")
    events: list[str]
    created: str | None = Field(
        description="Time of the registration, in ISO 8601; null for a webhook of single tasks only."
    )
    tasks: int = Field(description=f"How many of the newest {NEWEST} tasks of all callers have it.")
    waiting: int = Field(description="In how many of them events wait to be sent.")
    failing: int = Field(description="In how many of them the next event could not be sent so far.")
    next_try: str | None = Field(description="Time of the next attempt of these; null for none.")


class Webhooks(Answered):
    """The caller's webhooks or, with `task_id`, those of a task; for admins, with `all`, those of all callers."""

    webhooks: list[RegisteredWebhook | WebhookState | CallersWebhook]


class WebhookDeleted(Answered):
    """The webhook is deleted; tasks that were begun with it keep it."""

    status: Literal["deleted"]
    id: str
    tasks: int = Field(
        default=0, description="From how many tasks it was removed; only for admins who name a caller."
    )


router = make_router("webhooks")
_body = JSONBody(GivenWebhook)
_ID = re.compile("[0-9a-f]{16}")


@router.get("/webhooks", summary="List the caller's webhooks", **answers(Webhooks, 400, 404))
async def get_webhooks(
    request: Request,
    caller: AdminOrUser,
    task_id: Annotated[
        TaskId | None, Query(description="Those of this task, with their delivery state.")
    ] = None,
    every: Annotated[
        bool, Query(alias="all", description="Those of all callers, with their delivery state. For admins.")
    ] = False,
) -> JSON:
    """Return the webhooks that the caller has registered, the oldest first; or those of one of the caller's tasks."""
    service = service_of(request)
    if every:
        if caller.role != "admin" or task_id is not None:
            raise Forbidden("all lists the webhooks of all callers, for admins; leave out task_id")
        return JSON({"webhooks": await _describe_all(service)})
    if task_id is None:
        registered = await service.documents.webhooks(str(caller.principal(service.runtime.swarm.name)))
        return JSON({"webhooks": [_describe_registered(webhook) for webhook in registered]})
    task = await load_task(service, caller, task_id)
    now = service.runtime.clock.now().timestamp()
    return JSON({"webhooks": [_describe_state(name, hook, now) for name, hook in task.webhooks.items()]})


async def _describe_all(service: Service) -> list[dict[str, Any]]:
    """Return the webhooks of all callers: those that are registered, and those of the newest tasks."""
    runtime = service.runtime
    suffix = f"@{runtime.swarm.name}"
    found: dict[tuple[str, str], Webhook | TaskWebhook] = {}
    created: dict[tuple[str, str], str] = {}
    states: dict[tuple[str, str], list[TaskWebhook]] = {}
    for instance, webhook in await service.documents.all_webhooks():
        if instance.endswith(suffix):
            found[instance, webhook.id] = webhook
            created[instance, webhook.id] = webhook.created
    for task in (await runtime.store.list_tasks(None, limit=NEWEST)).tasks:
        for webhook_id, hook in task.webhooks.items() if task.instance.endswith(suffix) else ():
            found.setdefault((task.instance, webhook_id), hook)
            states.setdefault((task.instance, webhook_id), []).append(hook)
    lines = []
    for (instance, webhook_id), either in sorted(found.items(), key=lambda item: item[0]):
        hooks = states.get((instance, webhook_id), [])
        failing = [hook for hook in hooks if hook.is_waiting and hook.failures]
        next_try = min((hook.retry_at for hook in failing), default=None)
        lines.append(
            {
                "id": webhook_id,
                "caller": instance,
                "host": host_of(either.url),
                "is_signed": bool(either.secret_ref),
                "events": [kind.value for kind in either.events] or [EVERY],
                "created": created.get((instance, webhook_id)),
                "tasks": len(hooks),
                "waiting": sum(hook.is_waiting for hook in hooks),
                "failing": len(failing),
                "next_try": None if next_try is None else datetime.fromtimestamp(next_try, UTC).isoformat(),
            }
        )
    return lines


def _describe_registered(webhook: WebhookRecord) -> dict[str, Any]:
    return {**_describe(webhook.id, webhook), "created": webhook.created}


def _describe_state(webhook_id: str, hook: TaskWebhook, now: float) -> dict[str, Any]:
    retry_at = datetime.fromtimestamp(hook.retry_at, UTC).isoformat() if hook.retry_at > now else None
    return {
        **_describe(webhook_id, hook),
        "delivered_to": hook.after,
        "waits_to": hook.upto if hook.is_waiting else None,
        "failures": hook.failures,
        "next_try": retry_at,
    }


def _describe(webhook_id: str, webhook: Webhook | TaskWebhook) -> dict[str, Any]:
    return {
        "id": webhook_id,
        "url": webhook.url,
        "secret_ref": webhook.secret_ref or None,
        "events": [kind.value for kind in webhook.events] or [EVERY],
    }


@router.post("/webhooks", summary="Register a webhook", status_code=201, response_model=RegisteredWebhook)
async def post_webhook(
    request: Request, caller: AdminOrUser, body: Annotated[GivenWebhook, Depends(_body)]
) -> JSON:
    """Register a URL for the events of the tasks that the caller begins from now on.

    The same URL with the same events is the same webhook: registering it again replaces its `secret_ref`. A browser's
    session can't register one.
    """
    refuse_session(caller, "mail webhook register URL")
    service = service_of(request)
    runtime = service.runtime
    webhook = body.webhook()
    if runtime.webhooks is None:
        raise BadRequest(NO_WEBHOOKS)
    await runtime.webhooks.check(webhook)
    registered = WebhookRecord(
        url=webhook.url,
        secret_ref=webhook.secret_ref,
        events=webhook.events,
        created=runtime.clock.now().isoformat(),
    )
    owner = str(caller.principal(runtime.swarm.name))
    async with audited(request, caller, Act.REGISTER_WEBHOOK, f"{registered.id} at {host_of(webhook.url)}"):
        if not await service.documents.set_webhook(owner, registered, limit=MAX_HOOKS):
            raise BadRequest(f"you have {MAX_HOOKS} webhooks, the maximum; delete one first")
    return JSON(_describe_registered(registered), status_code=201)


@router.delete("/webhooks/{webhook_id}", summary="Delete a webhook", **answers(WebhookDeleted, 400, 404))
async def delete_webhook(
    request: Request,
    caller: AdminOrUser,
    webhook_id: Annotated[str, Path(description="The webhook.")],
    of: Annotated[
        str | None,
        Query(
            alias="caller",
            description="The caller who has it, `role:id` or `role:id@swarm`, to disable it; for admins.",
        ),
    ] = None,
) -> JSON:
    """Delete a webhook that the caller has registered. Tasks that were begun with it keep it.

    An admin who names a `caller` disables it: it is also removed from the newest tasks of that caller, whose
    timelines and the server's log then name the admin.
    """
    service = service_of(request)
    swarm = service.runtime.swarm.name
    owner = named_instance(caller, of, swarm)
    is_id = _ID.fullmatch(webhook_id) is not None
    async with audited(request, caller, Act.DISABLE_WEBHOOK, webhook_id, owner=owner):
        was_registered = is_id and await service.documents.delete_webhook(owner, webhook_id)
        tasks = 0
        if is_id and of is not None and caller.role == "admin":
            page = await service.runtime.store.list_tasks(owner, limit=NEWEST)
            for task in page.tasks:
                tasks += await service.runtime.remove_webhook(caller.principal(swarm), task, webhook_id)
        if not was_registered and not tasks:
            whose = "you have" if of is None else f"{of} has"
            raise WebhookNotFound(f"{whose} no webhook {webhook_id[:40]!r}; GET /webhooks lists yours")
    return JSON({"status": "deleted", "id": webhook_id, **({} if of is None else {"tasks": tasks})})
