"""Tasks and their events as JSON, the shapes that several routes answer with (SPEC, section 8)."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any
from urllib.parse import urlencode

from fastapi import Request
from pydantic import Field
from pydantic_core import to_json

from mail.auth.keys import Caller
from mail.core.protocol.message import MAILMessage
from mail.core.task.change import InboxEntry
from mail.core.task.context import CURRENT_TASK
from mail.core.task.events import Event, EventKind
from mail.core.task.ports import Store
from mail.core.task.task import Task, TaskKey, TaskStatus
from mail.core.task.turn_state import OpenUserQuestion, PausedCall
from mail.core.task.usage import NO_USAGE, Usage
from mail.errors import TaskNotFound
from mail.http.bodies import Answered
from mail.http.service import Service

READ_CONCURRENCY = 16
"""Tasks that are read concurrently: with a remote store, reading them one by one would take too long."""


class _EventEntry(Answered):
    event: EventKind
    id: str
    retry: int | None
    comment: str | None


class AnswerEvent(_EventEntry):
    """An event of the task."""

    data: dict[str, Any]


class RecordedEvent(_EventEntry):
    """An event of the task; `data` is an object, as JSON text."""

    data: str


class QueuedMessage(Answered):
    """A message that waits in a mailbox."""

    mailbox: str
    priority: int
    seq: int
    message: MAILMessage


class PendingToolCall(Answered):
    """A breakpoint tool call that waits for its result."""

    call_id: str
    name: str
    arguments: dict[str, Any]
    asks: OpenUserQuestion | None = Field(
        default=None,
        description="The request to the owner that the call has sent, if it asks the user: a message whose subject "
        "is one of `answer_subjects`, in any case, is its answer.",
    )


class TaskUsage(Answered):
    """Tokens and cost of a task's model calls, in all its generations."""

    total: Usage
    agents: dict[str, Usage] = Field(description="Per agent that has called a model.")
    models: dict[str, Usage] = Field(
        description="Per model; `other` for those without a name, and for those past the first 32."
    )


class TaskRecord(Answered):
    """A task with all its events and waiting messages."""

    task_id: str
    task_owner: str
    task_contributors: list[str]
    start_time: str
    events: list[RecordedEvent]
    is_running: bool
    task_message_queue: list[QueuedMessage] = Field(
        description="The waiting messages; a stopped task keeps them until it is resumed."
    )
    remote_swarms: list[str]
    completed: bool = Field(
        description="Whether the task has stopped, for whatever reason; `status` tells which."
    )
    title: str | None
    status: TaskStatus
    entrypoint: str
    generation: int = Field(description="How often the task was begun or resumed.")
    steps: int = Field(description="Steps taken in this generation.")
    max_steps: int
    pending_tool_calls: list[PendingToolCall] = Field(
        description="The breakpoint tool calls that a paused task waits for."
    )
    cancellation: dict[str, Any] | None = Field(
        description="Time, caller and reason of the last cancellation; null if it was never cancelled."
    )
    budget: dict[str, Any] | None = Field(description="The budget of this generation; null for no limits.")
    dead_letters: list[int] = Field(
        description="The events that are dead letters, neither redriven nor discarded."
    )
    usage: TaskUsage
    seq: int = Field(
        description="The id of its last event, which `GET /task?at=` and `POST /task/fork` take."
    )


async def load_task(service: Service, caller: Caller, task_id: str) -> Task:
    """Return the caller's task. Raises TaskNotFound, also for tasks of other callers."""
    CURRENT_TASK.set(task_id)
    runtime = service.runtime
    task = await runtime.store.load(TaskKey(str(caller.principal(runtime.swarm.name)), task_id))
    if task is None:
        raise TaskNotFound(f"you have no task {task_id!r}")
    return task


def page_headers(request: Request, path: str, query: Mapping[str, str], cursor: str | None) -> dict[str, str]:
    """Return the headers that link the next page of `path` with `query`; none if `cursor` is None."""
    if cursor is None:
        return {}
    root = request.scope.get("root_path", "")
    link = f'<{root}{path}?{urlencode({**query, "cursor": cursor})}>; rel="next"'
    return {"Link": link, "X-Next-Cursor": cursor}


def answer_events(events: Iterable[Event], task_id: str) -> list[dict[str, Any]]:
    """Return the events up to the one that ends the task's generation, as `AnswerEvent`."""
    entries = []
    for event in events:
        entries.append(_event_entry(event, task_id))
        if event.is_terminal:
            break
    return entries


def _event_entry(event: Event, task_id: str) -> dict[str, Any]:
    return {
        "event": event.kind.value,
        "id": str(event.seq),
        "data": event.data(task_id),
        "retry": None,
        "comment": None,
    }


async def read_task_json(store: Store, task: Task, at: int | None = None) -> dict[str, Any]:
    """Read a task's events and waiting messages, and return all of it as `TaskRecord`; or as it was `at` an event.

    Raises BadRequest and SnapshotExpired for an event of which no snapshot exists.
    """
    await asyncio.sleep(0)  # a long timeline takes milliseconds to read: let other requests run first
    if at is None:
        return task_json(task, await store.read_events(task.key), await store.read_inbox(task.key))
    snapshot = await store.read_snapshot(task.key, at)
    return task_json(snapshot.task, snapshot.events, snapshot.mail)


def task_json(task: Task, events: Sequence[Event], inbox: Sequence[InboxEntry]) -> dict[str, Any]:
    """Return a task as `TaskRecord`; the fields from `status` on are additions to the protocol's."""
    return {
        "task_id": task.task_id,
        "task_owner": task.owner,
        "task_contributors": task.contributors,
        "start_time": task.started,
        "events": [_recorded_event(event, task.task_id) for event in events],
        "is_running": task.is_running,
        "task_message_queue": [_queued_message(entry) for entry in inbox],
        "remote_swarms": list(task.peers),
        "completed": not task.is_running,
        "title": task.title,
        "status": task.status.value,
        "entrypoint": task.entrypoint,
        "generation": task.generation.number,
        "steps": task.generation.steps,
        "max_steps": task.max_steps,
        "pending_tool_calls": [_pending_call(call) for call in task.generation.breakpoint.calls]
        if task.generation.breakpoint
        else [],
        "cancellation": task.cancellation,
        "budget": task.limits.budget.model_dump(exclude_none=True) or None,
        "dead_letters": task.dead_letters,
        "usage": {"total": sum(task.usage.values(), NO_USAGE), "agents": task.usage, "models": task.models},
        "seq": task.seq,
    }


def _recorded_event(event: Event, task_id: str) -> dict[str, Any]:
    entry = _event_entry(event, task_id)
    return {**entry, "data": to_json(entry["data"]).decode()}


def _pending_call(call: PausedCall) -> dict[str, Any]:
    shown = asdict(call)
    return {name: value for name, value in shown.items() if name != "asks" or value is not None}


def pending_calls(task: Task) -> list[dict[str, Any]]:
    """Return the breakpoint tool calls that a paused task waits for."""
    waiting = task.generation.breakpoint
    return [] if waiting is None else [_pending_call(call) for call in waiting.calls]


def _queued_message(entry: InboxEntry) -> dict[str, Any]:
    return {"mailbox": entry.mailbox, "priority": int(entry.tier), "seq": entry.seq, "message": entry.message}
