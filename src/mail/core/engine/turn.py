"""One open turn being carried out: the agent is called, its actions run, and what came of it is committed."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from copy import deepcopy
from types import MappingProxyType

from mail.core.decisions.turn import AgentFailure, TurnOutput, expire, find_used_up, on_limit_reached, settle
from mail.core.engine.histories import HistoryCache
from mail.core.engine.telemetry import NO_TRACER, Tracer
from mail.core.engine.turn_work import TurnReport, TurnWork
from mail.core.protocol.calls import AgentToolCall
from mail.core.protocol.clock import Clock
from mail.core.protocol.message import MAILMessage
from mail.core.task.change import TaskChange, Turn
from mail.core.task.client_tools import TURN_TOOLS
from mail.core.task.context import CURRENT_CALL, TURN_DEADLINE
from mail.core.task.ports import Store
from mail.core.task.swarm import ActionCore, AgentCore, History, SwarmCore, ToolChoice
from mail.core.task.turn_state import Checkpoint, Receipt
from mail.core.task.usage import USAGE_METER, UsageMeter
from mail.errors import AgentUnavailable, StoreError

logger = logging.getLogger(__name__)

UNKNOWN_OUTCOME = (
    "the outcome is unknown: the server stopped while this action ran. It was not repeated. "
    "Check whether it took effect before you call it again."
)

NO_ACTIONS: Mapping[str, ActionCore] = MappingProxyType({})


class Execution(TurnWork):
    """The turn of an agent. `known` history records were at hand when it was opened.

    `builtins` are actions that are no swarm's own: MAIL tools whose work is done outside of the task.
    """

    turn: Turn

    def __init__(
        self,
        turn: Turn,
        known: int,
        swarm: SwarmCore,
        store: Store,
        clock: Clock,
        histories: HistoryCache,
        builtins: Mapping[str, ActionCore] = NO_ACTIONS,
        tracer: Tracer = NO_TRACER,
    ) -> None:
        super().__init__(turn, swarm, store, clock)
        self._tracer = tracer
        self._known = known
        self._histories = histories
        self._builtins = builtins
        self._agent_seconds = 0.0
        self._at_work: asyncio.Task[TurnOutput] | None = None
        self._is_interrupted = False
        self._kept = earlier = turn.checkpoint
        self._meter = UsageMeter(earlier.usage, earlier.models) if earlier else UsageMeter()

    def interrupt(self) -> None:
        """Wait no longer for the agent and its actions."""
        if self._at_work is not None:
            self._is_interrupted = True
            self._at_work.cancel()

    def report(self, outcome: TurnReport.Outcome) -> TurnReport:
        """What there is to measure."""
        return TurnReport(
            outcome, self._conflicts, self._agent_seconds, self._meter.spent, self._meter.models
        )

    async def run(self, seconds: float) -> TaskChange | None:
        """Run the turn, for `seconds` at most, and commit it; None where it may not run."""
        turn = self.turn
        if turn.task.is_overdue(self._clock.now().timestamp()):
            return await self._commit(lambda task: expire(task, self._swarm, turn, self._clock))
        if (used_up := self._used_up()) is not None:
            if turn.task.generation.limit_notice is not None:
                return None
            events = await self._store.read_events(turn.task.key)
            return await self._commit(
                lambda task: on_limit_reached(task, self._swarm, turn, used_up, events, self._clock)
            )
        history = await self._history()
        try:
            change = await self._settle(await self._run(history, seconds))
        except StoreError:
            raise
        except Exception as error:  # such as text that UTF-8 can't hold; to run the turn again would not help
            logger.exception("task %s: the turn of %s can't be completed", turn.task.task_id, turn.mailbox)
            change = await self._settle(self._failure(_unsaid(error)))
        for new in () if change is None else change.histories:
            self._histories.extend(turn.task.key, new.agent, new.n - 1, new.n, new.entries)
        return change

    async def fail(self, reason: str, upto: int, attempts: int) -> TaskChange | None:
        """End the turn as failed, without running it; None where its message is newer than `upto`."""
        return None if self.turn.entry.seq > upto else await self._settle(self._failure(reason, attempts))

    def _failure(self, reason: str, attempts: int = 1) -> AgentFailure:
        return AgentFailure(reason, self._meter.spent, self._meter.spent_by_model, attempts)

    async def _history(self) -> History:
        turn = self.turn
        key, mailbox, n = turn.task.key, turn.mailbox, turn.task.histories.get(turn.mailbox, 0)
        history = self._histories.extend(key, mailbox, self._known, n, turn.history)
        if history is None:  # what was known has been forgotten meanwhile
            history = await self._store.read_history(key, mailbox)
            self._histories.extend(key, mailbox, 0, n, history)
        return history

    def _used_up(self) -> str | None:
        return find_used_up(self.turn.task, self._swarm, self.turn, self._clock.now().timestamp())

    async def _settle(self, output: TurnOutput) -> TaskChange | None:
        mail = await self._mail_for(output)
        return await self._commit(
            lambda task: settle(task, self._swarm, self.turn, output, self._clock, mail, self._kept)
        )

    async def _mail_for(self, output: TurnOutput) -> Sequence[MAILMessage]:
        """What has been sent in the task, where the agent has filled in a form that needs it."""
        if isinstance(output, AgentFailure):
            return ()
        agent = self._swarm.agent(self.turn.mailbox)
        forms = [self._swarm.form(agent, call.tool_name) for call in output.calls]
        if not any(form is not None and form.reads_mail for form in forms):
            return ()
        events = await self._store.read_events(self.turn.task.key)
        return [event.message for event in events if event.message is not None and not event.is_redrive]

    async def _run(self, history: History, seconds: float) -> TurnOutput:
        """Call the agent and its actions, or go on from where an interrupted run of this turn had come to."""
        loop = asyncio.get_running_loop()
        TURN_DEADLINE.set(loop.time() + seconds)
        TURN_TOOLS.set(self.turn.task.turn_tools(self.turn.mailbox))
        USAGE_METER.set(self._meter)
        work = asyncio.Task(self._work(history), loop=loop, eager_start=True)
        if work.done():  # it never waited, so there was no need for a timer
            return work.result()
        self._at_work = work
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
        turn = self.turn
        choice = self._choice()
        monotonic = asyncio.get_running_loop().time
        begin = monotonic()
        try:
            with self._tracer.agent_call(turn, self._meter):
                text, calls = await agent.step(self._messages(history), choice)
        except AgentUnavailable as error:
            logger.warning("task %s: agent %s: %s", turn.task.task_id, turn.mailbox, error)
            return self._failure(error.detail)
        except Exception as error:  # an agent is foreign code: whatever it raises is told, not swallowed
            logger.exception("task %s: agent %s failed", turn.task.task_id, turn.mailbox)
            return self._failure(_unsaid(error))
        finally:
            self._agent_seconds = monotonic() - begin
        return Checkpoint(
            text=text,
            calls=tuple(calls),
            receipts=(None,) * len(calls),
            usage=self._meter.spent,
            models=self._meter.spent_by_model,
        )

    def _messages(self, history: History) -> History:
        """What the agent is called with."""
        return [*history, *self.turn.prompts]

    def _choice(self) -> ToolChoice:
        if self.turn.entry.seq == self.turn.task.generation.limit_notice:
            return _only("task_complete")
        client_tools = TURN_TOOLS.get()
        if client_tools.is_required and len(client_tools.tools) == 1:
            return _only(client_tools.tools[0].name)
        return "required"

    def _action(self, agent: AgentCore, tool: str) -> ActionCore | None:
        """The action that the engine runs for a call; None where the call is none."""
        if self._swarm.runs_as_action(agent, tool):
            return self._swarm.actions[tool]
        may_call = agent.enable_interswarm and agent.can_complete_tasks and tool not in agent.exclude_tools
        return self._builtins.get(tool) if may_call else None

    async def _act(self, agent: AgentCore, checkpoint: Checkpoint) -> Checkpoint:
        """Run the actions among the calls, in order; a receipt of each is stored before it and after it."""
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
        except Exception as error:  # an action is foreign code: whatever it raises is told to the agent
            logger.info("action %s failed: %s", action.name, type(error).__name__)
            logger.debug("action %s", action.name, exc_info=True)  # may quote what people wrote
            return Receipt(state=Receipt.State.FAILED, content=str(error) or type(error).__name__)
        if not isinstance(content, str):  # nothing else checks foreign code
            wrong = type(content).__name__
            return Receipt(
                state=Receipt.State.FAILED, content=f"{action.name} must return str, but returned {wrong}"
            )
        return Receipt(state=Receipt.State.DONE, content=content)


def _only(tool: str) -> ToolChoice:
    return {"type": "function", "function": {"name": tool}}


def _unsaid(error: Exception) -> str:
    """What others are told of an error in foreign code: its text may hold secrets, and belongs in the log."""
    return f"{type(error).__name__}; the server's log says more"
