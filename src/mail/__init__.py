"""MAIL: swarms of agents that work by sending each other mail.

The public names are loaded on first use, so that `import mail` stays cheap.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mail.api.actions import MAILAction, action
    from mail.api.agents import MAILAgent, MAILAgentTemplate
    from mail.api.answers import Answer
    from mail.api.facade import Agent, Swarm
    from mail.api.runtime import MAILRuntime
    from mail.api.swarms import MAILSwarm, MAILSwarmTemplate
    from mail.core.protocol import PROTOCOL_VERSION
    from mail.core.protocol.address import MAILAddress
    from mail.core.protocol.interswarm import MAILInterswarmMessage
    from mail.core.protocol.message import (
        MAILBroadcast,
        MAILInterrupt,
        MAILMessage,
        MAILRequest,
        MAILResponse,
    )
    from mail.core.protocol.tool_schemas import AgentToolCall
    from mail.core.task.context import ActionContext
    from mail.core.task.live import LiveEvent

__all__ = [
    "PROTOCOL_VERSION",
    "ActionContext",
    "Agent",
    "AgentToolCall",
    "Answer",
    "LiveEvent",
    "MAILAction",
    "MAILAddress",
    "MAILAgent",
    "MAILAgentTemplate",
    "MAILBroadcast",
    "MAILInterrupt",
    "MAILInterswarmMessage",
    "MAILMessage",
    "MAILRequest",
    "MAILResponse",
    "MAILRuntime",
    "MAILSwarm",
    "MAILSwarmTemplate",
    "Swarm",
    "__version__",
    "action",
]

__version__ = "1.3.0"
"""The version of this package, which its distribution `mail-serverless` has as well."""

_MODULES = {
    "PROTOCOL_VERSION": "mail.core.protocol",
    "ActionContext": "mail.core.task.context",
    "Agent": "mail.api.facade",
    "Answer": "mail.api.answers",
    "LiveEvent": "mail.core.task.live",
    "Swarm": "mail.api.facade",
    "AgentToolCall": "mail.core.protocol.tool_schemas",
    "MAILAction": "mail.api.actions",
    "MAILAgent": "mail.api.agents",
    "MAILAgentTemplate": "mail.api.agents",
    "MAILAddress": "mail.core.protocol.address",
    "MAILBroadcast": "mail.core.protocol.message",
    "MAILInterrupt": "mail.core.protocol.message",
    "MAILInterswarmMessage": "mail.core.protocol.interswarm",
    "MAILMessage": "mail.core.protocol.message",
    "MAILRequest": "mail.core.protocol.message",
    "MAILResponse": "mail.core.protocol.message",
    "MAILRuntime": "mail.api.runtime",
    "MAILSwarm": "mail.api.swarms",
    "MAILSwarmTemplate": "mail.api.swarms",
    "action": "mail.api.actions",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'mail' has no attribute {name!r}")
    value: Any = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
