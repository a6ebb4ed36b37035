"""The undocumented parts of litellm that MAIL uses, as litellm offers no other way.

Each is checked with the versions `CHECKED` by `tests/factories/test_litellm_parts.py`, which names them all.
"""

import asyncio
from importlib import import_module
from typing import Any

CHECKED = ("1.106.0", "1.107")
"""The first version of litellm that was checked, and the first that was not."""

_FIRST_CALL = ("litellm.responses.mcp.litellm_proxy_mcp_handler",)


def import_rest() -> None:
    """Import the modules that litellm otherwise imports on its first call. Raises ImportError."""
    for module in _FIRST_CALL:
        import_module(module)


def take_clients(litellm: Any, loop: asyncio.AbstractEventLoop) -> list[Any]:
    """Remove the HTTP clients of a loop from litellm's cache, whose keys end with the loop's id, and return them.

    One of them is also an attribute of the module, which litellm recreates on demand.
    """
    vars(litellm).pop("module_level_aclient", None)
    cached: dict[str, Any] = litellm.in_memory_llm_clients_cache.cache_dict
    return [cached.pop(key) for key in list(cached) if key.endswith(f"-{id(loop)}")]


def is_finished(stream: Any) -> bool:
    """Return whether the provider has sent a finish reason for a streamed reply; litellm reports one even without it.

    Streams of other classes than litellm's usual one don't tell, and count as finished.
    """
    reason = getattr(stream, "received_finish_reason", True)
    return bool(reason or getattr(stream, "intermittent_finish_reason", None))
