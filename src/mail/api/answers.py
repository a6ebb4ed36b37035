"""The answers of a swarm to a person, as `mail.Swarm` returns them."""

from dataclasses import dataclass, field, replace
from typing import Any

from mail.core.protocol.message import MAILMessage
from mail.core.task.costs import NO_USAGE, Usage
from mail.core.task.events import Event
from mail.core.task.files import FileRef, files_in
from mail.core.task.live import LiveEvent
from mail.core.task.task import Task, TaskStatus
from mail.core.task.turn_state import PausedCall
from mail.errors import BadRequest, TaskFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer of a swarm; printed, it is its text.

    Attributes:
        text: the answer; for a paused task, its questions in words.
        task_id: the id of the task: `ask(..., task_id=answer.task_id)` continues the conversation.
        pending: the calls that wait for a person, if the task is paused: with `needs_approval` for `Swarm.approve` or
            `Swarm.reject`, with `reviewers` only for `Swarm.answer`, the others for a result, which `Swarm.reply`
            gives.
        usage: what the task has cost so far: tokens and US dollars.
        files: the files that the answer mentions; `Swarm.read_file` reads them.
        output_type: the type that the question asked for, which the answer after a pause must fit; None for the
            swarm's.
    """

    text: str
    task_id: str
    pending: tuple[PausedCall, ...] = ()
    usage: Usage = field(default=NO_USAGE, repr=False)
    files: tuple[FileRef, ...] = ()
    output_type: Any = field(default=None, repr=False)

    @property
    def is_paused(self) -> bool:
        """Whether the task waits for you, because of the calls in `pending`."""
        return bool(self.pending)

    def __str__(self) -> str:
        return self.text


def read_answer(task: Task, message: MAILMessage | None) -> Answer:
    """Return the answer that a message gives, the last one of the task by default. Raises TaskFailed or BadRequest."""
    text = "" if message is None else message.message.body
    answer = Answer(text=text, task_id=task.task_id, usage=sum(task.usage.values(), NO_USAGE))
    if message is not None and message.is_completion:
        return replace(answer, files=tuple(files_in(message.message.routing_info)))
    if task.status in (TaskStatus.FAILED, TaskStatus.CANCELLED):
        raise TaskFailed(f"task {task.task_id!r}: {text}", task_id=task.task_id, status=task.status.value)
    waiting = task.generation.breakpoint if task.status is TaskStatus.PAUSED else None
    if waiting is not None:
        pending = tuple(call for call in waiting.calls if call.approval is None)
        return replace(answer, text=waiting.question, pending=pending)
    if message is None:
        raise BadRequest(
            f"task {task.task_id!r} has no answer yet: it waits for a message, as a new fork does"
        )
    return answer


Piece = Event | LiveEvent | Answer
"""What `Swarm.stream` yields: the events of the task, what its agents do meanwhile, and its answer at the end."""
