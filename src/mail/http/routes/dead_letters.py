"""Dead letters: what could not be processed, to list, to redrive and to discard."""

from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request

from mail.auth.keys import Caller
from mail.core.decisions.dead_letters import Redriven
from mail.core.engine.dead_letters import (
    ListedDeadLetter,
    Sweep,
    dead_letters_of,
    list_dead_letters,
    sweep,
)
from mail.core.engine.dead_letters import (
    discard_dead_letters as discard,
)
from mail.core.engine.dead_letters import (
    redrive_dead_letters as redrive,
)
from mail.core.engine.runtime import Runtime
from mail.core.protocol.address import Principal
from mail.core.protocol.message import TaskId
from mail.core.task.task import TaskKey
from mail.errors import BadRequest, TaskNotFound
from mail.http.access import AdminOrUser, chosen_instance
from mail.http.bodies import JSON, JSONBody
from mail.http.dead_letters_schemas import DeadLetters, Discarded, PostDeadLetters, RedrivenLetters
from mail.http.openapi import PAGE_HEADERS, PROTECTED, problems
from mail.http.service import service_of
from mail.http.task_json import page_headers

MAX_PAGE = 1000

PAGE = 100
"""Dead letters on a page, unless the caller says otherwise."""

router = APIRouter(tags=["tasks"])
_body = JSONBody(PostDeadLetters)

Work = Callable[[Runtime, Principal, TaskKey, int | None], Coroutine[Any, Any, list[Any]]]


@router.get(
    "/dead-letters",
    summary="List dead letters",
    response_model=DeadLetters,
    responses={
        200: {
            "description": "Dead letters, those of the newest task first, and of a task the newest first.",
            "headers": PAGE_HEADERS,
        },
        **problems(400, 404, *PROTECTED),
    },
)
async def get_dead_letters(
    request: Request,
    caller: AdminOrUser,
    limit: Annotated[
        int,
        Query(ge=1, le=MAX_PAGE, description="Dead letters on a page; those of one task stay together."),
    ] = PAGE,
    cursor: Annotated[str | None, Query(description="Where the page before this one has ended.")] = None,
    task_id: Annotated[
        TaskId | None,
        Query(description="Only those of this task, all at once: the caller's own, or `caller`'s."),
    ] = None,
    of: Annotated[
        str | None,
        Query(
            alias="caller",
            description="Only those of this caller's tasks: `role:id`, or `role:id@swarm`. For admins, who get those of "
            "the whole swarm without it.",
        ),
    ] = None,
) -> JSON:
    """What could not be processed in the caller's tasks, or for admins in everybody's, and nobody has dealt with."""
    runtime = service_of(request).runtime
    swarm = runtime.swarm.name
    instance = chosen_instance(caller, of, swarm)
    if task_id is not None:
        key = TaskKey(instance or str(caller.principal(swarm)), task_id)
        task = await runtime.store.load(key)
        if task is None:
            raise TaskNotFound(f"{_whose(of)} no task {task_id!r}")
        return JSON(
            {
                "dead_letters": list(map(_line, await dead_letters_of(runtime.store, task))),
                "next_cursor": None,
            }
        )
    page = await list_dead_letters(runtime, instance, limit=limit, cursor=cursor)
    query = {"limit": str(limit)} | ({"caller": of} if of else {})
    return JSON(
        {"dead_letters": list(map(_line, page.dead_letters)), "next_cursor": page.cursor},
        headers=page_headers(request, "/dead-letters", query, page.cursor),
    )


@router.post(
    "/dead-letters/redrive",
    summary="Redrive dead letters",
    response_model=RedrivenLetters,
    responses=problems(400, 404, 413, *PROTECTED),
    openapi_extra=_body.docs(),
)
async def redrive_dead_letters(
    request: Request, caller: AdminOrUser, body: Annotated[PostDeadLetters, Depends(_body)]
) -> JSON:
    """Let dead letters be processed again: one, those of a task, or with `all` every one that the caller may see.

    A failed task goes on with it. In one that has stopped otherwise, mail for an agent waits until the task is resumed.
    """
    done = await _do(request, caller, body, redrive)
    redriven, failed = [], [_trouble(key, reason) for key, reason in done.failures.items()]
    outcome: Redriven
    for key, outcomes in done.outcomes.items():
        for outcome in outcomes:
            about = {**_place(key), "seq": outcome.letter.seq, "mailbox": outcome.letter.mailbox}
            if outcome.refusal:
                failed.append({**about, "reason": outcome.refusal})
            else:
                redriven.append({**about, "message_seq": outcome.seq, "waits": outcome.waits})
    return JSON({"redriven": redriven, "failed": failed, "next_cursor": done.cursor})


@router.post(
    "/dead-letters/discard",
    summary="Discard dead letters",
    response_model=Discarded,
    responses=problems(400, 404, 413, *PROTECTED),
    openapi_extra=_body.docs(),
)
async def discard_dead_letters(
    request: Request, caller: AdminOrUser, body: Annotated[PostDeadLetters, Depends(_body)]
) -> JSON:
    """Take dead letters off the list without processing them; their tasks' timelines keep them."""
    done = await _do(request, caller, body, discard)
    discarded = [{**_place(key), "seq": seq} for key, seqs in done.outcomes.items() for seq in seqs]
    failed = [_trouble(key, reason) for key, reason in done.failures.items()]
    return JSON({"discarded": discarded, "failed": failed, "next_cursor": done.cursor})


async def _do(request: Request, caller: Caller, body: PostDeadLetters, work: Work) -> Sweep[Any]:
    """Do the work with the dead letters that the body names. Raises BadRequest where it names none."""
    if (body.task_id is None) is not body.all:
        raise BadRequest('name a task by task_id (and a dead letter of it by seq), or send "all": true')
    if body.seq is not None and body.task_id is None:
        raise BadRequest("seq is of a task: send its task_id, too")
    service = service_of(request)
    await service.refresh()
    runtime = service.runtime
    principal = caller.principal(runtime.swarm.name)
    instance = chosen_instance(caller, body.caller, runtime.swarm.name)
    if body.task_id is None:
        return await sweep(runtime, _of_task(work), principal, instance, body.cursor)
    key = TaskKey(instance or str(principal), body.task_id)
    return Sweep({key: await work(runtime, principal, key, body.seq)}, {}, None)


def _of_task(work: Work) -> Callable[[Runtime, Principal, TaskKey], Coroutine[Any, Any, list[Any]]]:
    return lambda runtime, caller, key: work(runtime, caller, key, None)


def _whose(of: str | None) -> str:
    return "you have" if of is None else f"{of} has"


def _line(listed: ListedDeadLetter) -> dict[str, Any]:
    letter = listed.dead_letter
    return {
        **_place(letter.key),
        "seq": letter.seq,
        "mailbox": letter.mailbox,
        "sender": letter.sender,
        "subject": letter.subject,
        "msg_type": letter.msg_type,
        "reason": letter.reason,
        "attempts": letter.attempts,
        "timestamp": letter.timestamp,
        "message_seq": letter.message_seq,
        "task_status": listed.status.value,
    }


def _place(key: TaskKey) -> dict[str, str]:
    return {"caller": key.instance, "task_id": key.task_id}


def _trouble(key: TaskKey, reason: str) -> dict[str, Any]:
    return {**_place(key), "seq": None, "mailbox": None, "reason": reason}
