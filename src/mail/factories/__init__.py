"""Agent functions: they translate an agent's configuration into what the engine calls when the agent has mail.

    supervisor = LiteLLMSupervisorFunction(
        name="supervisor",
        comm_targets=["weather"],
        llm="openai/gpt-5-mini",
        system="You answer questions.",
    )
    text, calls = await supervisor([{"role": "user", "content": "Hello!"}])

Building one is cheap; litellm is imported when a model is first called (`mail.factories.models`).

    base, action, supervisor   the classes; `request` is what they ask of a model
    calling                    asks until there is an answer: `retry` decides, `troubles` reads what went wrong
    chat, responses            the two APIs: what is sent, and how a reply is read, whole or streamed
    items, assembly, history   a reply item by item, made into tool calls, and sent back as history
    models, tools, console     litellm and its tables, tool declarations, printed streams
"""

from mail.factories.action import ActionAgentFunction, LiteLLMActionAgentFunction
from mail.factories.base import LiteLLMAgentFunction, MAILAgentFunction, base_agent_factory
from mail.factories.models import preload
from mail.factories.supervisor import LiteLLMSupervisorFunction, SupervisorFunction

__all__ = [
    "ActionAgentFunction",
    "LiteLLMActionAgentFunction",
    "LiteLLMAgentFunction",
    "LiteLLMSupervisorFunction",
    "MAILAgentFunction",
    "SupervisorFunction",
    "base_agent_factory",
    "preload",
]
