"""What tasks have cost, added up: in all, and by agent, model and caller (SPEC, section 8)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pydantic import Field

from mail.core.task.task import Task
from mail.core.task.usage import NO_USAGE, Usage
from mail.errors import BadRequest
from mail.http.schemas import Answered


class TaskCost(Answered):
    """What one task has cost."""

    task_id: str
    caller: str
    started: str
    title: str | None
    usage: Usage


class UsageReport(Answered):
    """What the language models behind some tasks were paid, in all the generations of these."""

    tasks: int = Field(description="How many tasks this is about, those without a call of a model included.")
    total: Usage
    agents: dict[str, Usage] = Field(description="Per agent that has called a model.")
    models: dict[str, Usage] = Field(
        description="Per model; `other` for those without a name, and of each task for those past the first 32."
    )
    callers: dict[str, Usage] = Field(description="Per owner of tasks: `role:id@swarm`.")
    since: str | None = Field(description="As it was asked for.")
    until: str | None
    cursor: str | None = Field(description="Goes on with further tasks, where there may be any: add them up.")
    per_task: list[TaskCost] | None = Field(
        default=None, description="Each task that has called a model, where `per_task` asked for it."
    )


@dataclass(frozen=True, slots=True)
class Period:
    """The tasks that began in it count: from `since` on, and before `until`."""

    since: datetime | None = None
    until: datetime | None = None

    def holds(self, began: datetime) -> bool:
        """Whether a task counts that began then."""
        return (self.since is None or began >= self.since) and (self.until is None or began < self.until)


def read_moment(text: str | None, name: str) -> datetime | None:
    """A time in ISO 8601; without an offset it is in UTC. Raises BadRequest."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadRequest(
            f"{name} must be a date or time in ISO 8601, such as 2026-01-31 or 2026-01-31T08:00:00Z; "
            "in a URL, write + as %2B"
        ) from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def began(task: Task) -> datetime:
    """When a task began."""
    return datetime.fromisoformat(task.started)


@dataclass(slots=True)
class Bill:
    """Adds tasks up; `itemized` keeps each of them as well."""

    itemized: bool = False
    _tasks: int = 0
    _total: Usage = NO_USAGE
    _agents: dict[str, Usage] = field(default_factory=dict)
    _models: dict[str, Usage] = field(default_factory=dict)
    _callers: dict[str, Usage] = field(default_factory=dict)
    _items: list[TaskCost] = field(default_factory=list)

    def add(self, task: Task) -> None:
        """Take in a task."""
        self._tasks += 1
        cost = sum(task.usage.values(), NO_USAGE)
        if not cost:
            return
        self._total += cost
        _add(self._agents, task.usage)
        _add(self._models, task.models)
        _add(self._callers, {task.instance: cost})
        if self.itemized:
            self._items.append(
                TaskCost(
                    task_id=task.task_id,
                    caller=task.instance,
                    started=task.started,
                    title=task.title,
                    usage=cost,
                )
            )

    def report(self, period: Period, cursor: str | None) -> UsageReport:
        """What they have come to."""
        return UsageReport(
            tasks=self._tasks,
            total=self._total,
            agents=self._agents,
            models=self._models,
            callers=self._callers,
            since=None if period.since is None else period.since.isoformat(),
            until=None if period.until is None else period.until.isoformat(),
            cursor=cursor,
            per_task=self._items if self.itemized else None,
        )


def _add(sums: dict[str, Usage], more: Mapping[str, Usage]) -> None:
    for name, usage in more.items():
        sums[name] = sums.get(name, NO_USAGE) + usage
