"""What several routes need for tasks, and their events and calls as JSON (SPEC, section 8)."""

from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any
from urllib.parse import urlencode

from fastapi import Request
from pydantic import Field
from pydantic_core import to_json

from mail.auth.keys import Caller
from mail.core.decisions.approvals import decision_name
from mail.core.engine.pacing import PIECE_BYTES, Paced
from mail.core.engine.watch import SLICE_BYTES, Submitted, read_timeline
from mail.core.protocol.clock import format_time
from mail.core.task.approvals import DecisionName
from mail.core.task.events import Event, EventKind
from mail.core.task.size import event_size, paused_size
from mail.core.task.task import Task, TaskKey
from mail.core.task.turn_state import OpenUserQuestion, PausedCall
from mail.core.turns.context import CURRENT_TASK
from mail.errors import TaskNotFound
from mail.http.access import named_instance
from mail.http.account import PIECE_FACTOR, READ_BYTES, Holding
from mail.http.answers import array_pieces, each, object_pieces
from mail.http.bodies import Answered
from mail.http.service import Service

READ_CONCURRENCY = 16
"""Tasks that are read concurrently: with a remote store, reading them one by one would take too long."""


class EventEntry(Answered):
    """The fields of every event."""

    event: EventKind
    id: str
    retry: int | None
    comment: str | None


class AnswerEvent(EventEntry):
    """An event of the task."""

    data: dict[str, Any]


class PendingToolCall(Answered):
    """A call that waits for the user: for the result of a breakpoint tool, or for the approval of an action."""

    call_id: str
    agent: str = Field(default="", description="The agent that called it; absent in the answer of 409.")
    name: str
    arguments: dict[str, Any]
    arguments_text: str | None = Field(
        default=None,
        description="For a call that waits for a decision: its arguments as JSON text in ASCII, for the "
        "`arguments_sha256` of a decision. Absent for others.",
    )
    needs_approval: bool = Field(
        default=False,
        description="Whether the server runs the call once a person has approved it; absent if not.",
    )
    reviewers: list[str] = Field(
        default_factory=list,
        description="Who decides or, if it needs no approval, answers, in place of the task's owner; absent for the "
        "owner.",
    )
    approve_by: str | None = Field(
        default=None,
        description="When the call counts as rejected if nobody decides, or as its action says; absent for never.",
    )
    decision: DecisionName | None = Field(
        default=None, description="The decision, while other calls still wait; absent if there is none."
    )
    question_argument: str | None = Field(
        default=None,
        description="The argument that holds its question; absent for a call that asks none, or needs approval.",
    )
    asks: OpenUserQuestion | None = Field(
        default=None,
        description="The request to the owner that the call has sent, if it asks the user: a message whose subject "
        "is one of `answer_subjects`, in any case, is its answer.",
    )


async def load_task(service: Service, caller: Caller, task_id: str, whose: str | None = None) -> Task:
    """Return the caller's task or, for admins, that of the caller `whose`.

    Raises TaskNotFound, also for tasks of other callers, Forbidden and BadRequest.
    """
    CURRENT_TASK.set(task_id)
    runtime = service.runtime
    task = await runtime.store.load(TaskKey(named_instance(caller, whose, runtime.swarm.name), task_id))
    if task is None:
        raise TaskNotFound(f"{'you have' if whose is None else f'{whose} has'} no task {task_id!r}")
    return task


def page_headers(
    request: Request, path: str, query: Mapping[str, str], cursor: str | None, *, parameter: str = "cursor"
) -> dict[str, str]:
    """Return the headers that link the next page of `path` with `query`; none if `cursor` is None."""
    if cursor is None:
        return {}
    root = request.scope.get("root_path", "")
    link = f'<{root}{path}?{urlencode({**query, parameter: cursor})}>; rel="next"'
    return {"Link": link, "X-Next-Cursor": cursor}


async def answer_pieces(
    service: Service,
    submitted: Submitted,
    response: str | dict[str, Any],
    more: Mapping[str, Any],
    pacer: Paced,
) -> AsyncGenerator[bytes]:
    """Yield the answer to a message with its events, as `AnswerEvent`s, and `more` fields, in pieces of JSON."""
    key = submitted.key

    async def events() -> AsyncGenerator[Event]:
        async for event in read_timeline(service.runtime.store, key, pacer, after=submitted.after):
            yield event
            if event.is_terminal:
                return

    entries = array_pieces(event_entries(pacer, key.task_id, events(), as_text=False))
    async for piece in object_pieces(each({"response": response, "events": entries, **more}.items())):
        yield piece


def reading(service: Service, request: Request, *tasks: Task, events: int | None = None) -> Holding:
    """Return what a request holds, with what it takes to read tasks, or so many events of each, and waiting calls.

    Raises RateLimited and Overloaded.
    """
    holding, weight = service.holding(request), sum(task.stored_bytes for task in tasks)
    if events is not None:
        weight = sum(task.stored_bytes * min(events, task.seq) // max(1, task.seq) for task in tasks)
    paused = sum(paused_size(task.generation.breakpoint) for task in tasks)
    if weight + paused > PIECE_BYTES:
        holding.hold_to_read(min(READ_BYTES, weight * PIECE_FACTOR) + paused * PIECE_FACTOR)
    return holding


def in_portions(tasks: Iterable[Task]) -> Iterator[list[Task]]:
    """Split tasks into portions that can be in memory together."""
    portion: list[Task] = []
    size = 0
    for task in tasks:
        weight = task.stored_bytes
        if portion and (len(portion) == READ_CONCURRENCY or size + weight > SLICE_BYTES):
            yield portion
            portion, size = [], 0
        portion.append(task)
        size += weight
    if portion:
        yield portion


async def event_entries(
    pacer: Paced, task_id: str, events: AsyncIterable[Event], *, as_text: bool
) -> AsyncGenerator[bytes]:
    """Yield events as JSON: a long one is made in several steps. With `as_text`, their data is JSON text."""
    async for event in events:
        size = event_size(event)
        await pacer.pause(size)
        entry = event_entry(event, task_id)
        if size > PIECE_BYTES:
            await pacer.pause(size)
        if as_text:
            entry["data"] = to_json(entry["data"]).decode()
            if size > PIECE_BYTES:
                await pacer.pause(size)
        yield to_json(entry)


def event_entry(event: Event, task_id: str) -> dict[str, Any]:
    return {
        "event": event.kind.value,
        "id": str(event.seq),
        "data": event.logged(task_id),
        "retry": None,
        "comment": None,
    }


def pending_call(call: PausedCall, agent: str = "") -> dict[str, Any]:
    """Return a waiting call of an agent as `PendingToolCall`."""
    shown: dict[str, Any] = {"call_id": call.call_id, "name": call.name, "arguments": call.arguments}
    if agent:
        shown["agent"] = agent
    if call.question_argument is not None:
        shown["question_argument"] = call.question_argument
    if call.asks is not None:
        shown["asks"] = asdict(call.asks)
    if call.needs_approval:
        shown["needs_approval"] = True
    if call.is_held:
        shown["arguments_text"] = call.arguments_text
    if call.reviewers is not None:
        shown["reviewers"] = list(call.reviewers.by)
    if call.approve_by is not None:
        shown["approve_by"] = format_time(call.approve_by)
    if call.approval is not None:
        shown["decision"] = decision_name(call.approval)
    return shown


def asked(task: Task, *, approvals: bool = True) -> dict[str, Any]:
    """Return what a paused task asks: the calls that it waits for, with or without those to approve, and in words."""
    generation = task.generation
    agent = generation.breakpoint.agent if generation.breakpoint else ""
    return {
        "pending_tool_calls": [
            pending_call(call, agent) for call in generation.waiting_calls if approvals or call.needs_result
        ],
        "question": generation.question,
    }
