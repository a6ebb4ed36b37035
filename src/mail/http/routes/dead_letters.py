"""Dead letters, messages and webhook deliveries that could not be processed: list, redrive and discard them."""

from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import Depends, Query, Request
from pydantic import Field

from mail.auth.keys import Caller
from mail.core.decisions.dead_letters import Redriven
from mail.core.engine import dead_letters
from mail.core.engine.dead_letters import ListedDeadLetter, Sweep
from mail.core.protocol.address import Principal
from mail.core.protocol.message import TaskId
from mail.core.protocol.values import fill
from mail.core.task.audit import Act
from mail.core.task.task import TaskKey, TaskStatus
from mail.errors import BadRequest
from mail.http.access import AdminOrUser, NextCursor, chosen_instance, named_instance
from mail.http.account import LIST_BYTES
from mail.http.audit import audited
from mail.http.bodies import JSON, Answered, Given, JSONBody
from mail.http.openapi import PAGE_HEADERS, answers, make_router
from mail.http.service import service_of
from mail.http.task_json import load_task, page_headers

MAX_PAGE = 1000

PAGE = 100
"""Dead letters on a page by default."""

_NEXT_CURSOR = Field(description="With `all`, the `cursor` of the next request; null at the end.")


class PostDeadLetters(Given):
    """The dead letters to process: one, those of a task, or all that the caller may see."""

    task_id: TaskId | None = None
    seq: int | None = Field(
        default=None,
        ge=1,
        strict=True,
        description="The dead letter of the task; the default is all of the task.",
    )
    caller: str | None = Field(
        default=None,
        description="The owner of the task, or with `all` of the tasks, `role:id` or `role:id@swarm`; for admins.",
    )
    all: bool = False
    cursor: str | None = Field(
        default=None, description="With `all`: the `next_cursor` of the previous response."
    )


class _OfTask(Answered):
    caller: str = Field(description="The owner of the task.")
    task_id: str


class DeadLetterLine(_OfTask):
    """A message that could not be processed."""

    seq: int = Field(description="The event of the dead letter, which identifies it in its task.")
    mailbox: str = Field(description="The receiving agent, `@` and a swarm, or `!` and a webhook.")
    sender: str
    subject: str
    msg_type: str
    reason: str
    attempts: int = Field(description="How often it was tried.")
    timestamp: str
    message_seq: int = Field(description="The event that announced the message.")
    task_status: TaskStatus


class DeadLetters(Answered):
    """A page of dead letters."""

    dead_letters: list[DeadLetterLine]
    next_cursor: str | None = Field(description="The `cursor` of the next page; null on the last.")


class RedrivenLetter(_OfTask):
    """A dead letter that is processed again."""

    seq: int
    mailbox: str
    message_seq: int | None = Field(description="The event that announces the message again, if it is one.")
    waits: bool = Field(description="Whether it waits until the task is resumed.")


class FailedLetter(_OfTask):
    """A dead letter, or a task with some, that could not be redriven or discarded; it stays on the list."""

    seq: int | None = Field(description="Null for all of the task.")
    mailbox: str | None
    reason: str


class RedrivenLetters(Answered):
    """The result of redriving dead letters."""

    redriven: list[RedrivenLetter]
    failed: list[FailedLetter]
    next_cursor: str | None = _NEXT_CURSOR


class DiscardedLetter(_OfTask):
    """A dead letter that is off the list."""

    seq: int


class Discarded(Answered):
    """The result of discarding dead letters."""

    discarded: list[DiscardedLetter]
    failed: list[FailedLetter]
    next_cursor: str | None = _NEXT_CURSOR


router = make_router("tasks")
_body = JSONBody(PostDeadLetters)

Work = Callable[[dead_letters.DeadLetters, Principal, TaskKey, int | None], Coroutine[Any, Any, list[Any]]]
"""A method of the engine's `DeadLetters`."""


@router.get(
    "/dead-letters",
    summary="List dead letters",
    **answers(
        DeadLetters,
        400,
        404,
        text="Dead letters, those of the newest task first, and of a task the newest first.",
        headers=PAGE_HEADERS,
    ),
)
async def get_dead_letters(
    request: Request,
    caller: AdminOrUser,
    limit: Annotated[
        int, Query(ge=1, le=MAX_PAGE, description="Dead letters on a page; those of one task stay together.")
    ] = PAGE,
    cursor: NextCursor = None,
    task_id: Annotated[
        TaskId | None,
        Query(description="Only those of this task, all on one page: the caller's own, or `caller`'s."),
    ] = None,
    of: Annotated[
        str | None,
        Query(
            alias="caller",
            description="Only those of this caller's tasks: `role:id`, or `role:id@swarm`. For admins, who get those "
            "of the whole swarm without it.",
        ),
    ] = None,
) -> JSON:
    """Return the open dead letters of the caller's tasks; for admins, those of all tasks."""
    service = service_of(request)
    runtime, swarm = service.runtime, service.runtime.swarm.name
    if task_id is not None:
        async with audited(
            request, caller, Act.LIST_DEAD_LETTERS, task_id, owner=named_instance(caller, of, swarm)
        ):
            task = await load_task(service, caller, task_id, of)
            found = [_line(listed) for listed in await runtime.dead_letters.of(task)]
        return JSON({"dead_letters": found, "next_cursor": None})
    instance = chosen_instance(caller, of, swarm)
    await service.holding(request).wait(LIST_BYTES)
    async with audited(request, caller, Act.LIST_DEAD_LETTERS, owner=instance):
        page = await runtime.dead_letters.page(instance, limit=limit, cursor=cursor)
    query = {"limit": str(limit)} | ({"caller": of} if of else {})
    return JSON(
        {"dead_letters": [_line(listed) for listed in page.dead_letters], "next_cursor": page.cursor},
        headers=page_headers(request, "/dead-letters", query, page.cursor),
    )


def _line(listed: ListedDeadLetter) -> dict[str, Any]:
    letter = listed.dead_letter
    return fill(DeadLetterLine, letter, **_of_task(letter.key), task_status=listed.status)


@router.post("/dead-letters/redrive", summary="Redrive dead letters", **answers(RedrivenLetters, 404))
async def redrive_dead_letters(
    request: Request, caller: AdminOrUser, body: Annotated[PostDeadLetters, Depends(_body)]
) -> JSON:
    """Process dead letters again: one, those of a task, or with `all` every one that the caller may see.

    A failed task continues with it. In tasks that stopped otherwise, messages for agents wait until the task is
    resumed.
    """
    done = await _process(request, caller, body, Act.REDRIVE, dead_letters.DeadLetters.redrive)
    redriven, failed = [], [_failure(key, reason) for key, reason in done.failures.items()]
    outcome: Redriven
    for key, outcomes in done.outcomes.items():
        for outcome in outcomes:
            about = {**_of_task(key), "seq": outcome.letter.seq, "mailbox": outcome.letter.mailbox}
            if outcome.refusal:
                failed.append({**about, "reason": outcome.refusal})
            else:
                redriven.append({**about, "message_seq": outcome.seq, "waits": outcome.waits})
    return JSON({"redriven": redriven, "failed": failed, "next_cursor": done.cursor})


@router.post("/dead-letters/discard", summary="Discard dead letters", **answers(Discarded, 404))
async def discard_dead_letters(
    request: Request, caller: AdminOrUser, body: Annotated[PostDeadLetters, Depends(_body)]
) -> JSON:
    """Take dead letters off the list without processing them; they stay in their tasks' timelines."""
    done = await _process(request, caller, body, Act.DISCARD, dead_letters.DeadLetters.discard)
    discarded = [{**_of_task(key), "seq": seq} for key, seqs in done.outcomes.items() for seq in seqs]
    failed = [_failure(key, reason) for key, reason in done.failures.items()]
    return JSON({"discarded": discarded, "failed": failed, "next_cursor": done.cursor})


async def _process(
    request: Request, caller: Caller, body: PostDeadLetters, act: Act, work: Work
) -> Sweep[Any]:
    """Apply `work` to the dead letters that the body names. Raises BadRequest if it names none."""
    if (body.task_id is None) is not body.all:
        raise BadRequest('name a task by task_id (and one of its dead letters by seq), or send "all": true')
    if body.seq is not None and body.task_id is None:
        raise BadRequest("seq needs a task: send its task_id, too")
    service = service_of(request)
    await service.refresh()
    runtime = service.runtime
    principal = caller.principal(runtime.swarm.name)
    instance = chosen_instance(caller, body.caller, runtime.swarm.name)
    if body.task_id is None:
        async with audited(request, caller, act, owner=instance):
            return await runtime.dead_letters.sweep(
                lambda caller, key: work(runtime.dead_letters, caller, key, None),
                principal,
                instance,
                body.cursor,
            )
    key = TaskKey(instance or str(principal), body.task_id)
    async with audited(request, caller, act, body.task_id, owner=key.instance):
        return Sweep({key: await work(runtime.dead_letters, principal, key, body.seq)}, {}, None)


def _of_task(key: TaskKey) -> dict[str, str]:
    return {"caller": key.instance, "task_id": key.task_id}


def _failure(key: TaskKey, reason: str) -> dict[str, Any]:
    return {**_of_task(key), "seq": None, "mailbox": None, "reason": reason}
