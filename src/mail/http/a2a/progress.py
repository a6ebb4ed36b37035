"""A run as its events tell it, and what of it A2A shows: a task, and the updates of a stream."""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from copy import copy
from typing import Any, NamedTuple

from a2a.types import (
    Artifact,
    Message,
    Part,
    Role,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatusUpdateEvent,
)
from a2a.types import Task as A2ATask
from a2a.types import TaskStatus as A2AStatus
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Value
from google.protobuf.timestamp_pb2 import Timestamp
from pydantic_core import from_json

from mail.core.decisions import items
from mail.core.decisions.conversation import Conversation
from mail.core.decisions.items import Item
from mail.core.decisions.runs import Run, after
from mail.core.task.events import Event
from mail.core.task.task import TaskStatus
from mail.errors import TaskNotFound

STATES = {
    TaskStatus.RUNNING: TaskState.TASK_STATE_WORKING,
    TaskStatus.PAUSED: TaskState.TASK_STATE_INPUT_REQUIRED,
    TaskStatus.COMPLETED: TaskState.TASK_STATE_COMPLETED,
    TaskStatus.FAILED: TaskState.TASK_STATE_FAILED,
    TaskStatus.CANCELLED: TaskState.TASK_STATE_CANCELED,
}

JSON_TYPE = "application/json"

Update = TaskStatusUpdateEvent | TaskArtifactUpdateEvent

LinkFile = Callable[[Mapping[str, Any]], Awaitable[str]]
"""Returns the URL that fetches the file of a reference."""


class RunId(NamedTuple):
    """The id of a task of A2A: a context and the number of a run."""

    context: str
    number: int

    def __str__(self) -> str:
        return f"{self.context}.{self.number}"

    @classmethod
    def parse(cls, text: str) -> "RunId":
        """Read an id. Raises TaskNotFound for any other text."""
        context, _, number = text.rpartition(".")
        if not context or not number.isascii() or not number.isdecimal() or len(number) > 9:
            raise TaskNotFound(f"there is no task {text[:80]!r}")
        return cls(context, int(number))


class Progress:
    """A run of a task, read from the task's events in their order.

    It is the run with a `number`, or the one that the event with the seq `of` belongs to, or else the last one.

    Attributes:
        run: the run as it is after the last event of it that was read; None before its first.
        earlier: of the last run, those before it.
    """

    def __init__(self, context: str, *, number: int | None = None, of: int | None = None) -> None:
        self.run: Run | None = None
        self.earlier: list[Progress] = []
        self._context = context
        self._number, self._of = number, of
        self._reader = Conversation()
        self._latest: Run | None = None
        self._items: dict[str, Item] = {}

    def read(self, event: Event) -> tuple[Item, ...]:
        """Read an event; return the items that it adds to the run or changes in it."""
        run = self._latest = after(self._latest, event)
        changes = self._reader.read(event)
        if self._number is None and self._of is not None and event.seq >= self._of:
            self._number = run.number
        if self._number not in (None, run.number):
            return ()
        if self.run is None or self.run.number != run.number:
            if self.run is not None and self._number is self._of is None:
                self.earlier.append(copy(self))
            self._items = {}
        self.run = run
        changes = tuple(item for item in changes if item.seq >= run.first)
        self._items |= {item.id: item for item in changes}
        return changes

    @property
    def found(self) -> Run:
        """The run. Raises TaskNotFound if no event belongs to it."""
        if self.run is None:
            raise TaskNotFound(f"there is no task {RunId(self._context, self._number or 0)!s}")
        return self.run

    @property
    def is_reached(self) -> bool:
        """Whether the events up to the run that is looked for were read."""
        return self.run is not None and (self._of is None or self._number is not None)

    @property
    def is_settled(self) -> bool:
        """Whether the run waits for its caller or has ended."""
        return self.run is not None and self.run.status is not TaskStatus.RUNNING

    @property
    def is_last(self) -> bool:
        """Whether no later run was read."""
        return self.run is not None and self.run is self._latest

    @property
    def id(self) -> RunId:
        """Its id in A2A. Raises TaskNotFound."""
        return RunId(self._context, self.found.number)

    @property
    def items(self) -> tuple[Item, ...]:
        """What people wrote and agents did in the run."""
        return tuple(self._items.values())


class Drawing:
    """Draws runs in the terms of A2A; `is_typed` if answers are JSON values, as an output schema demands."""

    def __init__(self, link: LinkFile, *, is_typed: bool) -> None:
        self._link = link
        self._is_typed = is_typed

    async def task(self, progress: Progress, status: TaskStatus | None = None) -> A2ATask:
        """Return the whole task; `status` is that of the run if it is known better than by its events."""
        run_id = progress.id
        shown = progress.items
        return A2ATask(
            id=str(run_id),
            context_id=run_id.context,
            status=self._status(progress, status or progress.found.status),
            artifacts=[await self._artifact(each) for each in shown if isinstance(each, items.Answer)],
            history=[
                await self._message(each, run_id)
                for each in shown
                if isinstance(each, items.Message | items.Told | items.Question)
            ],
        )

    async def updates(self, progress: Progress, changes: Iterable[Item], before: Run) -> list[Update]:
        """Return what a stream tells of an event: the `changes`, and the status if that is another than `before`."""
        run_id, run = progress.id, progress.found
        place: Any = {"task_id": str(run_id), "context_id": run_id.context}
        told: list[Update] = []
        for each in changes:
            if isinstance(each, items.Answer):
                artifact = await self._artifact(each)
                told.append(TaskArtifactUpdateEvent(artifact=artifact, last_chunk=True, **place))
            elif isinstance(each, items.Told):
                status = self._working(each, await self._message(each, run_id))
                told.append(TaskStatusUpdateEvent(**place, status=status))
            elif isinstance(each, items.Work) and each.turns and each.ended is None:
                update = TaskStatusUpdateEvent(**place, status=self._working(each))
                update.metadata.update({"turns": each.turns, "agents": list(each.agents)})
                told.append(update)
        if run.status is not before.status:
            told.append(TaskStatusUpdateEvent(**place, status=self._status(progress, run.status)))
        return told

    def _working(self, item: items.Work | items.Told, message: Message | None = None) -> A2AStatus:
        when = item.last if isinstance(item, items.Work) else item.time
        return A2AStatus(state=TaskState.TASK_STATE_WORKING, message=message, timestamp=_timestamp(when))

    def _status(self, progress: Progress, status: TaskStatus) -> A2AStatus:
        run_id, run = progress.id, progress.found
        parts = list(_status_parts(progress.items, status))
        message = None
        if parts:
            message = _agent_message(f"{run_id.context}.{run.number}.{run.status}", run_id, parts)
        return A2AStatus(state=STATES[status], message=message, timestamp=_timestamp(run.since))

    async def _message(self, item: items.Message | items.Told | items.Question, run_id: RunId) -> Message:
        if isinstance(item, items.Question):
            return _agent_message(item.id, run_id, list(_question_parts(item)))
        if isinstance(item, items.Told):
            return _agent_message(item.id, run_id, [_text(item.text)])
        return Message(
            message_id=item.id,
            context_id=run_id.context,
            task_id=str(run_id),
            role=Role.ROLE_USER,
            parts=[_text(item.text), *[await self._file(each) for each in item.files]],
        )

    async def _artifact(self, answer: items.Answer) -> Artifact:
        parts = [_data(answer.text) if self._is_typed else _text(answer.text)]
        parts += [await self._file(each) for each in answer.files]
        return Artifact(artifact_id=f"answer-{answer.seq}", name="answer", parts=parts)

    async def _file(self, file: Mapping[str, Any]) -> Part:
        part = Part(url=await self._link(file), filename=file["name"], media_type=file["type"])
        part.metadata.update({"id": file["id"], "bytes": file["bytes"]})
        return part


def _agent_message(message_id: str, run_id: RunId, parts: list[Part]) -> Message:
    return Message(
        message_id=message_id,
        context_id=run_id.context,
        task_id=str(run_id),
        role=Role.ROLE_AGENT,
        parts=parts,
    )


def _status_parts(shown: Iterable[Item], status: TaskStatus) -> Iterator[Part]:
    """Yield what a status says in words: the open questions of a pause, or why the task has ended."""
    for item in shown:
        match item:
            case items.Question(is_open=True) if status is TaskStatus.PAUSED:
                yield from _question_parts(item)
            case items.Failed() if status is TaskStatus.FAILED:
                yield _text(item.text)
            case items.Cancelled() if status is TaskStatus.CANCELLED:
                yield _text(item.text)


def _question_parts(question: items.Question) -> Iterator[Part]:
    """Yield the words of a question, and the call that waits."""
    yield _text(question.asked.text if question.asked else question.words)
    call = {
        "call_id": question.call_id,
        "name": question.name,
        "arguments": question.arguments,
        "needs_approval": question.needs_approval,
    }
    yield Part(data=ParseDict(call, Value()), media_type=JSON_TYPE)


def _text(text: str) -> Part:
    return Part(text=text, media_type="text/plain")


def _data(text: str) -> Part:
    """Return a typed answer as a value; as text if it is none, such as the system's answer to an error."""
    try:
        return Part(data=ParseDict(from_json(text, allow_inf_nan=False), Value()), media_type=JSON_TYPE)
    except ValueError:
        return _text(text)


def _timestamp(text: str) -> Timestamp:
    time = Timestamp()
    time.FromJsonString(text)
    return time
