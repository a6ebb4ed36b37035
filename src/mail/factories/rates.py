"""The limits that providers tell in the headers of their replies."""

from collections.abc import Mapping

from mail.core.task.permits import ModelLimits

REQUESTS = ("x-ratelimit-limit-requests", "anthropic-ratelimit-requests-limit")
TOKENS = ("x-ratelimit-limit-tokens", "anthropic-ratelimit-tokens-limit")
"""The headers of OpenAI, which many others send as well, and of Anthropic, with a number per minute."""


def limits_of(headers: Mapping[str, str]) -> ModelLimits:
    """Return the limits that the headers of a response tell; their names are in lower case."""
    return ModelLimits(
        requests_per_minute=_number(headers, REQUESTS), tokens_per_minute=_number(headers, TOKENS)
    )


def _number(headers: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    told = (headers[name].strip() for name in names if name in headers)
    return next((int(text) for text in told if text.isascii() and text.isdigit() and int(text)), None)
