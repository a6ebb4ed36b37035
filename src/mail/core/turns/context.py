"""The context of the running code: its task, and what a running turn lends to the code that it calls."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from hashlib import sha256
from typing import Any, Protocol, cast

from mail.core.protocol.values import value
from mail.core.task.client_tools import NO_CLIENT_TOOLS, TurnTools
from mail.core.task.costs import Usage
from mail.core.task.fallback import Switch
from mail.core.task.files import File, FileRef
from mail.core.task.leases import Park
from mail.core.task.mailboxes import agent_of
from mail.core.task.permits import PermitSource
from mail.core.task.swarm import ProvidedTools
from mail.core.turns.activity import CallTracer, ModelCall, TurnActivity
from mail.core.turns.usage import UsageMeter
from mail.errors import Unauthenticated

CURRENT_TASK: ContextVar[str] = ContextVar("CURRENT_TASK", default="")
"""The id of the current task; empty if there is none. Decisions never depend on it; actions may use it as a key."""

CURRENT_TRACE: ContextVar[str] = ContextVar("CURRENT_TRACE", default="")
"""The W3C `traceparent` of the current request; empty if it has none."""

NOTHING_PROVIDED = ProvidedTools()


class TimeLimit(Protocol):
    """A time limit that can be moved, as asyncio's `Timeout`; the times are those of the event loop's clock."""

    def when(self) -> float | None:
        """Return the end of the time; None for never."""

    def reschedule(self, when: float | None, /) -> None:
        """Move the end."""


@value(kw_only=True)
class CallbackAddress:
    """Where the result of a call goes that finishes later.

    Attributes:
        token: all that it takes to finish the call, once.
        url: `POST` the result there, as `{"result": …}` or `{"error": "why"}`; empty where no server runs.
    """

    token: str = ""
    url: str = ""


NO_CALLBACK = CallbackAddress()


class FilesOfTurn(Protocol):
    """The files of the task of a turn."""

    async def read(self, file_id: str) -> bytes | None:
        """Return the bytes of a file; None if it is gone."""

    async def find(self, file_id: str) -> FileRef | None:
        """Return the reference of a file of the task; None if the task doesn't refer to it."""

    async def add(self, file: File) -> FileRef:
        """Store a file for the task. Raises BadRequest or PayloadTooLarge if it can't be."""

    def added_by(self, call_place: str) -> int:
        """Return the bytes of the files that a call has added."""


class TokensOfCallers(Protocol):
    """The tokens with which callers were authenticated."""

    async def token(self, owner: str) -> str:
        """Return the token of a caller, `role:id@swarm`. Raises Unauthenticated if there is none that is valid."""


async def token_of_caller() -> str:
    """Return the token of the caller whose turn runs. Raises Unauthenticated if there is none that is valid."""
    turn = TURN.get()
    tokens = turn.services.caller_tokens
    if tokens is None:
        raise Unauthenticated(
            "this server keeps no tokens of callers: its operator has to set MAIL_SEALING_KEY"
        )
    return await tokens.token(turn.caller)


@value
class Services:
    """What a process lends to each of its turns.

    Attributes:
        tracer: traces the calls of models; None if nothing is traced.
        permits: keep the limits of models; None if nobody does.
        caller_tokens: the tokens of callers; None if none are kept.
    """

    tracer: CallTracer | None = None
    permits: PermitSource | None = None
    caller_tokens: TokensOfCallers | None = None


NO_SERVICES = Services()


@value(kw_only=True)
class CurrentCall:
    """The call of an action that runs.

    Attributes:
        id: the id of its tool call, as its model has chosen it.
        place: its place among the calls of the turn (`Checkpoint.place`); empty if no action runs.
        key: its idempotency key, if it was called in an earlier turn; else that follows from its place.
        callback: where its result goes if it finishes later.
        deps: the dependencies of the swarm.
        time_limit: that of the attempt at it.
    """

    id: str = ""
    place: str = ""
    key: str = ""
    callback: CallbackAddress = NO_CALLBACK
    deps: Any = None
    time_limit: TimeLimit | None = None


NO_CALL = CurrentCall()


@value(kw_only=True)
class TurnContext:
    """What a running turn lends to agents, actions and models.

    Attributes:
        agent: the mailbox of the turn.
        message_id, message_seq: the id and the seq of the message that the turn processes.
        caller: the instance (`TaskKey.instance`) that the turn works for; callers share threads fairly.
        deadline: when the turn times out, by the event loop's clock; models are not waited for longer than that.
        tools: the tools of the task's caller.
        provided: the tools that the agent gets from its `ToolSource`.
        meter: adds up the costs of models; None outside of turns.
        switch: the model that the agent's calls go to in this task, in place of its first one; None for that.
        activity: notes the calls of models and actions; None outside of turns.
        services: what the process lends to each of its turns.
        traceparent: the trace of the task; empty without one.
        call: the call of an action that runs.
        may_cut: whether a call that the model refuses as too long is repeated with a shorter context. If not, only a
            model with a larger window helps.
        is_private: whether nobody sees what models write, as it is not what the agent says, or not yet.
        is_judged: whether no trace has what models read and write, as guards judge it.
        may_park: whether the turn can wait outside of the process, by raising RetryLater.
        parked: the park that it comes from, if it has been parked.
        files: the files of the task; None where none are stored.
    """

    agent: str = ""
    message_id: str = ""
    message_seq: int = 0
    caller: str = ""
    deadline: float | None = None
    tools: TurnTools = NO_CLIENT_TOOLS
    provided: ProvidedTools = NOTHING_PROVIDED
    meter: UsageMeter | None = None
    activity: TurnActivity | None = None
    services: Services = NO_SERVICES
    traceparent: str = ""
    switch: Switch | None = None
    call: CurrentCall = NO_CALL
    may_cut: bool = False
    is_private: bool = False
    is_judged: bool = False
    may_park: bool = False
    parked: Park | None = None
    files: FilesOfTurn | None = None


NO_TURN = TurnContext()

TURN: ContextVar[TurnContext] = ContextVar("TURN", default=NO_TURN)
"""The turn that is running; `NO_TURN` outside of turns. It is replaced as a whole, never changed."""


@value(kw_only=True)
class ActionContext[Deps]:
    """The context of an action's call. An action gets it in a parameter with this annotation, which agents don't see.

    Attributes:
        deps: the dependencies of the swarm, given as `Swarm(..., deps=...)`; None without any.
        task_id: the id of the task.
        agent: the name of the agent that calls the action.
        caller: the owner of the task, as `role:id@swarm`.
        call_id: the id of the tool call. Some models repeat their ids: it identifies the call only within its turn.
        idempotency_key: a text that belongs to this call alone, and to each repetition of it (`idempotency_key`).
        callback: where the result goes if the action has `finishes="later"` and returns `LATER`; empty otherwise.
    """

    deps: Deps = cast("Deps", None)  # for contexts that tests make
    task_id: str = ""
    agent: str = ""
    caller: str = ""
    call_id: str = ""
    idempotency_key: str = ""
    callback: CallbackAddress = NO_CALLBACK

    async def caller_token(self) -> str:
        """Return the token of the identity provider that the owner of the task has shown last, to act in their name.

        Never return or log it. Raises Unauthenticated, with what they have to do, if there is none that is valid.
        """
        return await token_of_caller()


def current_context() -> ActionContext[Any]:
    """Return the context of the action that runs."""
    turn = TURN.get()
    return ActionContext(
        deps=turn.call.deps,
        task_id=CURRENT_TASK.get(),
        agent=agent_of(turn.agent),
        caller=turn.caller,
        call_id=turn.call.id,
        idempotency_key=idempotency_key(),
        callback=turn.call.callback,
    )


def begin_call(call_id: str, place: str, callback: CallbackAddress = NO_CALLBACK) -> None:
    """Note the tool call whose action runs from here, its place among those of the turn, and its callback."""
    TURN.set(replace(TURN.get(), call=CurrentCall(id=call_id, place=place, callback=callback)))


def idempotency_key() -> str:
    """Return a text of 64 characters that belongs to the tool call of the running action; empty outside actions.

    It is made from the swarm and the caller, the task, the turn and the call. So no other call has it, also not one
    with the same id in another turn, task or fork, and a repetition of the call after a crash has the same. Pass it
    to the systems that the action changes, so that a repeated call changes nothing.
    """
    call = TURN.get().call
    return call.key or (key_of_call(call.id, call.place) if call.place else "")


def key_of_call(call_id: str, place: str) -> str:
    """Return the `idempotency_key` of a call of the running turn."""
    turn = TURN.get()
    message = (turn.agent, turn.message_seq, turn.message_id)
    identity = (turn.caller, CURRENT_TASK.get(), *message, place, call_id)
    return sha256(json.dumps(identity).encode()).hexdigest()


@contextmanager
def lend_time_limit(limit: TimeLimit) -> Iterator[None]:
    """Lend the time limit of an attempt at an action to the code that runs it."""
    turn = TURN.get()
    token = TURN.set(replace(turn, call=replace(turn.call, time_limit=limit)))
    try:
        yield
    finally:
        TURN.reset(token)


def lend_deps(deps: Any) -> None:
    """Lend the dependencies of a swarm to the action that runs from here."""
    turn = TURN.get()
    TURN.set(replace(turn, call=replace(turn.call, deps=deps)))


def report_usage(usage: Usage, model: str = "") -> None:
    """Report the cost of a model call to the turn that is running, if any."""
    meter = TURN.get().meter
    if meter is not None:
        meter.add(usage, model)


def model_call(model: str) -> ModelCall:
    """Return a context manager for a call of a model, in the turn that is running, if any."""
    turn = TURN.get()
    return ModelCall(
        turn.activity,
        model,
        turn.meter,
        turn.services.tracer,
        is_private=turn.is_private,
        is_judged=turn.is_judged,
    )


def log_fields() -> dict[str, str]:
    """Return the fields of a log line that name the current task, agent and message, as far as there are any."""
    turn = TURN.get()
    about = {"task_id": CURRENT_TASK.get(), "agent": turn.agent, "message_id": turn.message_id}
    return {name: value for name, value in about.items() if value}


def leave_task() -> None:
    """Forget the task and the turn, in code that works for several of them."""
    CURRENT_TASK.set("")
    TURN.set(NO_TURN)
