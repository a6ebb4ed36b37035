"""Webhooks: URLs that what happens in tasks is sent to."""

import re
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request

from mail.core.engine.webhooks import NO_WEBHOOKS
from mail.core.protocol.message import TaskId
from mail.core.task.webhooks import MAX_HOOKS, WebhookRecord
from mail.errors import BadRequest, WebhookNotFound
from mail.http.access import AdminOrUser
from mail.http.bodies import JSON, JSONBody
from mail.http.openapi import PROTECTED, problems
from mail.http.schemas import GivenWebhook
from mail.http.service import service_of
from mail.http.task_json import load_task
from mail.http.webhooks_schemas import (
    RegisteredWebhook,
    WebhookDeleted,
    Webhooks,
    describe_hook,
    describe_record,
)

router = APIRouter(tags=["webhooks"])
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
        TaskId | None, Query(description="Those of this task, and how far each has come.")
    ] = None,
) -> JSON:
    """The webhooks that the caller has registered, the oldest first; or those of one of the caller's tasks."""
    service = service_of(request)
    if task_id is None:
        records = await service.records.webhooks(str(caller.principal(service.runtime.swarm.name)))
        return JSON({"webhooks": [describe_record(record) for record in records]})
    task = await load_task(service, caller, task_id)
    now = service.runtime.clock.now().timestamp()
    return JSON(
        {
            "webhooks": [
                describe_hook(hook_id, hook, _time(hook.retry_at) if hook.retry_at > now else None)
                for hook_id, hook in task.webhooks.items()
            ]
        }
    )


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
    """Let what happens in the tasks that the caller begins from now on be sent to a URL.

    The same URL with the same events is the same webhook: to register it again replaces its `secret_ref`.
    """
    service = service_of(request)
    runtime = service.runtime
    webhook = body.webhook()
    if runtime.webhooks is None:
        raise BadRequest(NO_WEBHOOKS)
    await runtime.webhooks.check(webhook)
    record = WebhookRecord(**webhook.model_dump(), created=runtime.clock.now().isoformat())
    owner = str(caller.principal(runtime.swarm.name))
    if not await service.records.set_webhook(owner, record, limit=MAX_HOOKS):
        raise BadRequest(f"you have {MAX_HOOKS} webhooks, as many as may be; delete one first")
    return JSON(describe_record(record), status_code=201)


@router.delete(
    "/webhooks/{webhook_id}",
    summary="Delete a webhook",
    response_model=WebhookDeleted,
    responses=problems(400, 404, *PROTECTED),
)
async def delete_webhook(
    request: Request,
    caller: AdminOrUser,
    webhook_id: Annotated[str, Path(description="The webhook.")],
) -> JSON:
    """Forget a webhook that the caller has registered. Tasks that have begun with it keep it."""
    service = service_of(request)
    owner = str(caller.principal(service.runtime.swarm.name))
    if not _ID.fullmatch(webhook_id) or not await service.records.delete_webhook(owner, webhook_id):
        raise WebhookNotFound(f"you have no webhook {webhook_id[:40]!r}; GET /webhooks lists yours")
    return JSON({"status": "deleted", "id": webhook_id})


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
