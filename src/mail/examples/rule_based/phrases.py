"""What these agents understand of a text, in place of a language model: a handful of phrases."""

import re
from textwrap import shorten
from typing import Any

MAX_READ = 1000
"""Characters of a text that are looked at."""

_WEATHER = re.compile(r"\b(?:weather|forecast)\b", re.IGNORECASE)
_FORECAST = re.compile(
    r"\b(?:weather|forecast)\b[^.;?!]{0,40}?\b(?:in|at|for(?!\s+(?:today|tomorrow)\b))\s+(?P<place>[^\W\d_].{0,60}?)"
    r"(?=\s+(?:and|or|then|plus|please|today|tomorrow|in\s+\d+\s+days?)\b|\s*[,;:.?!\n(]|\s+\W*\d|\s*$)",
    re.IGNORECASE,
)
_IN_DAYS = re.compile(r"\bin\s+(\d{1,3})\s+days?\b", re.IGNORECASE)
_TOMORROW = re.compile(r"\btomorrow\b", re.IGNORECASE)
_IMPERIAL = re.compile(r"\b(?:fahrenheit|imperial)\b", re.IGNORECASE)

_NUMBER = r"(?:\d+(?:\.\d+)?|\.\d+)"
_EXPRESSION = re.compile(rf"[-+(\s]*{_NUMBER}[)\s]*(?:(?:\*\*|//|[-+*/%])[-+(\s]*{_NUMBER}[)\s]*)+")
_PLACES = re.compile(r"\b(\d{1,2})\s+decimal", re.IGNORECASE)


def mentions_weather(text: str) -> bool:
    """Whether the text is about the weather."""
    return _WEATHER.search(text[:MAX_READ]) is not None


def find_forecasts(text: str) -> list[dict[str, Any]]:
    """What the text asks about the weather, as the arguments of `get_weather_forecast`."""
    text = text[:MAX_READ]
    in_days = _IN_DAYS.search(text)
    days_ahead = int(in_days.group(1)) if in_days else 1 if _TOMORROW.search(text) else 0
    metric = _IMPERIAL.search(text) is None
    return [
        {"location": found.group("place"), "days_ahead": days_ahead, "metric": metric}
        for found in _FORECAST.finditer(text)
    ]


def find_expressions(text: str) -> list[dict[str, Any]]:
    """What the text asks to calculate, as the arguments of `calculate_expression`."""
    text = text[:MAX_READ]
    places = _PLACES.search(text)
    precision = {"precision": int(places.group(1))} if places else {}
    return [
        {"expression": _without_stray_parentheses(found.group().strip()), **precision}
        for found in _EXPRESSION.finditer(text)
    ]


def _without_stray_parentheses(expression: str) -> str:
    """Those at the ends that belong to the text around: of `(see 3*4)`, `3*4`."""
    surplus = expression.count(")") - expression.count("(")
    while surplus > 0 and expression.endswith(")"):
        expression, surplus = expression[:-1].rstrip(), surplus - 1
    while surplus < 0 and expression.startswith("("):
        expression, surplus = expression[1:].lstrip(), surplus + 1
    return expression


def after_phrase(text: str, phrase: str) -> str | None:
    """What follows `phrase` and a colon: of `urgent: stop`, `stop`. None where the text does not hold the phrase."""
    found = re.search(rf"\b{phrase}:\s*(?P<rest>\S.*)", text, re.IGNORECASE | re.DOTALL)
    return found.group("rest").strip() if found else None


def brief(text: str, width: int = 80) -> str:
    """The beginning of a text, in one line."""
    return shorten(text[:MAX_READ], width, placeholder=" …")
