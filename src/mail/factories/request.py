"""What is asked of a model: everything about one call, in no API's words."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from mail.core.protocol.calls import ToolFormat
from mail.core.task.swarm import ToolChoice
from mail.factories.items import Entry
from mail.factories.models import Traits

Heard = Callable[[Literal["reasoning", "text"], str], None]
"""Takes pieces of a reply while it comes in."""

Finish = Literal["stop", "length", "filter"]
"""Why a reply ended: of itself, at the limit of tokens, or by a safety filter."""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One call of a model.

    Attributes:
        history: what was said so far; the request owns it, and litellm may change it.
        tools: declared in the style of `tool_format`.
        streams: whether the reply is to come piece by piece.
        api_base, api_key: of the proxy, where one is used.
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
    api_base: str | None = None
    api_key: str | None = None

    def connection(self, seconds: float | None) -> dict[str, Any]:
        """What every litellm call is told: where to go, and that waiting and trying again is done here."""
        told: dict[str, Any] = {"model": self.llm, "max_retries": 0, "num_retries": 0, "drop_params": True}
        if self.api_base is not None:
            # A litellm proxy speaks Anthropic's API as well, in which nothing of Claude's is lost on the way.
            provider = "anthropic" if self.traits.claude else "litellm_proxy"
            told |= {"model": f"{provider}/{self.llm}", "api_base": self.api_base, "api_key": self.api_key}
        if seconds is not None:
            told["timeout"] = seconds
        return told


@dataclass(frozen=True, slots=True)
class ModelReply:
    """What came back.

    Attributes:
        said: the reply in the shape in which histories keep it.
        usage: litellm's `Usage`; None where the provider told none.
    """

    said: list[Entry]
    usage: Any
    finish: Finish = "stop"
