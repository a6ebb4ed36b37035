"""The threads of some tasks: their mail read as Agent Mail.

Mail of the system is left out: it tells agents how their calls went.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from heapq import merge
from itertools import batched

from pydantic import BaseModel, Field

from mail.agentmail import AgentMailMessage, Summary, Thread, Tracker
from mail.core.protocol.message import MAILMessage, MAILRequest, MAILResponse
from mail.core.task.ports import Store
from mail.core.task.task import Task, TaskStatus
from mail.http.task_json import TASKS_AT_ONCE


class ThreadSummary(Summary):
    """What a thread comes to, the tasks that it is in (the newest first), and what should have been answered by now."""

    task_ids: tuple[str, ...]
    overdue: tuple[str, ...] = Field(description="Ids of the pending messages that have waited for too long.")


class ThreadTurn(BaseModel):
    """A message in its place: one deeper than the message with the id `answers`."""

    message: AgentMailMessage
    level: int
    answers: str
    task_id: str


class Threads(BaseModel):
    """Threads, and what is open in all the tasks that were looked at."""

    threads: list[ThreadSummary]
    who_works_on_what: dict[str, tuple[str, ...]] = Field(
        description="The beads of each worker that works on any."
    )
    pending: list[str] = Field(description="Ids of the messages that have to be acknowledged.")
    overdue: list[str] = Field(description="Those of them that have waited for too long.")
    next_cursor: str | None = Field(description="Asks for the threads of older tasks, if there are any.")


class ThreadRecord(BaseModel):
    """A thread with its messages, each below what it answers."""

    thread_id: str
    summary: ThreadSummary
    conversation: list[ThreadTurn]


class Reader:
    """The threads of tasks at some moment.

    Args:
        tasks: the tasks that are read, the newest first.
        mail: what has been sent in each of them.
        now: when that is; it decides what is overdue.
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
        """All threads, those of the newest task first; or those about a bead, or with messages that wait."""
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
        """One thread, if there is mail of it."""
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


async def read_mail(store: Store, tasks: Iterable[Task]) -> list[list[MAILMessage]]:
    """What people and agents have sent in each task."""
    mail: list[list[MAILMessage]] = []
    for some in batched(tasks, TASKS_AT_ONCE):
        mail += await asyncio.gather(*(_mail_of(store, task) for task in some))
    return mail


async def _mail_of(store: Store, task: Task) -> list[MAILMessage]:
    events = await store.read_events(task.key)
    return [
        event.message
        for event in events
        if event.message is not None
        and not event.is_redrive
        and event.message.sender.address_type != "system"
    ]


def _closed(task: Task, mail: list[MAILMessage]) -> Iterator[MAILMessage]:
    """What waits for nothing any more: all mail of a task that has ended, else questions that were dropped.

    A question to the owner pauses the task; one that no breakpoint holds was answered or dropped.
    """
    if task.status in (TaskStatus.COMPLETED, TaskStatus.FAILED):
        yield from mail
        return
    calls = task.generation.breakpoint.calls if task.generation.breakpoint is not None else ()
    held = {call.asks.request_id for call in calls if call.asks is not None}
    answered = {each.message.request_id for each in mail if isinstance(each.message, MAILResponse)}
    for message in mail:
        letter = message.message
        if (
            isinstance(letter, MAILRequest)
            and letter.sender.address_type == "agent"
            and letter.recipient.address_type in ("user", "admin")
            and letter.request_id not in held | answered
        ):
            yield message


def _sent_at(message: MAILMessage) -> datetime:
    """The key by which mail of several tasks is merged; that never changes the order within a task."""
    return datetime.fromisoformat(message.timestamp)
