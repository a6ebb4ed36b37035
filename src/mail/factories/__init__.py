"""Factories of agent functions, which the engine calls when an agent has mail.

    supervisor = LiteLLMSupervisorFunction(
        name="supervisor",
        comm_targets=["weather"],
        llm="openai/gpt-5-mini",
        system="You answer questions.",
    )
    text, calls = await supervisor([{"role": "user", "content": "Hello!"}])

Creating one is cheap; what calls a model is imported by the first call (`mail.factories.ports`).

    base, action, supervisor   the classes
    model_call, retry          calling a model until it replies; the retry policy
    failures                   the causes of failures
    ports                      the ways to a model: litellm_port, openai_port, converse_port; their connections
    chat, responses, converse  the APIs: building requests, and reading replies, whole or streamed
    items, history             the items of a reply, and tool calls from them; replies sent back as history
    models, table, providers   requests and replies; windows, prices and traits; the providers of models
    options, tools             the options of a call; tool declarations
    prompts                    how MAIL works, in the system prompts of a `Swarm`'s agents
    variants                   a function with another model, or without output
    rules                      agents that follow rules, without a model
"""

from typing import TYPE_CHECKING

from mail.startup import homes_of, lazy_exports

if TYPE_CHECKING:
    from mail.factories.action import ActionAgentFunction as ActionAgentFunction
    from mail.factories.action import LiteLLMActionAgentFunction as LiteLLMActionAgentFunction
    from mail.factories.action import action_agent_factory as action_agent_factory
    from mail.factories.base import LiteLLMAgentFunction as LiteLLMAgentFunction
    from mail.factories.base import MAILAgentFunction as MAILAgentFunction
    from mail.factories.base import base_agent_factory as base_agent_factory
    from mail.factories.ports import preload as preload
    from mail.factories.supervisor import LiteLLMSupervisorFunction as LiteLLMSupervisorFunction
    from mail.factories.supervisor import SupervisorFunction as SupervisorFunction
    from mail.factories.supervisor import supervisor_factory as supervisor_factory

_HOMES = homes_of(
    {
        "mail.factories.action": "ActionAgentFunction LiteLLMActionAgentFunction action_agent_factory",
        "mail.factories.base": "LiteLLMAgentFunction MAILAgentFunction base_agent_factory",
        "mail.factories.ports": "preload",
        "mail.factories.supervisor": "LiteLLMSupervisorFunction SupervisorFunction supervisor_factory",
    }
)

__all__ = list(_HOMES)

__getattr__, __dir__ = lazy_exports(__name__, _HOMES)
