"""Push notifications of A2A 1.0: the form in which a webhook that follows a run sends how it fares."""

from pydantic_core import from_json, to_json

from mail.core.task.task import TaskStatus
from mail.core.task.webhooks import Push

STATES = {
    TaskStatus.RUNNING: "TASK_STATE_WORKING",
    TaskStatus.PAUSED: "TASK_STATE_INPUT_REQUIRED",
    TaskStatus.COMPLETED: "TASK_STATE_COMPLETED",
    TaskStatus.FAILED: "TASK_STATE_FAILED",
    TaskStatus.CANCELLED: "TASK_STATE_CANCELED",
}


def as_push(body: bytes) -> bytes:
    """Return what the engine says of a run (`push_body`) as a StreamResponse: the new status, without the answer."""
    about = from_json(body)
    status = {"state": STATES[TaskStatus(about["status"])], "timestamp": about["timestamp"]}
    return to_json({"statusUpdate": {"taskId": about["id"], "contextId": about["task_id"], "status": status}})


def push_headers(push: Push) -> dict[str, str]:
    """Return the headers by which the receiver knows a notification."""
    headers = {"Content-Type": "application/a2a+json"}
    if push.token:
        headers["X-A2A-Notification-Token"] = push.token
    if push.scheme:
        headers["Authorization"] = f"{push.scheme} {push.credentials}".strip()
    return headers
