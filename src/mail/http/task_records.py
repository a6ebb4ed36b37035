"""Tasks as JSON: records of them and summaries (SPEC, section 8)."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Literal

from pydantic import ConfigDict, Field, RootModel
from pydantic_core import to_json

from mail.core.decisions.conversation import Conversation
from mail.core.decisions.items import Item, fold
from mail.core.engine.pacing import Paced
from mail.core.engine.waits import open_waits
from mail.core.engine.watch import SLICE_BYTES, read_page, read_timeline, read_waiting
from mail.core.protocol.clock import format_time
from mail.core.protocol.message import MAILMessage
from mail.core.protocol.output_schema import read_output
from mail.core.protocol.question_text import shortened
from mail.core.protocol.values import fill
from mail.core.task.callbacks import LaterCall
from mail.core.task.change import InboxEntry, Snapshot
from mail.core.task.costs import NO_USAGE, Usage
from mail.core.task.events import Event
from mail.core.task.interswarm import OpenRequest
from mail.core.task.mailboxes import goes_out
from mail.core.task.members import member_of, show_address
from mail.core.task.ports import Store
from mail.core.task.search import Excerpt
from mail.core.task.size import paused_size
from mail.core.task.task import Task, TaskStatus
from mail.core.task.timers import Timer, TimerKind
from mail.http.answers import array_pieces, each, encoded, object_pieces
from mail.http.bodies import Answered
from mail.http.conversations import read_items
from mail.http.service import Service
from mail.http.task_json import EventEntry, PendingToolCall, asked, event_entries, in_portions

EVENT_PAGE_BYTES = 1024 * 1024
"""The size of events after which a page of them ends, and that of the waiting messages on it."""

SHOWN_TEXT = 200
"""Characters of the text of a timer that are shown."""

SUMMARY_BYTES = 2000
"""The usual size of a summary."""


class RecordedEvent(EventEntry):
    """An event of the task; `data` is an object, as JSON text."""

    data: str


class QueuedMessage(Answered):
    """A message that waits in a mailbox."""

    mailbox: str
    priority: int
    seq: int
    message: MAILMessage


class WaitingFor(Answered):
    """What a task waits for from another swarm, or a member outside: an answer, or the delivery of a message."""

    swarm: str = Field(description="The other swarm, or the name of the member.")
    agent: str | None = Field(
        description="The agent that was asked, as `agent@swarm`, or the name of the member; null for a delivery."
    )
    asked_by: str | None = Field(description="The agent that asked; null for the owner, and for a delivery.")
    until: str | None = Field(description="When it is given up; null if that is not known.")
    attempts: int = Field(description="Failed attempts to deliver mail to the swarm, since the last success.")
    next_attempt: str | None = Field(description="When delivery is tried again; null if none has failed.")
    problem: str | None = Field(description="Why the last attempt failed; null if none has.")


class WorkOf(Answered):
    """A model call or an action that runs, or what a parked turn waits for."""

    kind: Literal["model_call", "action", "wait"]
    name: str = Field(
        description="The name of the model or the action; of a wait, of the provider or action that it is for."
    )
    since: str
    until: str | None = Field(default=None, description="When a wait ends.")


class WorkingAgent(Answered):
    """An agent that takes a turn."""

    agent: str
    since: str | None = Field(description="When the turn began; null if that is not known.")
    on: list[WorkOf] = Field(
        description="What runs in the turn; empty if nothing does, or if the turn runs in another process."
    )


class PendingTimer(Answered):
    """Mail that comes later; `DELETE /task/timers/{id}` cancels it."""

    id: str
    kind: TimerKind = Field(
        description="`reminder`: an agent's note to itself; `message`: a message that was posted with `not_before`."
    )
    due: str = Field(description="When it comes, in ISO 8601.")
    agent: str | None = Field(description="The agent that a reminder is for; null for a message.")
    text: str = Field(description="The first 200 characters of the note, or the title of the message.")


class OpenCall(Answered):
    """A call of an action that finishes later; `DELETE /task/calls/{id}` cancels it."""

    id: str
    agent: str
    name: str = Field(description="The action.")
    call_id: str = Field(description="The id that the model gave the call.")
    since: str = Field(description="When it began to wait, in ISO 8601.")
    heard: str = Field(description="When it was last heard of.")
    due: str = Field(description="When the call fails unless something is heard of it.")
    progress: str = Field(description="What it has reported last; empty for nothing.")


class TaskUsage(Answered):
    """Tokens and cost of a task's model calls, in all its generations."""

    total: Usage
    agents: dict[str, Usage] = Field(description="Per agent that has called a model.")
    models: dict[str, Usage] = Field(
        description="Per model; `other` for those without a name, and for those past the first 32."
    )


class TaskSummary(Answered):
    """A task without its events and waiting messages."""

    task_id: str
    task_owner: str
    task_contributors: list[str]
    start_time: str
    updated: str = Field(description="When it has last changed.")
    is_running: bool
    remote_swarms: list[str]
    completed: bool = Field(
        description="Whether the task has stopped, for whatever reason; `status` tells which."
    )
    title: str | None
    status: TaskStatus
    forked_from: str | None = Field(description="The task that it is a fork of; null for none.")
    entrypoint: str
    generation: int = Field(description="How often the task was begun or resumed.")
    steps: int = Field(description="Steps taken in this generation.")
    max_steps: int
    pending_tool_calls: list[PendingToolCall] = Field(
        description="The breakpoint tool calls that a paused task waits for."
    )
    question: str | None = Field(
        description="What a paused task asks with those, in words, with a line for each undecided call; null if it "
        "asks nothing."
    )
    waiting_for: list[WaitingFor] = Field(
        description="The other swarms that the task waits for, and until when: answers, and deliveries that failed and "
        "are tried again."
    )
    queued: dict[str, int] = Field(
        description="How many messages each agent has not read, by its name. The message of a running turn counts "
        "until the turn is stored."
    )
    working: list[WorkingAgent] | None = Field(
        default=None,
        description="Which agents take a turn now; null for a running task with `at`, and in a list of summaries.",
    )
    calls: list[OpenCall] | None = Field(
        default=None,
        description="Only in `GET /task`, and only if there are any: the calls of actions whose results are to come.",
    )
    timers: list[PendingTimer] | None = Field(
        default=None,
        description="Only in `GET /task`, and only if there are any: the mail that comes later.",
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
    stored_bytes: int = Field(
        description="The bytes that it has stored: messages, events and histories. It can't exceed `task_bytes` of the "
        "server's limits."
    )

    output_schema: dict[str, Any] | None = Field(
        default=None,
        description="Only if it has one: the JSON Schema that the answer of this generation must fit.",
    )
    output: Any = Field(
        default=None,
        description="Only in `GET /task`, for a complete task with an output schema: the answer, which fits the "
        "schema.",
    )
    excerpt: list[str] | None = Field(
        default=None,
        description="Only of a search for words, if one of the last messages has one: what it says around it, as "
        "it was written. Every second piece, from the second on, is one of the words.",
    )


class TaskRecord(TaskSummary):
    """A task with its events and waiting messages."""

    events: list[RecordedEvent]
    task_message_queue: list[QueuedMessage] = Field(
        description="The waiting messages; a stopped task keeps them until it is resumed."
    )
    items: list[Item] | None = Field(
        default=None,
        description="Only with `items`: what these events add to the conversation or change in it. An item replaces "
        "the one with its id.",
    )


class AnyTask(RootModel[Any]):  # with its type as parameter, pydantic would build a schema for that at once
    """A task, with or without its events and waiting messages."""

    model_config = ConfigDict(defer_build=True)

    root: TaskRecord | TaskSummary


class AnyTasks(RootModel[Any]):
    """Tasks by their ids."""

    model_config = ConfigDict(defer_build=True)

    root: dict[str, TaskRecord] | dict[str, TaskSummary]


async def task_pieces(
    service: Service, task: Task, pacer: Paced, more: Mapping[str, Any] = MappingProxyType({})
) -> AsyncGenerator[bytes]:
    """Yield a task as `TaskRecord`, with `more` fields, in pieces of JSON."""
    store = service.runtime.store
    events = read_timeline(store, task.key, pacer, upto=task.seq)
    more = {**more, "working": await service.runtime.working(task)}
    async for piece in _record_pieces(task, events, read_mail(store, task, pacer), more, pacer):
        yield piece


async def event_page(
    service: Service,
    task: Task,
    after: int,
    limit: int | None,
    more: Mapping[str, Any],
    pacer: Paced,
    *,
    items: bool,
) -> tuple[AsyncGenerator[bytes], int | None]:
    """Read a page of a task's events, and the first of its waiting messages; add `more` fields, and perhaps the items.

    Returns the `TaskRecord` in pieces of JSON, and the last event if there are more.
    """
    store = service.runtime.store
    events = await read_page(
        store, task.key, pacer, after=after, upto=task.seq, limit=limit, max_bytes=EVENT_PAGE_BYTES
    )
    mail = await store.read_inbox(task.key, max_bytes=EVENT_PAGE_BYTES)
    last = events[-1].seq if events else after
    more = {**more, "working": await service.runtime.working(task)}
    if items:
        reader = await service.conversations.reader(store, task, after, pacer)
        more["items"] = await read_items(reader, events, pacer)
        service.conversations.keep(task, reader)
    pieces = _record_pieces(task, each(events), each(mail), more, pacer)
    return pieces, last if events and last < task.seq else None


async def snapshot_pieces(
    service: Service, snapshot: Snapshot, pacer: Paced, *, items: bool
) -> AsyncGenerator[bytes]:
    """Return a task as it was as `TaskRecord`, in pieces of JSON, perhaps with its items."""
    task, store = snapshot.task, service.runtime.store
    more: dict[str, object] = {}
    if items:
        reader, found = Conversation(), []
        async for event in read_timeline(store, task.key, pacer, upto=task.seq):
            found += await read_items(reader, [event], pacer)
        more["items"] = array_pieces(encoded(fold(found), pacer))
    events = read_timeline(store, task.key, pacer, upto=task.seq)
    return _record_pieces(task, events, read_waiting(store, snapshot), more, pacer)


async def tasks_pieces(
    service: Service, tasks: Sequence[Task], pacer: Paced, excerpts: Mapping[str, Excerpt]
) -> AsyncGenerator[bytes]:
    """Yield `TaskRecord`s by task id, in pieces of JSON: reads small tasks concurrently, and large ones one by one."""

    def pieces(task: Task) -> AsyncGenerator[bytes]:
        return task_pieces(service, task, pacer, _excerpt(task, excerpts))

    async def whole(task: Task) -> bytes:
        return b"".join([piece async for piece in pieces(task)])

    async def records() -> AsyncGenerator[tuple[str, object]]:
        for some in in_portions(tasks):
            if len(some) == 1:
                yield some[0].task_id, pieces(some[0])
            else:
                await pacer.pause(sum(task.stored_bytes for task in some))
                for task, record in zip(some, await asyncio.gather(*map(whole, some)), strict=True):
                    yield task.task_id, record

    async for piece in object_pieces(records()):
        yield piece


async def summaries_pieces(
    tasks: Iterable[Task],
    pacer: Paced,
    excerpts: Mapping[str, Excerpt] = MappingProxyType({}),
    *,
    of_others: bool = False,
    by_caller: bool = False,
) -> AsyncGenerator[bytes]:
    """Yield `TaskSummary`s by task id, in pieces of JSON.

    Those of other callers' tasks have the title, and nothing else that their caller or agents have written.
    `by_caller` makes the keys unique among the tasks of several callers: `role:id@swarm#task_id`.
    """
    summary = _summary_for_others if of_others else task_summary

    async def summaries() -> AsyncGenerator[tuple[str, object]]:
        for task in tasks:
            await pacer.pause(SUMMARY_BYTES + paused_size(task.generation.breakpoint))
            name = f"{task.instance}#{task.task_id}" if by_caller else task.task_id
            yield name, {**summary(task), **_excerpt(task, excerpts)}

    async for piece in object_pieces(summaries()):
        yield piece


def _excerpt(task: Task, excerpts: Mapping[str, Excerpt]) -> dict[str, Any]:
    """Return the field `excerpt` of a task that has one."""
    return {"excerpt": excerpts[task.task_id]} if task.task_id in excerpts else {}


def _summary_for_others(task: Task) -> dict[str, Any]:
    """Return a summary without waiting calls, the schema of the answer and the reason of a cancellation."""
    found = {**task_summary(task), "pending_tool_calls": [], "question": None}
    found.pop("output_schema", None)
    if task.cancellation is not None:
        found["cancellation"] = replace(task.cancellation, reason="")
    return found


def _record_pieces(
    task: Task,
    events: AsyncIterable[Event],
    mail: AsyncIterable[InboxEntry],
    more: Mapping[str, Any],
    pacer: Paced,
) -> AsyncGenerator[bytes]:
    """Yield a task as `TaskRecord`, with `more` fields, in pieces of JSON."""
    members: dict[str, object] = {
        **task_summary(task),
        **more,
        "events": array_pieces(event_entries(pacer, task.task_id, events, as_text=True)),
        "task_message_queue": array_pieces(_queued_messages(pacer, mail)),
    }
    return object_pieces(each(members.items()))


async def _queued_messages(pacer: Paced, mail: AsyncIterable[InboxEntry]) -> AsyncGenerator[bytes]:
    """Yield waiting messages as JSON."""
    async for entry in mail:
        await pacer.pause(entry.size)
        yield to_json(queued_message(entry))


async def read_mail(store: Store, task: Task, pacer: Paced) -> AsyncGenerator[InboxEntry]:
    """Yield the waiting mail of a task, and read it in slices."""
    after: InboxEntry | None = None
    left = sum(map(sum, task.pending.values()))
    while left > 0 and (mail := await store.read_inbox(task.key, after=after, max_bytes=SLICE_BYTES)):
        for entry in mail:
            yield entry
        after = mail[-1]
        left -= len(mail)
        await pacer.pause(SLICE_BYTES)


def task_summary(task: Task, *, approvals: bool = True) -> dict[str, Any]:
    """Return a task as `TaskSummary`; the fields from `status` on are additions to the protocol's.

    Without `approvals`, the calls that wait for a decision or for reviewers are left out.
    """
    schema = task.generation.output_schema
    return fill(
        TaskSummary,
        task,
        task_owner=task.owner,
        task_contributors=task.contributors,
        start_time=task.started,
        remote_swarms=[peer for peer in task.peers if member_of(peer) is None],
        completed=not task.is_running,
        forked_from=task.forked_from or None,
        generation=task.generation.number,
        steps=task.generation.steps,
        **asked(task, approvals=approvals),
        waiting_for=waiting_for(task),
        queued=queued(task),
        working=None if task.is_running else [],
        budget=task.limits.budget.model_dump(exclude_none=True) or None,
        usage={"total": sum(task.usage.values(), NO_USAGE), "agents": task.usage, "models": task.models},
        **({} if schema is None else {"output_schema": schema}),
    )


async def task_output(service: Service, task: Task) -> dict[str, Any]:
    """Return the field `output` of a complete task with an output schema; nothing for other tasks."""
    if task.generation.output_schema is None or task.status is not TaskStatus.COMPLETED:
        return {}
    answer = await service.runtime.store.wait_for_response(task.key, task.generation.number, seconds=0)
    return {} if answer is None else {"output": read_output(answer)}


async def waits(service: Service, task: Task) -> dict[str, Any]:
    """Return the fields `calls` and `timers` of a task with open calls and timers; nothing for other tasks."""
    calls, timers = [], []
    async for wait in open_waits(service.runtime.store, task):
        match wait:
            case LaterCall():
                calls.append(wait.as_json())
            case Timer():
                text = shortened(wait.text, SHOWN_TEXT)
                shown = {"due": format_time(wait.due), "agent": wait.mailbox or None, "text": text}
                timers.append(fill(PendingTimer, wait, **shown))
    return {name: shown for name, shown in (("calls", calls), ("timers", timers)) if shown}


def queued(task: Task) -> dict[str, int]:
    """Return how many messages each agent of a task has not read."""
    return {
        mailbox: count
        for mailbox, tiers in task.pending.items()
        if (count := sum(tiers)) and not goes_out(mailbox)
    }


def waiting_for(task: Task) -> list[dict[str, Any]]:
    """Return what a task waits for from other swarms as `WaitingFor`."""
    asked = [(request.recipient_swarm, request) for request in task.requests if request.recipient_swarm]
    swarms = {swarm for swarm, _ in asked}
    retried = [swarm for swarm, peer in task.peers.items() if peer.failures and swarm not in swarms]
    return [
        *(_awaited(task, swarm, request) for swarm, request in asked),
        *(_awaited(task, swarm, None) for swarm in retried),
    ]


def _awaited(task: Task, swarm: str, request: OpenRequest | None) -> dict[str, Any]:
    peer = task.peers.get(swarm)
    retried = peer if peer is not None and peer.failures else None
    until = retried.retry_until if retried else request.answer_deadline if request else None
    return {
        "swarm": member_of(swarm) or swarm,
        "agent": show_address(request.recipient) if request else None,
        "asked_by": request.sender or None if request else None,
        "until": format_time(until) if until else None,
        "attempts": retried.failures if retried else 0,
        "next_attempt": format_time(retried.retry_at) if retried else None,
        "problem": retried.problem or None if retried else None,
    }


def queued_message(entry: InboxEntry) -> dict[str, Any]:
    """Return a message of a mailbox as `QueuedMessage`."""
    return fill(QueuedMessage, entry, priority=int(entry.tier), message=entry.message.as_json())
