"""Push notification configs: webhooks of a task that follow one of its runs.

What a receiver checks, a token and credentials, is stored with the task and sent to its URL, but never returned.
"""

from hashlib import sha256

from a2a.types import AuthenticationInfo, TaskPushNotificationConfig
from a2a.utils.errors import PushNotificationNotSupportedError, UnsupportedOperationError
from pydantic_core import to_json

from mail.core.task.ports import Webhooks
from mail.core.task.task import Task
from mail.core.task.webhooks import Push, Webhook
from mail.errors import BadRequest, TaskNotFound
from mail.http.a2a.call import Call
from mail.http.audit import refuse_session
from mail.http.runs import RunId

LONGEST = 2_000
"""Characters of an id, a token, a scheme or credentials."""


async def create(call: Call, given: TaskPushNotificationConfig) -> TaskPushNotificationConfig:
    """Let a run push its status to a URL; the same id again replaces the config. Raises as `check`."""
    await check(call, given)
    run_id = RunId.parse(given.task_id)
    task = await call.load(run_id.task_id)
    if not (await call.read(task, number=run_id.number)).is_last:
        raise UnsupportedOperationError(f"task {given.task_id!r} has ended, and pushes nothing any more")
    config_id = given.id or sha256(given.url.encode(errors="surrogatepass")).hexdigest()[:16]
    push = Push(
        id=config_id,
        run=task.generation.run,
        run_id=str(run_id),
        token=given.token,
        scheme=given.authentication.scheme,
        credentials=given.authentication.credentials,
    )
    await call.runtime.add_push(task, _hook_id(run_id, config_id), given.url, push)
    return _shown(given.url, push)


async def find(call: Call, task_id: str, config_id: str) -> TaskPushNotificationConfig:
    """Return a config. Raises TaskNotFound."""
    run_id, task = await _load(call, task_id)
    hook = task.webhooks.get(_hook_id(run_id, config_id))
    if hook is None or hook.push is None:
        raise TaskNotFound(f"task {task_id!r} has no push notification config {config_id[:80]!r}")
    return _shown(hook.url, hook.push)


async def list_all(call: Call, task_id: str) -> list[TaskPushNotificationConfig]:
    """Return all configs of a run. Raises TaskNotFound."""
    run_id, task = await _load(call, task_id)
    hooks = task.webhooks.values()
    return [_shown(each.url, each.push) for each in hooks if each.push and each.push.run_id == str(run_id)]


async def delete(call: Call, task_id: str, config_id: str) -> None:
    """Delete a config; one that isn't there is deleted already. Raises TaskNotFound."""
    run_id, task = await _load(call, task_id)
    await call.runtime.remove_webhook(call.principal, task, _hook_id(run_id, config_id))


async def check(call: Call, given: TaskPushNotificationConfig) -> None:
    """Raise BadRequest for what can't be sent, and PushNotificationNotSupportedError where there are no webhooks."""
    refuse_session(call.caller, "mail webhook register URL")
    await _webhooks_of(call).check(Webhook(url=given.url))
    about = given.authentication
    for text in (given.id, given.token, about.scheme, about.credentials):
        if len(text) > LONGEST or not text.isascii() or not (text or "-").isprintable():
            raise BadRequest(
                f"id, token, scheme and credentials must each have {LONGEST} printable ASCII characters at most"
            )


def _webhooks_of(call: Call) -> Webhooks:
    if call.runtime.webhooks is None:
        raise PushNotificationNotSupportedError("this server sends no push notifications")
    return call.runtime.webhooks


async def _load(call: Call, task_id: str) -> tuple[RunId, Task]:
    _webhooks_of(call)
    run_id = RunId.parse(task_id)
    return run_id, await call.load(run_id.task_id)


def _shown(url: str, push: Push) -> TaskPushNotificationConfig:
    authentication = AuthenticationInfo(scheme=push.scheme) if push.scheme else None
    return TaskPushNotificationConfig(id=push.id, task_id=push.run_id, url=url, authentication=authentication)


def _hook_id(run_id: RunId, config_id: str) -> str:
    return sha256(to_json([str(run_id), config_id])).hexdigest()[:16]
