"""Recovery: turns of workers that are gone, mail whose wake-ups were lost, and tasks whose time is up."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from math import inf

from mail.core.decisions.turn import expire
from mail.core.engine.commit import Committer, load_task
from mail.core.engine.turns import Turns
from mail.core.engine.wake_ups import again, publish
from mail.core.engine.wiring import Wiring
from mail.core.task.callbacks import LaterCall
from mail.core.task.ports import wake_ups
from mail.core.task.task import Task, TaskKey
from mail.core.turns.context import CURRENT_TASK
from mail.errors import MAILError

logger = logging.getLogger(__name__)


class Recovery:
    """Resumes what a crash, a lost wake-up or a deadline has left behind."""

    def __init__(self, wiring: Wiring, turns: Turns) -> None:
        self._wiring = wiring
        self._turns = turns
        self._committer = Committer(wiring.store)

    async def take_over(self) -> int:
        """Wake the mailboxes whose workers are dead, frozen or cut off; return the number of their turns."""
        wiring = self._wiring
        found = await wiring.store.take_expired(wiring.swarm.name, now=wiring.now())
        expired = [each for each in found if not self._turns.runs(each.lease)]
        self._turns.note_taken_over(expired)
        await publish(
            wiring.queue,
            [
                replace(wake_up, cause=each.lease.token, overtakes=True)
                for each in expired
                for wake_up in wake_ups(each.task)
                if wake_up.mailbox == each.mailbox
            ],
        )
        return len(expired)

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

    async def expire_overdue(self) -> None:
        """Do what is due: end the running tasks whose deadline has passed, and wake turns whose park is over."""
        wiring = self._wiring
        for key in filter(wiring.serves, await wiring.store.list_due(wiring.now())):
            CURRENT_TASK.set(key.task_id)
            try:
                await self._expire(key)
            except MAILError:  # the failure of one task must not prevent that of the rest
                logger.exception("task %s is due, and could not be ended or woken", key.task_id)

    async def _expire(self, key: TaskKey) -> None:
        wiring, now = self._wiring, self._wiring.now()
        calls: Sequence[LaterCall] = ()

        async def load() -> Task:
            nonlocal calls
            task = await load_task(wiring.store, key)
            due = task.open_calls.due
            if due is not None and due <= now:
                calls = await wiring.store.read_waiting_calls(key)
            return task

        task = await load()
        change = await self._committer.commit(
            lambda task: expire(task, wiring.swarm, None, wiring.clock, calls), task, reload=load
        )
        if change is None:
            ended = await wiring.store.end_parks(task, now=now)
            await publish(wiring.queue, [replace(each, cause="") for each in wake_ups(task, ended)])
        else:
            wiring.observe(change)
            await publish(wiring.queue, wake_ups(change.task))  # all, as the task may have resumed
