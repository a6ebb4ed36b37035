"""Calls that finish later: a turn begins them, and others finish them by their tokens.

begin ─► receipt with the token's digest, then the call's record ─► the action runs, and returns LATER
finish ─ decide ──► commit: mail to the agent, and the end of the record
report ─► the record
"""

from collections.abc import Sequence
from dataclasses import replace

from mail.core.decisions.callbacks import begun, check_open, finish
from mail.core.engine.admission import Admission
from mail.core.engine.commit import load_task
from mail.core.engine.live import LiveHub
from mail.core.engine.wiring import Wiring
from mail.core.protocol.calls import AgentToolCall
from mail.core.protocol.values import value
from mail.core.task.callbacks import (
    MAX_ARGUMENTS,
    MAX_CALLS_IN_A_TURN,
    MAX_OPEN_CALLS,
    MAX_PROGRESS,
    Callback,
    CallResult,
    CallState,
    LaterCall,
    Polled,
    digest_of,
    new_token,
    task_of,
)
from mail.core.task.change import TaskChange, Turn
from mail.core.task.live import LiveEvent
from mail.core.task.size import json_size
from mail.core.task.swarm import ActionCore
from mail.core.task.task import Task, TaskKey
from mail.core.task.turn_state import Checkpoint, Receipt
from mail.core.turns.context import CURRENT_TASK, NO_CALLBACK, CallbackAddress, key_of_call
from mail.errors import BadRequest, CallbackNotFound

PATH = "/callbacks/"
"""The path of the callbacks of a server; a token follows."""


class TurnCallbacks:
    """The callbacks of the calls of one turn; `are_judged` says that guards judge their results."""

    def __init__(self, turn: Turn, wiring: Wiring, *, are_judged: bool = False) -> None:
        self._turn = turn
        self._wiring = wiring
        self._are_judged = are_judged
        self._tokens: dict[str, str] = {}
        self._polled = 0

    def refusal(
        self,
        checkpoint: Checkpoint,
        action: ActionCore,
        call: AgentToolCall,
        about_to_begin: Sequence[ActionCore],
    ) -> Receipt | None:
        """Return the receipt of a call that can't begin: too many wait, or it would store too much."""
        others = _begun_in(checkpoint) + sum(each.finish_within is not None for each in about_to_begin)
        if others >= MAX_CALLS_IN_A_TURN:
            why = f"one turn can begin {MAX_CALLS_IN_A_TURN} calls that finish later; call it again in your next turn"
        elif self._turn.task.waits.open_calls + others >= MAX_OPEN_CALLS:
            why = f"{MAX_OPEN_CALLS} calls of this task wait for their results; await some of them first"
        elif action.on_cancel is not None and (size := json_size(call.tool_args)) > MAX_ARGUMENTS:
            why = f"its arguments have {size} bytes, and may have {MAX_ARGUMENTS}"
        else:
            return None
        return Receipt(state=Receipt.State.FAILED, content=f"it was not run: {why}")

    def begin(self, action: ActionCore, checkpoint: Checkpoint, index: int) -> Receipt:
        """Return the receipt of a call that begins now, or is repeated; it has a callback if it may finish later."""
        if action.finish_within is None:
            return Receipt(state=Receipt.State.STARTED)
        call, before = checkpoint.calls[index], checkpoint.receipts[index]
        callback = None if before is None else before.callback
        if callback is None or not callback.token:
            token = new_token(*self._turn.task.key, self._wiring.clock.new_id())
            callback = Callback(
                digest=digest_of(token),
                finish_by=self._wiring.now() + action.finish_within,
                heartbeat=action.heartbeat,
                seq=self._turn.task.seq,
                message=self._turn.entry.seq,
                key=key_of_call(call.tool_call_id, checkpoint.place(index)) if action.on_cancel else "",
                token=token if action.may_repeat else "",
                is_judged=self._are_judged,
            )
        else:
            token = callback.token
        self._tokens[callback.digest] = token
        return Receipt(state=Receipt.State.STARTED, callback=callback)

    def poll(self, polled: Polled, checkpoint: Checkpoint, index: int) -> Receipt:
        """Return the receipt of a call on which a server works now; a failure if too many such calls wait."""
        self._polled += 1
        count = self._polled + _begun_in(checkpoint)
        if count > MAX_CALLS_IN_A_TURN or self._turn.task.waits.open_calls + count > MAX_OPEN_CALLS:
            why = "its server works on it, but too many calls wait for their results, so nobody will read this one's"
            return Receipt(state=Receipt.State.FAILED, content=why)
        callback = Callback(
            digest=digest_of(self._wiring.clock.new_id()),
            finish_by=self._wiring.now() + polled.lasts,
            seq=self._turn.task.seq,
            message=self._turn.entry.seq,
            key=key_of_call(checkpoint.calls[index].tool_call_id, checkpoint.place(index)),
            polled=replace(polled, progress="") if self._are_judged else polled,
            is_judged=self._are_judged,
        )
        return waiting(callback)

    async def store(self, checkpoint: Checkpoint, index: int) -> None:
        """Store the record of a call that has begun, so that its result may come from now on."""
        receipt, call = checkpoint.receipts[index], checkpoint.calls[index]
        if receipt is None or receipt.callback is None:
            return
        agent, now = self._turn.mailbox, self._wiring.now()
        record = begun(receipt.callback, agent, call.tool_name, call.tool_call_id, call.tool_args, now)
        await self._wiring.store.put_wait(self._turn.task.key, record)

    def address(self, receipt: Receipt | None) -> CallbackAddress:
        """Return where the result of a call goes."""
        if receipt is None or receipt.callback is None:
            return NO_CALLBACK
        token, base = self._tokens[receipt.callback.digest], self._wiring.base_url
        url = f"{base}{PATH}{token}" if base else ""
        return CallbackAddress(token=token, url=url)


def _begun_in(checkpoint: Checkpoint) -> int:
    return sum(each is not None and each.callback is not None for each in checkpoint.receipts)


def waiting(callback: Callback) -> Receipt:
    """Return the receipt of a call that waits for its result; nobody needs its token here any more."""
    return Receipt(state=Receipt.State.WAITING, callback=replace(callback, token=""))


@value
class Reported:
    """A call after a report: what it has come to, and until when it must be heard of again, in seconds since the epoch.

    `due` is None for a call that has ended.
    """

    state: CallState
    due: float | None


class Callbacks:
    """Takes the results and the heartbeats of calls."""

    def __init__(self, wiring: Wiring, admission: Admission, live: LiveHub) -> None:
        self._wiring = wiring
        self._admission = admission
        self._live = live

    async def check(self, token: str) -> None:
        """Raise CallbackNotFound if no call has this token."""
        await self._find(token)

    async def finish(self, token: str, result: CallResult) -> Reported:
        """End a call with its result, which its agent reads; the same result again changes nothing.

        Raises CallbackNotFound; CallbackClosed if the call has ended with another result, or can't any more.
        """
        wiring = self._wiring
        key, call = await self._find(token)

        async def load() -> Task:
            nonlocal call
            task = await load_task(wiring.store, key)
            # read after the task, whose version proves that the call is current
            call = await self._read(key, call.digest)
            return task

        def decide(task: Task) -> TaskChange | None:
            return finish(wiring.draft(task), call, result)

        change = await self._admission.adopt(await load(), decide, reload=load)
        if change is not None and isinstance(ended := change.waits[0], LaterCall):
            call = ended
        return Reported(call.state, None)

    async def report(self, token: str, progress: str | None = None) -> Reported:
        """Note that a call is alive, and how far it has come, if given, for those who watch its task, too.

        Raises as `finish`, and BadRequest.
        """
        if progress is not None and len(progress) > MAX_PROGRESS:
            raise BadRequest(f"progress may have {MAX_PROGRESS} characters, not {len(progress)}")
        wiring = self._wiring
        key, call = await self._find(token)
        while True:
            task = await load_task(wiring.store, key)
            call = await self._read(key, call.digest)
            check_open(task, call)
            new = call.heard_of(wiring.now(), progress)
            if await wiring.store.put_wait(key, new, instead_of=call):
                if new.state is CallState.WAITING and key in self._live.watched:
                    self._live.publish(key, LiveEvent.of_call(new))
                    await self._live.flush(key)
                return Reported(new.state, new.due)

    async def _find(self, token: str) -> tuple[TaskKey, LaterCall]:
        place = task_of(token)
        if place is None or not self._wiring.serves(key := TaskKey(*place)):
            raise CallbackNotFound
        CURRENT_TASK.set(key.task_id)
        return key, await self._read(key, digest_of(token))

    async def _read(self, key: TaskKey, digest: str) -> LaterCall:
        call = await self._wiring.store.read_wait(key, digest)
        if not isinstance(call, LaterCall):
            raise CallbackNotFound
        return call
