"""The engine: the only place that performs what the pure functions decide.

submit ── admit() ──► commit ──► publish          a caller's message enters a task (`admission`)
run_turn ─ open ─► agent, actions ─ settle() ─► commit ──► publish          an agent takes its turn (`turns`)
sweep, recover ──► publish                        what others have left behind is resumed (`recovery`)
wait, watch ◄── read_events, read_response        callers follow a task (`watch`)
"""

from dataclasses import dataclass
from functools import partial

from mail.core.decisions.cancel import StillRunning, still_running
from mail.core.engine.admission import Admission
from mail.core.engine.callbacks import Callbacks
from mail.core.engine.cancel_waits import CancelWaits
from mail.core.engine.dead_letters import DeadLetters
from mail.core.engine.delete import Deletions
from mail.core.engine.needs import last_change, tasks_in_need
from mail.core.engine.recovery import Recovery
from mail.core.engine.reviews import Reviews
from mail.core.engine.schedules import Schedules
from mail.core.engine.turns import Turns
from mail.core.engine.watch import Watch
from mail.core.engine.wiring import Wiring
from mail.core.protocol.address import Principal
from mail.core.task.mailboxes import goes_out
from mail.core.task.task import Task, TaskKey
from mail.core.turns.activity import Working, describe


@dataclass(eq=False, repr=False)
class Runtime(Wiring):
    """Runs one swarm's tasks on a store and a queue: the wiring, and the parts that work on it.

    The methods that it adds nothing to are those of its parts.

    Attributes:
        turns: the turns of this process.
        admission: accepts what comes from outside of the turns.
        dead_letters: the dead letters of the swarm's tasks.
        callbacks: takes the results of calls that finish later.
        schedules: begins runs at the times of schedules.
        cancel_wait: cancels calls and timers that wait.
        reviews: finds calls that wait for a decision, and takes the decisions of others than their tasks' owners.
        needs: returns the tasks of an instance that need their owner.
        deletions: deletes callers and old tasks, and keeps what is on hold from it.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self.turns = Turns(self)
        self.admission = Admission(self, self.turns.live)
        self.dead_letters = DeadLetters(self, self.admission)
        self.callbacks = Callbacks(self, self.admission, self.turns.live)
        self.cancel_wait = CancelWaits(self, self.admission)
        self.reviews = Reviews(self, self.admission)
        self.needs = partial(tasks_in_need, self)
        self.last_change = partial(last_change, self)
        watch = Watch(self.store, self.clock, self.pacer, self.turns.live)
        self.schedules = Schedules(self, self.admission)
        self.deletions = Deletions(self, self.admission, self.turns, self.schedules)
        recovery = Recovery(self, self.turns, self.schedules)
        self.submit, self.receive = self.admission.submit, self.admission.receive
        self.hear = self.admission.hear
        self.fork = self.admission.fork
        self.add_push, self.remove_webhook = self.admission.add_push, self.admission.remove_webhook
        self.find, self.wait = watch.find, watch.wait
        self.watch, self.with_live = watch.watch, watch.with_live
        self.new_lease, self.rename = self.turns.new_lease, self.turns.rename
        self.run_turn, self.dead_letter_turn = self.turns.run, self.turns.dead_letter
        self.recover, self.sweep, self.look_after = recovery.recover, recovery.sweep, recovery.look_after

    # ------------------------------------------------------------------------------------------- what comes in

    async def cancel(
        self, caller: Principal, task_id: str, reason: str = "", *, instance: str | None = None
    ) -> Task:
        """Cancel a caller's task (`mail.core.decisions.cancel`), or one of another `instance`.

        A cancelled task stays as it is. When this returns, no turn begins any more, and agents that take one here are
        no longer waited for. Raises TaskNotFound, NotCancellable.
        """
        task = await self.admission.cancel(caller, TaskKey(instance or str(caller), task_id), reason)
        self.turns.interrupt(task)
        return task

    async def delete(self, instance: str, task_id: str) -> Task:
        """Delete a task that has stopped, with everything that it stores, and return it as it was.

        Forks of it keep their copies. Raises TaskNotFound, TaskBusy, TaskHeld.
        """
        return await self.deletions.delete(TaskKey(instance, task_id))

    # ---------------------------------------------------------------------------------------------- who follows

    async def working(self, task: Task) -> list[Working]:
        """Return which agents take a turn in a task, since when, and on what or for what they wait, as far as known."""
        if not task.is_running:
            return []
        leases = await self.store.read_leases(task.key, now=self.now())
        here = {activity.agent: activity for activity in self.turns.activities(task.key)}
        return [
            describe(mailbox, lease, here.get(mailbox))
            for mailbox, lease in sorted(leases.items())
            if not goes_out(mailbox)
        ]

    async def still_running(self, task: Task) -> StillRunning:
        """Return the agents and swarms of a cancelled task that have not stopped yet."""
        return still_running(task, await self.store.read_leases(task.key, now=self.now()))
