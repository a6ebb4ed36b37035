"""Which task, agent and call the running code works for: context variables, and what an action reads of them."""

from contextvars import ContextVar
from typing import Any, cast

from mail.core.protocol.values import value

CURRENT_TASK: ContextVar[str] = ContextVar("CURRENT_TASK", default="")
"""The id of the current task; empty if there is none. Decisions never depend on it; actions may use it as a key."""

CURRENT_AGENT: ContextVar[str] = ContextVar("CURRENT_AGENT", default="")
"""The mailbox of the turn that is running."""

CURRENT_MESSAGE: ContextVar[str] = ContextVar("CURRENT_MESSAGE", default="")
"""The id of the message that the turn processes."""

CURRENT_TRACE: ContextVar[str] = ContextVar("CURRENT_TRACE", default="")
"""The W3C `traceparent` of the current request; empty if it has none."""

TURN_DEADLINE: ContextVar[float | None] = ContextVar("TURN_DEADLINE", default=None)
"""When the running turn times out, by the event loop's clock; None outside of turns.

Agent functions wait for model providers no longer than that.
"""

CURRENT_CALL: ContextVar[str] = ContextVar("CURRENT_CALL", default="")
"""The id of the tool call that runs the current action. A repeated action has the same id: an idempotency key."""

CURRENT_CALLER: ContextVar[str] = ContextVar("CURRENT_CALLER", default="")
"""The instance (`TaskKey.instance`) that the running action works for; callers share threads fairly."""

SWARM_DEPS: ContextVar[Any] = ContextVar("SWARM_DEPS", default=None)
"""The dependencies of the swarm whose action runs."""


@value(kw_only=True)
class ActionContext[Deps]:
    """The context of an action's call. An action gets it in a parameter with this annotation, which agents don't see.

    Attributes:
        deps: the dependencies of the swarm, given as `Swarm(..., deps=...)`; None without any.
        task_id: the id of the task.
        agent: the name of the agent that calls the action.
        caller: the owner of the task, as `role:id@swarm`.
        call_id: the id of the tool call. A repeated call has the same id: use it as an idempotency key.
    """

    deps: Deps = cast("Deps", None)  # for contexts that tests make
    task_id: str = ""
    agent: str = ""
    caller: str = ""
    call_id: str = ""


def current_context() -> ActionContext[Any]:
    """Return the context of the action that runs."""
    return ActionContext(
        deps=SWARM_DEPS.get(),
        task_id=CURRENT_TASK.get(),
        agent=CURRENT_AGENT.get(),
        caller=CURRENT_CALLER.get(),
        call_id=CURRENT_CALL.get(),
    )
