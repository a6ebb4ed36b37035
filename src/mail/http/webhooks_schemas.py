"""What travels about webhooks."""

from typing import Any, Literal

from pydantic import Field

from mail.core.task.webhooks import TaskWebhook, Webhook, WebhookRecord
from mail.http.schemas import EVERY, Answered


class RegisteredWebhook(Answered):
    """A webhook of the tasks that the caller begins."""

    id: str
    url: str
    secret_ref: str | None
    events: list[str] = Field(description="The kinds of events that it is sent; `*` for all.")
    created: str = Field(description="When it was registered, in ISO 8601.")


class WebhookState(Answered):
    """How far a task has come with a webhook."""

    id: str
    url: str
    secret_ref: str | None
    events: list[str]
    delivered_to: int = Field(description="The `seq` up to which nothing has to be sent any more.")
    waits_to: int | None = Field(description="The `seq` of the last event that waits; null where none does.")
    failures: int = Field(description="How often in a row the next one could not be sent.")
    next_try: str | None = Field(description="When that is tried again, in ISO 8601; null for at once.")


class Webhooks(Answered):
    """The caller's webhooks or, with `task_id`, those of a task."""

    webhooks: list[RegisteredWebhook | WebhookState]


class WebhookDeleted(Answered):
    """It is forgotten; tasks that have it keep it."""

    status: Literal["deleted"]
    id: str


def describe_record(record: WebhookRecord) -> dict[str, Any]:
    """A registered webhook, as its owner sees it."""
    return {**_describe(record.id, record), "created": record.created}


def describe_hook(hook_id: str, hook: TaskWebhook, retry_at: str | None) -> dict[str, Any]:
    """A webhook of a task; `retry_at` is when it is tried again, in ISO 8601."""
    return {
        **_describe(hook_id, hook),
        "delivered_to": hook.after,
        "waits_to": hook.upto if hook.is_waiting else None,
        "failures": hook.failures,
        "next_try": retry_at,
    }


def _describe(hook_id: str, hook: Webhook | TaskWebhook) -> dict[str, Any]:
    return {
        "id": hook_id,
        "url": hook.url,
        "secret_ref": hook.secret_ref or None,
        "events": [kind.value for kind in hook.events] or [EVERY],
    }
