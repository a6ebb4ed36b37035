"""Webhooks: URLs that receive the events of tasks."""

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import Depends, Path, Query, Request
from pydantic import Field

from mail.core.engine.webhooks import NO_WEBHOOKS
from mail.core.protocol.message import TaskId
from mail.core.task.webhooks import MAX_HOOKS, TaskWebhook, Webhook, WebhookRecord
from mail.errors import BadRequest, WebhookNotFound
from mail.http.access import AdminOrUser
from mail.http.bodies import EVERY, JSON, Answered, GivenWebhook, JSONBody
from mail.http.openapi import PROTECTED, make_router, problems
from mail.http.service import service_of
from mail.http.task_json import load_task


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


class Webhooks(Answered):
    """The caller's webhooks or, with `task_id`, those of a task."""

    webhooks: list[RegisteredWebhook | WebhookState]


class WebhookDeleted(Answered):
    """The webhook is deleted; tasks that were begun with it keep it."""

    status: Literal["deleted"]
    id: str


router = make_router("webhooks")
_body = JSONBody(GivenWebhook)
_ID = re.compile("[0-9a-f]{16}")


@router.get(
    "/webhooks",
    summary="List the caller's webhooks",
    response_model=Webhooks,
    responses=problems(400, 404, *PROTECTED),
)
async def get_webhooks(
    request: Request,
    caller: AdminOrUser,
    task_id: Annotated[
        TaskId | None, Query(description="Those of this task, with their delivery state.")
    ] = None,
) -> JSON:
    """Return the webhooks that the caller has registered, the oldest first; or those of one of the caller's tasks."""
    service = service_of(request)
    if task_id is None:
        registered = await service.documents.webhooks(str(caller.principal(service.runtime.swarm.name)))
        return JSON({"webhooks": [_describe_registered(webhook) for webhook in registered]})
    task = await load_task(service, caller, task_id)
    now = service.runtime.clock.now().timestamp()
    return JSON({"webhooks": [_describe_state(name, hook, now) for name, hook in task.webhooks.items()]})


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


@router.post(
    "/webhooks",
    summary="Register a webhook",
    status_code=201,
    response_model=RegisteredWebhook,
    responses=problems(400, 413, *PROTECTED),
    openapi_extra=_body.docs(),
)
async def post_webhook(
    request: Request, caller: AdminOrUser, body: Annotated[GivenWebhook, Depends(_body)]
) -> JSON:
    """Register a URL for the events of the tasks that the caller begins from now on.

    The same URL with the same events is the same webhook: registering it again replaces its `secret_ref`.
    """
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
    if not await service.documents.set_webhook(owner, registered, limit=MAX_HOOKS):
        raise BadRequest(f"you have {MAX_HOOKS} webhooks, the maximum; delete one first")
    return JSON(_describe_registered(registered), status_code=201)


@router.delete(
    "/webhooks/{webhook_id}",
    summary="Delete a webhook",
    response_model=WebhookDeleted,
    responses=problems(400, 404, *PROTECTED),
)
async def delete_webhook(
    request: Request, caller: AdminOrUser, webhook_id: Annotated[str, Path(description="The webhook.")]
) -> JSON:
    """Delete a webhook that the caller has registered. Tasks that were begun with it keep it."""
    service = service_of(request)
    owner = str(caller.principal(service.runtime.swarm.name))
    if not _ID.fullmatch(webhook_id) or not await service.documents.delete_webhook(owner, webhook_id):
        raise WebhookNotFound(f"you have no webhook {webhook_id[:40]!r}; GET /webhooks lists yours")
    return JSON({"status": "deleted", "id": webhook_id})
