"""Schedules: messages that the server posts by itself, as a caller, at the times of a cron expression.

A schedule is a task that belongs to the server and to no caller. It has no agents and no mail: it is due at its next
time. Its state changes by commits without events, which stores amend, so that it doesn't grow with its runs.
"""

from dataclasses import replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

from pydantic import Field, StringConstraints

from mail.core.protocol.cron import check_cron
from mail.core.protocol.values import Value, value
from mail.errors import BadRequest

HISTORY = 10
"""The ended runs that a schedule remembers."""

MAX_WAITING = 24
"""Maximum number of runs of a schedule that wait for the one before to end, and of missed runs that are made up for."""

MAX_SCHEDULES = 100
"""The schedules that one caller may have."""

FAILING = 3
"""The failures in a row from which on a schedule counts as failing."""

MAX_REASON = 300
"""Characters of the reason of a failed run."""

ScheduleName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]


class Overlap(StrEnum):
    """What happens at a time when the last run has not ended: no run, a run after it, or the last one is cancelled."""

    SKIP = "skip"
    QUEUE = "queue"
    CANCEL = "cancel"


class Missed(StrEnum):
    """Which times a server makes up for after nobody was there to begin a run: the last, none, or all."""

    ONCE = "once"
    SKIP = "skip"
    ALL = "all"


class Schedule(Value):
    """A schedule as its owner has written it."""

    name: ScheduleName
    cron: Annotated[str, StringConstraints(min_length=1, max_length=200)] = Field(
        description="When it runs: minute, hour, day, month and weekday, such as `30 8 * * mon-fri`."
    )
    timezone: Annotated[str, StringConstraints(min_length=1, max_length=64)] = Field(
        default="UTC", description="The time zone of `cron`, such as `Europe/Berlin`."
    )
    entrypoint: str | None = Field(
        default=None, description="The agent to write to; null for the swarm's entrypoint."
    )
    subject: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = Field(
        default=None, description="The subject of the message; null for the name of the schedule."
    )
    body: Annotated[str, StringConstraints(min_length=1, max_length=16_000)] = Field(
        description="The message."
    )
    caller: Annotated[str, StringConstraints(min_length=1, max_length=512)] = Field(
        description="The user or admin who owns the tasks: `role:id` or `role:id@swarm`."
    )
    overlap: Overlap = Field(
        default=Overlap.SKIP,
        description="If the last run has not ended: `skip` this one, `queue` it, or `cancel` the last one.",
    )
    missed: Missed = Field(
        default=Missed.ONCE,
        description="Which times the server makes up for after it was down: the last one (`once`), none "
        f"(`skip`), or `all`, the last {MAX_WAITING} at most, one after the other.",
    )
    enabled: bool = Field(default=True, description="Whether it runs by itself.")

    def of_caller(self, caller: str) -> "Schedule":
        """Return it with another name of its caller."""
        return Schedule(**{**vars(self), "caller": caller})

    def check(self) -> None:
        """Raise BadRequest, with what to change, if it can't run. It isn't checked again when it is read."""
        check_cron(self.cron, self.timezone)
        if self.missed is Missed.ALL and self.overlap is not Overlap.QUEUE:
            raise BadRequest(
                'missed = "all" runs one after the other: set overlap = "queue", or missed = "once"'
            )


class RunState(StrEnum):
    """How far a run has come; one that is STARTING may not have its task yet, one that was SKIPPED has none."""

    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"


OPEN = (RunState.WAITING, RunState.STARTING, RunState.RUNNING)
"""The states of a run that has not ended."""


@value
class ScheduledRun:
    """A run of a schedule.

    Attributes:
        at: the time that it is for, in seconds since the epoch.
        reason: why it failed or was skipped.
    """

    at: float
    state: RunState
    reason: str = ""

    def task_id(self, name: str) -> str:
        """Return the id of its task, which schedule and time determine, so that all servers begin the same one."""
        time = datetime.fromtimestamp(self.at, UTC)
        return f"{name}@{time:%Y-%m-%dT%H:%M:%SZ}".replace(":00Z", "Z")

    def now(self, state: RunState, reason: str = "") -> "ScheduledRun":
        """Return it in another state."""
        return replace(self, state=state, reason=reason[:MAX_REASON])


@value(kw_only=True)
class ScheduleState:
    """A schedule, and what has become of it.

    Attributes:
        declared: whether it is declared in `mail.toml`, and can't be changed elsewhere.
        by: who has changed it last.
        next: when it runs next, in seconds since the epoch; None while it is disabled.
        look: when its open runs are looked at again; None if there are none.
        runs: those that have not ended, and the last of the others, oldest first.
        failures: the failed runs since one was completed.
    """

    spec: Schedule
    declared: bool = False
    by: str = ""
    next: float | None = None
    look: float | None = None
    runs: tuple[ScheduledRun, ...] = ()
    failures: int = 0

    @property
    def due(self) -> float | None:
        """When something must happen, in seconds since the epoch; None for never."""
        times = [run.at for run in self.runs if run.state is RunState.STARTING]
        times += [time for time in (self.next, self.look) if time is not None]
        return min(times, default=None)

    def of(self, *states: RunState) -> list[ScheduledRun]:
        """Return the runs in these states."""
        return [run for run in self.runs if run.state in states]

    def with_run(self, run: ScheduledRun) -> "ScheduleState":
        """Return it with a run in place of the one at its time, or as the newest; old ones are forgotten."""
        known = {each.at: each for each in self.runs} | {run.at: run}
        ended = [at for at, each in known.items() if each.state not in OPEN]
        for at in ended[:-HISTORY]:
            del known[at]
        return replace(self, runs=tuple(known.values()))


def owner_of_schedules(swarm: str) -> str:
    """Return the instance of the schedules of a swarm; it is no caller's, as those are `role:id@swarm`."""
    return f"schedules@{swarm}"
