"""A caller's threads: the messages of tasks, grouped by topic as in `mail.agentmail`.

Each task is tracked by itself, as tasks may use the same bead ids: a thread in several tasks has the status that its
bead has in one of them. Messages from the system are left out: they report to agents on their calls. The cost of a
request is bounded by the number of tasks whose events it reads.
"""

import asyncio
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cached_property
from heapq import merge
from itertools import chain
from typing import Annotated, NamedTuple

from fastapi import Path, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from mail.agentmail import ACK_WITHIN, AgentMailMessage, BeadState, Summary, Thread, Tracker, Turn
from mail.agentmail.beads import BeadStatus
from mail.auth.keys import Caller
from mail.core.engine.pacing import PIECE_BYTES, Paced
from mail.core.engine.runtime import Runtime
from mail.core.engine.watch import read_timeline
from mail.core.protocol.message import MAILMessage, MAILRequest, MAILResponse, TaskId
from mail.core.protocol.values import fill, value
from mail.core.task.ports import Store, TaskPage
from mail.core.task.task import Task, TaskKey, TaskStatus
from mail.errors import BadRequest, ThreadNotFound
from mail.http.access import AdminOrUser, NextCursor
from mail.http.account import BODY_FACTOR, LIST_BYTES
from mail.http.answers import answer, array_pieces, each, encoded, object_pieces
from mail.http.openapi import PAGE_HEADERS, answers, make_router
from mail.http.service import service_of
from mail.http.task_json import in_portions, load_task, page_headers

MAX_TASKS = 100
"""Tasks that one request reads at most."""

PAGE_BYTES = 16 * 1024 * 1024
"""The size of the tasks that one request reads at most; or it reads a single one."""

THREADS = 20
"""Threads on a page by default."""

MAX_ACK_WITHIN = 366 * 24 * 3600
DEFAULT_ACK_WITHIN = ACK_WITHIN.total_seconds()


class _Later(BaseModel):
    """A model that is built when it is used, as most processes never do."""

    model_config = ConfigDict(defer_build=True)


class ThreadTask(_Later):
    """A task with messages in a thread."""

    task_id: str
    status: TaskStatus
    state: BeadState = Field(description="The state of the thread's bead in this task.")
    title: str | None = Field(description="The beginning of the task's first message.")


class ThreadSummary(Summary):
    """Summary of a thread, with its tasks (newest first) and its overdue messages.

    Of a bead in several tasks it shows the status in one: the newest in which a question is open, else the newest.
    """

    task_ids: tuple[str, ...]
    tasks: tuple[ThreadTask, ...]
    overdue: tuple[str, ...] = Field(description="Ids of the pending messages that have waited for too long.")


class ThreadTurn(_Later):
    """A message in a conversation, one level below the message with the id `answers`."""

    message: AgentMailMessage
    level: int
    answers: str
    task_id: str


class Threads(_Later):
    """Threads, and what is open in all the tasks that were read."""

    threads: list[ThreadSummary]
    who_works_on_what: dict[str, tuple[str, ...]] = Field(
        description="The beads of each worker that works on any."
    )
    pending: list[str] = Field(description="Ids of the messages that have to be acknowledged.")
    overdue: list[str] = Field(description="Ids of the pending messages that have waited for too long.")
    next_cursor: str | None = Field(
        description="The `cursor` for further threads, those of older tasks, if any."
    )


class ThreadRecord(_Later):
    """A thread with its messages, each below the message that it answers."""

    thread_id: str
    summary: ThreadSummary
    conversation: list[ThreadTurn]


router = make_router("threads")

AckWithin = Annotated[
    float, Query(ge=0, le=MAX_ACK_WITHIN, description="Seconds after which a message that waits is overdue.")
]
OnlyTask = Annotated[TaskId | None, Query(description="Only messages of this task.")]
_TASK_ID = TypeAdapter[str](TaskId, config=_Later.model_config)


@router.get(
    "/threads",
    summary="List the caller's threads",
    **answers(Threads, 400, 404, 413, text="Threads, those of the newest task first.", headers=PAGE_HEADERS),
)
async def get_threads(
    request: Request,
    caller: AdminOrUser,
    limit: Annotated[
        int,
        Query(
            ge=1, le=MAX_TASKS, description="Threads on a page, which are read from as many tasks at most."
        ),
    ] = THREADS,
    cursor: NextCursor = None,
    task_id: OnlyTask = None,
    bead: Annotated[str | None, Query(description="Only threads with messages about this bead.")] = None,
    pending: Annotated[bool, Query(description="Only threads with messages to be acknowledged.")] = False,
    overdue: Annotated[bool, Query(description="Only threads with overdue messages.")] = False,
    unfinished: Annotated[
        bool,
        Query(
            alias="open",
            description="Only threads of tasks that run or are paused, without beads that are done or failed.",
        ),
    ] = False,
    ack_within: AckWithin = DEFAULT_ACK_WITHIN,
) -> Response:
    """Return the threads of a page of the caller's tasks. Of a thread in several tasks, only the page's tasks count.

    A page ends early if its tasks are large together; its next cursor leads to the rest.
    """
    start = read_cursor(cursor)
    if task_id is not None:
        tasks, following = [await load_task(service_of(request), caller, task_id)], None
    else:
        runtime = service_of(request).runtime
        instance = str(caller.principal(runtime.swarm.name))
        await service_of(request).holding(request).wait(LIST_BYTES)
        tasks, start, following = await tasks_from(runtime.store, instance, start, limit)
    chosen = Filters(bead=bead, pending=pending, overdue=overdue, unfinished=unfinished)

    def list_threads(reader: Reader) -> Threads:
        found, rest = reader.page(chosen, after=start, limit=limit)
        return Threads(
            threads=found,
            who_works_on_what=reader.who_works_on_what(),
            pending=reader.pending,
            overdue=reader.overdue,
            next_cursor=following if rest is None else write_cursor(PageStart(start.cursor, *rest)),
        )

    found = await _read(request, tasks, ack_within, list_threads)
    query = {**request.query_params, "limit": str(limit)}
    headers = page_headers(request, "/threads", query, found.next_cursor)
    return await answer(
        request, _pieces(request, found), headers, advice="ask for fewer threads with limit=…"
    )


class PageStart(NamedTuple):
    """The beginning of a page of threads.

    Attributes:
        cursor: the store's cursor for a page of tasks; None for the newest tasks.
        task_id: the task on that page to begin with; None for the first one.
        skip: how many threads of that task were on earlier pages.
    """

    cursor: str | None
    task_id: str | None = None
    skip: int = 0


_START = TypeAdapter(PageStart, config=_Later.model_config)

_PREFIX = "t."
"""The prefix of cursors that lead into a page of tasks; the others are the store's."""


def read_cursor(cursor: str | None) -> PageStart:
    """Return the start of the page that a cursor leads to. Raises BadRequest for a foreign one."""
    if cursor is None or not cursor.startswith(_PREFIX):
        return PageStart(cursor)
    try:
        return _START.validate_json(urlsafe_b64decode(cursor.removeprefix(_PREFIX)))
    except ValueError as error:
        raise BadRequest(f"cursor {cursor!r:.200} is not one of this list") from error


def write_cursor(start: PageStart) -> str:
    """Return the cursor that leads to a page."""
    return _PREFIX + urlsafe_b64encode(_START.dump_json(start)).decode()


async def tasks_from(
    store: Store, instance: str, start: PageStart, limit: int
) -> tuple[list[Task], PageStart, str | None]:
    """Return the tasks to read for a page of threads, newest first, its start, and the cursor after them.

    The start has the cursor of the store's page with its task: tasks that have begun since come before it, and a page
    of large tasks ends early. If the task is gone, the page begins where its cursor leads to.
    """

    async def read(cursor: str | None) -> TaskPage:
        return await store.list_tasks(instance, limit=MAX_TASKS if start.task_id else limit, cursor=cursor)

    cursor, page, passed = start.cursor, await read(start.cursor), 0
    while start.task_id and all(task.task_id != start.task_id for task in page.tasks):
        passed += len(page.tasks)
        is_gone = page.cursor is None or passed >= MAX_TASKS
        cursor = start.cursor if is_gone else page.cursor
        page = await read(cursor)
        if is_gone:
            break
    ids = [task.task_id for task in page.tasks]
    first = ids.index(start.task_id) if start.task_id in ids else 0
    tasks = replace(page, tasks=page.tasks[first : first + limit]).upto(PAGE_BYTES).tasks
    end = first + len(tasks)
    following = write_cursor(PageStart(cursor, ids[end])) if end < len(ids) else page.cursor
    return tasks, start._replace(cursor=cursor), following


@router.get("/threads/{thread_id:path}", summary="Get a thread", **answers(ThreadRecord, 400, 404, 413))
async def get_thread(
    request: Request,
    caller: AdminOrUser,
    thread_id: Annotated[str, Path(description="The thread's id, usually that of a bead or of a task.")],
    task_id: OnlyTask = None,
    ack_within: AckWithin = DEFAULT_ACK_WITHIN,
) -> Response:
    """Return a thread, as far as it is in the caller's newest hundred tasks, or in the given task.

    Large tasks count for several: those read have stored 16 MiB together, or it is one task.
    """
    if task_id is not None:
        tasks = [await load_task(service_of(request), caller, task_id)]
    else:
        tasks = await _tasks_with(request, caller, thread_id)

    thread = await _read(request, tasks, ack_within, lambda reader: reader.thread(thread_id))
    if thread is None:
        where = (
            "that task"
            if task_id
            else f"your newest {MAX_TASKS} tasks; if it belongs to an older task, name the task"
        )
        raise ThreadNotFound(f"there is no thread {thread_id!r} in {where}")
    advice = "read its messages with the events of its task, in pages: GET /task?task_id=…&limit=…"
    return await answer(request, _pieces(request, thread), advice=advice)


async def _tasks_with(request: Request, caller: Caller, thread_id: str) -> list[Task]:
    """Return the newest tasks, and the task with the thread's id if that is older."""
    runtime = service_of(request).runtime
    instance = str(caller.principal(runtime.swarm.name))
    await service_of(request).holding(request).wait(LIST_BYTES)
    page = await runtime.store.list_tasks(instance, limit=MAX_TASKS)
    tasks = page.upto(PAGE_BYTES).tasks
    if (len(tasks) < len(page.tasks) or page.cursor is not None) and _is_task_id(thread_id):
        named = await runtime.store.load(TaskKey(instance, thread_id))
        tasks += [named] if named is not None and all(task.key != named.key for task in tasks) else []
    return tasks


def _is_task_id(text: str) -> bool:
    try:
        _TASK_ID.validate_python(text)
    except ValidationError:
        return False
    return True


async def _read[T](request: Request, tasks: list[Task], ack_within: float, use: Callable[["Reader"], T]) -> T:
    """Read the messages of tasks, and return what `use` makes of them. Raises RateLimited and Overloaded."""
    service = service_of(request)
    runtime, holding = service.runtime, service.holding(request)
    holding.take(0)
    weight = sum(task.stored_bytes for task in tasks)
    if weight > PIECE_BYTES:
        holding.hold(weight * BODY_FACTOR)  # unlike other reads, it needs all messages at once
    mail: list[list[MAILMessage]] = []
    for some in in_portions(tasks):
        if len(some) > 1:
            await holding.pause(sum(task.stored_bytes for task in some))
        mail += await asyncio.gather(*(_mail_of(runtime, task, holding) for task in some))
    now, patience = runtime.clock.now(), timedelta(seconds=ack_within)

    def work() -> T:
        return use(Reader(tasks, mail, now=now, ack_within=patience))

    return work() if weight <= PIECE_BYTES else await asyncio.to_thread(work)


async def _mail_of(runtime: Runtime, task: Task, pacer: Paced) -> list[MAILMessage]:
    """Read a task's messages, except those from the system."""
    return [
        event.message
        async for event in read_timeline(runtime.store, task.key, pacer, upto=task.seq)
        if event.message is not None
        and not event.is_redrive
        and event.message.sender.address_type != "system"
    ]


async def _pieces(request: Request, found: "Threads | ThreadRecord") -> AsyncGenerator[bytes]:
    """Yield an answer in pieces of JSON, its lists item by item."""
    pacer = service_of(request).holding(request)
    members = (
        (name, array_pieces(encoded(value, pacer)) if isinstance(value, list) else value)
        for name, value in found
    )
    async for piece in object_pieces(each(members)):
        yield piece


@value
class Filters:
    """A selection of threads: those that match all filters that are set."""

    bead: str | None = None
    pending: bool = False
    overdue: bool = False
    unfinished: bool = False

    def match(self, summary: ThreadSummary, portions: "Sequence[Portion]") -> bool:
        """Return whether a thread matches."""
        return (
            (bool(summary.pending) or not self.pending)
            and (bool(summary.overdue) or not self.overdue)
            and (any(portion.is_unfinished for portion in portions) or not self.unfinished)
            and (
                self.bead is None
                or any(
                    message.bead_id == self.bead
                    for portion in portions
                    for message in portion.thread.messages
                )
            )
        )


@value(slots=False)
class Portion:
    """The portion of a thread that is in one task, as its thread number `number`."""

    task: Task
    thread: Thread
    number: int

    @cached_property
    def summary(self) -> Summary:
        """The thread's summary, as far as it is in this task."""
        return self.thread.summary

    @property
    def is_unfinished(self) -> bool:
        """Whether the task has not ended, and the bead neither."""
        return self.task.status in (TaskStatus.RUNNING, TaskStatus.PAUSED) and self.summary.state not in (
            BeadState.DONE,
            BeadState.FAILED,
        )


class Reader:
    """The threads of tasks at a point in time.

    Args:
        tasks: the tasks, newest first.
        mail: the messages sent in each of them.
        now: the time that decides which messages are overdue.

    Attributes:
        pending: the ids of the messages that have to be acknowledged.
        overdue: the ids of those that have waited for too long.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        mail: Sequence[list[MAILMessage]],
        *,
        now: datetime,
        ack_within: timedelta,
    ) -> None:
        self._threads: dict[str, list[Portion]] = {}
        self._trackers: list[Tracker] = []
        for task, messages in zip(tasks, mail, strict=True):
            tracker = Tracker(ack_within=ack_within)
            closed = {message.id for message in _closed(task, messages)}
            for message in messages:
                tracker.add(message, closed=message.id in closed)
            for number, (thread_id, thread) in enumerate(tracker.threads().items()):
                self._threads.setdefault(thread_id, []).append(Portion(task, thread, number))
            self._trackers.append(tracker)
        oldest_first = self._trackers[::-1]
        self.pending = [message.id for tracker in oldest_first for message in tracker.pending()]
        self.overdue = [message.id for tracker in oldest_first for message in tracker.overdue(now)]
        self._late = set(self.overdue)

    def who_works_on_what(self) -> dict[str, tuple[str, ...]]:
        """Return the beads of each worker that works on any."""
        found: dict[str, dict[str, None]] = {}
        for tracker in reversed(self._trackers):
            for worker, beads in tracker.who_works_on_what().items():
                found.setdefault(worker, {}).update(dict.fromkeys(beads))
        return {worker: tuple(beads) for worker, beads in found.items()}

    def page(
        self, filters: Filters, *, after: PageStart, limit: int
    ) -> tuple[list[ThreadSummary], tuple[str, int] | None]:
        """Return the next `limit` threads, those of the newest task first.

        Also return where the rest begins, if there is one: a task, and how many of its threads come before. A thread
        counts in its newest task.
        """
        found: list[ThreadSummary] = []
        for thread_id, portions in self._threads.items():
            newest = portions[0]
            if newest.task.task_id == after.task_id and newest.number < after.skip:
                continue
            summary = self._sum_up(thread_id, portions)
            if filters.match(summary, portions):
                if len(found) == limit:
                    return found, (newest.task.task_id, newest.number)
                found.append(summary)
        return found, None

    def thread(self, thread_id: str) -> ThreadRecord | None:
        """Return one thread; None if it has no messages."""
        portions = self._threads.get(thread_id)
        if portions is None:
            return None
        turns = merge(*(_exchanges(portion) for portion in reversed(portions)), key=_begun_at)
        return ThreadRecord(
            thread_id=thread_id,
            summary=self._sum_up(thread_id, portions),
            conversation=[
                ThreadTurn(message=turn.message, level=turn.level, answers=turn.answers, task_id=task_id)
                for task_id, exchange in turns
                for turn in exchange
            ],
        )

    def _sum_up(self, thread_id: str, portions: Sequence[Portion]) -> ThreadSummary:
        shown = next(
            (portion.summary for portion in portions if portion.summary.help_request is not None),
            next((portion.summary for portion in portions if portion.summary.bead_id), portions[0].summary),
        )
        summaries = [portion.summary for portion in reversed(portions)]
        times = [time for each in summaries for time in (each.started_at, each.updated_at) if time]
        pending = tuple(chain.from_iterable(each.pending for each in summaries))
        return ThreadSummary(
            **{name: getattr(shown, name) for name in BeadStatus.model_fields},
            thread_id=thread_id,
            pending=pending,
            counts=dict(sum((Counter(each.counts) for each in summaries), Counter())),
            messages=sum(each.messages for each in summaries),
            participants=tuple(dict.fromkeys(chain.from_iterable(each.participants for each in summaries))),
            started_at=min(times, key=datetime.fromisoformat, default=""),
            updated_at=max(times, key=datetime.fromisoformat, default=""),
            task_ids=tuple(portion.task.task_id for portion in portions),
            tasks=tuple(
                ThreadTask(**fill(ThreadTask, portion.task, state=portion.summary.state))
                for portion in portions
            ),
            overdue=tuple(message_id for message_id in pending if message_id in self._late),
        )


type _Exchange = tuple[str, list[Turn]]
"""A message that answers none with all answers below it, and its task."""


def _exchanges(portion: Portion) -> Iterator[_Exchange]:
    found: list[Turn] = []
    for turn in portion.thread.conversation:
        if turn.level == 0 and found:
            yield portion.task.task_id, found
            found = []
        found.append(turn)
    yield portion.task.task_id, found


def _begun_at(exchange: _Exchange) -> datetime:
    """Return the key for merging the messages of several tasks; within a task it keeps the order."""
    return datetime.fromisoformat(exchange[1][0].message.timestamp)


def _closed(task: Task, mail: list[MAILMessage]) -> Iterator[MAILMessage]:
    """Yield the messages that need no answer: all of a task that has ended, else requests to the owner that are closed.

    A request to the owner pauses the task; if no breakpoint waits for its answer, it was answered or dropped.
    """
    if task.status in (TaskStatus.COMPLETED, TaskStatus.FAILED):
        yield from mail
        return
    waiting = {call.asks.request_id for call in task.generation.waiting_calls if call.asks is not None}
    answered = {each.message.request_id for each in mail if isinstance(each.message, MAILResponse)}
    for message in mail:
        content = message.message
        if (
            isinstance(content, MAILRequest)
            and content.sender.address_type == "agent"
            and content.recipient.is_person
            and content.request_id not in waiting | answered
        ):
            yield message
