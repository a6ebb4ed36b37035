"""litellm, its tables of models, and the requests and replies of a model, independent of the API.

litellm takes seconds to import, and most processes never call a model. It is therefore loaded in a thread by the first
call, or in advance by `preload`.
"""

import asyncio
import logging
import os
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from inspect import isawaitable
from threading import Lock
from types import MappingProxyType
from typing import Any, Literal
from weakref import WeakSet

from mail.core.protocol.calls import ToolFormat
from mail.core.protocol.error_text import hide_credentials, missing_package
from mail.core.task.swarm import ToolChoice
from mail.errors import AgentUnavailable
from mail.factories.items import Entry
from mail.factories.litellm_parts import import_rest, take_clients

logger = logging.getLogger(__name__)

OFFLINE = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True"}
"""Environment variables that keep litellm from fetching its tables from GitHub; existing values win."""

NOISE: Mapping[str, type[Warning]] = MappingProxyType(
    {
        "Pydantic serializer warnings": UserWarning,
        "Item '.*' on TypedDict class": UserWarning,
        "coroutine 'BaseLLMHTTPHandler": RuntimeWarning,
    }
)
"""Warnings that litellm causes: with every streamed response, one time per process, and when a call is cancelled."""

SHORT_SECRET = 8
"""Characters up to which a secret may be a part of other words."""

_lock = Lock()
_loaded: list[Any] = []
_known_loops: WeakSet[asyncio.AbstractEventLoop] = WeakSet()


def preload() -> None:
    """Import litellm in advance, in a process that will call models. Never raises."""
    try:
        load_litellm()
        import_rest()
    except (AgentUnavailable, ImportError) as error:
        logger.warning("litellm can't be loaded: %s", error)


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


async def get_litellm() -> Any:
    """Return the module; imports it in a thread."""
    litellm = _loaded[0] if _loaded else await asyncio.to_thread(load_litellm)
    loop = asyncio.get_running_loop()
    if loop not in _known_loops:
        _known_loops.add(loop)
        take_clients(litellm, loop)  # left by a closed loop with the same id: they would fail
    return litellm


async def close_clients() -> None:
    """Close the connections that litellm keeps open for this event loop, before it ends."""
    if _loaded:
        for client in take_clients(_loaded[0], asyncio.get_running_loop()):
            close = getattr(client, "aclose", None) or getattr(client, "close", None)
            closing = close() if close is not None else None
            if isawaitable(closing):
                await closing


@dataclass(frozen=True, slots=True)
class Traits:
    """The traits of a model that affect how it is called.

    Attributes:
        claude: whether it is a Claude model, at any provider; its replies are stored block by block.
        reasons: whether it can reason, by litellm's table.
        adapts: whether it has adaptive thinking, during which tools may be forced.
    """

    claude: bool
    reasons: bool
    adapts: bool


@lru_cache(maxsize=256)
def traits_of(llm: str) -> Traits:
    """Return the traits of a model; without an entry in litellm's table, those implied by its name."""
    info = _info(llm)
    return Traits(
        claude=is_claude(llm),
        reasons=bool(info.get("supports_reasoning")),
        adapts=bool(info.get("supports_adaptive_thinking")),
    )


def is_claude(llm: str) -> bool:
    """Return whether a model is one of Claude's, by its name."""
    return "claude" in llm.lower() or llm.startswith("anthropic/")


def with_tools(llm: str) -> str:
    """Return litellm's name for a model, called by an API that has tools: `ollama/` stands for Ollama's older one."""
    return f"ollama_chat/{llm.removeprefix('ollama/')}" if llm.startswith("ollama/") else llm


def context_window(llm: str) -> int | None:
    """Return the size of the model's context window, in tokens; None if litellm's table lacks it."""
    size = _info(llm).get("max_input_tokens")
    return size if isinstance(size, int) else None


def count_tokens(llm: str, messages: list[dict[str, Any]]) -> int:
    """Return the approximate number of tokens of the messages."""
    count: int = load_litellm().token_counter(model=llm, messages=messages)
    return count


def price(llm: str, usage: Any) -> float | None:
    """Return the cost in US dollars of a call with this usage (litellm's type); None without a price in the table."""
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


# ------------------------------------------------------------------------------------ requests and replies

PieceKind = Literal["reasoning", "text"]

OnPiece = Callable[[PieceKind, str], None]
"""Called with the pieces of a reply while it is streamed."""

Finish = Literal["stop", "length", "filter"]
"""The reason why a reply ended: complete, limit of tokens, or safety filter."""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A request to a model.

    Attributes:
        history: the history so far; the request owns it, as litellm may change it.
        tools: declared in the style of `tool_format`.
        streams: whether to stream the reply.
        notes: what only this call tells the model, behind the history.
        cache_key: the key of the agent's calls in its task for the provider's cache of prompts; None to cache nothing.
        api_base, api_key: address and key of the proxy, if one is used.
        options: further options of the call, which take precedence over what is set here.
    """

    llm: str
    traits: Traits
    history: Sequence[Entry]
    system: str
    tools: Sequence[dict[str, Any]]
    tool_choice: ToolChoice
    tool_format: ToolFormat
    reasoning_effort: str | None = None
    thinking_budget: int | None = None
    max_tokens: int | None = None
    streams: bool = False
    notes: Sequence[str] = ()
    cache_key: str | None = None
    api_base: str | None = None
    api_key: str | None = field(default=None, repr=False)
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def uses_responses(self) -> bool:
        """Whether to call the Responses API; not for Claude, as litellm's conversion loses signatures."""
        return self.tool_format == "responses" and not self.traits.claude

    @property
    def timeout(self) -> float | None:
        """The agent's timeout of one attempt, in seconds; None for the default."""
        return self.options.get("timeout")

    def hide_secrets(self, text: str) -> str:
        """Return an error text without the key and the headers of the call."""
        headers = self.options.get("extra_headers") or {}
        for secret in (self.api_key, self.options.get("api_key"), *headers.values()):
            if isinstance(secret, str) and secret:
                word = re.escape(secret)
                text = re.sub(
                    word if len(secret) > SHORT_SECRET else rf"(?<!\w){word}(?!\w)", "(hidden)", text
                )
        return text

    @property
    def has_own_key(self) -> bool:
        """Whether the call carries a key, so that those in the environment are not used."""
        return self.api_key is not None or "api_key" in self.options

    @property
    def own_address(self) -> str | None:
        """The agent's address of the API, without credentials; None for the provider's."""
        address = self.api_base or self.options.get("api_base") or self.options.get("base_url")
        return None if address is None else hide_credentials(str(address))

    @property
    def names_provider(self) -> bool:
        """Whether something else than the model's name says which provider is called."""
        return self.api_base is not None or "custom_llm_provider" in self.options

    def connection(self, seconds: float | None) -> dict[str, Any]:
        """Return the arguments of every litellm call: the destination, and no retries, which are done here."""
        arguments: dict[str, Any] = {
            "model": with_tools(self.llm),
            "max_retries": 0,
            "num_retries": 0,
            "drop_params": True,
        }
        if self.api_base is not None:
            # A litellm proxy speaks Anthropic's API as well, in which nothing of Claude's is lost on the way.
            provider = "anthropic" if self.traits.claude else "litellm_proxy"
            arguments |= {
                "model": f"{provider}/{self.llm}",
                "api_base": self.api_base,
                "api_key": self.api_key,
            }
        if seconds is not None:
            arguments["timeout"] = seconds
        return arguments


@dataclass(frozen=True, slots=True)
class ModelReply:
    """The reply of a model.

    Attributes:
        entries: the reply in the format of histories.
        usage: litellm's `Usage`; None if the provider sent none.
    """

    entries: list[Entry]
    usage: Any
    finish: Finish = "stop"
