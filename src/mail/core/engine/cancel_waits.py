"""Calls and timers that wait, cancelled by callers."""

from collections.abc import Callable

from mail.core.decisions.callbacks import cancel_call
from mail.core.decisions.timers import cancel_timer
from mail.core.engine.admission import Admission
from mail.core.engine.commit import load_task
from mail.core.engine.wiring import Wiring
from mail.core.protocol.address import Principal
from mail.core.task.callbacks import LaterCall
from mail.core.task.change import TaskChange
from mail.core.task.task import Task, TaskKey
from mail.core.task.timers import Timer
from mail.core.task.waits import Wait
from mail.core.turns.context import CURRENT_TASK


class CancelWaits:
    """Cancels calls and timers that wait."""

    def __init__(self, wiring: Wiring, admission: Admission) -> None:
        self._wiring = wiring
        self._admission = admission

    async def call(self, by: Principal, key: TaskKey, call_id: str) -> Task:
        """Cancel a call, and return its task. Raises TaskNotFound, and CallNotFound if it no longer waits."""

        def decide(task: Task, wait: Wait | None) -> TaskChange:
            call = wait if isinstance(wait, LaterCall) else None
            return cancel_call(self._wiring.draft(task), call, call_id, by)

        return await self._cancel(key, call_id, decide)

    async def timer(self, by: Principal, key: TaskKey, timer_id: str) -> Task:
        """Cancel a timer, and return its task. Raises TaskNotFound, and TimerNotFound if it no longer waits."""

        def decide(task: Task, wait: Wait | None) -> TaskChange:
            timer = wait if isinstance(wait, Timer) else None
            return cancel_timer(self._wiring.draft(task), timer, timer_id, by)

        return await self._cancel(key, timer_id, decide)

    async def _cancel(
        self, key: TaskKey, wait_id: str, decide: Callable[[Task, Wait | None], TaskChange]
    ) -> Task:
        CURRENT_TASK.set(key.task_id)
        wait: Wait | None = None

        async def load() -> Task:
            nonlocal wait
            task = await load_task(self._wiring.store, key)
            wait = await self._wiring.store.read_wait(key, wait_id)  # after the task, whose version guards it
            return task

        change = await self._admission.adopt(await load(), lambda task: decide(task, wait), reload=load)
        return change.task
