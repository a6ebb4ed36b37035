"""Variants of an agent function: with another model or system prompt, or without output."""

from copy import copy
from typing import Any, Protocol, runtime_checkable

from mail.core.task.swarm import AgentFunction
from mail.errors import BadRequest

WRAPPED = ("supervisor_fn", "action_agent_fn", "_mail_agent")
"""Attributes in which known wrappers keep the agent function that they wrap."""


@runtime_checkable
class CallsModel(Protocol):
    """An agent function that calls a language model."""

    llm: str

    def but(self, *, llm: str | None = None, system: str | None = None) -> AgentFunction:
        """Return a copy of the agent with another model or system prompt."""


def with_model(agent: str, function: AgentFunction, llm: str | None, system: str | None) -> AgentFunction:
    """Return the function with another model or system prompt, if given. Raises BadRequest if it calls no model."""
    if llm is None and system is None:
        return function
    if not isinstance(function, CallsModel):
        raise BadRequest(f"agent {agent!r} takes no other model or system prompt: it calls no language model")
    return function.but(llm=llm, system=system)


def silent(function: AgentFunction) -> AgentFunction:
    """Return a copy of the function that prints no streams; the functions that it wraps are silenced too."""
    quiet: Any = copy(function)
    if hasattr(quiet, "print_llm_streams"):
        quiet.print_llm_streams = False
    for name in WRAPPED:
        if callable(getattr(quiet, name, None)):
            setattr(quiet, name, silent(getattr(quiet, name)))
    return quiet  # type: ignore[no-any-return]
