"""Timers, cancelled by callers."""

from mail.core.decisions.timers import cancel_timer
from mail.core.engine.admission import Admission
from mail.core.engine.commit import load_task
from mail.core.engine.wiring import Wiring
from mail.core.protocol.address import Principal
from mail.core.task.task import Task, TaskKey
from mail.core.task.timers import Timer
from mail.core.turns.context import CURRENT_TASK


class Timers:
    """Cancels timers."""

    def __init__(self, wiring: Wiring, admission: Admission) -> None:
        self._wiring = wiring
        self._admission = admission

    async def cancel(self, caller: Principal, key: TaskKey, timer_id: str) -> Task:
        """Cancel a timer, and return its task. Raises TaskNotFound, and TimerNotFound if it no longer waits."""
        wiring = self._wiring
        CURRENT_TASK.set(key.task_id)
        timer: Timer | None = None

        async def load() -> Task:
            nonlocal timer
            task = await load_task(wiring.store, key)
            wait = await wiring.store.read_wait(key, timer_id)  # after the task, whose version guards it
            timer = wait if isinstance(wait, Timer) else None
            return task

        change = await self._admission.adopt(
            await load(),
            lambda task: cancel_timer(task, wiring.swarm_of(task), timer, timer_id, caller, wiring.clock),
            reload=load,
        )
        return change.task
