"""Cancelling a task: first nothing new begins, then running work ends. Pure functions.

1. Requested: `cancel` ends the task and notifies the other swarms that take part. Its mail stays in the mailboxes until
   the task is resumed.
2. Stopped: every running turn has ended by `discard`, which keeps only its cost, and every other swarm has received
   the notice (`still_running` lists the rest).
"""

from collections.abc import Mapping

from mail.core.decisions.callbacks import drop_calls
from mail.core.protocol.address import Principal, create_system_address
from mail.core.protocol.values import value
from mail.core.task.change import TaskChange, Turn
from mail.core.task.costs import Usage
from mail.core.task.draft import Draft
from mail.core.task.events import EventKind
from mail.core.task.extras import Extra
from mail.core.task.leases import Claim, Lease, held
from mail.core.task.mailboxes import goes_out
from mail.core.task.task import Cancellation, Task, TaskStatus, Transition
from mail.core.task.turn_state import Checkpoint, Prepaid
from mail.errors import NotCancellable, Subject

MAX_REASON = 1000
"""The maximal length of the reason for cancelling, in characters."""


@value(kw_only=True)
class StillRunning:
    """The agents and swarms that have not stopped yet, of a cancelled task.

    Attributes:
        agents: agents with a running turn, which will be discarded.
        swarms: other swarms that have not received the notice yet.
    """

    agents: tuple[str, ...] = ()
    swarms: tuple[str, ...] = ()

    @property
    def is_stopped(self) -> bool:
        """Whether the task has stopped."""
        return not (self.agents or self.swarms)


def cancel(draft: Draft, caller: Principal, reason: str) -> TaskChange | None:
    """Cancel a running or paused task, the caller's own or, for an admin, another caller's.

    Return None if it is cancelled already. Raises NotCancellable.
    """
    if draft.status is TaskStatus.CANCELLED:
        return None
    if draft.has_ended:
        raise NotCancellable(f"task {draft.task_id!r} is {draft.status.value}; there is nothing to cancel")
    end(draft, caller, reason)
    return draft.seal()


def end(draft: Draft, caller: Principal, reason: str) -> None:
    """Cancel a task with what else is decided about it."""
    text = f"The task was cancelled by {caller.id}" + (f": {reason}" if reason else ".")
    draft.cancellation = Cancellation(
        requested=draft.timestamp, by=str(caller), reason=reason, seq=draft.before.seq
    )
    draft.emit(EventKind.TASK_CANCELLED, text)
    answers = draft.is_running
    draft.move(Transition.CANCEL)
    draft.stop(create_system_address(draft.swarm.name), Subject.TASK_CANCELLED, text, answers=answers)


def still_running(task: Task, leases: Mapping[str, Lease]) -> StillRunning:
    """Return the agents and swarms of a cancelled task that have not stopped yet; `leases` are by mailbox."""
    return StillRunning(
        agents=tuple(sorted(mailbox for mailbox in held(leases) if not goes_out(mailbox))),
        swarms=tuple(swarm for swarm, peer in task.peers.items() if peer.end_message),
    )


def is_discarded(task: Task, turn: Claim) -> bool:
    """Return whether the task has been cancelled since the turn began."""
    return task.cancellation is not None and turn.task.seq <= task.cancellation.seq


def discard(
    draft: Draft, turn: Turn, usage: Usage, models: Mapping[str, Usage], kept: Checkpoint | None = None
) -> TaskChange:
    """End a turn of a cancelled task; its message stays in the mailbox until the task is resumed.

    `kept` is the checkpoint from which the turn will then continue; its cost is not charged again.
    """
    draft.end_turn(turn, consume=False)
    usage, models = draft.before.unpaid(turn.mailbox, turn.entry.seq, usage, models)
    if usage:
        draft.charge(turn.mailbox, usage, models)
    if kept is not None:
        drop_calls(draft, turn.mailbox, kept)
    if kept is not None and kept.usage:
        paid = Prepaid(seq=turn.entry.seq, usage=kept.usage, models=kept.models)
        draft.prepaid = {**draft.prepaid, turn.mailbox: paid}
    draft.emit(
        EventKind.TURN_DISCARDED,
        f"the turn of agent {turn.mailbox} is discarded: the task was cancelled",
        Extra(agent=turn.mailbox, usage=usage or None),
    )
    return draft.seal()
