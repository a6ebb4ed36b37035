"""A caller's threads: the messages of tasks, grouped by topic as in `mail.agentmail`.

Messages from the system are left out: they report to agents on their calls. The cost of a request is bounded by the
number of tasks whose events it reads.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from heapq import merge
from itertools import batched
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from pydantic_core import to_json

from mail.agentmail import ACK_WITHIN, AgentMailMessage, Summary, Thread, Tracker
from mail.auth.keys import Caller
from mail.core.engine.runtime import Runtime
from mail.core.engine.watch import SLICE_BYTES, read_timeline
from mail.core.protocol.message import MAILMessage, MAILRequest, MAILResponse, TaskId
from mail.core.task.task import Task, TaskKey, TaskStatus
from mail.errors import ThreadNotFound
from mail.http.access import AdminOrUser
from mail.http.bodies import JSON
from mail.http.large_answers import WHOLE_BYTES
from mail.http.openapi import PAGE_HEADERS, PROTECTED, problems
from mail.http.service import service_of
from mail.http.task_json import READ_CONCURRENCY, load_task, page_headers, task_weight

MAX_TASKS = 100
"""Tasks that one request reads at most."""

PAGE_BYTES = 16 * 1024 * 1024
"""The size of the tasks that one request reads at most; or it reads a single one."""

TASKS = 20
"""Tasks on a page by default."""

MAX_ACK_WITHIN = 366 * 24 * 3600
DEFAULT_ACK_WITHIN = ACK_WITHIN.total_seconds()


class ThreadSummary(Summary):
    """Summary of a thread, with its tasks (newest first) and its overdue messages."""

    task_ids: tuple[str, ...]
    overdue: tuple[str, ...] = Field(description="Ids of the pending messages that have waited for too long.")


class ThreadTurn(BaseModel):
    """A message in a conversation, one level below the message with the id `answers`."""

    message: AgentMailMessage
    level: int
    answers: str
    task_id: str


class Threads(BaseModel):
    """Threads, and what is open in all the tasks that were read."""

    threads: list[ThreadSummary]
    who_works_on_what: dict[str, tuple[str, ...]] = Field(
        description="The beads of each worker that works on any."
    )
    pending: list[str] = Field(description="Ids of the messages that have to be acknowledged.")
    overdue: list[str] = Field(description="Ids of the pending messages that have waited for too long.")
    next_cursor: str | None = Field(description="The `cursor` for the threads of older tasks, if any.")


class ThreadRecord(BaseModel):
    """A thread with its messages, each below the message that it answers."""

    thread_id: str
    summary: ThreadSummary
    conversation: list[ThreadTurn]


router = APIRouter(tags=["threads"])

AckWithin = Annotated[
    float, Query(ge=0, le=MAX_ACK_WITHIN, description="Seconds after which a message that waits is overdue.")
]
OnlyTask = Annotated[TaskId | None, Query(description="Only messages of this task.")]
_TASK_ID = TypeAdapter[str](TaskId)


@router.get(
    "/threads",
    summary="List the caller's threads",
    response_model=Threads,
    responses={
        200: {"description": "Threads, those of the newest task first.", "headers": PAGE_HEADERS},
        **problems(400, 404, *PROTECTED),
    },
)
async def get_threads(
    request: Request,
    caller: AdminOrUser,
    limit: Annotated[int, Query(ge=1, le=MAX_TASKS, description="Tasks on a page.")] = TASKS,
    cursor: Annotated[str | None, Query(description="The previous page's next cursor.")] = None,
    task_id: OnlyTask = None,
    bead: Annotated[str | None, Query(description="Only threads with messages about this bead.")] = None,
    pending: Annotated[bool, Query(description="Only threads with messages to be acknowledged.")] = False,
    overdue: Annotated[bool, Query(description="Only threads with overdue messages.")] = False,
    ack_within: AckWithin = DEFAULT_ACK_WITHIN,
) -> JSON:
    """Return the threads of a page of the caller's tasks. Of a thread in several tasks, only the page's tasks count.

    A page ends early if its tasks are large together; its next cursor leads to the rest.
    """
    if task_id is not None:
        tasks, following = [await load_task(service_of(request), caller, task_id)], None
    else:
        runtime = service_of(request).runtime
        instance = str(caller.principal(runtime.swarm.name))
        page = await runtime.store.list_tasks(instance, limit=limit, cursor=cursor)
        page = page.upto(PAGE_BYTES, task_weight)
        tasks, following = page.tasks, page.cursor

    def list_threads(reader: Reader) -> bytes:
        return to_json(reader.threads(bead=bead, pending=pending, overdue=overdue, next_cursor=following))

    found = await _read(request, caller, tasks, ack_within, list_threads)
    query = {**request.query_params, "limit": str(limit)}
    return JSON(found, headers=page_headers(request, "/threads", query, following))


@router.get(
    "/threads/{thread_id:path}",
    summary="Look at a thread",
    response_model=ThreadRecord,
    responses=problems(400, 404, *PROTECTED),
)
async def get_thread(
    request: Request,
    caller: AdminOrUser,
    thread_id: Annotated[str, Path(description="The thread's id, usually that of a bead or of a task.")],
    task_id: OnlyTask = None,
    ack_within: AckWithin = DEFAULT_ACK_WITHIN,
) -> JSON:
    """Return a thread, as far as it is in the caller's newest hundred tasks, or in the given task.

    Large tasks count for several: those read have stored 16 MiB together, or it is one task.
    """
    if task_id is not None:
        tasks = [await load_task(service_of(request), caller, task_id)]
    else:
        tasks = await _tasks_with(request, caller, thread_id)

    def show_thread(reader: Reader) -> bytes | None:
        thread = reader.thread(thread_id)
        return None if thread is None else to_json(thread)

    thread = await _read(request, caller, tasks, ack_within, show_thread)
    if thread is None:
        where = (
            "that task"
            if task_id
            else f"your newest {MAX_TASKS} tasks; name the task, if it is in an older one"
        )
        raise ThreadNotFound(f"there is no thread {thread_id!r} in {where}")
    return JSON(thread)


async def _tasks_with(request: Request, caller: Caller, thread_id: str) -> list[Task]:
    """Return the newest tasks, and the task with the thread's id if that is older."""
    runtime = service_of(request).runtime
    instance = str(caller.principal(runtime.swarm.name))
    page = await runtime.store.list_tasks(instance, limit=MAX_TASKS)
    tasks = page.upto(PAGE_BYTES, task_weight).tasks
    if (len(tasks) < len(page.tasks) or len(tasks) == MAX_TASKS) and _is_task_id(thread_id):
        named = await runtime.store.load(TaskKey(instance, thread_id))
        tasks += [named] if named is not None and all(task.key != named.key for task in tasks) else []
    return tasks


def _is_task_id(text: str) -> bool:
    try:
        _TASK_ID.validate_python(text)
    except ValidationError:
        return False
    return True


async def _read[T](
    request: Request, caller: Caller, tasks: list[Task], ack_within: float, use: Callable[["Reader"], T]
) -> T:
    """Read the messages of tasks, and return what `use` makes of them. Raises RateLimited."""
    service = service_of(request)
    runtime, answers = service.runtime, service.large_answers

    async def read() -> Callable[[], T]:
        mail: list[list[MAILMessage]] = []
        for some in batched(tasks, READ_CONCURRENCY):
            mail += await asyncio.gather(*(_mail_of(runtime, task) for task in some))
        now, patience = runtime.clock.now(), timedelta(seconds=ack_within)
        return lambda: use(Reader(tasks, mail, now=now, ack_within=patience))

    if sum(map(task_weight, tasks)) <= WHOLE_BYTES:
        return (await read())()
    end = answers.claim(caller)
    try:
        async with answers.alone():
            return await asyncio.to_thread(await read())
    finally:
        end()


async def _mail_of(runtime: Runtime, task: Task) -> list[MAILMessage]:
    """Read a task's messages, except those from the system."""
    pacer = runtime.pacer if task_weight(task) > SLICE_BYTES else None
    return [
        event.message
        async for event in read_timeline(runtime.store, task.key, upto=task.seq, pacer=pacer)
        if event.message is not None
        and not event.is_redrive
        and event.message.sender.address_type != "system"
    ]


class Reader:
    """The threads of tasks at a point in time.

    Args:
        tasks: the tasks, newest first.
        mail: the messages sent in each of them.
        now: the time that decides which messages are overdue.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        mail: Sequence[list[MAILMessage]],
        *,
        now: datetime,
        ack_within: timedelta,
    ) -> None:
        self._tracker = Tracker(ack_within=ack_within)
        closed = {
            message.id
            for task, messages in zip(tasks, mail, strict=True)
            for message in _closed(task, messages)
        }
        for message in merge(*reversed(mail), key=_sent_at):
            self._tracker.add(message, closed=message.id in closed)
        self._task_of = {message.id: message.task_id for messages in mail for message in messages}
        self._rank = {task.task_id: rank for rank, task in enumerate(tasks)}
        self._pending = [message.id for message in self._tracker.pending()]
        self._overdue = [message.id for message in self._tracker.overdue(now)]

    def threads(
        self,
        *,
        bead: str | None = None,
        pending: bool = False,
        overdue: bool = False,
        next_cursor: str | None = None,
    ) -> Threads:
        """Return the threads, those of the newest task first; with filters, only those that match all of them."""
        chosen = (
            self._sum_up(thread)
            for thread in self._tracker.threads().values()
            if bead is None or any(message.bead_id == bead for message in thread.messages)
        )
        found = (
            summary
            for summary in chosen
            if (summary.pending or not pending) and (summary.overdue or not overdue)
        )
        return Threads(
            threads=sorted(found, key=lambda summary: self._rank[summary.task_ids[0]]),
            who_works_on_what=self._tracker.who_works_on_what(),
            pending=self._pending,
            overdue=self._overdue,
            next_cursor=next_cursor,
        )

    def thread(self, thread_id: str) -> ThreadRecord | None:
        """Return one thread; None if it has no messages."""
        thread = self._tracker.thread(thread_id)
        if not thread.messages:
            return None
        return ThreadRecord(
            thread_id=thread_id,
            summary=self._sum_up(thread),
            conversation=[
                ThreadTurn(
                    message=turn.message,
                    level=turn.level,
                    answers=turn.answers,
                    task_id=self._task_of[turn.message.id],
                )
                for turn in thread.conversation
            ],
        )

    def _sum_up(self, thread: Thread) -> ThreadSummary:
        summary = thread.summary
        task_ids = {self._task_of[message.id] for message in thread.messages}
        late = set(self._overdue)
        return ThreadSummary(
            **{name: getattr(summary, name) for name in Summary.model_fields},
            task_ids=tuple(sorted(task_ids, key=self._rank.__getitem__)),
            overdue=tuple(message_id for message_id in summary.pending if message_id in late),
        )


def _closed(task: Task, mail: list[MAILMessage]) -> Iterator[MAILMessage]:
    """Yield the messages that need no answer: all of a task that has ended, else requests to the owner that are closed.

    A request to the owner pauses the task; if no breakpoint waits for its answer, it was answered or dropped.
    """
    if task.status in (TaskStatus.COMPLETED, TaskStatus.FAILED):
        yield from mail
        return
    calls = task.generation.breakpoint.calls if task.generation.breakpoint is not None else ()
    waiting = {call.asks.request_id for call in calls if call.asks is not None}
    answered = {each.message.request_id for each in mail if isinstance(each.message, MAILResponse)}
    for message in mail:
        content = message.message
        if (
            isinstance(content, MAILRequest)
            and content.sender.address_type == "agent"
            and content.recipient.address_type in ("user", "admin")
            and content.request_id not in waiting | answered
        ):
            yield message


def _sent_at(message: MAILMessage) -> datetime:
    """Return the key for merging the messages of several tasks; within a task it keeps the order."""
    return datetime.fromisoformat(message.timestamp)
