"""A leased turn: the agent is called, its actions run, and the result is committed."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from types import MappingProxyType
from typing import Protocol

from mail.core.decisions.turn import AgentFailure, TurnOutput, expire, find_used_up, on_limit_reached, settle
from mail.core.engine.commit import Committer
from mail.core.engine.telemetry import NO_TRACER, Tracer, TurnReport
from mail.core.protocol.calls import AgentToolCall
from mail.core.protocol.clock import Clock
from mail.core.protocol.message import MAILMessage
from mail.core.task.actions import ActionCore
from mail.core.task.change import Claim, TaskChange, Turn
from mail.core.task.client_tools import OFFER
from mail.core.task.context import CURRENT_CALL, TURN_DEADLINE
from mail.core.task.ports import Store
from mail.core.task.swarm import AgentCore, History, SwarmCore, ToolChoice
from mail.core.task.task import Checkpoint, Receipt, Task, TaskKey
from mail.core.task.usage import USAGE_METER, UsageMeter
from mail.errors import AgentUnavailable, StoreError

logger = logging.getLogger(__name__)

UNKNOWN_OUTCOME = (
    "the outcome is unknown: the server stopped while this action ran. It was not repeated. "
    "Check whether it took effect before you call it again."
)

NO_ACTIONS: Mapping[str, ActionCore] = MappingProxyType({})

MAX_ENTRIES = 50_000
"""How many history entries are cached; the mailboxes used least recently are dropped first."""


class HistoryCache:
    """Caches agents' histories, whose records never change: per mailbox, the first n records, joined."""

    def __init__(self, max_entries: int = MAX_ENTRIES) -> None:
        self._max_entries = max_entries
        self._entries = 0
        self._known: OrderedDict[tuple[TaskKey, str], tuple[int, History]] = OrderedDict()

    def count(self, key: TaskKey, agent: str) -> int:
        """Return the number of cached records."""
        return self._known.get((key, agent), (0, []))[0]

    def extend(self, key: TaskKey, agent: str, after: int, n: int, entries: History) -> History | None:
        """Add the entries of the records after the `after`-th, up to the n-th; return the whole history.

        None if the records up to `after` are not cached (any more): then the history must be read from the store.
        """
        place = (key, agent)
        known, history = self._known.pop(place, (0, []))
        if known == n:
            entries = []
        elif known != after:
            self._entries -= len(history)
            return None
        history += entries
        self._known[place] = (n, history)
        self._entries += len(entries)
        while self._entries > self._max_entries and len(self._known) > 1:
            self._entries -= len(self._known.popitem(last=False)[1][1])
        return history


class LeasedTurn(ABC):
    """Base class of turns, which a worker has leased: an agent's, a delivery or a webhook's."""

    def __init__(self, turn: Claim, swarm: SwarmCore, store: Store, clock: Clock) -> None:
        self.turn = turn
        self._swarm = swarm
        self._store = store
        self._clock = clock
        self._committer = Committer(store)

    @abstractmethod
    async def run(self, seconds: float) -> TaskChange | None:
        """Run the turn, for `seconds` at most, and commit it; None if it may not run."""

    @abstractmethod
    async def fail(self, reason: str, upto: int, attempts: int) -> TaskChange | None:
        """End the turn as failed after so many attempts, without running it; None if its message is newer than `upto`."""

    def interrupt(self) -> None:  # noqa: B027  # only agents keep a turn waiting for long
        """Stop waiting for the agent, whose result would be discarded; safe to call at any time."""

    def report(self, outcome: TurnReport.Outcome) -> TurnReport:
        """Return what there is to measure."""
        return TurnReport(outcome, self._committer.conflicts)

    async def commit(self, decide: Callable[[Task], TaskChange | None]) -> TaskChange | None:
        """Commit what `decide` makes of the turn's task; None if it decides to change nothing."""
        return await self._committer.commit(decide, self.turn.task)


class TurnPolicy[T: Turn](Protocol):
    """The rules for agents' turns that depend on the mode of their task."""

    def find_used_up(self, turn: T, swarm: SwarmCore, now: float) -> str | None:
        """Return the limit that forbids the turn, in words; None if it may run."""
        ...

    async def prepare(self, turn: T, history: History) -> T:
        """Return the turn as its agent is called with it."""
        ...

    def messages(self, turn: T, history: History) -> History:
        """Return the messages for the agent's model."""
        ...

    def tool_choice(self, turn: T) -> ToolChoice:
        """Return which tools the agent must call."""
        ...

    def settle(
        self,
        task: Task,
        swarm: SwarmCore,
        turn: T,
        output: TurnOutput,
        clock: Clock,
        mail: Sequence[MAILMessage],
        kept: Checkpoint | None,
    ) -> TaskChange:
        """Decide what the turn's output does to the task."""
        ...


class AutomaticPolicy:
    """The rules where mail wakes the agents: limits hold, and every turn must call a tool."""

    def find_used_up(self, turn: Turn, swarm: SwarmCore, now: float) -> str | None:
        """Return the limit of the task that is reached."""
        return find_used_up(turn.task, swarm, turn, now)

    async def prepare(self, turn: Turn, history: History) -> Turn:
        """Return the turn unchanged."""
        return turn

    def messages(self, turn: Turn, history: History) -> History:
        """Return the whole history and the turn's prompts."""
        return [*history, *turn.prompts]

    def tool_choice(self, turn: Turn) -> ToolChoice:
        """Require `task_complete` after a limit is reached, or the tool that the caller demands."""
        if turn.entry.seq == turn.task.exhausted:
            return _only("task_complete")
        offer = OFFER.get()
        if offer.is_demand and len(offer.tools) == 1:
            return _only(offer.tools[0].name)
        return "required"

    def settle(
        self,
        task: Task,
        swarm: SwarmCore,
        turn: Turn,
        output: TurnOutput,
        clock: Clock,
        mail: Sequence[MAILMessage],
        kept: Checkpoint | None,
    ) -> TaskChange:
        """Decide by `mail.core.decisions.turn`."""
        return settle(task, swarm, turn, output, clock, mail, kept)


AUTOMATIC = AutomaticPolicy()


class AgentTurn[T: Turn](LeasedTurn):
    """The turn of an agent.

    `known` is the number of history records that were cached when it was opened. `builtins` are actions that belong
    to no swarm: MAIL tools that work outside of the task.
    """

    turn: T

    def __init__(
        self,
        turn: T,
        known: int,
        swarm: SwarmCore,
        store: Store,
        clock: Clock,
        histories: HistoryCache,
        policy: TurnPolicy[T],
        builtins: Mapping[str, ActionCore] = NO_ACTIONS,
        tracer: Tracer = NO_TRACER,
    ) -> None:
        super().__init__(turn, swarm, store, clock)
        self._policy = policy
        self._tracer = tracer
        self._known = known
        self._histories = histories
        self._builtins = builtins
        self._agent_seconds = 0.0
        self._work_task: asyncio.Task[TurnOutput] | None = None
        self._is_interrupted = False
        self._kept = earlier = turn.checkpoint
        self._meter = UsageMeter(earlier.usage, earlier.models) if earlier else UsageMeter()

    def interrupt(self) -> None:
        """Stop waiting for the agent and its actions."""
        if self._work_task is not None:
            self._is_interrupted = True
            self._work_task.cancel()

    def report(self, outcome: TurnReport.Outcome) -> TurnReport:
        """Return what there is to measure, the models' cost included."""
        return TurnReport(
            outcome, self._committer.conflicts, self._agent_seconds, self._meter.spent, self._meter.models
        )

    async def run(self, seconds: float) -> TaskChange | None:
        """Run the turn, for `seconds` at most, and commit it; None if it may not run."""
        turn = self.turn
        now = self._clock.now().timestamp()
        if turn.task.is_overdue(now):
            return await self.commit(lambda task: expire(task, self._swarm, turn, self._clock))
        if (used_up := self._policy.find_used_up(turn, self._swarm, now)) is not None:
            if turn.task.exhausted is not None:
                return None
            events = await self._store.read_events(turn.task.key)
            return await self.commit(
                lambda task: on_limit_reached(task, self._swarm, turn, used_up, events, self._clock)
            )
        history = await self._history()
        try:
            change = await self._settle(await self._run(history, seconds))
        except StoreError:
            raise
        except (
            Exception
        ) as error:  # such as text that UTF-8 can't encode; running the turn again would not help
            logger.exception("task %s: the turn of %s can't be completed", turn.task.task_id, turn.mailbox)
            change = await self._settle(self._failure(_conceal(error)))
        for new in () if change is None else change.histories:
            self._histories.extend(turn.task.key, new.agent, new.n - 1, new.n, new.entries)
        return change

    async def fail(self, reason: str, upto: int, attempts: int) -> TaskChange | None:
        """End the turn as failed, without running it; None if its message is newer than `upto`."""
        return None if self.turn.entry.seq > upto else await self._settle(self._failure(reason, attempts))

    def _failure(self, reason: str, attempts: int = 1) -> AgentFailure:
        return AgentFailure(reason, self._meter.spent, self._meter.spent_by_model, attempts)

    async def _history(self) -> History:
        turn = self.turn
        key, mailbox, n = turn.task.key, turn.mailbox, turn.task.histories.get(turn.mailbox, 0)
        history = self._histories.extend(key, mailbox, self._known, n, turn.history)
        if history is None:  # it was dropped from the cache meanwhile
            history = await self._store.read_history(key, mailbox)
            self._histories.extend(key, mailbox, 0, n, history)
        return history

    async def _settle(self, output: TurnOutput) -> TaskChange | None:
        mail = await self._mail_for(output)
        return await self.commit(
            lambda task: self._policy.settle(
                task, self._swarm, self.turn, output, self._clock, mail, self._kept
            )
        )

    async def _mail_for(self, output: TurnOutput) -> Sequence[MAILMessage]:
        """Return the messages of the task if a form that the agent has filled in needs them."""
        if isinstance(output, AgentFailure):
            return ()
        agent = self._swarm.agent(self.turn.mailbox)
        forms = [self._swarm.form(agent, call.tool_name) for call in output.calls]
        if not any(form is not None and form.reads_mail for form in forms):
            return ()
        events = await self._store.read_events(self.turn.task.key)
        return [event.message for event in events if event.message is not None and not event.is_redrive]

    async def _run(self, history: History, seconds: float) -> TurnOutput:
        """Call the agent and its actions, or resume an interrupted run of this turn at its checkpoint."""
        loop = asyncio.get_running_loop()
        TURN_DEADLINE.set(loop.time() + seconds)
        OFFER.set(self.turn.task.offer(self.turn.mailbox))
        USAGE_METER.set(self._meter)
        work = asyncio.Task(self._work(history), loop=loop, eager_start=True)
        if work.done():  # it never waited, so no timer is needed
            return work.result()
        self._work_task = work
        try:
            async with asyncio.timeout(seconds):
                return await work
        except TimeoutError:
            return self._failure(f"its turn took longer than {seconds:g} seconds")
        except asyncio.CancelledError:
            if not self._is_interrupted or asyncio.current_task().cancelling():  # type: ignore[union-attr]
                raise
            return self._failure("its task was cancelled")

    async def _work(self, history: History) -> TurnOutput:
        agent = self._swarm.agent(self.turn.mailbox)
        output = self.turn.checkpoint or await self._call(agent, history)
        return output if isinstance(output, AgentFailure) else await self._act(agent, output)

    async def _call(self, agent: AgentCore, history: History) -> Checkpoint | AgentFailure:
        self.turn = turn = await self._policy.prepare(self.turn, history)
        choice = self._policy.tool_choice(turn)
        monotonic = asyncio.get_running_loop().time
        begin = monotonic()
        try:
            with self._tracer.agent_call(turn, self._meter):
                text, calls = await agent.step(self._policy.messages(turn, history), choice)
        except AgentUnavailable as error:
            logger.warning("task %s: agent %s: %s", turn.task.task_id, turn.mailbox, error)
            return self._failure(error.detail)
        except Exception as error:  # an agent is foreign code: all that it raises is reported
            logger.exception("task %s: agent %s failed", turn.task.task_id, turn.mailbox)
            return self._failure(_conceal(error))
        finally:
            self._agent_seconds = monotonic() - begin
        return Checkpoint(
            text=text,
            calls=tuple(calls),
            receipts=(None,) * len(calls),
            usage=self._meter.spent,
            models=self._meter.spent_by_model,
        )

    def _action(self, agent: AgentCore, tool: str) -> ActionCore | None:
        """Return the action that the engine runs for a call; None if the tool is not an action."""
        if self._swarm.runs_as_action(agent, tool):
            return self._swarm.actions[tool]
        may_call = agent.enable_interswarm and agent.can_complete_tasks and tool not in agent.exclude_tools
        return self._builtins.get(tool) if may_call else None

    async def _act(self, agent: AgentCore, checkpoint: Checkpoint) -> Checkpoint:
        """Run the calls that are actions, in order; a receipt of each is stored before it and after it."""
        unfinished = [
            (index, action)
            for index, (call, receipt) in enumerate(zip(checkpoint.calls, checkpoint.receipts, strict=True))
            if (action := self._action(agent, call.tool_name)) is not None
            and (receipt is None or receipt.state is Receipt.State.STARTED)
        ]
        for index, action in unfinished:
            call = checkpoint.calls[index]
            if checkpoint.receipts[index] is not None and not action.idempotent:
                receipt = Receipt(state=Receipt.State.FAILED, content=UNKNOWN_OUTCOME)
            else:
                started = Receipt(state=Receipt.State.STARTED)
                checkpoint = checkpoint.with_receipt(index, started, self._meter)
                await self._keep(checkpoint)
                receipt = await self._run_action(action, call)
            checkpoint = checkpoint.with_receipt(index, receipt, self._meter)
        if unfinished:
            await self._keep(checkpoint)
        return checkpoint

    async def _keep(self, checkpoint: Checkpoint) -> None:
        await self._store.save_checkpoint(self.turn, checkpoint)
        self._kept = checkpoint

    async def _run_action(self, action: ActionCore, call: AgentToolCall) -> Receipt:
        CURRENT_CALL.set(call.tool_call_id)
        try:
            with self._tracer.action(call):
                content = await action.function(deepcopy(call.tool_args))
        except Exception as error:  # an action is foreign code: all that it raises is reported to the agent
            logger.info("action %s failed: %s", action.name, type(error).__name__)
            logger.debug("action %s", action.name, exc_info=True)  # it may quote messages
            return Receipt(state=Receipt.State.FAILED, content=str(error) or type(error).__name__)
        if not isinstance(content, str):  # foreign code may ignore its types
            wrong = type(content).__name__
            return Receipt(
                state=Receipt.State.FAILED, content=f"{action.name} must return str, but returned {wrong}"
            )
        return Receipt(state=Receipt.State.DONE, content=content)


def _only(tool: str) -> ToolChoice:
    return {"type": "function", "function": {"name": tool}}


def _conceal(error: Exception) -> str:
    """Describe an error in foreign code for other agents: its text may contain secrets, so only the log has it."""
    return f"{type(error).__name__}; the server's log says more"
