"""Wake-ups of mailboxes with mail: which ones a change needs, and their publication."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from mail.core.decisions.webhooks import called_by
from mail.core.task.callbacks import LaterCall
from mail.core.task.change import TaskChange
from mail.core.task.leases import AHEAD_SECONDS
from mail.core.task.mailboxes import CANCELLED_CALLS, agent_of, hook_mailbox, peer_of, poll_mailbox
from mail.core.task.ports import TurnQueue, WakeUp, look_at, wake_ups
from mail.core.task.task import Task
from mail.core.task.waits import NO_WAITS, Wait
from mail.errors import StoreUnavailable

logger = logging.getLogger(__name__)

IDLE_SECONDS = 1.0
"""Seconds before the next wake-up of a mailbox that was found empty although its task counts mail there."""


async def publish(queue: TurnQueue, needed: Sequence[WakeUp]) -> None:
    """Publish wake-ups for stored mail; if that fails, the mail is late but not lost."""
    if not needed:
        return
    try:
        await queue.publish(needed)
    except StoreUnavailable:
        logger.warning("wake-ups could not be published; the next sweep wakes their mailboxes")


def looks(task: Task, now: float) -> list[WakeUp]:
    """Return what has a task looked at when what it waits for is due soon; sweeps find what is due later."""
    due = task.waits.due
    return [] if due is None or due > now + AHEAD_SECONDS else [look_at(task.key, due)]


def after_turn(change: TaskChange) -> list[WakeUp]:
    """Return wake-ups for the turn's own mailbox if it has more mail, which is older, and for those that got some.

    If the turn was a copy's, which may be free now, also for what waits for a copy of its agent.
    """
    if change.response is not None:  # the task may have started its next generation, with all of its mail
        return wake_ups(change.task)
    touched = [entry.mailbox for entry in change.deliveries]
    if change.turn is not None:
        mailbox = change.turn.mailbox
        touched = [mailbox, agent_of(mailbox), *touched]
        if change.task.peers and (swarm := peer_of(mailbox)):
            touched.append(poll_mailbox(swarm))
    if change.task.webhooks:
        touched += map(hook_mailbox, called_by(change))
    waits = change.task.waits
    if waits is not NO_WAITS and (waits.see_at == 0.0 or any(map(_is_polled, change.waits))):
        touched.append(CANCELLED_CALLS)
    return wake_ups(change.task, dict.fromkeys(touched))


def _is_polled(wait: Wait) -> bool:
    return isinstance(wait, LaterCall) and wait.polled is not None


def of_idle(task: Task, empty: str, now: float) -> list[WakeUp]:
    """Return the wake-ups of a task in which a mailbox was found empty.

    If the task counts mail there, only its own, with a delay: two such mailboxes would wake each other for ever.
    """
    needed = wake_ups(task)
    own = [each for each in needed if each.mailbox == empty]
    return [replace(each, not_before=max(each.not_before, now + IDLE_SECONDS)) for each in own] or needed


def again(wake_up: WakeUp, now: datetime, quiet_for: float) -> WakeUp:
    """Return a wake-up that may have been published before, with a new cause for each doubling of its wait."""
    if not quiet_for:
        return wake_up
    waits = (now - datetime.fromisoformat(wake_up.since)).total_seconds() / quiet_for
    return replace(wake_up, cause=f"{wake_up.cause}~{int(waits).bit_length()}", overtakes=True)
