"""Tasks and their events, as clients read them (SPEC, section 8)."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any
from urllib.parse import urlencode

from fastapi import Request
from pydantic_core import to_json

from mail.auth.keys import Caller
from mail.core.task.change import InboxEntry
from mail.core.task.context import CURRENT_TASK
from mail.core.task.events import Event
from mail.core.task.ports import Store
from mail.core.task.task import Task, TaskKey
from mail.core.task.turn_state import PausedCall
from mail.core.task.usage import NO_USAGE
from mail.errors import TaskNotFound
from mail.http.service import Service


async def load_task(service: Service, caller: Caller, task_id: str) -> Task:
    """The caller's task. Raises TaskNotFound, also for tasks of others."""
    CURRENT_TASK.set(task_id)
    runtime = service.runtime
    task = await runtime.store.load(TaskKey(str(caller.principal(runtime.swarm.name)), task_id))
    if task is None:
        raise TaskNotFound(f"you have no task {task_id!r}")
    return task


TASKS_AT_ONCE = 16
"""How many tasks are read at once: where the store is far away, one by one would take too long."""


def page_headers(request: Request, path: str, query: Mapping[str, str], cursor: str | None) -> dict[str, str]:
    """Where the page after this one of `path` and `query` is, if `cursor` tells that there is one."""
    if cursor is None:
        return {}
    root = request.scope.get("root_path", "")
    link = f'<{root}{path}?{urlencode({**query, "cursor": cursor})}>; rel="next"'
    return {"Link": link, "X-Next-Cursor": cursor}


def event_entry(event: Event, task_id: str) -> dict[str, Any]:
    """An event as it stands in the answer to a message."""
    return {
        "event": event.kind.value,
        "id": str(event.seq),
        "data": event.data(task_id),
        "retry": None,
        "comment": None,
    }


def answer_events(events: Iterable[Event], task_id: str) -> list[dict[str, Any]]:
    """The events up to the one that ends the task's generation."""
    entries = []
    for event in events:
        entries.append(event_entry(event, task_id))
        if event.is_terminal:
            break
    return entries


async def read_record(store: Store, task: Task) -> dict[str, Any]:
    """The record of a task with all its events and the mail that waits.

    Gives way to others first: a long timeline takes milliseconds to read.
    """
    await asyncio.sleep(0)
    return task_record(task, await store.read_events(task.key), await store.read_inbox(task.key))


async def read_past_record(store: Store, task: Task, at: int) -> dict[str, Any]:
    """The record of a task as it was at an event. Raises BadRequest, MomentNotKept."""
    await asyncio.sleep(0)
    snapshot = await store.read_snapshot(task.key, at)
    return task_record(snapshot.task, snapshot.events, snapshot.mail)


def task_record(task: Task, events: Sequence[Event], inbox: Sequence[InboxEntry]) -> dict[str, Any]:
    """The record of a task; the fields from `status` on are additions of this server's."""
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
        "max_steps": task.limits.steps,
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
    entry = event_entry(event, task_id)
    return {**entry, "data": to_json(entry["data"]).decode()}


def _pending_call(call: PausedCall) -> dict[str, Any]:
    shown = asdict(call)
    return {name: value for name, value in shown.items() if name != "asks" or value is not None}


def _queued_message(entry: InboxEntry) -> dict[str, Any]:
    return {
        "mailbox": entry.mailbox,
        "priority": int(entry.tier),
        "seq": entry.seq,
        "message": entry.message,
    }
