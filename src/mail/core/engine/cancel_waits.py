"""Calls and timers that wait, cancelled by callers."""

from collections.abc import Callable

from mail.core.decisions.callbacks import cancel_call
from mail.core.decisions.timers import cancel_timer
from mail.core.engine.admission import Admission
from mail.core.engine.commit import load_task
from mail.core.engine.wiring import Wiring
from mail.core.protocol.address import Principal
from mail.core.task.change import TaskChange
from mail.core.task.draft import Draft
from mail.core.task.task import Task, TaskKey
from mail.core.task.waits import Wait
from mail.core.turns.context import CURRENT_TASK


class CancelWaits:
    """Cancels calls and timers that wait."""

    def __init__(self, wiring: Wiring, admission: Admission) -> None:
        self._wiring = wiring
        self._admission = admission

    async def call(self, by: Principal, key: TaskKey, call_id: str) -> Task:
        """Cancel a call, and return its task. Raises TaskNotFound, and CallNotFound if it no longer waits."""
        return await self._cancel(by, key, call_id, cancel_call)

    async def timer(self, by: Principal, key: TaskKey, timer_id: str) -> Task:
        """Cancel a timer, and return its task. Raises TaskNotFound, and TimerNotFound if it no longer waits."""
        return await self._cancel(by, key, timer_id, cancel_timer)

    async def _cancel(
        self,
        by: Principal,
        key: TaskKey,
        wait_id: str,
        decide: Callable[[Draft, Wait | None, str, Principal], TaskChange],
    ) -> Task:
        CURRENT_TASK.set(key.task_id)
        wait: Wait | None = None

        async def load() -> Task:
            nonlocal wait
            task = await load_task(self._wiring.store, key)
            wait = await self._wiring.store.read_wait(key, wait_id)  # after the task, whose version guards it
            return task

        change = await self._admission.adopt(
            await load(), lambda task: decide(self._wiring.draft(task), wait, wait_id, by), reload=load
        )
        return change.task
