"""What the server keeps about deletions: what nobody may delete, and the callers who are being deleted."""

from mail.core.protocol.values import Value
from mail.core.task.task import TaskKey


class LegalHold(Value):
    """A hold: nobody may delete a task of a caller, or all of the caller's if `task_id` is None; nor may its age.

    Attributes:
        by: the admin who has set it.
        since: when, in ISO 8601.
    """

    caller: str
    task_id: str | None = None
    reason: str
    by: str
    since: str

    @property
    def name(self) -> str:
        """The key of its document."""
        return self.caller if self.task_id is None else name_of(TaskKey(self.caller, self.task_id))


class CallerDeletion(Value):
    """The deletion of everything that the server stores about a caller.

    Attributes:
        by: the admin who has begun it, at the time `begun`, in ISO 8601.
        ended: when it ended, in ISO 8601; None before that.
        tasks: how many tasks are deleted.
        left: how many could not be deleted when it was their turn.
        problem: why, for one of these.
        claimed: until when a process works on it, in seconds since the epoch; it is renewed before each step.
    """

    caller: str
    by: str
    begun: str
    ended: str | None = None
    tasks: int = 0
    left: int = 0
    problem: str = ""
    claimed: float = 0.0

    def now(self, **changes: object) -> "CallerDeletion":
        """Return it with these changes."""
        return CallerDeletion.model_validate({**vars(self), **changes})


def name_of(key: TaskKey) -> str:
    """Return the name of a task among those of all callers."""
    return f"{key.instance}#{key.task_id}"
