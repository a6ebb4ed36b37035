"""What a task waits for besides mail: calls that finish later, and timers.

Each is a record of its own, written by the commit that lets it wait and by the one that ends it. The task has what
decisions need: how many there are, of whom, and when the first of them is due.
"""

from collections.abc import Iterator, Mapping
from dataclasses import field, replace

from mail.core.protocol.values import value
from mail.core.task.callbacks import LaterCall
from mail.core.task.timers import Timer

type Wait = LaterCall | Timer

MOST_ENDED = 40
"""How many calls and timers end in one commit because they are due, or were cancelled with their task."""


@value(kw_only=True)
class Waits:
    """What a task knows of its open calls and its timers.

    Attributes:
        calls: the number of calls, by agent and action.
        reminders: the number of timers with mail of the system, by mailbox.
        messages: the number of messages that callers have posted for later.
        due: a time before which none of them is due; None if there are none.
        epoch: counts the ends of the task; calls and reminders of an earlier epoch are cancelled.
        early: the digest of each call that has ended before its turn was committed, and the message of that turn.
        warned: whether a supervisor knows that completing the task cancels them.
        cancel_at: when to see to what the end of the task has cancelled (`mail.core.engine.cancelled_calls`), in
            seconds since the epoch; None if that is done.
        poll_at: when the first call is to be asked about whose result a server has, and 0 if guards have a result to
            judge; None if there is neither.
    """

    calls: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    reminders: Mapping[str, int] = field(default_factory=dict)
    messages: int = 0
    due: float | None = None
    epoch: int = 0
    early: tuple[tuple[str, int], ...] = ()
    warned: bool = False
    cancel_at: float | None = None
    poll_at: float | None = None

    def __deepcopy__(self, _memo: object) -> "Waits":
        """Return itself: pydantic would copy the default for every task that it reads, a fifth of that time."""
        return self

    @property
    def see_at(self) -> float | None:
        """When calls are to be cancelled or asked about, in seconds since the epoch; None for never."""
        if self.poll_at is None:
            return self.cancel_at
        return self.poll_at if self.cancel_at is None else min(self.cancel_at, self.poll_at)

    @property
    def open_calls(self) -> int:
        """The number of calls."""
        return sum(sum(names.values()) for names in self.calls.values())

    @property
    def timers(self) -> int:
        """The number of timers."""
        return sum(self.reminders.values()) + self.messages

    @property
    def end_with_task(self) -> bool:
        """Whether any of them ends with the task: all do but the messages of callers."""
        return bool(self.calls or self.reminders)

    def is_due(self, now: float) -> bool:
        """Return whether one of them may be due."""
        return self.due is not None and self.due <= now

    def includes(self, agent: str) -> bool:
        """Return whether mail will come to an agent from one of its own, or to anybody from a caller."""
        return agent in self.calls or agent in self.reminders or self.messages > 0

    def added(self, wait: Wait) -> "Waits":
        """Return them with one more."""
        due = wait.due if self.due is None else min(self.due, wait.due)
        poll_at, polled = self.poll_at, wait.polled if isinstance(wait, LaterCall) else None
        if polled is not None:
            poll_at = polled.at if poll_at is None else min(poll_at, polled.at)
        return replace(self._counted(wait, 1), due=due, warned=False, poll_at=poll_at)

    def removed(self, wait: Wait) -> "Waits":
        """Return them without one of them."""
        left = self._counted(wait, -1)
        return left if left.end_with_task or left.messages else replace(left, due=None, poll_at=None)

    def dropped(self, *, messages: bool) -> "Waits":
        """Return what the end of their task leaves: at most the `messages` of callers."""
        kept = 0 if messages else self.messages
        left = Waits(messages=kept, due=self.due if kept else None, epoch=self.epoch + 1, early=self.early)
        is_any_cancelled = self.end_with_task or kept < self.messages
        return replace(left, cancel_at=0.0 if is_any_cancelled else self.cancel_at)

    def until(self, due: float | None) -> "Waits":
        """Return them when the first of them is due; None says that there are none, whatever was counted."""
        if due is not None:
            return replace(self, due=due)
        return Waits(epoch=self.epoch, early=self.early, cancel_at=self.cancel_at)

    def in_words(self) -> str:
        """List those that end with the task: `2 calls of render (researcher); a reminder (chief)`."""
        return "; ".join(
            f"{self.of(agent)} ({agent})" for agent in dict.fromkeys((*self.calls, *self.reminders))
        )

    def of(self, agent: str) -> str:
        """List those of an agent: `2 calls of render, a reminder`."""
        return ", ".join(self._names_of(agent))

    def _names_of(self, agent: str) -> Iterator[str]:
        for name, count in self.calls.get(agent, {}).items():
            yield f"{'a call' if count == 1 else f'{count} calls'} of {name}"
        if count := self.reminders.get(agent, 0):
            yield "a reminder" if count == 1 else f"{count} reminders"

    def _counted(self, wait: Wait, change: int) -> "Waits":
        match wait:
            case LaterCall():
                of_agent = _counted(self.calls.get(wait.agent, {}), wait.name, change)
                others = {agent: names for agent, names in self.calls.items() if agent != wait.agent}
                return replace(self, calls={**others, wait.agent: of_agent} if of_agent else others)
            case Timer(is_of_caller=True):
                return replace(self, messages=max(0, self.messages + change))
            case Timer():
                return replace(self, reminders=_counted(self.reminders, wait.mailbox, change))


NO_WAITS = Waits()


def _counted(counts: Mapping[str, int], name: str, change: int) -> dict[str, int]:
    """Return the counts with one of them changed, and without those that are 0."""
    counts = {**counts, name: counts.get(name, 0) + change}
    return {each: count for each, count in counts.items() if count > 0}
