"""litellm, and what it knows of models.

It takes seconds to import, and most processes never call a model: so it is loaded by the first call, in a thread,
or by `preload` where a process knows that it will.
"""

import asyncio
import logging
import os
import warnings
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from inspect import isawaitable
from threading import Lock
from typing import Any
from weakref import WeakSet

from mail.errors import AgentUnavailable

logger = logging.getLogger(__name__)

OFFLINE = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
}
"""What keeps litellm from fetching its tables from GitHub; set where the environment doesn't say otherwise."""

WARM_UP = ("litellm.responses.mcp.litellm_proxy_mcp_handler",)
"""What litellm imports only when it is called."""

NOISE = ("Pydantic serializer warnings", "Item '.*' on TypedDict class")
"""Warnings that litellm causes in pydantic, with every streamed response and once per process."""

_lock = Lock()
_loaded: list[Any] = []
_known_loops: WeakSet[asyncio.AbstractEventLoop] = WeakSet()


def preload() -> None:
    """Import litellm now: for a process that will call models and has time before it does. Never raises."""
    try:
        load_litellm()
        for module in WARM_UP:
            import_module(module)
    except (AgentUnavailable, ImportError) as error:
        logger.warning("litellm can't be loaded: %s", error)


def load_litellm() -> Any:
    """The module. Raises AgentUnavailable where it isn't installed."""
    with _lock:
        if not _loaded:
            for name, value in OFFLINE.items():
                os.environ.setdefault(name, value)
            try:
                litellm: Any = import_module("litellm")
            except ModuleNotFoundError as error:
                raise AgentUnavailable(
                    "agents with a language model need litellm: pip install 'mail[llm]'"
                ) from error
            for message in NOISE:
                warnings.filterwarnings("ignore", message, UserWarning)
            litellm.telemetry = False
            litellm.suppress_debug_info = True  # else it prints advice to the console for every error
            litellm.disable_aiohttp_transport = True  # its sessions outlive the event loops they belong to
            _loaded.append(litellm)
        return _loaded[0]


async def get_litellm() -> Any:
    """The module; while it is imported, others may go on."""
    litellm = _loaded[0] if _loaded else await asyncio.to_thread(load_litellm)
    loop = asyncio.get_running_loop()
    if loop not in _known_loops:
        _known_loops.add(loop)
        _take_clients(litellm, loop)  # of a loop that had this id and is gone: they would fail
    return litellm


async def close_clients() -> None:
    """Close the connections that litellm keeps open for this event loop, which is about to end."""
    if _loaded:
        for client in _take_clients(_loaded[0], asyncio.get_running_loop()):
            close = getattr(client, "aclose", None) or getattr(client, "close", None)
            closing = close() if close is not None else None
            if isawaitable(closing):
                await closing


def _take_clients(litellm: Any, loop: asyncio.AbstractEventLoop) -> list[Any]:
    """Take the HTTP clients of a loop out of litellm's cache, whose keys end with the loop's id.

    One of them is kept as an attribute as well, which is made anew when it is missing.
    """
    vars(litellm).pop("module_level_aclient", None)
    cached: dict[str, Any] = litellm.in_memory_llm_clients_cache.cache_dict
    return [cached.pop(key) for key in list(cached) if key.endswith(f"-{id(loop)}")]


@dataclass(frozen=True, slots=True)
class Traits:
    """What decides how a model is called.

    Attributes:
        claude: whether it is one of Anthropic's, whoever serves it; its replies are kept block by block.
        reasons: whether litellm's table says that it can reason.
        adapts: whether it decides itself how much to think, so that tools may be forced meanwhile.
    """

    claude: bool
    reasons: bool
    adapts: bool


@lru_cache(maxsize=256)
def traits_of(llm: str) -> Traits:
    """The traits of a model; of one that isn't in litellm's table, what its name tells."""
    info = _info(llm)
    return Traits(
        claude="claude" in llm.lower() or llm.startswith("anthropic/"),
        reasons=bool(info.get("supports_reasoning")),
        adapts=bool(info.get("supports_adaptive_thinking")),
    )


def context_window(llm: str) -> int | None:
    """How many tokens the model can read at once; None where litellm's table doesn't know."""
    size = _info(llm).get("max_input_tokens")
    return size if isinstance(size, int) else None


def count_tokens(llm: str, messages: list[dict[str, Any]]) -> int:
    """About how many tokens the messages are to the model."""
    count: int = load_litellm().token_counter(model=llm, messages=messages)
    return count


def price(llm: str, usage: Any) -> float | None:
    """What a call with this usage (litellm's type) costs, in US dollars; None where the table has no price."""
    litellm = load_litellm()
    try:
        prompt, completion = litellm.cost_per_token(model=llm, usage_object=usage)
    except Exception:  # a plain one says that the model is not in the table
        logger.debug("no price for %s", llm, exc_info=True)
        return None
    return round(float(prompt + completion), 10)


def _info(llm: str) -> dict[str, Any]:
    try:
        return dict(load_litellm().get_model_info(llm))
    except Exception:  # as in `price`
        logger.debug("%s is not in litellm's table", llm, exc_info=True)
        return {}
