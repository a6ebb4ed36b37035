"""The MAIL protocol and engine: pure decisions, and one loop that performs them through ports.

`AgentCore` and `ActionCore` can be imported from here; they are loaded when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mail.core.task.swarm import ActionCore, AgentCore

__all__ = ["ActionCore", "AgentCore"]

_HOMES = {"ActionCore": "mail.core.task.swarm", "AgentCore": "mail.core.task.swarm"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mail.core' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
