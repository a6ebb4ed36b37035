"""The limits that providers tell in the headers of their replies."""

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime

from mail.core.task.permits import ModelLimits

FORMS = (
    "x-ratelimit-{fact}-{what}",
    "anthropic-ratelimit-{what}-{fact}",
)
"""The headers of OpenAI, which many others send as well, and of Anthropic."""

CALLS_OF_TOKENS = 20
"""How many calls the tokens of a minute are assumed to be enough for."""

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}


def limits_told(headers: Mapping[str, str]) -> ModelLimits:
    """Return the limits that the headers of a response tell; their names are in lower case."""
    requests, tokens = (_number(headers, "limit", what) for what in ("requests", "tokens"))
    return ModelLimits(requests_per_minute=requests or None, tokens_per_minute=tokens or None)


def closed_for(headers: Mapping[str, str], now: datetime) -> float:
    """Return the seconds after which a provider takes another call, by the headers of a response; 0 if it does now.

    They tell when all of the limit is free again. Until then it becomes free little by little.
    """
    waits = [0.0]
    for what in ("requests", "tokens"):
        if _number(headers, "remaining", what) == 0:
            calls = (_number(headers, "limit", what) or 1) if what == "requests" else CALLS_OF_TOKENS
            waits += [max(1.0, _seconds(text, now) / calls) for text in _values(headers, "reset", what)]
    return max(waits)


def _values(headers: Mapping[str, str], fact: str, what: str) -> list[str]:
    names = (form.format(fact=fact, what=what) for form in FORMS)
    return [headers[name].strip() for name in names if name in headers]


def _number(headers: Mapping[str, str], fact: str, what: str) -> int | None:
    texts = _values(headers, fact, what)
    return next((int(text) for text in texts if text.isascii() and text.isdigit()), None)


def _seconds(text: str, now: datetime) -> float:
    """Return the seconds in a duration such as `6m0s`, or until a time in ISO 8601; 0 for anything else."""
    if found := _DURATION.findall(text):
        return sum(float(number) * _UNITS[unit] for number, unit in found)
    with suppress(ValueError):
        until = datetime.fromisoformat(text)
        return max(0.0, (until.replace(tzinfo=until.tzinfo or UTC) - now).total_seconds())
    return 0.0
