"""The engine: the only place that performs what the pure functions decide.

submit ── admit() ──► commit ──► publish          a person's message enters a task
run_turn ─ open ─► agent, actions ─ settle() ─► commit ──► publish
wait, stream ◄── read_events, read_response       whoever asked watches
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from copy import deepcopy
from dataclasses import dataclass
from itertools import count

from mail.core.actions import ActionCore
from mail.core.address import Principal
from mail.core.agents import AgentCore, History, SwarmCore
from mail.core.calls import AgentToolCall
from mail.core.change import Lease, TaskChange, Turn
from mail.core.events import Event
from mail.core.histories import HistoryCache
from mail.core.intake import Submission, admit
from mail.core.message import MAILMessage
from mail.core.ports import Idle, Leased, Store, Token, TurnQueue
from mail.core.stamp import Stamp
from mail.core.tasks import Checkpoint, Receipt, Task, TaskKey
from mail.core.turn import AgentFailure, TurnOutput, exhaust, expire, is_spent, settle
from mail.errors import BadRequest, LeaseLost, StoreError, TaskNotFound, VersionConflict

logger = logging.getLogger(__name__)

LEASE_MARGIN = 30.0
"""Seconds by which a lease outlives the longest turn, so that a live worker never loses its mailbox."""

LONG_POLL = 60.0
"""Seconds for which the store is asked to wait at a time."""

UNKNOWN_OUTCOME = (
    "the outcome is unknown: the server stopped while this action ran. It was not repeated. "
    "Check whether it took effect before you call it again."
)


@dataclass(frozen=True, slots=True)
class Submitted:
    """What became of a submission.

    Attributes:
        generation: the generation of the task that it came into. If it joined a running task, the answer may
            come before it is read; then the next generation's answer is its own.
        after: the seq of the last event before it.
        seq: that of its own message.
    """

    key: TaskKey
    generation: int
    after: int
    seq: int


class Runtime:
    """Runs one swarm's tasks on a store and a queue.

    `turn_seconds` bounds one turn of an agent with its actions; past it the agent counts as failed.
    """

    def __init__(
        self, swarm: SwarmCore, store: Store, queue: TurnQueue, stamp: Stamp, *, turn_seconds: float = 840.0
    ) -> None:
        self.swarm = swarm
        self.store = store
        self.stamp = stamp
        self._queue = queue
        self._turn_seconds = turn_seconds
        self._histories = HistoryCache()
        self._name = stamp.new_id()
        self._leases = count()

    async def submit(self, caller: Principal, submission: Submission) -> Submitted:
        """Accept a person's message; when this returns, it is stored and will be worked on.

        Raises BadRequest or TaskNotFound when it can't be accepted; then nothing is stored.
        """
        if submission.task_id is None and submission.resume_from is not None:
            raise BadRequest("task_id is missing: say which task to resume")
        if submission.task_id is None:
            submission = submission.model_copy(update={"task_id": self.stamp.new_id()})
        key = TaskKey(str(caller), submission.task_id or "")
        while True:
            task = await self.store.load(key)
            change = admit(task, self.swarm, caller, submission, self.stamp)
            try:
                await self.store.commit(change)
            except VersionConflict:
                continue
            break
        await self._publish_ready(change.task)
        return Submitted(key, change.task.generation, task.seq if task else 0, change.task.seq)

    async def run_turn(self, key: TaskKey, mailbox: str) -> None:
        """Run the next turn of a mailbox, if there is one. Safe to call at any time, any number of times."""
        now = self._now()
        lease = Lease(f"{self._name}/{next(self._leases)}", now + self._turn_seconds + LEASE_MARGIN)
        known = self._histories.count(key, mailbox)
        turn = await self.store.open_turn(key, mailbox, lease, now=now, history_after=known)
        match turn:
            case Leased():
                return
            case Idle(task):
                if task is not None and task.is_running:
                    await self._publish_ready(task)
                return
        try:
            change = await self._take(turn, known)
        except LeaseLost:
            logger.warning("task %s: the lease of %s was lost; its turn is thrown away", key.task_id, mailbox)
            return
        except BaseException:
            await self.store.release(turn)
            raise
        if change is None:
            await self._hand_back(turn)
        else:
            await self._publish(change)

    async def _take(self, turn: Turn, known: int) -> TaskChange | None:
        """Run an open turn and commit it; None where it was given back because it may not run.

        `known` history records were at hand when it was opened.
        """
        if turn.task.is_overdue(self._now()):
            return await self._commit(turn, lambda task: expire(task, self.swarm, turn, self.stamp))
        if is_spent(turn.task, self.swarm, turn):
            if turn.task.exhausted is not None:
                return None
            events = await self.store.read_events(turn.task.key)
            return await self._commit(turn, lambda task: exhaust(task, self.swarm, turn, events, self.stamp))
        history = await self._history(turn, known)
        try:
            change = await self._settle(turn, await self._run(turn, history))
        except StoreError:
            raise
        except Exception as error:  # such as text that UTF-8 can't hold; to run the turn again would not help
            logger.exception("task %s: the turn of %s can't be completed", turn.task.task_id, turn.mailbox)
            change = await self._settle(turn, AgentFailure(_unsaid(error)))
        if change is not None and change.history is not None:
            new = change.history
            self._histories.extend(turn.task.key, turn.mailbox, new.n - 1, new.n, new.entries)
        return change

    async def _history(self, turn: Turn, known: int) -> History:
        key, mailbox, n = turn.task.key, turn.mailbox, turn.task.histories.get(turn.mailbox, 0)
        history = self._histories.extend(key, mailbox, known, n, turn.history)
        if history is None:  # what was known has been forgotten meanwhile
            history = await self.store.read_history(key, mailbox)
            self._histories.extend(key, mailbox, 0, n, history)
        return history

    async def _hand_back(self, turn: Turn) -> None:
        """Release a turn that may not run; wake its mailbox again, as tokens of others were dropped meanwhile."""
        await self.store.release(turn)
        task = await self._load(turn.task.key)
        tier = task.head_tier(turn.mailbox)
        may_run = task.exhausted is None or turn.mailbox == self.swarm.finisher(task.entrypoint)
        if task.is_running and may_run and tier is not None:
            await self._queue.publish([Token(task.key, turn.mailbox, tier)])

    async def _settle(self, turn: Turn, output: TurnOutput) -> TaskChange | None:
        return await self._commit(turn, lambda task: settle(task, self.swarm, turn, output, self.stamp))

    async def _run(self, turn: Turn, history: History) -> TurnOutput:
        """Call the agent and its actions, or go on from where an interrupted run of this turn had come to."""
        work = asyncio.Task(self._work(turn, history), loop=asyncio.get_running_loop(), eager_start=True)
        if work.done():  # it never waited, so there was no need for a timer
            return work.result()
        try:
            async with asyncio.timeout(self._turn_seconds):
                return await work
        except TimeoutError:
            return AgentFailure(f"its turn took longer than {self._turn_seconds:g} seconds")

    async def _work(self, turn: Turn, history: History) -> TurnOutput:
        agent = self.swarm.agent(turn.mailbox)
        output = turn.checkpoint or await self._call(agent, turn, history)
        return output if isinstance(output, AgentFailure) else await self._act(agent, turn, output)

    async def _call(self, agent: AgentCore, turn: Turn, history: History) -> Checkpoint | AgentFailure:
        choice = (
            {"type": "function", "function": {"name": "task_complete"}}
            if turn.entry.seq == turn.task.exhausted
            else "required"
        )
        try:
            text, calls = await agent.function([*history, turn.entry.prompt], choice)
        except Exception as error:  # an agent is foreign code: whatever it raises is told, not swallowed
            logger.exception("task %s: agent %s failed", turn.task.task_id, turn.mailbox)
            return AgentFailure(_unsaid(error))
        return Checkpoint(text=text, calls=tuple(calls), receipts=(None,) * len(calls))

    async def _act(self, agent: AgentCore, turn: Turn, checkpoint: Checkpoint) -> Checkpoint:
        """Run the actions among the calls, in order; a receipt of each is stored before it and after it."""
        unfinished = [
            index
            for index, (call, receipt) in enumerate(zip(checkpoint.calls, checkpoint.receipts, strict=True))
            if self.swarm.runs_as_action(agent, call.tool_name)
            and (receipt is None or receipt.state is Receipt.State.STARTED)
        ]
        for index in unfinished:
            call = checkpoint.calls[index]
            action = self.swarm.actions[call.tool_name]
            if checkpoint.receipts[index] is not None and not action.idempotent:
                receipt = Receipt(state=Receipt.State.FAILED, content=UNKNOWN_OUTCOME)
            else:
                checkpoint = checkpoint.with_receipt(index, Receipt(state=Receipt.State.STARTED))
                await self.store.save_checkpoint(turn, checkpoint)
                receipt = await _run_action(action, call)
            checkpoint = checkpoint.with_receipt(index, receipt)
        if unfinished:
            await self.store.save_checkpoint(turn, checkpoint)
        return checkpoint

    async def _commit(self, turn: Turn, decide: Callable[[Task], TaskChange | None]) -> TaskChange | None:
        """Commit what `decide` makes of the task, deciding again as long as others commit first.

        None where it decides for nothing.
        """
        task = turn.task
        while True:
            change = decide(task)
            if change is None:
                return None
            try:
                await self.store.commit(change)
            except VersionConflict as conflict:
                task = conflict.current or await self._load(task.key)
                continue
            return change

    async def wait(self, submitted: Submitted, seconds: float | None = None) -> MAILMessage | None:
        """The finishing message that answers a submission; None when the time is up."""
        until = None if seconds is None else self._now() + seconds
        generation, after = submitted.generation, submitted.after
        while True:
            left = LONG_POLL if until is None else max(0.0, min(LONG_POLL, until - self._now()))
            response = await self.store.wait_for_response(submitted.key, generation, seconds=left)
            if response is not None:
                if submitted.after == 0:  # it began the task, so nobody else's message was there before
                    return response
                end = await self._end_of_generation(submitted.key, after)
                if end.answers(submitted.seq):
                    return response
                generation, after = generation + 1, end.seq
            elif until is not None and self._now() >= until:
                return None

    async def _end_of_generation(self, key: TaskKey, after: int) -> Event:
        return next(event for event in await self.store.read_events(key, after=after) if event.is_terminal)

    async def watch(
        self, key: TaskKey, *, after: int = 0, answering: int | None = None, heartbeat: float = 15.0
    ) -> AsyncGenerator[list[Event]]:
        """The task's events past `after`, in batches as they happen; an empty batch is a heartbeat.

        Ends with the event that answers the message with the seq `answering` or, without one, when the task
        has stopped and every event was given.
        """
        while True:
            task = await self._load(key)
            events = await self.store.read_events(key, after=after)
            if answering is not None:
                events = _up_to_answer(events, answering)
            if events:
                yield events
                after = events[-1].seq
                if answering is not None and events[-1].answers(answering):
                    return
            if answering is None and not task.is_running and after >= task.seq:
                return
            if await self.store.wait_for_change(key, after=after, seconds=heartbeat) <= after:
                yield []

    async def recover(self) -> None:
        """Publish a token for all mail that waits: after a restart, or when tokens may have been lost."""
        await self._queue.publish(
            [token for token in await self.store.list_ready() if self._serves(token.key)]
        )

    async def expire_overdue(self) -> None:
        """End the running tasks whose deadline has passed."""
        for key in filter(self._serves, await self.store.list_overdue(self._now())):
            task: Task | None = await self._load(key)
            while task is not None:
                change = expire(task, self.swarm, None, self.stamp)
                if change is None:
                    break
                try:
                    await self.store.commit(change)
                    break
                except VersionConflict as conflict:
                    task = conflict.current or await self._load(key)

    async def _publish(self, change: TaskChange) -> None:
        """Wake the mailboxes that this commit gave mail, and the turn's own where it holds more."""
        if not change.task.is_running:
            return
        if change.response is not None:  # the task goes on at once, and what was stashed with it
            await self._publish_ready(change.task)
            return
        touched = {entry.mailbox for entry in change.deliveries}
        if change.turn is not None:
            touched.add(change.turn.mailbox)
        tiers = {mailbox: change.task.head_tier(mailbox) for mailbox in touched}
        await self._queue.publish([Token(change.key, box, tier) for box, tier in tiers.items() if tier])

    async def _publish_ready(self, task: Task) -> None:
        await self._queue.publish([Token(task.key, mailbox, tier) for mailbox, tier in task.ready()])

    def _serves(self, key: TaskKey) -> bool:
        """Whether the task is of this swarm; a store may hold those of others."""
        return Principal.parse(key.instance).swarm == self.swarm.name

    async def _load(self, key: TaskKey) -> Task:
        task = await self.store.load(key)
        if task is None:
            raise TaskNotFound(f"there is no task {key.task_id!r}")
        return task

    def _now(self) -> float:
        return self.stamp.now().timestamp()


def _unsaid(error: Exception) -> str:
    """What others are told of an error in foreign code: its text may hold secrets, and belongs in the log."""
    return f"{type(error).__name__}; the server's log says more"


def _up_to_answer(events: list[Event], seq: int) -> list[Event]:
    for position, event in enumerate(events):
        if event.answers(seq):
            return events[: position + 1]
    return events


async def _run_action(action: ActionCore, call: AgentToolCall) -> Receipt:
    try:
        content = await action.function(deepcopy(call.tool_args))
    except Exception as error:  # an action is foreign code: whatever it raises is told to the agent
        logger.info("action %s failed", action.name, exc_info=True)
        return Receipt(state=Receipt.State.FAILED, content=str(error) or type(error).__name__)
    if not isinstance(content, str):  # nothing else checks foreign code
        wrong = type(content).__name__
        return Receipt(
            state=Receipt.State.FAILED, content=f"{action.name} must return str, but returned {wrong}"
        )
    return Receipt(state=Receipt.State.DONE, content=content)
