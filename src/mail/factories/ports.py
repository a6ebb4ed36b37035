"""The ways to a model: litellm, the `openai` SDK, and Amazon Bedrock's Converse.

The name of a model and what is installed choose one:

- `bedrock/…` goes by Converse, except for names with a route of litellm's own, such as `bedrock/invoke/…`;
- `openai/`, `azure/`, `ollama/`, `hosted_vllm/`, `openrouter/`, and calls of a litellm proxy go by the SDK where
  litellm isn't installed; with `sdk/` in front, as in `sdk/openai/gpt-5-mini`, always;
- everything else goes by litellm.
"""

import logging
import os
import re
from collections.abc import Mapping
from enum import StrEnum
from importlib.util import find_spec
from typing import Any, Protocol

from mail.errors import AgentUnavailable
from mail.factories.answer import AnswerReader
from mail.factories.connections import close_http_client
from mail.factories.models import ModelReply, ModelRequest, OnPiece
from mail.factories.providers import SERVERS, provider_of
from mail.factories.retry import Failure

logger = logging.getLogger(__name__)

_MODEL_OF_BEDROCK = re.compile(r"bedrock/(converse/|[a-z]{2}(-[a-z]+)+-\d/|[^/]*[.:])")
"""The name has a region, or a model's id or ARN, where litellm's own routes have a word."""


class Way(StrEnum):
    """The ways to a model, by the extras that install what they need."""

    LITELLM = "litellm"
    SDK = "openai"
    CONVERSE = "bedrock"

    @property
    def package(self) -> str:
        """The package that must be installed."""
        return "botocore" if self is Way.CONVERSE else self.value


class Port(Protocol):
    """A way to a model."""

    async def open(self) -> None:
        """Import what the first call needs, in a thread. Raises AgentUnavailable."""

    def preload(self) -> None:
        """Import the same in advance, in this thread. Raises AgentUnavailable or ImportError."""

    async def call(
        self, request: ModelRequest, seconds: float | None, on_piece: OnPiece, answer: AnswerReader
    ) -> ModelReply:
        """Call the model once, for at most `seconds`."""

    def classify(self, error: Exception, request: ModelRequest) -> Failure | None:
        """Return the failure that an error of `call` stands for; None for a bug in this program."""

    def find_missing_key(self, llm: str) -> Failure | None:
        """Return the failure of a first call for which the environment has no key; None if it may have one.

        Imports nothing.
        """

    def find_problems(self, llm: str, options: Mapping[str, Any], *, has_key: bool) -> list[str]:
        """Return why a call would fail, one line each with the remedy. Uses no network."""

    async def close(self) -> None:
        """Close the connections of this event loop."""


_ports: dict[Way, Port] = {}
"""Those that this process has used."""


def way_to(llm: str, *, is_proxy: bool = False) -> Way:
    """Return the way to a model; `is_proxy` for an agent whose calls go to a litellm proxy."""
    if llm.startswith("sdk/"):
        return Way.SDK
    if not is_proxy and _MODEL_OF_BEDROCK.match(llm):
        return Way.CONVERSE
    is_like_openai = is_proxy or provider_of(llm) in SERVERS
    return Way.SDK if is_like_openai and not is_installed("litellm") else Way.LITELLM


def port_for(llm: str, *, is_proxy: bool = False) -> Port:
    """Return the port to a model; it imports nothing yet."""
    way = way_to(llm, is_proxy=is_proxy)
    port = _ports.get(way)
    if port is None:
        port = _ports.setdefault(way, _make(way))
    return port


def _make(way: Way) -> Port:
    match way:
        case Way.LITELLM:
            from mail.factories.litellm_port import LiteLLM

            return LiteLLM()
        case Way.SDK:
            from mail.factories.openai_port import OpenAISDK

            return OpenAISDK()
        case Way.CONVERSE:
            from mail.factories.converse_port import Converse

            return Converse()


def is_installed(package: str) -> bool:
    """Return whether a package can be imported; imports nothing."""
    try:
        return find_spec(package) is not None
    except ValueError:  # a stand-in in `sys.modules`
        return False


def find_problems(
    llm: str,
    proxy_variable: str | None = None,
    *,
    options: Mapping[str, Any] | None = None,
    has_key: bool = False,
) -> list[str]:
    """Return why a call of the model would fail, one line each with the remedy; may import litellm.

    Args:
        proxy_variable: the variable with the proxy's address, for an agent that uses the proxy.
        options: the options of its calls.
        has_key: whether the agent has a key of its own.
    """
    if proxy_variable is not None and not os.environ.get(proxy_variable):
        return [f"it uses a proxy: set {proxy_variable} to its address"]
    if proxy_variable is not None:
        return []
    return port_for(llm).find_problems(llm, options or {}, has_key=has_key)


def preload(llm: str = "", *, is_proxy: bool = False) -> None:
    """Import in advance what calls a model, by default litellm, in a process that will call it. Never raises."""
    try:
        port_for(llm, is_proxy=is_proxy).preload()
    except (AgentUnavailable, ImportError) as error:
        logger.warning("%s can't be loaded: %s", way_to(llm, is_proxy=is_proxy), error)


async def close_clients() -> None:
    """Close the connections to models of this event loop, before it ends."""
    for port in _ports.values():
        await port.close()
    await close_http_client()
