"""MAIL: swarms of agents that work by sending each other mail.

The public names are loaded when they are first used, so that `import mail` itself costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mail.core.protocol import PROTOCOL_VERSION

if TYPE_CHECKING:
    from mail.api.actions import MAILAction, action
    from mail.api.agents import MAILAgent, MAILAgentTemplate
    from mail.api.swarms import MAILSwarm
    from mail.api.templates import MAILSwarmTemplate
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

__all__ = [
    "PROTOCOL_VERSION",
    "AgentToolCall",
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
    "MAILSwarm",
    "MAILSwarmTemplate",
    "__version__",
    "action",
]

__version__: str
"""The version of this package, read from its installed metadata."""

_HOMES = {
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
    "MAILSwarm": "mail.api.swarms",
    "MAILSwarmTemplate": "mail.api.templates",
    "action": "mail.api.actions",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("mail")
    elif name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module 'mail' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
