"""A leased turn: the agent is called, its actions run, and the result is committed."""

import asyncio
import logging
from collections.abc import Callable, Container, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from mail.core.decisions.approvals import approved_checkpoint, is_progress, settle_approved
from mail.core.decisions.cancel import is_discarded
from mail.core.decisions.park import may_park, park, parked_before
from mail.core.decisions.tools import MOST_LISTED, reminders_asked
from mail.core.decisions.turn import (
    NO_BACKGROUND,
    AgentFailure,
    Background,
    TurnOutput,
    expire,
    find_used_up,
    on_limit_reached,
    outgrow,
    settle,
    text_recipient,
)
from mail.core.engine.actions import ActionRunner, Parking
from mail.core.engine.attempts import counted_attempts
from mail.core.engine.callbacks import TurnCallbacks
from mail.core.engine.commit import load_task
from mail.core.engine.context import AgentWindow, transcript_room
from mail.core.engine.files import TaskFiles, mentions
from mail.core.engine.guards import TurnGuards
from mail.core.engine.histories import CachedHistory
from mail.core.engine.interswarm import discovery
from mail.core.engine.leased_turn import LeasedTurn, TurnReport, conceal
from mail.core.engine.pacing import LARGE
from mail.core.engine.telemetry import NO_TRACER
from mail.core.engine.waits import open_waits
from mail.core.engine.wiring import Wiring
from mail.core.protocol.calls import AgentToolCall, is_tool_result
from mail.core.protocol.mail_tools import DiscoverSwarms, ReadMore
from mail.core.protocol.message import MAILMessage
from mail.core.protocol.quotes import ShownText
from mail.core.protocol.values import value
from mail.core.task.change import HistoryRecord, TaskChange, Turn
from mail.core.task.context import UNKNOWN, Portion, Preparation
from mail.core.task.costs import NO_USAGE
from mail.core.task.draft import Draft
from mail.core.task.files import FILES
from mail.core.task.leases import Lease
from mail.core.task.mailboxes import agent_of
from mail.core.task.size import json_size, text_size
from mail.core.task.swarm import (
    ActionCore,
    AgentCore,
    AgentOutput,
    History,
    ProvidedTools,
    SwarmCore,
    ToolChoice,
    ToolSource,
)
from mail.core.task.task import ForkActions, Task
from mail.core.task.timers import Timer
from mail.core.task.turn_state import Breakpoint, Checkpoint, Receipt
from mail.core.turns.activity import NOTABLE_SECONDS, LivePublisher, TurnActivity
from mail.core.turns.context import NOTHING_PROVIDED, TURN, TurnContext
from mail.core.turns.usage import UsageMeter
from mail.errors import (
    AgentUnavailable,
    ContextWindowExceeded,
    RetryLater,
    StoreError,
    StoreUnavailable,
    TaskFull,
)

logger = logging.getLogger(__name__)


@value
class TurnPolicy[T: Turn]:
    """The rules for agents' turns that depend on the mode of their task.

    Attributes:
        find_used_up: returns the limit that forbids a turn at a time, in words; None if it may run.
        messages: returns what the agent's model gets: its history, and the messages of the turn.
        tool_choice: returns which tools the agent must call.
        settle: decides what the turn's output does to the task.
        text_recipient: returns who receives text without a tool call, for live events; None if that is not known.
        parks: whether turns may be parked; if not, somebody waits for them.
    """

    find_used_up: Callable[[Task, SwarmCore, T, float], str | None]
    messages: Callable[[T, History, History], History]
    tool_choice: Callable[[T], ToolChoice]
    settle: Callable[[Draft, T, TurnOutput, Background], TaskChange]
    text_recipient: Callable[[Draft, T], str] | None = None
    parks: bool = False


def _require_tools(turn: Turn) -> ToolChoice:
    """Require a tool: `task_complete` after a limit is reached, or the one that the caller demands."""
    if turn.entry.seq == turn.task.generation.limit_notice:
        return _only("task_complete")
    offer = TURN.get().tools
    if offer.is_required and len(offer.tools) == 1:
        return _only(offer.tools[0].name)
    return "required"


def _messages(turn: Turn, history: History, prompts: History) -> History:
    """Return the history and the turn's message: last, unless the results of a breakpoint come with it."""
    return before_results(history, prompts) if turn.is_resumption else [*history, *prompts]


def before_results(history: History, prompts: History) -> History:
    """Return the history with prompts in front of the calls at its end, whose results the user has given.

    Agents look for those at the end, and providers want them right behind the calls.
    """
    begin = len(history)
    while begin and is_tool_result(history[begin - 1]):
        begin -= 1
    while begin and not is_tool_result(history[begin - 1]) and history[begin - 1].get("role") != "user":
        begin -= 1
    return [*history[:begin], *prompts, *history[begin:]]


AUTOMATIC: TurnPolicy[Turn] = TurnPolicy(
    find_used_up, _messages, _require_tools, settle, text_recipient, parks=True
)
"""The rules if mail wakes the agents: limits apply, and every turn must call a tool."""


class AgentTurn[T: Turn](LeasedTurn):
    """The turn of an agent.

    `known` is the number of history chunks that were cached when it was opened, `swarm` the agents that take part in
    place of the wiring's.
    """

    turn: T
    activity: TurnActivity
    _files: TaskFiles | None = None
    _approved: Breakpoint | None = None
    _window: AgentWindow | None = None
    _guards: TurnGuards | None = None
    _provided = NOTHING_PROVIDED
    _agent_seconds = 0.0
    _calls = 1
    _problem = ""
    _work_task: asyncio.Task[TurnOutput | Parking] | None = None
    _is_interrupted = False
    _is_storing = False
    _stopped_by: StoreError | None = None

    def __init__(
        self,
        turn: T,
        known: int,
        wiring: Wiring,
        policy: TurnPolicy[T],
        live: LivePublisher,
        swarm: SwarmCore | None = None,
    ) -> None:
        swarm, clock = swarm or wiring.swarm, wiring.clock
        super().__init__(turn, swarm, wiring.store, clock)
        self._agent = agent = swarm.agent(turn.mailbox)
        self._wiring = wiring
        self._policy = policy
        self._known = known
        if wiring.files is not None:
            self._files = wiring.caller_files.for_task(turn.task.key)
        if turn.task.approved_calls:
            self._approved = turn.task.approved_calls_of(turn.mailbox)
        earlier = turn.checkpoint
        if (
            earlier is not None
            and (earlier.approved or self._approved is not None)
            and (self._approved is None or not is_progress(earlier, self._approved))
        ):
            earlier = None  # of calls whose results are stored
        self._kept = earlier
        if agent.context is not None:
            self._window = AgentWindow(turn, agent, agent.context, wiring.store, self._keep_preparation)
        self._meter = UsageMeter(earlier.usage, earlier.models) if earlier else UsageMeter()
        time = asyncio.get_running_loop().time
        timing = earlier.timing if earlier else None
        self.activity = TurnActivity(turn, clock, live, time, timing, self._text_recipient)
        if swarm.guards or agent.guards:
            self._guards = TurnGuards(turn, swarm, agent, self._meter, wiring.tracer, self._keep)
            self.activity.hides_results = self._guards.judge_results

    def _text_recipient(self) -> str:
        """Return who receives text without a tool call, for live events; empty if that is not known."""
        find = self._policy.text_recipient
        return find(Draft(self.turn.task, self._swarm, self._clock), self.turn) if find else ""

    def context(self, seconds: float) -> TurnContext:
        """Return what the turn lends to the code that it calls, if it lasts so long at most."""
        turn, task, parks = self.turn, self.turn.task, self._policy.parks
        context = TurnContext(
            agent=turn.mailbox,
            message_id=turn.entry.message.id,
            message_seq=turn.entry.seq,
            caller=task.instance,
            deadline=self.activity.begin + seconds,
            tools=task.turn_tools(turn.mailbox),
            meter=self._meter,
            activity=self.activity,
            services=self._wiring.services,
            traceparent=task.traceparent,
            switch=task.switches.get(agent_of(turn.mailbox)) if task.switches else None,
            may_park=parks,
            may_cut=self._window is not None,
            files=self._files,
        )
        if turn.replaced is not None and (parked := parked_before(turn)) is not None:
            context = replace(context, parked=parked, may_park=parks and may_park(turn, self._clock))
        if (guards := self._guards) is not None:
            context = replace(context, is_private=guards.judge_words, is_judged=guards.judge_replies)
        return context

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
            outcome,
            self._committer.conflicts,
            self._agent_seconds,
            self._meter.spent,
            self._meter.models,
            self._problem,
        )

    async def run(self, seconds: float) -> TaskChange | Lease | None:
        """Run the turn, for `seconds` at most, and commit it, or park it; None if it may not run.

        If calls of the agent have been approved, only they run: in a turn without a model call that leaves its message.
        """
        turn, opened = self.turn, self.turn.task
        now = 0.0
        if opened.limits.is_timed:
            now = self._clock.now().timestamp()
            if opened.is_overdue(now):
                return await self.commit(lambda draft: expire(draft, turn))
        if self._approved is None and (
            (used_up := self._policy.find_used_up(opened, self._swarm, turn, now)) is not None
        ):
            if opened.generation.limit_notice is not None:
                return None
            events = await self._store.read_events(opened.key)
            room = await transcript_room(self._swarm, opened)
            return await self.commit(
                lambda draft: self._within_limit(draft, on_limit_reached(draft, turn, used_up, events, room))
            )
        key, mailbox = opened.key, turn.mailbox
        n, cut = opened.histories.get(mailbox, 0), opened.contexts.get(mailbox, UNKNOWN).cut
        history = self._wiring.histories.extend(key, mailbox, self._known, n, turn.portions, cut)
        if history is None:  # it was dropped from the cache meanwhile
            portions = await self._store.read_portions(key, mailbox, after=cut.begin - 1)
            history = self._wiring.histories.extend(key, mailbox, 0, n, portions, cut)
            if history is None:
                history = CachedHistory()
                history.extend(n, portions, cut)
        is_large = turn.entry.size > LARGE
        if is_large:
            await self._wiring.pacer.pause(turn.entry.size)
        try:
            output = await self._run(history, seconds)
            if isinstance(output, Parking):
                return await self._park(output)
            if is_large:
                await self._wiring.pacer.pause(turn.entry.size)
            change = await self._settle(output)
        except StoreError:
            raise
        except TaskFull:
            change = await self.commit(self._outgrow)
        except Exception as error:  # such as text that UTF-8 can't encode; a retry would not help
            logger.exception("task %s: the turn of %s can't be completed", turn.task.task_id, turn.mailbox)
            change = await self._settle(self._failure(conceal(error)))
        if change is not None:
            for new in change.histories:
                self._cache(change, new, history)
        return change

    def _cache(self, change: TaskChange, new: HistoryRecord, history: CachedHistory) -> None:
        """Cache what the turn has added to the agent's history."""
        context = change.task.contexts.get(new.agent, UNKNOWN)
        portion = Portion(new.n, new.entries, len(new.encoded))
        self._wiring.histories.append(change.task.key, new.agent, portion, context.cut)
        if history.measured.tokens:
            history.measured = (
                context
                if context.tokens
                else history.measured.after(new.n, len(new.encoded) - json_size(self.turn.prompts))
            )

    async def _park(self, parking: Parking) -> Lease:
        checkpoint = None if parking.checkpoint is None else self._fitting(parking.checkpoint)
        failed = counted_attempts(self.turn)
        parked = park(self.turn, parking.later, parking.on, failed, self._clock)
        await self._store.park(self.turn, parked, checkpoint)
        return parked

    async def fail(self, reason: str, upto: int, attempts: int) -> TaskChange | None:
        """End the turn as failed, without running it; None if its message is newer than `upto`."""
        return None if self.turn.entry.seq > upto else await self._settle(self._failure(reason, attempts))

    def _failure(self, reason: str, attempts: int = 1) -> AgentFailure:
        return AgentFailure(reason, self._meter.spent, self._meter.spent_by_model, attempts)

    async def _settle(self, output: TurnOutput) -> TaskChange | None:
        turn, activity = self.turn, self.activity
        if activity.spans or output.timing is not None or activity.time() - activity.begin >= NOTABLE_SECONDS:
            output = replace(output, timing=activity.timing())
        if self._files is not None and isinstance(output, Checkpoint) and (refs := mentions(output)):
            output = replace(output, files=await self._files.among(refs))
        if self._approved is not None:
            reached, failure = (
                (self._kept, output.reason) if isinstance(output, AgentFailure) else (output, "")
            )
            return await self.commit(
                lambda draft: self._within_limit(draft, settle_approved(draft, turn, reached, failure))
            )
        background = NO_BACKGROUND if self._kept is None else Background(kept=self._kept)
        if self._agent.actions and self._reads_mail(output):
            background = replace(background, mail=await self._mail())
        try:
            if turn.mailbox in turn.task.waits.reminders and isinstance(output, Checkpoint):
                asked = reminders_asked(output.calls)
                if asked is not None:
                    return await self._settle_with_reminders(output, background, asked)
            return await self.commit(partial(self._decide, output, background))
        except StoreUnavailable:
            if isinstance(output, Checkpoint):
                with suppress(StoreError, TaskFull):  # a checkpoint is smaller than the commit
                    await self._keep(output, once=True)
            raise

    async def _settle_with_reminders(
        self, output: Checkpoint, background: Background, asked: set[str]
    ) -> TaskChange | None:
        """Settle a turn whose agent asks for its reminders, on the stored task."""

        async def reload() -> Task:
            nonlocal background
            task = await load_task(self._store, self.turn.task.key)
            background = replace(background, reminders=await self._reminders(task, asked))
            return task

        return await self.commit(
            lambda draft: self._decide(output, background, draft), await reload(), reload
        )

    def _decide(self, output: TurnOutput, background: Background, draft: Draft) -> TaskChange | None:
        return self._within_limit(draft, self._policy.settle(draft, self.turn, output, background))

    def _within_limit(self, draft: Draft, change: TaskChange | None) -> TaskChange | None:
        """Return the change, or the end of a task that it would make too large."""
        limit = self._wiring.caller_limits.task_bytes
        if change is None or limit is None or change.task.stored_bytes <= limit:
            return change
        if is_discarded(draft.before, self.turn):
            return change
        return self._outgrow(Draft(draft.before, self._swarm, self._clock))

    def _outgrow(self, draft: Draft) -> TaskChange:
        turn, meter, limit = self.turn, self._meter, self._wiring.caller_limits.task_bytes
        assert limit is not None
        return outgrow(draft, turn, meter.spent, meter.spent_by_model, limit, self._kept)

    def _reads_mail(self, output: TurnOutput) -> bool:
        """Return whether the agent has filled in a form that needs the messages of the task."""
        if isinstance(output, AgentFailure):
            return False
        forms = [self._swarm.form(self._agent, call.tool_name) for call in output.calls]
        return any(form is not None and form.reads_mail for form in forms)

    async def _reminders(self, task: Task, ids: Container[str]) -> Sequence[Timer]:
        """Return the first reminders of the agent, and those with these ids."""
        found: list[Timer] = []
        async for wait in open_waits(self._store, task):
            if isinstance(wait, Timer) and not wait.is_of_caller and wait.mailbox == self.turn.mailbox:
                found += [wait] if len(found) < MOST_LISTED or wait.id in ids else []
        return found

    async def _mail(self) -> Sequence[MAILMessage]:
        """Return the messages of the task."""
        events = await self._store.read_events(self.turn.task.key)
        return [event.message for event in events if event.message is not None and not event.is_redrive]

    async def _run(self, history: CachedHistory, seconds: float) -> TurnOutput | Parking:
        """Call the agent and its actions, or resume an interrupted run of this turn at its checkpoint."""
        if self._stopped_by is not None:
            raise self._stopped_by
        work = asyncio.Task(self._work(history), loop=asyncio.get_running_loop(), eager_start=True)
        if work.done():  # it never waited, so no timer is needed
            return work.result()
        self._work_task = work
        output: TurnOutput | Parking
        try:
            async with asyncio.timeout(seconds):
                output = await work
        except TimeoutError:
            # the output was paid for; the next attempt finds it, or calls the agent again
            if self._is_storing:
                raise StoreUnavailable("its time ended before its checkpoint was stored") from None
            output = self._failure(f"its turn took longer than {seconds:g} seconds")
        except asyncio.CancelledError:
            if not self._is_interrupted or asyncio.current_task().cancelling():  # type: ignore[union-attr]
                raise
            output = self._failure("its task was cancelled")
        if self._stopped_by is not None:
            raise self._stopped_by
        return output

    async def _work(self, history: CachedHistory) -> TurnOutput | Parking:
        agent = self._agent
        if (
            self._files is not None
            and self._wiring.peers is not None
            and any(FILES in each for each in self.turn.prompts)
        ):
            await self._files.fetch(self.turn.prompts, self._wiring.peers)
        if agent.tool_source is not None:
            self._provided = await self._provide(agent.tool_source)
        output: TurnOutput | Parking
        if self._approved is not None:
            output = self._kept or approved_checkpoint(self._approved)
        else:
            kept = self._kept
            output = kept if kept is not None and kept.is_called else await self._call(agent, history)
        if not isinstance(output, Checkpoint):
            return output
        guards = self._guards
        if guards is not None and self._approved is not None:
            output = await guards.judge_edited(output, self._approved)
        elif guards is not None:
            output = await guards.judge(output, self.activity.text_recipient)
        if not agent.runs_calls:
            return output
        are_judged = guards is not None and guards.judge_results
        self._calls = len(output.calls)
        actions = ActionRunner(
            partial(self._action, agent),
            self._keep,
            TurnCallbacks(self.turn, self._wiring, are_judged=are_judged),
            sequential=agent.sequential,
            mode=ForkActions.RUN if self._approved is not None else self.turn.task.actions,
            shorten=None if self._window is None or are_judged else self._shorten,
            has_person=self.turn.task.parent_swarm is None,
            may_park=TURN.get().may_park,
            meter=self._meter,
            tracer=self._wiring.tracer,
            activity=self.activity,
            is_judged=are_judged,
        )
        output = await actions.run(output)
        if guards is None or not are_judged or isinstance(output, Parking):
            return output
        output = await guards.judge_what_came(output)
        return output if self._window is None else await self._shorten_all(output)

    async def _provide(self, source: ToolSource) -> ProvidedTools:
        """Return a source's tools, without those that share a name with the caller's, and lend them to the turn."""
        provided = await source.tools()
        lent = {tool.name for tool in TURN.get().tools.tools}
        if not lent.isdisjoint(provided.actions):
            kept = {name: action for name, action in provided.actions.items() if name not in lent}
            provided = replace(provided, actions=kept)
        TURN.set(replace(TURN.get(), provided=provided))
        return provided

    async def _call(self, agent: AgentCore, history: CachedHistory) -> TurnOutput | Parking:
        turn, window = self.turn, self._window
        monotonic = self.activity.time
        begin = monotonic()
        prepared: Preparation | None = None
        try:
            if window is not None:
                kept = self._kept
                prepared = await window.prepare(history, None if kept is None else kept.preparation)
                self._meter.last = NO_USAGE
            try:
                messages = self._messages(history, prepared)
                text, calls = await self._step(agent, messages)
            except ContextWindowExceeded:
                if window is None:
                    raise
                prepared = await window.prepare_again(history, prepared)
                self._meter.last = NO_USAGE
                TURN.set(replace(TURN.get(), may_cut=False))
                messages = self._messages(history, prepared)
                text, calls = await self._step(agent, messages)
            if window is not None:
                prepared = await window.counted(history, prepared, self._meter.last.input_tokens)
        except (StoreError, TaskFull):  # a summary could not be stored
            raise
        except RetryLater as later:
            if TURN.get().may_park:
                return Parking(later, turn.mailbox)
            return replace(self._failure(later.detail), preparation=prepared)
        except AgentUnavailable as error:
            if turn.mailbox == turn.task.entrypoint:  # the caller gets it as the task's error
                self._problem = error.detail
            else:
                logger.warning("task %s: agent %s: %s", turn.task.task_id, turn.mailbox, error)
            return replace(self._failure(error.detail), preparation=prepared)
        except Exception as error:  # an agent is foreign code: all that it raises is reported
            logger.exception("task %s: agent %s failed", turn.task.task_id, turn.mailbox)
            return replace(self._failure(conceal(error)), preparation=prepared)
        finally:
            self._agent_seconds = monotonic() - begin
        shown = ShownText(messages, turn.markup)
        return Checkpoint(
            text=None if text is None else shown.unquote(text),
            calls=tuple(map(shown.unquote_call, calls)),
            receipts=(None,) * len(calls),
            usage=self._meter.spent,
            models=self._meter.spent_by_model,
            timing=self.activity.timing() if self.activity.spans else None,
            switch=self.activity.switch,
            preparation=prepared,
        )

    def _messages(self, history: CachedHistory, prepared: Preparation | None) -> History:
        """Return what the agent is called with."""
        entries, prompts = history.entries, self.turn.prompts
        if prepared is not None and self._window is not None:
            entries, prompts = self._window.messages(history, prepared)
        return self._policy.messages(self.turn, entries, prompts)

    def _step(self, agent: AgentCore, messages: History) -> Coroutine[None, None, AgentOutput]:
        """Call the agent."""
        step = agent.step(messages, self._policy.tool_choice(self.turn))
        return step if self._wiring.tracer is NO_TRACER else self._traced(step)

    async def _traced(self, step: Coroutine[None, None, AgentOutput]) -> AgentOutput:
        with self._wiring.tracer.agent_call(self.turn, self._meter, self.activity):
            return await step

    async def _keep_preparation(self, preparation: Preparation) -> None:
        """Store how far the preparation of the context has come, before the agent is called."""
        await self._keep(
            Checkpoint(
                text=None,
                calls=(),
                receipts=(),
                usage=self._meter.spent,
                models=self._meter.spent_by_model,
                timing=self.activity.timing(),
                preparation=preparation,
            )
        )

    async def _shorten_all(self, output: Checkpoint) -> Checkpoint:
        """Shorten the results that guards have judged."""
        for index, (call, receipt) in enumerate(zip(output.calls, output.receipts, strict=True)):
            if receipt is not None and receipt.after is not None:
                output = output.with_receipt(index, await self._shorten(call, receipt))
        return output

    async def _shorten(self, call: AgentToolCall, receipt: Receipt) -> Receipt:
        assert self._window is not None
        return await self._window.shorten(call, receipt, self._calls)

    def _action(self, agent: AgentCore, tool: str) -> ActionCore | None:
        """Return the action that the engine runs for a call; None if the tool is not an action."""
        if self._swarm.runs_as_action(agent, tool):
            action = self._swarm.actions[tool]
            if self._approved is not None:
                return replace(action, needs_approval=False)
            if agent.approve and (agent.approve is True or tool in agent.approve):
                return replace(action, needs_approval=True)
            return action
        if (provided := self._provided.actions.get(tool)) is not None:
            return provided if self._approved is None else replace(provided, needs_approval=False)
        if tool == ReadMore.tool_name and self._window is not None and tool not in agent.exclude_tools:
            return self._window.reader(self._calls)
        is_discovery = tool == DiscoverSwarms.tool_name and tool not in agent.exclude_tools
        peers = self._wiring.peers if agent.discovers and is_discovery else None
        return None if peers is None else discovery(peers)

    async def _keep(self, checkpoint: Checkpoint, *, on_disk: bool = False, once: bool = False) -> None:
        """Store a checkpoint. Raises TaskFull if the results of its actions don't fit into the task."""
        checkpoint = self._fitting(checkpoint)
        write = partial(self._store.save_checkpoint, self.turn, on_disk=on_disk)
        if once:
            await write(checkpoint)
        else:
            self._is_storing = True
            await self._insist(write, checkpoint)
            self._is_storing = False
        self._kept = checkpoint

    def _fitting(self, checkpoint: Checkpoint) -> Checkpoint:
        """Return a checkpoint as it is stored, with the attempt that it belongs to. Raises TaskFull."""
        results = sum(
            text_size(receipt.content) + receipt.apart
            for receipt in checkpoint.receipts
            if receipt is not None
        )
        limit = self._wiring.caller_limits.task_bytes
        if limit is not None and self.turn.task.stored_bytes + results > limit:
            raise TaskFull
        kept, attempt = self._kept, self.turn.lease.attempt
        if attempt > 1:
            is_progress = checkpoint.ended > (0 if kept is None else kept.ended)
            checkpoint = replace(checkpoint, attempt=attempt if is_progress or kept is None else kept.attempt)
        return checkpoint


def _only(tool: str) -> ToolChoice:
    return {"type": "function", "function": {"name": tool}}
