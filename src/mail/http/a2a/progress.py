"""What A2A shows of a run: a task, and the updates of a stream."""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any

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
from mail.core.decisions.items import Item
from mail.core.decisions.runs import Run
from mail.core.protocol.values import value
from mail.core.task.task import TaskStatus
from mail.http.runs import Progress, RunId

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


@value
class Drawing:
    """Draws runs in the terms of A2A; `is_typed` if answers are JSON values, as an output schema demands."""

    _link: LinkFile
    is_typed: bool

    async def task(self, progress: Progress, status: TaskStatus | None = None) -> A2ATask:
        """Return the whole task; `status` is that of the run if it is known better than by its events."""
        run_id = progress.id
        shown = progress.items
        return A2ATask(
            id=str(run_id),
            context_id=run_id.task_id,
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
        place: Any = {"task_id": str(run_id), "context_id": run_id.task_id}
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
            message = _agent_message(f"{run_id.task_id}.{run.number}.{run.status}", run_id, parts)
        state = STATES[status]
        asked = [each for each in progress.items if isinstance(each, items.Question) and each.is_open]
        if status is TaskStatus.PAUSED and asked and all(each.reviewers for each in asked):
            state = TaskState.TASK_STATE_AUTH_REQUIRED  # by others than the client
        return A2AStatus(state=state, message=message, timestamp=_timestamp(run.since))

    async def _message(self, item: items.Message | items.Told | items.Question, run_id: RunId) -> Message:
        if isinstance(item, items.Question):
            return _agent_message(item.id, run_id, list(_question_parts(item)))
        if isinstance(item, items.Told):
            return _agent_message(item.id, run_id, [_text(item.text)])
        return Message(
            message_id=item.id,
            context_id=run_id.task_id,
            task_id=str(run_id),
            role=Role.ROLE_USER,
            parts=[_text(item.text), *[await self._file(each) for each in item.files]],
        )

    async def _artifact(self, answer: items.Answer) -> Artifact:
        parts = [_data(answer.text) if self.is_typed else _text(answer.text)]
        parts += [await self._file(each) for each in answer.files]
        return Artifact(artifact_id=f"answer-{answer.seq}", name="answer", parts=parts)

    async def _file(self, file: Mapping[str, Any]) -> Part:
        part = Part(url=await self._link(file), filename=file["name"], media_type=file["type"])
        part.metadata.update({"id": file["id"], "bytes": file["bytes"]})
        return part


def _agent_message(message_id: str, run_id: RunId, parts: list[Part]) -> Message:
    return Message(
        message_id=message_id,
        context_id=run_id.task_id,
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
    """Yield the words of a question, and the call that waits: for a decision of the client, or of `reviewers`."""
    yield _text(question.asked.text if question.asked else question.words)
    call: dict[str, Any] = {
        "call_id": question.call_id,
        "name": question.name,
        "arguments": question.arguments,
        "needs_approval": question.needs_approval and not question.reviewers,
    }
    if question.reviewers:
        call["reviewers"] = list(question.reviewers)
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
