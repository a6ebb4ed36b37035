"""The engine: the only place that performs what the pure functions decide.

submit ── admit() ──► commit ──► publish          a caller's message enters a task (`admission`)
run_turn ─ open ─► agent, actions ─ settle() ─► commit ──► publish          an agent takes its turn (`turns`)
take_over, recover, expire_overdue ──► publish          what others have left behind is resumed (`recovery`)
wait, watch ◄── read_events, read_response        callers follow a task (`watch`)
"""

from collections.abc import AsyncGenerator, Coroutine
from dataclasses import dataclass
from typing import Literal, overload

from mail.core.decisions.cancel import StillRunning, still_running
from mail.core.decisions.submit import Submission
from mail.core.engine.admission import Admission, Forked, Received
from mail.core.engine.dead_letters import DeadLetters
from mail.core.engine.heartbeat import OnRenewal
from mail.core.engine.leased_turn import TurnReport
from mail.core.engine.recovery import Recovery
from mail.core.engine.turns import Turns
from mail.core.engine.watch import Submitted, Watch
from mail.core.engine.wiring import Wiring
from mail.core.protocol.address import Principal
from mail.core.protocol.interswarm import MAILInterswarmMessage
from mail.core.protocol.message import MAILMessage
from mail.core.task.events import Event
from mail.core.task.leases import Lease, held
from mail.core.task.limits import NO_BUDGET, Budget
from mail.core.task.live import LiveEvent
from mail.core.task.mailboxes import goes_out
from mail.core.task.task import ForkActions, Task, TaskKey
from mail.core.turns.activity import Working, describe


@dataclass(eq=False, repr=False)
class Runtime(Wiring):
    """Runs one swarm's tasks on a store and a queue: the wiring, and the parts that work on it.

    Attributes:
        turns: the turns of this process.
        admission: accepts what comes from outside of the turns.
        dead_letters: the dead letters of the swarm's tasks.
    """

    def __post_init__(self) -> None:
        self.turns = Turns(self)
        self.admission = Admission(self, self.turns.live)
        self.dead_letters = DeadLetters(self, self.admission)
        self._recovery = Recovery(self, self.turns)
        self._watch = Watch(self.store, self.clock, self.pacer, self.turns.live)

    # ------------------------------------------------------------------------------------------- what comes in

    async def submit(self, caller: Principal, submission: Submission) -> Submitted:
        """Accept a caller's message; when this returns, it is stored and will be processed.

        A submission that was accepted before under the same key (`Submission.idempotency_key`) changes nothing; its
        first result is returned. Raises BadRequest, TaskNotFound, PreconditionFailed, IdempotencyConflict, TaskFull
        or RateLimited if it can't be accepted; then nothing is stored.
        """
        return await self.admission.submit(caller, submission)

    async def receive(self, caller_id: str, message: MAILInterswarmMessage, *, back: bool) -> Received:
        """Accept a message of another swarm; when this returns, it is stored and will be processed.

        `caller_id` is the id of the API key that it came with; `back` says that it belongs to a task that exists
        here. Raises BadRequest, Forbidden, TaskNotFound or RateLimited if it can't be accepted; then nothing is
        stored.
        """
        return await self.admission.receive(caller_id, message, back=back)

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

        Forks of it keep their copies. Raises TaskNotFound, TaskBusy.
        """
        return await self.admission.delete(TaskKey(instance, task_id))

    async def fork(
        self,
        caller: Principal,
        task_id: str,
        *,
        at: int | None = None,
        run: bool = False,
        actions: ForkActions | None = None,
        ceiling: Budget = NO_BUDGET,
        new_id: str | None = None,
    ) -> Forked:
        """Fork a caller's task as it was at an event, by default its last (`mail.core.decisions.fork`).

        `actions` says whether its actions run, and defaults to what the first task has. `new_id` is the id of the
        fork; if there is such a task, it is the fork that the same request has made before. Raises TaskNotFound,
        BadRequest, SnapshotExpired, TooManyTasks; then there is no new task.
        """
        return await self.admission.fork(
            caller, task_id, at=at, run=run, actions=actions, ceiling=ceiling, new_id=new_id
        )

    async def remove_webhook(self, caller: Principal, task: Task, webhook_id: str) -> bool:
        """Remove a webhook from a task; return whether the task had it."""
        return await self.admission.remove_webhook(caller, task, webhook_id)

    # ---------------------------------------------------------------------------------------------- who follows

    async def find(self, key: TaskKey, message_id: str) -> Submitted | None:
        """Return where a submitted message entered a task, whichever process accepted it; None if none did."""
        return await self._watch.find(key, message_id)

    async def wait(self, submitted: Submitted, seconds: float | None = None) -> MAILMessage | None:
        """Return the finishing message that answers a submission; None after `seconds` without one."""
        return await self._watch.wait(submitted, seconds)

    @overload
    def watch(
        self,
        key: TaskKey,
        *,
        after: int = 0,
        answer_to: int | None = None,
        heartbeat: float = 15.0,
        live: Literal[False] = False,
        deltas: Literal[False] = False,
    ) -> AsyncGenerator[list[Event]]: ...

    @overload
    def watch(
        self,
        key: TaskKey,
        *,
        after: int = 0,
        answer_to: int | None = None,
        heartbeat: float = 15.0,
        live: bool,
        deltas: bool = False,
    ) -> AsyncGenerator[list[Event] | list[LiveEvent]]: ...

    def watch(
        self,
        key: TaskKey,
        *,
        after: int = 0,
        answer_to: int | None = None,
        heartbeat: float = 15.0,
        live: bool = False,
        deltas: bool = False,
    ) -> AsyncGenerator[list[Event]] | AsyncGenerator[list[Event] | list[LiveEvent]]:
        """Yield the task's events past `after` in batches, and an empty batch after `heartbeat` quiet seconds.

        Ends with the event that answers the message with the seq `answer_to`; without one, after the last event of
        a stopped task. Raises TaskNotFound.

        Args:
            live: whether to yield live events, too, in batches of their own: what running turns do, at once. They may
                be lost, and a turn that is killed leaves some without an end.
            deltas: whether they include the pieces of models' replies; lets models stream their replies.
        """
        events = self._watch.watch(key, after=after, answer_to=answer_to, heartbeat=heartbeat)
        return self._watch.with_live(key, events, deltas=deltas) if live else events

    async def working(self, task: Task) -> list[Working]:
        """Return which agents take a turn in a task, since when, and on what, as far as this process knows."""
        if not task.is_running:
            return []
        leases = held(await self.store.read_leases(task.key, now=self.now()))
        here = {activity.agent: activity for activity in self.turns.activities(task.key)}
        return [
            describe(mailbox, lease, here.get(mailbox))
            for mailbox, lease in sorted(leases.items())
            if not goes_out(mailbox)
        ]

    async def still_running(self, task: Task) -> StillRunning:
        """Return the agents and swarms of a cancelled task that have not stopped yet."""
        return still_running(task, await self.store.read_leases(task.key, now=self.now()))

    # --------------------------------------------------------------------------------------------------- turns

    def run_turn(
        self,
        key: TaskKey,
        mailbox: str,
        *,
        seconds: float | None = None,
        on_renewal: OnRenewal | None = None,
    ) -> Coroutine[None, None, TurnReport]:
        """Run the next turn of a mailbox, if there is one. Safe to call at any time, any number of times.

        Args:
            seconds: how long the caller will live, if that is limited: the turn is stopped in time for its commit.
            on_renewal: called after each renewal of the turn's lease, which a quick turn doesn't need.
        """
        return self.turns.run(key, mailbox, seconds, on_renewal)

    async def dead_letter_turn(
        self, key: TaskKey, mailbox: str, reason: str, *, upto: int, attempts: int = 1
    ) -> TurnReport:
        """End the next turn of a mailbox as failed, without running it, after its workers have crashed repeatedly.

        Its message becomes a dead letter, and the sender gets the `reason`, or the task ends (SPEC, section 5). A
        message with a seq past `upto` came after the failed wake-up, and stays for a turn of its own. A turn that no
        worker has begun, because the wake-up never reached one, is not at fault: its mailbox is woken again.
        """
        return await self.turns.dead_letter(key, mailbox, reason, upto=upto, attempts=attempts)

    def new_lease(self) -> Lease:
        """Return a lease for a turn that waits for a worker of this process, to be renewed after `lease_seconds`."""
        return self.turns.new_lease()

    def rename(self) -> None:
        """Take another name for leases, which copies of a process must not share."""
        self.turns.rename()

    # ------------------------------------------------------------------------------------------------ recovery

    async def take_over(self) -> int:
        """Wake the mailboxes whose workers are dead, frozen or cut off; return the number of their turns."""
        return await self._recovery.take_over()

    async def recover(self, *, quiet_for: float = 0.0) -> int:
        """Wake all mailboxes with mail: after a restart, or when wake-ups may have been lost.

        Only in tasks without a change for `quiet_for` seconds; the mail of the rest is being processed. Mail that
        waits in a long queue has a wake-up already, and more of them would fill the queue: so each wait has to be
        twice as long as the one before. Returns the number of wake-ups.
        """
        return await self._recovery.wake_all(quiet_for)

    async def expire_overdue(self) -> None:
        """Do what is due: end the running tasks whose deadline has passed, and wake turns whose park is over."""
        await self._recovery.expire_overdue()
