"""The Tasks extension of MCP 2026-07-28 for a client: calls that a server answers with a task. Imports the MCP SDK."""

from collections.abc import Sequence
from typing import Any, Literal

from mcp import Client
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp_types import CallToolResult, EmptyResult, Request, RequestParams, Result

from mail.core.task.callbacks import MAX_PROGRESS
from mail.mcp import TASKS
from mail.utils.outcomes import ActionFailed


class ServerTask(Result):
    """A task of a server, as the result of the call that began it."""

    result_type: Literal["task"] = "task"
    task_id: str
    status: str
    status_message: str | None = None
    ttl_ms: float | None = None
    poll_interval_ms: float | None = None

    @property
    def progress(self) -> str:
        """What the server says of it."""
        return (self.status_message or "")[:MAX_PROGRESS]


class SeenTask(ServerTask):
    """A task of a server, with its result or its error if it has ended."""

    result_type: str = "complete"  # type: ignore[assignment]
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


class TaskBegun(Exception):
    """A server has answered a call with a task."""

    def __init__(self, task: ServerTask) -> None:
        super().__init__(task.task_id)
        self.task = task


class TasksExtension(ClientExtension):
    """Lets servers answer calls of tools with tasks; such a call raises `TaskBegun`."""

    identifier = TASKS

    def claims(self) -> Sequence[ResultClaim[Any]]:
        """Return the result that the extension adds."""
        return (ResultClaim(result_type="task", model=ServerTask, resolve=_raise),)


async def _raise(task: ServerTask, _context: ClaimContext) -> CallToolResult:
    raise TaskBegun(task)


async def get_task(client: Client, task_id: str) -> SeenTask:
    """Return a task as it is now."""
    return await client.session.send_request(_request("tasks/get", task_id), SeenTask)


async def cancel_task(client: Client, task_id: str) -> None:
    """Cancel a task."""
    await client.session.send_request(_request("tasks/cancel", task_id), EmptyResult)


def result_of(task: SeenTask) -> CallToolResult | None:
    """Return the result of a task; None while it works. Raises ActionFailed if it has none, and never will."""
    match task.status:
        case "completed" if task.result is not None:
            return CallToolResult.model_validate(task.result, by_name=False)
        case "working":
            return None
        case "input_required":
            raise ActionFailed("it asks for input, which it can't get here")
        case _:
            said = (task.error or {}).get("message") or task.progress
            raise ActionFailed(f"its task has the status {task.status}" + (f": {said}" if said else ""))


class _Params(RequestParams):
    task_id: str


class _TaskRequest(Request[_Params, str]):
    method: str
    params: _Params
    name_param = "taskId"


def _request(method: str, task_id: str) -> _TaskRequest:
    return _TaskRequest(method=method, params=_Params(task_id=task_id))
