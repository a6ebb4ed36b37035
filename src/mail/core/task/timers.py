"""Timers: mail with a time. It gets its seq when it is due.

A decision sets one with `Draft.set_timer`, for any mailbox. When it is due, `mail.core.decisions.timers.fall_due` sends
its mail, in the commit that deletes its record; what else may follow is the business of who reads that mailbox. A task
whose timers wait is asleep, and costs nothing.
"""

from dataclasses import replace
from enum import StrEnum

from mail.core.protocol.values import value
from mail.core.task.size import OVERHEAD, text_size

MAX_TIMERS = 1_000
"""How many timers a task may have at the same time."""

MAX_TIMERS_IN_A_TURN = 32
"""How many of them one turn may set, so that its commit stays small."""

MAX_DELAYED = 100_000
"""Bytes of a message that is to be posted later."""


class TimerKind(StrEnum):
    """What is due: mail of the system, which the end of the task cancels; or a caller's message, posted only then."""

    REMINDER = "reminder"
    MESSAGE = "message"


@value(kw_only=True)
class Timer:
    """Mail with a time.

    Attributes:
        id: identifies it in its task; the ids of a task sort by time (`timer_id`).
        due: when its mail is sent, in seconds since the epoch.
        mailbox: who gets the mail: any mailbox, save for a message, whose submission says it.
        text: the body of the mail; of a message, its title.
        submission: the JSON of the submission that a message consists of.
        caller: the principal whose message it is.
        seq: the seq of the task when it was set.
        epoch: that of the task's waits when it was set.
        is_over: whether it has fired or was cancelled: its record is deleted.
    """

    id: str
    due: float
    kind: TimerKind = TimerKind.REMINDER
    mailbox: str = ""
    text: str = ""
    submission: str = ""
    caller: str = ""
    seq: int = 0
    epoch: int = 0
    is_over: bool = False

    @property
    def waits_until(self) -> float | None:
        """When it is due; None once it is over."""
        return None if self.is_over else self.due

    @property
    def is_of_caller(self) -> bool:
        """Whether it is a caller's message, which the end of the task doesn't cancel."""
        return self.kind is TimerKind.MESSAGE

    @property
    def size(self) -> int:
        """The size of its record (`mail.core.task.size`)."""
        return OVERHEAD + text_size(self.text) + text_size(self.submission)

    def ended(self) -> "Timer":
        """Return it as it is deleted."""
        return replace(self, is_over=True)


TIMER_MARK = "t"
"""The first character of a timer's id, which no digest of a callback contains."""


def timer_id(due: float, unique: str) -> str:
    """Return an id that sorts by time, given a unique one."""
    return f"{TIMER_MARK}{round(due * 1000):012x}{unique.replace('-', '')[-12:]}"
