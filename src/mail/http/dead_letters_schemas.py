"""Dead letters, as HTTP takes and shows them."""

from pydantic import Field

from mail.core.protocol.message import TaskId
from mail.core.task.task import TaskStatus
from mail.http.schemas import Answered, Given


class PostDeadLetters(Given):
    """Which dead letters: one, those of a task, or all that the caller may see."""

    task_id: TaskId | None = None
    seq: int | None = Field(
        default=None, ge=1, strict=True, description="The one of the task; without it, all of the task."
    )
    caller: str | None = Field(
        default=None, description="Whose task, or of whom all, `role:id` or `role:id@swarm`; for admins."
    )
    all: bool = False
    cursor: str | None = Field(
        default=None, description="With `all`: the `next_cursor` of the answer before."
    )


class _OfTask(Answered):
    caller: str = Field(description="Whose task it is of.")
    task_id: str


class DeadLetterLine(_OfTask):
    """A message that could not be processed."""

    seq: int = Field(description="The event of the task that it is; names it there.")
    mailbox: str = Field(description="The agent that it was for, `@` and a swarm, or `!` and a webhook.")
    sender: str
    subject: str
    msg_type: str
    reason: str
    attempts: int = Field(description="How often it was tried.")
    timestamp: str
    message_seq: int = Field(description="The event that announced the message.")
    task_status: TaskStatus


class DeadLetters(Answered):
    """Some dead letters."""

    dead_letters: list[DeadLetterLine]
    next_cursor: str | None = Field(description="The `cursor` of the next page; null on the last.")


class RedrivenLetter(_OfTask):
    """A dead letter that is processed again."""

    seq: int
    mailbox: str
    message_seq: int | None = Field(description="The event that announces the message again, if it is one.")
    waits: bool = Field(description="Whether it waits for somebody to resume the task.")


class FailedLetter(_OfTask):
    """A dead letter, or a task with some, of which nothing became; it stays on the list."""

    seq: int | None = Field(description="Null for all of the task.")
    mailbox: str | None
    reason: str


class RedrivenLetters(Answered):
    """What became of dead letters that were to be redriven."""

    redriven: list[RedrivenLetter]
    failed: list[FailedLetter]
    next_cursor: str | None = Field(
        description="Where to go on with `all`, as there are more; null at the end."
    )


class DiscardedLetter(_OfTask):
    """A dead letter that is off the list."""

    seq: int


class Discarded(Answered):
    """What became of dead letters that were to be discarded."""

    discarded: list[DiscardedLetter]
    failed: list[FailedLetter]
    next_cursor: str | None = Field(
        description="Where to go on with `all`, as there are more; null at the end."
    )
