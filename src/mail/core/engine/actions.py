"""The actions of a turn: a model's tool calls run at the same time, each with a receipt before and after it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Protocol

from mail.core.decisions.backoff import delay_after
from mail.core.engine.callbacks import TurnCallbacks, waiting
from mail.core.engine.telemetry import Tracer
from mail.core.protocol.calls import AgentToolCall
from mail.core.protocol.values import value
from mail.core.task.callbacks import LATER, Later, Polled
from mail.core.task.size import MAX_HELD, json_size
from mail.core.task.swarm import ActionCore
from mail.core.task.task import ForkActions
from mail.core.task.turn_state import Checkpoint, Receipt
from mail.core.turns.activity import ActionRun, TurnActivity
from mail.core.turns.context import TURN, begin_call, idempotency_key, lend_time_limit
from mail.core.turns.usage import UsageMeter
from mail.errors import RetryLater, StoreError, StoreUnavailable, TaskFull, ToolCallFault

logger = logging.getLogger(__name__)

UNKNOWN_OUTCOME = (
    "the outcome is unknown: the server stopped while this action ran. It was not repeated. "
    "Check whether it took effect before you call it again."
)

UNKNOWN_AFTER_TIMEOUT = (
    "the outcome is unknown: it may have taken effect, or still be running. "
    "Check whether it did before you call it again."
)

NOBODY_APPROVES = (
    "it was not run: a person must approve this call, and nobody here can: the task belongs to another swarm"
)

FORK_REFUSES = (
    "it was not run: this task is a fork in which only read-only actions run. Continue without it, and say in your "
    "answer what you would have done."
)


class Keep(Protocol):
    """Stores a checkpoint, as `Store.save_checkpoint` does. Raises TaskFull or StoreError.

    While the store refuses it, it is repeated, unless it is to be written only `once`.
    """

    def __call__(
        self, checkpoint: Checkpoint, /, *, on_disk: bool = False, once: bool = False
    ) -> Coroutine[None, None, None]: ...


@value
class Parking:
    """Why a turn can't run now.

    Attributes:
        later: says when it can.
        on: the action or the agent that raised it.
        checkpoint: how far the turn has come, without receipts of the calls that are to be made again; None if it has
            made none.
    """

    later: RetryLater
    on: str
    checkpoint: Checkpoint | None = None


@dataclass(eq=False, repr=False)
class ActionRunner:
    """Runs the actions that an agent has called in a turn; those that need approval get a receipt that says so.

    Attributes:
        find: returns the action that runs for a tool; None for a tool that is no action.
        sequential: whether all actions of the agent run one after the other.
        mode: whether actions that are not read-only run, wait for approval, or are refused.
        callbacks: makes the callbacks of calls that finish later.
        shorten: returns a receipt with as much of its result as the agent sees at once.
        has_person: whether a person can approve calls of the task; without one, those that need approval fail.
        may_park: whether calls may be put off; if not, RetryLater is a failure as any other.
        is_judged: whether guards judge the results, which no trace has.
    """

    find: Callable[[str], ActionCore | None]
    keep: Keep
    callbacks: TurnCallbacks
    sequential: bool
    mode: ForkActions
    has_person: bool
    may_park: bool
    meter: UsageMeter
    tracer: Tracer
    activity: TurnActivity
    shorten: Callable[[AgentToolCall, Receipt], Awaitable[Receipt]] | None = None
    is_judged: bool = False

    def __post_init__(self) -> None:
        self._parking: Parking | None = None

    async def run(self, checkpoint: Checkpoint) -> Checkpoint | Parking:
        """Run the calls that are actions, at the same time; a receipt of each is stored before it and after it.

        A sequential one runs alone: after the calls before it, and before those after it. If one raises RetryLater, the
        calls that have begun end, no further one begins, and the turn is to be parked.
        """
        is_changed = False
        group: list[tuple[int, ActionCore]] = []
        for index, (call, receipt) in enumerate(zip(checkpoint.calls, checkpoint.receipts, strict=True)):
            action = self.find(call.tool_name)
            is_begun = receipt is not None and receipt.state is Receipt.State.STARTED
            if (receipt is not None and not is_begun) or (action is None and not is_begun):
                continue
            if checkpoint.refusal(index) is not None:
                continue
            if action is not None and checkpoint.asks(index):
                action = replace(action, needs_approval=True)
            may_hold = self.mode is not ForkActions.RUN or (action and action.needs_approval is not False)
            if action is not None and receipt is None and may_hold:
                refusal = await self._hold(action, call, checkpoint)
                if refusal is not None:
                    checkpoint = self._with(checkpoint, index, refusal)
                    continue
            is_changed = True
            if receipt is None and action is not None and action.finish_within is not None:
                refusal = self.callbacks.refusal(checkpoint, action, call, [action for _, action in group])
                if refusal is not None:
                    checkpoint = self._with(checkpoint, index, refusal)
                    continue
            if action is None or (is_begun and not action.may_repeat):  # None: its provider lacks it now
                callback = None if receipt is None else receipt.callback
                unknown = Receipt(state=Receipt.State.FAILED, content=UNKNOWN_OUTCOME)
                checkpoint = self._with(checkpoint, index, waiting(callback) if callback else unknown)
            elif self.sequential or action.sequential:
                for each in (group, [(index, action)]):
                    checkpoint = await self._run_together(each, checkpoint)
                    if self._parking is not None:
                        return replace(self._parking, checkpoint=checkpoint)
                group = []
            else:
                group.append((index, action))
        checkpoint = await self._run_together(group, checkpoint)
        if self._parking is not None:
            return replace(self._parking, checkpoint=checkpoint)
        if is_changed:
            await self.keep(checkpoint)
        return checkpoint

    def _with(self, checkpoint: Checkpoint, index: int, receipt: Receipt | Parking | None) -> Checkpoint:
        """Return the checkpoint with the receipt of a call, and with what the turn has cost so far.

        The receipt of a call that is to be made again is taken back. If there are several, the last one's time counts.
        """
        if isinstance(receipt, Parking):
            if self._parking is None or receipt.later.retry_after > self._parking.later.retry_after:
                self._parking = receipt
            return self._with(checkpoint, index, None)
        spent, models = self.meter.spent, self.meter.spent_by_model
        return replace(checkpoint.with_receipt(index, receipt), usage=spent, models=models)

    async def _hold(self, action: ActionCore, call: AgentToolCall, checkpoint: Checkpoint) -> Receipt | None:
        """Return the receipt of a call that may not run, or not before a person has approved it; None if it may."""
        is_free = self.mode is ForkActions.RUN or action.read_only
        if self.mode is ForkActions.REFUSE and not is_free:
            return Receipt(state=Receipt.State.FAILED, content=FORK_REFUSES)
        if is_free and not await _needs_approval(action, call):
            return None
        if problem := action.find_problem(call.tool_args):
            text = f"{action.name} was not run, its arguments are wrong: {problem}"
            return Receipt(state=Receipt.State.FAILED, content=text)
        if not self.has_person:
            return Receipt(state=Receipt.State.FAILED, content=NOBODY_APPROVES)
        if (size := json_size(call.tool_args) + _held_bytes(checkpoint)) > MAX_HELD:
            text = (
                f"it was not run: a person must approve this call, and the arguments of the calls of a turn that wait "
                f"for approval may have {MAX_HELD} bytes together, not {size}. Shorten them, or put a long text into a "
                "file and pass its id."
            )
            return Receipt(state=Receipt.State.FAILED, content=text)
        return Receipt(state=Receipt.State.HELD)

    async def _run_together(self, group: list[tuple[int, ActionCore]], checkpoint: Checkpoint) -> Checkpoint:
        """Run actions at the same time. Return the checkpoint with their receipts; the last one is not stored yet."""
        if not group:
            return checkpoint
        for index, action in group:
            begun = self.callbacks.begin(action, checkpoint, index)
            checkpoint = self._with(checkpoint, index, begun)
        for index, _ in group:  # before the receipts, as a receipt without its record would wait for nobody
            await self.callbacks.store(checkpoint, index)
        await self.keep(checkpoint, on_disk=not all(action.may_repeat for _, action in group))
        if len(group) == 1:
            ((index, action),) = group
            receipt = await self._run_action(action, checkpoint, index)
            return self._with(checkpoint, index, receipt)
        running = {
            asyncio.create_task(self._run_action(action, checkpoint, index)): index for index, action in group
        }
        try:
            while running:
                ended, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in ended:
                    checkpoint = self._with(checkpoint, running.pop(task), task.result())
                if running:
                    # the next write has all receipts: no reason to cancel the others
                    with suppress(StoreUnavailable):
                        await self.keep(checkpoint, once=True)
        except asyncio.CancelledError:
            for task in [task for task in running if task.done() and not task.cancelled()]:
                checkpoint = self._with(checkpoint, running.pop(task), task.result())
            # the turn may run again, and these have ended
            with suppress(StoreError, TaskFull):
                await self.keep(checkpoint, once=True)
            raise
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        return checkpoint

    async def _run_action(self, action: ActionCore, checkpoint: Checkpoint, index: int) -> Receipt | Parking:
        call, begun = checkpoint.calls[index], checkpoint.receipts[index]
        begin_call(call.tool_call_id, checkpoint.place(index), self.callbacks.address(begun))
        with ActionRun(self.activity, call) as run:
            receipt = await self._call(action, checkpoint, index, run)
            if isinstance(receipt, Parking):
                run.fail(receipt.later.detail)
                return receipt
            if receipt.state is Receipt.State.FAILED:
                run.fail(receipt.content)
        if begun is not None and begun.callback is not None:
            state, content = receipt.state, receipt.content
            receipt = replace(waiting(begun.callback), state=state, content=content)
        files = TURN.get().files
        added = 0 if files is None else files.added_by(checkpoint.place(index))
        if self.shorten is not None:
            receipt = await self.shorten(call, receipt)
        if added:
            receipt = replace(receipt, apart=receipt.apart + added)
        return self.activity.timed(receipt, run)

    async def _call(
        self, action: ActionCore, checkpoint: Checkpoint, index: int, run: ActionRun
    ) -> Receipt | Parking:
        call = checkpoint.calls[index]
        try:
            with self.tracer.action(call) as span:
                try:
                    content = await _attempt_all(action, call, run)
                finally:
                    if run.attempts > 1:
                        span.note("mail.attempts", run.attempts)
                span.note_result(content if isinstance(content, str) and not self.is_judged else "")
        except Exception as error:  # an action is foreign code: all that it raises is reported to the agent
            if isinstance(error, RetryLater) and self.may_park:
                return Parking(error, action.name)
            logger.info("action %s failed: %s", action.name, type(error).__name__)
            logger.debug("action %s", action.name, exc_info=True)  # it may quote messages
            tries = f" (on the last of {run.attempts} attempts)" if run.attempts > 1 else ""
            return Receipt(state=Receipt.State.FAILED, content=f"{_text(error)}{tries}")
        if content is LATER and action.finish_within is not None:
            return Receipt(state=Receipt.State.WAITING)
        if isinstance(content, Polled):
            return self.callbacks.poll(content, checkpoint, index)
        if not isinstance(content, str):  # foreign code may ignore its types
            wrong = type(content).__name__
            advice = "; only an action with finishes='later' may" if content is LATER else ""
            return Receipt(
                state=Receipt.State.FAILED,
                content=f"{action.name} must return str, but returned {wrong}{advice}",
            )
        return Receipt(state=Receipt.State.DONE, content=content)


async def _attempt_all(action: ActionCore, call: AgentToolCall, run: ActionRun) -> str | Later | Polled:
    """Run an action until it succeeds, or may not be repeated in this turn. Raises what the last attempt raises."""
    while True:
        try:
            return await _attempt(action, call)
        except (ToolCallFault, RetryLater):
            raise  # the arguments stay as they are; and the call says when to make it again
        except Exception as error:
            # the key of the call is a random number that every process knows
            after = delay_after(run.attempts, int(idempotency_key()[:8] or "0", 16) / 2**32)
            end, now = TURN.get().deadline, asyncio.get_running_loop().time()
            if run.attempts > action.retries or (end is not None and now + after >= end):
                raise
            logger.info("action %s: %s, next in %.1f s", action.name, type(error).__name__, after)
            run.retry(_text(error), after)
        await asyncio.sleep(after)


async def _attempt(action: ActionCore, call: AgentToolCall) -> str | Later | Polled:
    """Run an action once. Raises TimeoutError, in words for the agent, and what the action raises."""
    arguments = deepcopy(call.tool_args)
    if action.timeout is None:
        return await action.function(arguments)
    try:
        async with asyncio.timeout(action.timeout) as limit:
            with lend_time_limit(limit):
                return await action.function(arguments)
    except TimeoutError as error:
        if not limit.expired():
            raise
        unknown = "" if action.may_repeat else f"; {UNKNOWN_AFTER_TIMEOUT}"
        raise TimeoutError(f"{action.name} timed out after {action.timeout:g} s{unknown}") from error


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__


def _held_bytes(checkpoint: Checkpoint) -> int:
    """Return the size of the arguments of the calls that wait for approval."""
    calls = zip(checkpoint.calls, checkpoint.receipts, strict=True)
    return sum(
        json_size(call.tool_args)
        for call, receipt in calls
        if receipt is not None and receipt.state is Receipt.State.HELD
    )


async def _needs_approval(action: ActionCore, call: AgentToolCall) -> bool:
    predicate = action.needs_approval
    if isinstance(predicate, bool):
        return predicate
    try:
        return bool(await predicate(deepcopy(call.tool_args)))
    except Exception as error:  # foreign code: a person decides on what it can't
        logger.warning("needs_approval of action %s failed: %s", action.name, type(error).__name__)
        logger.debug("needs_approval of action %s", action.name, exc_info=True)
        return True
