"""A leased turn: the agent is called, its actions run, and the result is committed."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from types import MappingProxyType

from mail.core.decisions.cancel import is_discarded
from mail.core.decisions.turn import (
    AgentFailure,
    TurnOutput,
    expire,
    find_used_up,
    on_limit_reached,
    outgrow,
    settle,
)
from mail.core.engine.commit import Committer
from mail.core.engine.pacing import LARGE, Pacer
from mail.core.engine.telemetry import NO_TRACER, DeliveryEnd, Tracer, TurnReport
from mail.core.protocol.calls import AgentToolCall, is_tool_result
from mail.core.protocol.clock import Clock
from mail.core.protocol.message import MAILMessage
from mail.core.protocol.quotes import ShownText
from mail.core.task.change import Claim, TaskChange, Turn
from mail.core.task.client_tools import TURN_TOOLS
from mail.core.task.context import CURRENT_CALL, CURRENT_CALLER, TURN_DEADLINE
from mail.core.task.ports import Store
from mail.core.task.size import json_size, text_size
from mail.core.task.swarm import ActionCore, AgentCore, History, SwarmCore, ToolChoice
from mail.core.task.task import Task, TaskKey
from mail.core.task.turn_state import Checkpoint, Receipt
from mail.core.task.usage import USAGE_METER, UsageMeter
from mail.errors import AgentUnavailable, StoreError, StoreUnavailable, TaskFull

logger = logging.getLogger(__name__)

UNKNOWN_OUTCOME = (
    "the outcome is unknown: the server stopped while this action ran. It was not repeated. "
    "Check whether it took effect before you call it again."
)

MAX_CACHED_BYTES = 32 * 1024 * 1024
"""How much of histories is cached (`mail.core.task.size`); the mailboxes used least recently are dropped first."""


PARTS_READ = 8
"""A turn works on a message as long as on a history of so many times its size: it stores the one and reads the other."""


@dataclass(slots=True)
class _CachedHistory:
    """The first `n` chunks of a history, joined; `size` is theirs."""

    n: int = 0
    history: History = field(default_factory=list)
    size: int = 0


class HistoryCache:
    """Caches agents' histories: per mailbox, its first n chunks, joined. A chunk never changes."""

    def __init__(self, max_bytes: int = MAX_CACHED_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._known: OrderedDict[tuple[TaskKey, str], _CachedHistory] = OrderedDict()

    def count(self, key: TaskKey, agent: str) -> int:
        """Return the number of cached chunks."""
        cached = self._known.get((key, agent))
        return 0 if cached is None else cached.n

    def size(self, key: TaskKey, agent: str) -> int:
        """Return the size of the cached chunks."""
        cached = self._known.get((key, agent))
        return 0 if cached is None else cached.size

    def extend(
        self, key: TaskKey, agent: str, after: int, n: int, entries: History, size: int | None = None
    ) -> History | None:
        """Add the entries of the chunks after the `after`-th, up to the n-th; return the whole history.

        `size` is the size of the entries, if it is known. None if the chunks up to `after` are not cached; then the
        history must be read from the store.
        """
        cached = self._known.get((key, agent))
        if cached is None:
            cached = self._known[key, agent] = _CachedHistory()
        else:
            self._known.move_to_end((key, agent))
        if cached.n == n:
            return cached.history
        if cached.n != after:
            self._bytes -= self._known.pop((key, agent)).size
            return None
        if size is None:
            size = json_size(entries)
        cached.history += entries
        cached.n = n
        cached.size += size
        self._bytes += size
        while self._bytes > self._max_bytes:
            self._bytes -= self._known.popitem(last=False)[1].size
        return cached.history


class LeasedTurn(ABC):
    """Base class of turns, which a worker has leased: an agent's, a delivery or a webhook's."""

    def __init__(self, turn: Claim, swarm: SwarmCore, store: Store, clock: Clock) -> None:
        self.turn = turn
        self._swarm = swarm
        self._store = store
        self._clock = clock
        self._committer = Committer(store)
        self._end: DeliveryEnd | None = None

    @abstractmethod
    async def run(self, seconds: float) -> TaskChange | None:
        """Run the turn, for `seconds` at most, and commit it; None if it may not run."""

    @abstractmethod
    async def fail(self, reason: str, upto: int, attempts: int) -> TaskChange | None:
        """End the turn as failed after so many attempts, without running it; None if its message is newer than `upto`."""

    def interrupt(self) -> None:  # noqa: B027  # only agents keep a turn waiting for long
        """Stop waiting for the agent, whose result would be discarded; safe to call at any time."""

    def stop(self, error: StoreError) -> None:  # noqa: B027  # the requests of deliveries are short
        """Stop waiting for the agent and end with the error, as the turn has lost its lease; safe to call at any time."""

    def report(self, outcome: TurnReport.Outcome) -> TurnReport:
        """Return the turn's measurements."""
        return TurnReport(outcome, self._committer.conflicts, delivery=self._end)

    async def commit(self, decide: Callable[[Task], TaskChange | None]) -> TaskChange | None:
        """Commit what `decide` makes of the turn's task; None if it decides to change nothing."""
        return await self._committer.commit(decide, self.turn.task)


@dataclass(frozen=True, slots=True)
class TurnPolicy[T: Turn]:
    """The rules for agents' turns that depend on the mode of their task.

    Attributes:
        find_used_up: returns the limit that forbids a turn at a time, in words; None if it may run.
        messages: returns the messages that the agent's model gets with its history.
        tool_choice: returns which tools the agent must call.
        settle: decides what the turn's output does to the task.
        prepare: returns the turn as the agent is called with it; None to call it with the turn as it is.
    """

    find_used_up: Callable[[Task, SwarmCore, T, float], str | None]
    messages: Callable[[T, History], History]
    tool_choice: Callable[[T], ToolChoice]
    settle: Callable[
        [Task, SwarmCore, T, TurnOutput, Clock, Sequence[MAILMessage], Checkpoint | None], TaskChange
    ]
    prepare: Callable[[T, History], Awaitable[T]] | None = None


def _require_tools(turn: Turn) -> ToolChoice:
    """Require a tool: `task_complete` after a limit is reached, or the one that the caller demands."""
    if turn.entry.seq == turn.task.generation.limit_notice:
        return _only("task_complete")
    offer = TURN_TOOLS.get()
    if offer.is_required and len(offer.tools) == 1:
        return _only(offer.tools[0].name)
    return "required"


def _messages(turn: Turn, history: History) -> History:
    """Return the history and the turn's message: last, unless the results of a breakpoint come with it.

    Agents look for those at the end, and providers want them right behind the calls.
    """
    if not turn.is_resumption:
        return [*history, *turn.prompts]
    begin = len(history)
    while begin and is_tool_result(history[begin - 1]):
        begin -= 1
    while begin and not is_tool_result(history[begin - 1]) and history[begin - 1].get("role") != "user":
        begin -= 1
    return [*history[:begin], *turn.prompts, *history[begin:]]


AUTOMATIC: TurnPolicy[Turn] = TurnPolicy(find_used_up, _messages, _require_tools, settle)
"""The rules if mail wakes the agents: limits apply, and every turn must call a tool."""


class AgentTurn[T: Turn](LeasedTurn):
    """The turn of an agent.

    `known` is the number of history chunks that were cached when it was opened. `builtins` are actions that belong
    to no swarm: MAIL tools that work outside of the task. `max_bytes` is how much the task may store; None for no limit.
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
        builtins: Mapping[str, ActionCore] = MappingProxyType({}),
        tracer: Tracer = NO_TRACER,
        max_bytes: int | None = None,
        pacer: Pacer | None = None,
    ) -> None:
        super().__init__(turn, swarm, store, clock)
        self._agent = swarm.agent(turn.mailbox)
        self._policy = policy
        self._max_bytes = max_bytes
        self._pacer = pacer or Pacer()
        self._tracer = tracer
        self._known = known
        self._histories = histories
        self._builtins = builtins
        self._agent_seconds = 0.0
        self._work_task: asyncio.Task[TurnOutput] | None = None
        self._is_interrupted = False
        self._stopped_by: StoreError | None = None
        self._kept = earlier = turn.checkpoint
        self._meter = UsageMeter(earlier.usage, earlier.models) if earlier else UsageMeter()

    def interrupt(self) -> None:
        """Stop waiting for the agent and its actions."""
        if self._work_task is not None:
            self._is_interrupted = True
            self._work_task.cancel()

    def stop(self, error: StoreError) -> None:
        """Stop waiting for the agent and its actions; the turn ends with the error."""
        self._stopped_by = error
        self.interrupt()

    def report(self, outcome: TurnReport.Outcome) -> TurnReport:
        """Return the turn's measurements, with the models' cost."""
        return TurnReport(
            outcome, self._committer.conflicts, self._agent_seconds, self._meter.spent, self._meter.models
        )

    async def run(self, seconds: float) -> TaskChange | None:
        """Run the turn, for `seconds` at most, and commit it; None if it may not run."""
        turn = self.turn
        now = self._clock.now().timestamp()
        if turn.task.is_overdue(now):
            return await self.commit(lambda task: expire(task, self._swarm, turn, self._clock))
        if (used_up := self._policy.find_used_up(turn.task, self._swarm, turn, now)) is not None:
            if turn.task.generation.limit_notice is not None:
                return None
            events = await self._store.read_events(turn.task.key)
            return await self.commit(
                lambda task: self._within_limit(
                    task, on_limit_reached(task, self._swarm, turn, used_up, events, self._clock)
                )
            )
        key, mailbox, n = turn.task.key, turn.mailbox, turn.task.histories.get(turn.mailbox, 0)
        history = self._histories.extend(key, mailbox, self._known, n, turn.history)
        if history is None:  # it was dropped from the cache meanwhile
            history = await self._store.read_history(key, mailbox)
            self._histories.extend(key, mailbox, 0, n, history)
        size = max(turn.entry.size, self._histories.size(key, mailbox) // PARTS_READ)
        is_large = size > LARGE
        if is_large:
            await self._pacer.pause(size)
        try:
            output = await self._run(history, seconds)
            if is_large:
                await self._pacer.pause(size)
            change = await self._settle(output)
        except StoreError:
            raise
        except TaskFull:
            change = await self.commit(self._outgrow)
        except Exception as error:  # such as text that UTF-8 can't encode; a retry would not help
            logger.exception("task %s: the turn of %s can't be completed", turn.task.task_id, turn.mailbox)
            change = await self._settle(self._failure(_conceal(error)))
        for new in () if change is None else change.histories:
            self._histories.extend(key, new.agent, new.n - 1, new.n, new.entries, len(new.encoded))
        return change

    async def fail(self, reason: str, upto: int, attempts: int) -> TaskChange | None:
        """End the turn as failed, without running it; None if its message is newer than `upto`."""
        return None if self.turn.entry.seq > upto else await self._settle(self._failure(reason, attempts))

    def _failure(self, reason: str, attempts: int = 1) -> AgentFailure:
        return AgentFailure(reason, self._meter.spent, self._meter.spent_by_model, attempts)

    async def _settle(self, output: TurnOutput) -> TaskChange | None:
        mail = await self._mail() if self._reads_mail(output) else ()
        return await self.commit(
            lambda task: self._within_limit(
                task,
                self._policy.settle(task, self._swarm, self.turn, output, self._clock, mail, self._kept),
            )
        )

    def _within_limit(self, task: Task, change: TaskChange | None) -> TaskChange | None:
        """Return the change, or the end of a task that it would make too large."""
        limit = self._max_bytes
        if change is None or limit is None or change.task.stored_bytes <= limit:
            return change
        return change if is_discarded(task, self.turn) else self._outgrow(task)

    def _outgrow(self, task: Task) -> TaskChange:
        turn, meter, limit = self.turn, self._meter, self._max_bytes
        assert limit is not None
        return outgrow(
            task, self._swarm, turn, meter.spent, meter.spent_by_model, limit, self._clock, self._kept
        )

    def _reads_mail(self, output: TurnOutput) -> bool:
        """Return whether the agent has filled in a form that needs the messages of the task."""
        if isinstance(output, AgentFailure) or not self._agent.actions:
            return False
        forms = [self._swarm.form(self._agent, call.tool_name) for call in output.calls]
        return any(form is not None and form.reads_mail for form in forms)

    async def _mail(self) -> Sequence[MAILMessage]:
        """Return the messages of the task."""
        events = await self._store.read_events(self.turn.task.key)
        return [event.message for event in events if event.message is not None and not event.is_redrive]

    async def _run(self, history: History, seconds: float) -> TurnOutput:
        """Call the agent and its actions, or resume an interrupted run of this turn at its checkpoint."""
        loop = asyncio.get_running_loop()
        TURN_DEADLINE.set(loop.time() + seconds)
        TURN_TOOLS.set(self.turn.task.turn_tools(self.turn.mailbox))
        USAGE_METER.set(self._meter)
        if self._stopped_by is not None:
            raise self._stopped_by
        work = asyncio.Task(self._work(history), loop=loop, eager_start=True)
        if work.done():  # it never waited, so no timer is needed
            return work.result()
        self._work_task = work
        output: TurnOutput
        try:
            async with asyncio.timeout(seconds):
                output = await work
        except TimeoutError:
            output = self._failure(f"its turn took longer than {seconds:g} seconds")
        except asyncio.CancelledError:
            if not self._is_interrupted or asyncio.current_task().cancelling():  # type: ignore[union-attr]
                raise
            output = self._failure("its task was cancelled")
        if self._stopped_by is not None:
            raise self._stopped_by
        return output

    async def _work(self, history: History) -> TurnOutput:
        agent = self._agent
        output = self.turn.checkpoint or await self._call(agent, history)
        if isinstance(output, AgentFailure) or not (agent.actions or self._builtins):
            return output
        return await self._act(agent, output)

    async def _call(self, agent: AgentCore, history: History) -> Checkpoint | AgentFailure:
        if self._policy.prepare is not None:
            self.turn = await self._policy.prepare(self.turn, history)
        turn = self.turn
        choice = self._policy.tool_choice(turn)
        monotonic = asyncio.get_running_loop().time
        begin = monotonic()
        try:
            with self._tracer.agent_call(turn, self._meter):
                messages = self._policy.messages(turn, history)
                text, calls = await agent.step(messages, choice)
        except AgentUnavailable as error:
            logger.warning("task %s: agent %s: %s", turn.task.task_id, turn.mailbox, error)
            return self._failure(error.detail)
        except Exception as error:  # an agent is foreign code: all that it raises is reported
            logger.exception("task %s: agent %s failed", turn.task.task_id, turn.mailbox)
            return self._failure(_conceal(error))
        finally:
            self._agent_seconds = monotonic() - begin
        shown = ShownText(messages, turn.markup)
        return Checkpoint(
            text=None if text is None else shown.unquote(text),
            calls=tuple(map(shown.unquote_call, calls)),
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
        """Run the calls that are actions, at the same time; a receipt of each is stored before it and after it.

        A sequential one runs alone: after the calls before it, and before those after it.
        """
        is_changed = False
        group: list[tuple[int, ActionCore]] = []
        for index, (call, receipt) in enumerate(zip(checkpoint.calls, checkpoint.receipts, strict=True)):
            action = self._action(agent, call.tool_name)
            if action is None or (receipt is not None and receipt.state is not Receipt.State.STARTED):
                continue
            is_changed = True
            if receipt is not None and not action.idempotent:
                unknown = Receipt(state=Receipt.State.FAILED, content=UNKNOWN_OUTCOME)
                checkpoint = checkpoint.with_receipt(index, unknown, self._meter)
            elif agent.sequential or action.sequential:
                checkpoint = await self._run_together(group, checkpoint)
                checkpoint = await self._run_together([(index, action)], checkpoint)
                group = []
            else:
                group.append((index, action))
        checkpoint = await self._run_together(group, checkpoint)
        if is_changed:
            await self._keep(checkpoint)
        return checkpoint

    async def _run_together(self, group: list[tuple[int, ActionCore]], checkpoint: Checkpoint) -> Checkpoint:
        """Run actions at the same time. Return the checkpoint with their receipts; the last one is not stored yet."""
        if not group:
            return checkpoint
        for index, _ in group:
            checkpoint = checkpoint.with_receipt(index, Receipt(state=Receipt.State.STARTED), self._meter)
        await self._keep(checkpoint)
        if len(group) == 1:
            ((index, action),) = group
            receipt = await self._run_action(action, checkpoint.calls[index])
            return checkpoint.with_receipt(index, receipt, self._meter)
        running = {
            asyncio.create_task(self._run_action(action, checkpoint.calls[index])): index
            for index, action in group
        }
        try:
            while running:
                ended, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in ended:
                    checkpoint = checkpoint.with_receipt(running.pop(task), task.result(), self._meter)
                if running:
                    # the next write has all receipts: no reason to cancel the others
                    with suppress(StoreUnavailable):
                        await self._keep(checkpoint)
        except asyncio.CancelledError:
            for task in [task for task in running if task.done() and not task.cancelled()]:
                checkpoint = checkpoint.with_receipt(running.pop(task), task.result(), self._meter)
            # the turn may run again, and these have ended
            with suppress(StoreError, TaskFull):
                await self._keep(checkpoint)
            raise
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        return checkpoint

    async def _keep(self, checkpoint: Checkpoint) -> None:
        """Store a checkpoint. Raises TaskFull if the results of its actions don't fit into the task."""
        results = sum(text_size(receipt.content) for receipt in checkpoint.receipts if receipt is not None)
        if self._max_bytes is not None and self.turn.task.stored_bytes + results > self._max_bytes:
            raise TaskFull
        await self._store.save_checkpoint(self.turn, checkpoint)
        self._kept = checkpoint

    async def _run_action(self, action: ActionCore, call: AgentToolCall) -> Receipt:
        CURRENT_CALL.set(call.tool_call_id)
        CURRENT_CALLER.set(self.turn.task.instance)
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
