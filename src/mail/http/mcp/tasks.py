"""The Tasks extension of MCP 2026-07-28 (SEP-2663), on the SDK's API for extensions: a call whose result comes later.

A client that declares the extension gets a handle of a run at once. It polls the run, fills in the forms of its
questions, and cancels it. Everything is read from the record, so that any process answers, also after a restart.
"""

from typing import Any, Literal

from mcp import MCPError
from mcp_types import InputResponses, RequestParams
from mcp_types.jsonrpc import MISSING_REQUIRED_CLIENT_CAPABILITY

from mail.core.decisions import items
from mail.core.task.task import ENDED, TaskStatus
from mail.http.mcp.calls import Call
from mail.http.mcp.content import forms, open_questions, read_forms, words_of
from mail.http.runs import Progress, RunId
from mail.mcp import TASKS

POLL_MS = 1000
"""Milliseconds between the requests of a client that polls, as the server suggests."""

Fields = dict[str, Any]
Status = Literal["working", "input_required", "completed", "cancelled"]


class TaskParams(RequestParams):
    """Names a task of MCP, which is a run."""

    task_id: str


class UpdateParams(TaskParams):
    """Answers questions of a task."""

    input_responses: InputResponses


def create(progress: Progress) -> Fields:
    """Return the handle of a run, as the result of the call that began it."""
    return {"resultType": "task", **_describe(progress, "working")}


async def get(call: Call, run_id: RunId) -> Fields:
    """Return a run with its result or questions. Raises TaskNotFound.

    A run that waits for a person has a result, too, if the client can show no forms: its model reads how to reply.
    """
    _require_extension(call)
    task = await call.load(run_id.task_id)
    progress = await call.read(task, number=run_id.number)
    status = task.status if progress.is_last else progress.found.status
    questions = open_questions(progress) if status is TaskStatus.PAUSED else []
    if status is TaskStatus.RUNNING:
        return _describe(progress, "working")
    if status is TaskStatus.CANCELLED:
        return _describe(progress, "cancelled")
    if questions and call.can_ask:
        asked = {
            key: form.model_dump(by_alias=True, exclude_none=True) for key, form in forms(questions).items()
        }
        return {**_describe(progress, "input_required"), "inputRequests": asked}
    result = await call.result(task, progress, status)
    shown = result.model_dump(mode="json", by_alias=True, exclude_none=True)
    return {**_describe(progress, "completed"), "result": shown}


async def update(call: Call, run_id: RunId, responses: InputResponses) -> Fields:
    """Give a run what its user has filled in; what isn't asked, or was answered before, is ignored."""
    _require_extension(call)
    task = await call.load(run_id.task_id)
    progress = await call.read(task, number=run_id.number)
    reply = read_forms(responses, open_questions(progress)) if progress.is_last else None
    if reply is not None:
        await call.reply(run_id.task_id, reply)
    return {}


async def cancel(call: Call, run_id: RunId) -> Fields:
    """Cancel a run, unless it has ended."""
    _require_extension(call)
    task = await call.load(run_id.task_id)
    progress = await call.read(task, number=run_id.number)
    if progress.is_last and task.status not in ENDED:
        await call.cancel(run_id.task_id)
    return {}


def _require_extension(call: Call) -> None:
    if not call.has_tasks:
        needed: Fields = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
        raise MCPError(
            code=MISSING_REQUIRED_CLIENT_CAPABILITY,
            message=f"declare the extension {TASKS} with each request",
            data=needed,
        )


def _describe(progress: Progress, status: Status) -> Fields:
    """Return a run as a task of MCP, without its result and questions."""
    said = [words for item in progress.items if (words := words_of(item))]
    if status == "cancelled":
        said = [item.text for item in progress.items if isinstance(item, items.Cancelled)]
    shown: Fields = {
        "taskId": str(progress.id),
        "status": status,
        "createdAt": progress.began,
        "lastUpdatedAt": progress.last,
        "ttlMs": None,
        "pollIntervalMs": POLL_MS,
    }
    return {**shown, "statusMessage": said[-1]} if said and status in ("working", "cancelled") else shown
