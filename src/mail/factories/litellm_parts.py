"""litellm, loaded when it is needed, and its undocumented parts that MAIL uses, as litellm offers no other way.

Each part is checked by `tests/factories/test_litellm_parts.py`, with the lowest and the highest version allowed.
"""

import asyncio
import os
import warnings
from collections.abc import Mapping
from importlib import import_module
from threading import Lock
from types import MappingProxyType
from typing import Any

from mail.core.protocol.error_text import missing_package
from mail.errors import AgentUnavailable

_FIRST_CALL = ("litellm.responses.mcp.litellm_proxy_mcp_handler",)


OFFLINE = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True"}
"""Environment variables that keep litellm from fetching its tables from GitHub; existing values win."""

NOISE: Mapping[str, type[Warning]] = MappingProxyType(
    {
        "Pydantic serializer warnings": UserWarning,
        "Items? '.*' on TypedDict class": UserWarning,
        "coroutine 'BaseLLMHTTPHandler": RuntimeWarning,
    }
)
"""Warnings that litellm causes: with every streamed response, one time per process, and when a call is cancelled."""

_lock = Lock()
_loaded: list[Any] = []


def loaded_litellm() -> Any:
    """Return the module if it is loaded; otherwise None."""
    return _loaded[0] if _loaded else None


def load_litellm() -> Any:
    """Return the module. Raises AgentUnavailable if it isn't installed."""
    with _lock:
        if not _loaded:
            for name, value in OFFLINE.items():
                os.environ.setdefault(name, value)
            try:
                litellm: Any = import_module("litellm")
            except ModuleNotFoundError as error:
                needs = missing_package(error)
                raise AgentUnavailable(f"agents with a language model need {needs}") from error
            for message, kind in NOISE.items():
                warnings.filterwarnings("ignore", message, kind)
            litellm.telemetry = False
            litellm.suppress_debug_info = True  # otherwise it prints advice to the console for every error
            litellm.disable_hf_tokenizer_download = (
                True  # it only estimates tokens, and without a network it retries
            )
            litellm.disable_aiohttp_transport = True  # its sessions outlive the event loops they belong to
            _loaded.append(litellm)
        return _loaded[0]


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


def headers_of(response: Any) -> dict[str, Any]:
    """Return the headers of a response, whole or streamed; those of the provider begin with `llm_provider-`."""
    return dict((getattr(response, "_hidden_params", None) or {}).get("additional_headers") or {})


def is_finished(stream: Any, _reason: str | None = None) -> bool:
    """Return whether the provider has sent a finish reason for a streamed reply; litellm reports one even without it.

    Streams of other classes than litellm's usual one don't tell, and count as finished.
    """
    reason = getattr(stream, "received_finish_reason", True)
    return bool(reason or getattr(stream, "intermittent_finish_reason", None))
