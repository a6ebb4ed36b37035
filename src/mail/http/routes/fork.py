"""Fork a task: a new one that continues from an event of it."""

from typing import Annotated, Any, Literal

from fastapi import Depends, Request
from pydantic import Field

from mail.core.engine.admission import Forked
from mail.core.engine.pacing import Paced
from mail.core.engine.watch import read_timeline
from mail.core.protocol.message import TaskId
from mail.core.protocol.values import fill, is_none
from mail.core.task.limits import FORKED_MAIL_BYTES
from mail.core.task.size import event_size
from mail.core.task.task import ForkActions, Task, TaskKey, TaskStatus
from mail.http.access import AdminOrUser
from mail.http.account import WIDE_FACTOR
from mail.http.bodies import JSON, Answered, Given, JSONBody
from mail.http.openapi import answers, make_router
from mail.http.service import Service, service_of
from mail.http.submission import IDEMPOTENCY_KEY, TRACE_CONTEXT, claimed, follow_trace
from mail.http.task_json import reading


class PostFork(Given):
    """The task to fork, and the event at which to fork it."""

    task_id: TaskId
    at: Annotated[int, Field(strict=True)] | Literal["message"] | None = Field(
        default=None,
        description="The id (seq) of an event: forks the task as it was after that event. `message`: after the last "
        "message of a person. The default is its current state.",
    )
    run: bool = Field(
        default=False,
        description="Whether the fork of a task that was running continues immediately; otherwise it is paused until "
        "it gets a message.",
    )
    actions: ForkActions | None = Field(
        default=None,
        exclude_if=is_none,
        description="Whether actions of the fork run that are not declared read-only: `run`; `ask` for a person's "
        "approval of each call; or `refuse`, which the agent reads as the call's result. The default is that of the "
        "original task, `run` for one that is not a fork. It holds as long as the fork exists, and for its forks.",
    )
    draft: str | None = Field(
        default=None,
        exclude_if=is_none,
        description="The draft of the swarm on which the fork runs, and stays. For admins and its testers.",
    )


class ForkedTask(Answered):
    """A fork of a task."""

    task_id: str
    forked_from: str = Field(description="The original task.")
    at: int = Field(description="The last event of the original that is part of the fork.")
    status: TaskStatus
    generation: int = Field(description="0 until it is resumed for the first time.")
    seq: int = Field(description="The last event of the new task so far.")
    waiting: int = Field(description="How many messages wait in its mailboxes.")
    actions: ForkActions = Field(description="Whether its actions run that are not declared read-only.")


router = make_router("tasks")
_body = JSONBody(PostFork)


@router.post(
    "/task/fork",
    status_code=201,
    summary="Fork a task at an event",
    **answers(ForkedTask, 404, 409, 410, 422),
    openapi_extra={"parameters": [IDEMPOTENCY_KEY, TRACE_CONTEXT]},
)
async def fork_task(request: Request, caller: AdminOrUser, body: Annotated[PostFork, Depends(_body)]) -> JSON:
    """Create a new task for the caller that continues from an event of another one, with its histories and messages.

    If the original was running, the fork is paused until a message resumes it; with `run` it continues immediately.
    """
    service = service_of(request)
    follow_trace(request)
    await service.refresh()
    principal = caller.principal(service.runtime.swarm.name)
    ceiling = service.runtime.ceiling(principal)
    draft = None
    if body.draft is not None:
        from mail.http.routes.drafts import draft_to_try

        draft = await draft_to_try(request, caller, body.draft)
    original = await service.runtime.store.load(TaskKey(str(principal), body.task_id))
    if original is not None:
        pacer = reading(service, request, original)
    at = body.at
    if at == "message":
        at = None if original is None else await _last_message(service, original, pacer)

    def hold(size: int) -> None:  # the mail is copied message by message
        service.holding(request).hold(min(size, FORKED_MAIL_BYTES) * WIDE_FACTOR)

    async with claimed(request, principal, body) as claim:
        new_id = None if claim is None else claim.task_id
        forked = await service.runtime.fork(
            principal,
            body.task_id,
            at=at,
            run=body.run,
            actions=body.actions,
            draft=draft,
            ceiling=ceiling,
            new_id=new_id,
            hold=hold,
        )
    return JSON(_describe_fork(forked, body.task_id), status_code=201)


async def _last_message(service: Service, task: Task, pacer: Paced) -> int:
    """Return the last event of a task's last run with which a person wrote, or its first event if nobody did."""
    from mail.core.decisions.runs import is_by_person

    begin = task.generation.run_began or 0
    found = begin + 1
    async for event in read_timeline(service.runtime.store, task.key, pacer, after=begin, upto=task.seq):
        await pacer.pause(event_size(event))
        if is_by_person(event):
            found = event.seq
    return found


def _describe_fork(forked: Forked, forked_from: str) -> dict[str, Any]:
    task, waiting = forked.task, sum(map(sum, forked.task.pending.values()))
    own = {"forked_from": forked_from, "at": forked.at, "generation": task.generation.number}
    return fill(ForkedTask, task, **own, waiting=waiting)
