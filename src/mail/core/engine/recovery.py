"""Recovery: turns of workers that are gone, mail whose wake-ups were lost, and tasks whose time is up."""

import asyncio
import logging
from collections.abc import Container, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import batched
from math import inf

from mail.core.decisions.turn import expire
from mail.core.engine.commit import Committer, load_task
from mail.core.engine.schedules import Schedules
from mail.core.engine.turns import Turns
from mail.core.engine.waits import first_waits
from mail.core.engine.wake_ups import again, looks, publish
from mail.core.engine.wiring import Wiring
from mail.core.protocol.values import value
from mail.core.task.leases import QUIET_SECONDS, DueTask, ExpiredLease
from mail.core.task.ports import WakeUp, look_at, wake_ups
from mail.core.task.task import Task, TaskKey
from mail.core.task.waits import MOST_ENDED, Wait
from mail.core.turns.context import CURRENT_TASK
from mail.errors import MAILError

AT_ONCE = 20
"""How many tasks a sweep looks after at the same time."""

logger = logging.getLogger(__name__)


@value
class Swept:
    """What a sweep has done: how many turns of workers that are gone it has woken, and how many other mailboxes."""

    taken_over: int = 0
    waiting: int = 0

    def __add__(self, other: "Swept") -> "Swept":
        return Swept(self.taken_over + other.taken_over, self.waiting + other.waiting)


@value
class Found:
    """What is to be done for a task.

    Attributes:
        taken_over: the turns of workers that are gone.
        waiting: how many of the wake-ups are for mail that has waited for long.
    """

    taken_over: Sequence[ExpiredLease] = ()
    wake_ups: Sequence[WakeUp] = ()
    waiting: int = 0


class Recovery:
    """Resumes what a crash, a lost wake-up or a deadline has left behind."""

    def __init__(self, wiring: Wiring, turns: Turns, schedules: Schedules) -> None:
        self._wiring = wiring
        self._turns = turns
        self._schedules = schedules

    async def recover(self, *, quiet_for: float = 0.0) -> int:
        """Wake all mailboxes with mail: after a restart, or when wake-ups may have been lost.

        Only in tasks without a change for `quiet_for` seconds; the mail of the rest is being processed. Mail that
        waits in a long queue has a wake-up already, and more of them would fill the queue: so each wait has to be
        twice as long as the one before. Returns the number of wake-ups.
        """
        wiring = self._wiring
        now = wiring.clock.now()
        quiet_since = (now - timedelta(seconds=quiet_for)).isoformat() if quiet_for else None
        ready = await wiring.store.list_ready(
            quiet_since=quiet_since, now=now.timestamp() if quiet_for else inf
        )
        woken = [again(wake_up, now, quiet_for) for wake_up in ready if wiring.serves(wake_up.key)]
        await wiring.queue.publish(woken)
        return len(woken)

    async def sweep(self, *, ahead: float = 0.0, quiet_for: float = QUIET_SECONDS) -> Swept:
        """Look after the tasks that are due, and have those looked at in time that will be within `ahead` seconds.

        Their mail is woken, too, if the task has not changed for `quiet_for` seconds and nobody processes it.
        """
        wiring, swept = self._wiring, Swept()
        due = await wiring.store.list_due(wiring.now() + ahead)
        for tasks in batched([each for each in due if wiring.serves(each.task.key)], AT_ONCE):
            found = await asyncio.gather(*(self._try(each, ahead, quiet_for) for each in tasks))
            swept += await self._wake(found)
        if wiring.versions is not None:
            await wiring.versions.delete_unused(wiring.store)
        return swept

    async def look_after(self, key: TaskKey) -> None:
        """Do what is due in a task. Raises TaskNotFound."""
        store = self._wiring.store
        task, leases = await load_task(store, key), await store.read_leases(key, now=0.0)
        await self._wake([await self._look_after(DueTask(task, leases), 0.0, QUIET_SECONDS)])

    async def _wake(self, found: Sequence[Found]) -> Swept:
        """Wake what was found in some tasks."""
        taken_over = [lease for each in found for lease in each.taken_over]
        self._turns.note_taken_over(taken_over)
        await publish(self._wiring.queue, [wake_up for each in found for wake_up in each.wake_ups])
        return Swept(len(taken_over), sum(each.waiting for each in found))

    async def _try(self, due: DueTask, ahead: float, quiet_for: float) -> Found:
        CURRENT_TASK.set(due.task.task_id)
        try:
            return await self._look_after(due, ahead, quiet_for)
        except MAILError:  # the failure of one task must not prevent that of the rest
            logger.exception("task %s is due, and could not be looked after", due.task.task_id)
            return Found()

    async def _look_after(self, due: DueTask, ahead: float, quiet_for: float) -> Found:
        """Do what is due in a task (`Task.deadline`), and otherwise end its leases and parks that have expired."""
        wiring, now = self._wiring, self._wiring.now()
        if due.task.schedule is not None:
            due = replace(due, task=await self._schedules.advance(due.task))
        waits: Sequence[Wait] | None = None

        async def load(task: Task | None = None) -> Task:
            """Return the present task, and read what may be due in it: later, as its version guards that."""
            nonlocal waits
            task = task or await load_task(wiring.store, due.task.key)
            await wiring.prepare(task)
            if task.waits.is_due(now):
                waits = await first_waits(wiring.store, task, MOST_ENDED + 1)
            return task

        change = await Committer(wiring.store).commit(
            lambda task: expire(wiring.draft(task), None, waits),
            await load(due.task),
            reload=load,
        )
        if change is not None:
            wiring.observe(change)
            woken = wake_ups(change.task)  # all, as the task may have resumed
            # one commit ends only some of what is due
            return Found(wake_ups=[*woken, *looks(change.task, now)])
        ended = {each.mailbox: each for each in await wiring.store.end_expired(due, now=now)}
        parked = [mailbox for mailbox, each in ended.items() if each.lease.park is not None]
        taken_over = {
            mailbox: each
            for mailbox, each in ended.items()
            if each.lease.park is None and not self._turns.runs(each.lease)
        }
        waiting = self._waiting(due, ended, now, quiet_for)
        woken = [
            *(replace(wake_up, cause="") for wake_up in wake_ups(due.task, parked)),
            *(
                replace(wake_up, cause=taken_over[wake_up.mailbox].lease.token, overtakes=True)
                for wake_up in wake_ups(due.task, taken_over)
            ),
            *waiting,
        ]
        if now < due.due <= now + ahead:
            woken.append(look_at(due.task.key, due.due))
        return Found([*taken_over.values()], woken, len(waiting))

    def _waiting(self, due: DueTask, ended: Container[str], now: float, quiet_for: float) -> list[WakeUp]:
        """Return the wake-ups of mail that nobody processes, and that has waited for long."""
        then = self._wiring.clock.now()
        if due.task.updated >= (then - timedelta(seconds=quiet_for)).isoformat():
            return []
        return [
            again(wake_up, then, quiet_for)
            for wake_up in wake_ups(due.task)
            if wake_up.mailbox not in ended and not due.is_leased(wake_up.mailbox, now)
        ]
