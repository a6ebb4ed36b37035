"""What an action learns about its call: the task, the agent, the caller, and the dependencies of its swarm."""

from contextvars import ContextVar
from typing import Any, cast

from mail.core.protocol.values import value
from mail.core.task.context import CURRENT_AGENT, CURRENT_CALL, CURRENT_CALLER, CURRENT_TASK

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
