"""A fork beside the task that it was made of: what each answered, and what that took."""

from typing import TYPE_CHECKING, Any

from fastapi import Request
from pydantic import Field

from mail.core.engine.watch import read_event, read_timeline
from mail.core.task.events import Event
from mail.core.task.size import event_size
from mail.core.task.task import Task, TaskStatus
from mail.errors import BadRequest
from mail.http.access import AdminOrUser, GivenTask
from mail.http.bodies import JSON, Answered
from mail.http.openapi import answers, make_router
from mail.http.service import Service, service_of
from mail.http.task_json import load_task, reading

if TYPE_CHECKING:
    from mail.core.decisions.comparison import Outcome
    from mail.core.engine.pacing import Paced


class RunOutcome(Answered):
    """What a task came to after the fork, until that run ended."""

    status: TaskStatus
    answer: str | None = Field(description="Its answer, or why it failed; null for none.")
    turns: int
    calls: int = Field(description="Calls of models.")
    cost: float = Field(description="Of these, in US dollars.")
    unpriced_calls: int = Field(description="Those whose price is unknown.")
    seconds: float = Field(description="For which agents worked, without waiting for people.")


class Comparison(Answered):
    """A task and its fork, after the event at which they part."""

    task_id: str = Field(description="The original.")
    fork_id: str
    at: int = Field(description="The last event of the original that is part of the fork.")
    title: str | None = Field(description="That of the original.")
    before: RunOutcome = Field(description="What the original came to.")
    after: RunOutcome = Field(description="What the fork came to.")
    differences: str = Field(
        description="The answers as a unified diff; empty if they are equal, one is missing, or one is long."
    )


router = make_router("tasks")


@router.get(
    "/task/comparison", summary="Compare a fork with its original", **answers(Comparison, 400, 404, 409, 410)
)
async def get_comparison(request: Request, caller: AdminOrUser, task_id: GivenTask) -> JSON:
    """Return what a fork and its original each came to after they parted: answer, turns, model calls, cost and time.

    Later runs don't count: only the messages that had been sent then, and what led to their answer.
    """
    from mail.core.decisions.comparison import differences
    from mail.core.task.extras import ForkExtra

    service = service_of(request)
    fork = await load_task(service, caller, task_id)
    if not fork.forked_from:
        raise BadRequest(f"task {task_id!r} is not a fork, so there is nothing to compare it with")
    original = await load_task(service, caller, fork.forked_from)
    pacer = reading(service, request, fork, original)
    first = await read_event(service.runtime.store, fork.key, 1)
    assert isinstance(first.extra, ForkExtra)
    at = first.extra.at
    parting = await read_event(service.runtime.store, original.key, at)
    before = await _read(service, original, parting, pacer)
    after = await _read(service, fork, first, pacer)
    found: dict[str, Any] = {
        "task_id": original.task_id,
        "fork_id": fork.task_id,
        "at": at,
        "title": original.title,
        "before": before,
        "after": after,
        "differences": differences(before, after),
    }
    return JSON(found)


async def _read(service: Service, task: Task, parting: Event, pacer: "Paced") -> "Outcome":
    """Return what a task came to after an event."""
    from mail.core.decisions.comparison import OutcomeReader

    store, outcome = service.runtime.store, OutcomeReader(parting.timestamp, task.status)
    items = await service.conversations.reader(store, task, parting.seq, pacer)
    async for event in read_timeline(store, task.key, pacer, after=parting.seq, upto=task.seq):
        await pacer.pause(event_size(event))
        if not outcome.read(event, items.read(event)):
            break
    return outcome.outcome
