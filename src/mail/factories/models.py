"""Requests and replies of a model, whatever the way to it, and what is known of the models."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

from mail.core.protocol.calls import ToolFormat
from mail.core.protocol.error_text import hide_credentials
from mail.core.task.swarm import ToolChoice
from mail.factories.items import Entry
from mail.factories.table import Tokens, find_model

SHORT_SECRET = 8
"""Characters up to which a secret may be a part of other words."""


@dataclass(frozen=True, slots=True)
class Traits:
    """The traits of a model that affect how it is called.

    Attributes:
        claude: whether it is a Claude model, at any provider; its replies are stored block by block.
        reasons: whether it can reason, by the table.
        adapts: whether it has adaptive thinking, during which tools may be forced.
        sees, reads_pdf: whether it takes images and PDF files.
    """

    claude: bool
    reasons: bool
    adapts: bool
    sees: bool
    reads_pdf: bool


@lru_cache(maxsize=256)
def traits_of(llm: str) -> Traits:
    """Return the traits of a model; without an entry in the table, those implied by its name."""
    model = find_model(llm)
    known = "" if model is None else model.traits
    return Traits(
        claude=is_claude(llm),
        reasons="r" in known,
        adapts="a" in known,
        sees="v" in known,
        reads_pdf="p" in known,
    )


def is_claude(llm: str) -> bool:
    """Return whether a model is one of Claude's, by its name."""
    return "claude" in llm.lower() or llm.startswith("anthropic/")


def context_window(llm: str) -> int | None:
    """Return the size of the model's context window, in tokens; None if the table lacks it."""
    model = find_model(llm)
    return None if model is None else model.window


def price(llm: str, tokens: Tokens) -> float | None:
    """Return the cost of a call in US dollars; None without a price in the table, or from the provider."""
    model = find_model(llm)
    return tokens.cost if tokens.cost is not None or model is None else model.price(tokens)


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
        history: the history so far; the request owns it, as the call may change it.
        tools: declared in the style of `tool_format`.
        streams: whether to stream the reply.
        notes: what only this call tells the model, behind the history.
        signature: the name of the model, to be stored with its replies; empty for the agent's first model.
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
    signature: str = ""
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


@dataclass(frozen=True, slots=True)
class ModelReply:
    """The reply of a model.

    Attributes:
        entries: the reply in the format of histories.
        usage: its tokens; None if the provider sent none.
        headers: those of the response that tell the provider's limits, in lower case.
        model: the name of the model that has replied, such as one with a date; empty if it doesn't say.
    """

    entries: list[Entry]
    usage: Tokens | None
    finish: Finish = "stop"
    headers: Mapping[str, str] = field(default_factory=dict)
    model: str = ""
