"""A task beside its fork: what each came to after the event at which they part. Pure functions."""

from collections.abc import Iterable
from datetime import datetime

from mail.core.decisions.items import Answer, Failed, Item, Turn, Work
from mail.core.decisions.runs import Run, after
from mail.core.protocol.values import value
from mail.core.task.costs import NO_USAGE
from mail.core.task.events import Event
from mail.core.task.task import ENDED, TaskStatus

MOST_LINES = 500
"""Lines of an answer up to which it is compared with another one: a comparison costs the product of both."""


@value(kw_only=True)
class Outcome:
    """What a task came to in one run; `calls` are those of models, and `seconds` those in which agents worked."""

    status: TaskStatus = TaskStatus.RUNNING
    answer: str | None = None
    turns: int = 0
    calls: int = 0
    cost: float = 0.0
    unpriced_calls: int = 0
    seconds: float = 0.0


class OutcomeReader:
    """Reads the events of a task past those that it shares with another one, with their items, until the run has ended.

    `since` is when the last of these was, in ISO 8601. A run that has not ended has the `status` of the task.
    """

    def __init__(self, since: str, status: TaskStatus) -> None:
        self._run: Run | None = None
        self._status = status
        self._since = datetime.fromisoformat(since)
        self._turns: dict[str, Turn] = {}
        self._works: dict[str, Work] = {}
        self._answer: str | None = None

    def read(self, event: Event, items: Iterable[Item]) -> bool:
        """Read an event and the items that it has changed. Returns False if it begins another run, and isn't read."""
        run = after(self._run, event)
        if run.number > 1:
            return False
        self._run = run
        for item in items:
            match item:
                case Turn():
                    self._turns[item.id] = item
                case Work():
                    self._works[item.id] = item
                case Answer() | Failed():
                    self._answer = item.text
        return True

    @property
    def outcome(self) -> Outcome:
        """What the run has come to."""
        usage = sum((turn.usage for turn in self._turns.values() if turn.usage), NO_USAGE)
        known = self._run.status if self._run else TaskStatus.RUNNING
        status = self._status if known is TaskStatus.RUNNING else known
        return Outcome(
            status=status,
            answer=self._answer if status in ENDED else None,
            turns=len(self._turns),
            calls=usage.calls,
            cost=usage.cost,
            unpriced_calls=usage.unpriced_calls,
            seconds=round(sum(map(self._seconds, self._works.values())), 3),
        )

    def _seconds(self, work: Work) -> float:
        begin, end = datetime.fromisoformat(work.time), datetime.fromisoformat(work.ended or work.last)
        return max(0.0, (end - max(begin, self._since)).total_seconds())


def differences(before: Outcome, after: Outcome) -> str:
    """Return the answers' differences as a unified diff; empty if they are equal, too long, or one is missing."""
    from difflib import unified_diff

    old, new = ((each.answer or "").splitlines() for each in (before, after))
    if before.answer is None or after.answer is None or max(len(old), len(new)) > MOST_LINES:
        return ""
    return "\n".join(unified_diff(old, new, "before", "after", lineterm=""))
