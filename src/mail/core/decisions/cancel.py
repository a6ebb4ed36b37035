"""Cancelling a task: first nothing new begins, then what still runs comes to its end. Pure functions.

1. Requested: `cancel` ends the task. Its mail stays where it is until somebody resumes the task, and the other swarms
   that have a part in it are sent word.
2. Stopped: a turn that was being run ends by `discard`, which keeps nothing of it but what it has cost; and the other
   swarms have taken the word (`still_running` tells what is not there yet).
"""

from collections.abc import Mapping

from mail.core.protocol.address import Principal, create_system_address
from mail.core.protocol.clock import Clock
from mail.core.protocol.values import Value
from mail.core.task.change import Claim, Lease, TaskChange, Turn
from mail.core.task.draft import Draft
from mail.core.task.events import EventKind
from mail.core.task.interswarm import goes_out
from mail.core.task.swarm import SwarmCore
from mail.core.task.task import Cancellation, Checkpoint, Prepaid, Task, TaskStatus, Transition
from mail.core.task.usage import Usage
from mail.errors import NotCancellable, Subject

MAX_REASON = 1000
"""Characters of the reason for cancelling that are kept."""


class StillRunning(Value):
    """What a cancelled task waits for, until it counts as stopped.

    Attributes:
        agents: those whose turn is still being run; what comes of it is thrown away.
        swarms: those that have not taken the word yet that the task is over.
    """

    agents: tuple[str, ...] = ()
    swarms: tuple[str, ...] = ()

    @property
    def is_stopped(self) -> bool:
        """Whether nothing is left."""
        return not (self.agents or self.swarms)


def cancel(task: Task, swarm: SwarmCore, caller: Principal, reason: str, clock: Clock) -> TaskChange | None:
    """End a task that runs or is paused; None where it is cancelled already. Raises NotCancellable."""
    if task.status is TaskStatus.CANCELLED:
        return None
    if task.status not in (TaskStatus.RUNNING, TaskStatus.PAUSED):
        raise NotCancellable(f"task {task.task_id!r} is {task.status.value}; there is nothing to cancel")
    draft = Draft(task, swarm, clock)
    text = f"The task was cancelled by {caller.id}" + (f": {reason}" if reason else ".")
    draft.updates["cancellation"] = Cancellation(
        requested=draft.timestamp, by=str(caller), reason=reason, seq=task.seq
    )
    draft.emit(EventKind.TASK_CANCELLED, text)
    answers = draft.is_running
    draft.move(Transition.CANCEL)
    draft.stop(create_system_address(swarm.name), Subject.TASK_CANCELLED, text, answers=answers)
    return draft.seal()


def still_running(task: Task, leases: Mapping[str, Lease]) -> StillRunning:
    """What a cancelled task waits for; `leases` are those that are held now, by mailbox."""
    return StillRunning(
        agents=tuple(sorted(mailbox for mailbox in leases if not goes_out(mailbox))),
        swarms=tuple(swarm for swarm, contact in task.contacts.items() if contact.ending),
    )


def is_discarded(task: Task, turn: Claim) -> bool:
    """Whether the task has been cancelled since the turn began."""
    return task.cancellation is not None and turn.task.seq <= task.cancellation.seq


def discard(
    task: Task,
    swarm: SwarmCore,
    turn: Turn,
    usage: Usage,
    models: Mapping[str, Usage],
    clock: Clock,
    kept: Checkpoint | None = None,
) -> TaskChange:
    """End a turn of a task that has been cancelled; its message stays, for when the task is resumed.

    `kept` is the checkpoint from which the turn will go on then; what that says was paid is not charged again.
    """
    draft = Draft(task, swarm, clock)
    draft.end_turn(turn, consume=False)
    usage, models = task.owes(turn.mailbox, turn.entry.seq, usage, models)
    if usage:
        draft.updates |= task.charged(turn.mailbox, usage, models)
    if kept is not None and kept.usage:
        paid = Prepaid(seq=turn.entry.seq, usage=kept.usage, models=kept.models)
        draft.updates["prepaid"] = {**task.prepaid, turn.mailbox: paid}
    extra = {"usage": usage.model_dump()} if usage else {}
    draft.emit(
        EventKind.TURN_DISCARDED,
        f"what agent {turn.mailbox} was doing is discarded: the task was cancelled",
        agent=turn.mailbox,
        **extra,
    )
    return draft.seal()
