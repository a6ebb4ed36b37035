"""The table of models: windows, prices and traits, for every way to a model.

`scripts/models_table.py` makes `models.json` from litellm's table, so that no process needs litellm for it.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

ROUTES = frozenset({"converse", "sdk", "litellm"})
"""Parts of names that say how a model is reached, not which one it is."""

ALIASES: Mapping[str, str] = MappingProxyType({"ollama_chat": "ollama", "cohere_chat": "cohere"})
"""Other names of providers."""

WITHOUT_PREFIX = ("openai", "anthropic", "vertex_ai", "bedrock", "cohere", "gemini", "deepseek", "ai21")
"""Providers whose models may be named without them."""

MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of one call.

    Attributes:
        input: all tokens read, including the `cached` ones from the provider's cache, and those `written` to it.
        output: all tokens written, including the `reasoning` ones.
        cost: in US dollars, if the provider reports it.
    """

    input: int = 0
    output: int = 0
    cached: int = 0
    written: int = 0
    reasoning: int = 0
    cost: float | None = None


@dataclass(frozen=True, slots=True)
class Rates:
    """Prices in US dollars for a million tokens; without one for the cache, its tokens cost what others do.

    `above` is the number of input tokens above which they apply.
    """

    above: int
    input: float | None
    output: float | None
    read: float | None = None
    write: float | None = None


@dataclass(frozen=True, slots=True)
class Model:
    """A model of the table; an unknown `window` or price is None."""

    window: int | None = None
    rates: tuple[Rates, ...] = ()
    traits: str = ""
    reasoning: float | None = None

    def price(self, tokens: Tokens) -> float | None:
        """Return the price of a call in US dollars; None if it is unknown."""
        rates = next(
            (each for each in reversed(self.rates) if tokens.input > each.above or not each.above), None
        )
        if rates is None or rates.input is None or rates.output is None:
            return None
        read, write = (rates.input if each is None else each for each in (rates.read, rates.write))
        thought = tokens.reasoning if self.reasoning is not None else 0
        plain = max(0, tokens.input - tokens.cached - tokens.written)
        dollars = plain * rates.input + tokens.cached * read + tokens.written * write
        dollars += (tokens.output - thought) * rates.output + thought * (self.reasoning or 0.0)
        return round(dollars / MILLION, 10)


def find_model(llm: str) -> Model | None:
    """Return the entry of a model; None if the table lacks it."""
    models = _models()
    provider, slash, name = without_routes(llm).partition("/")
    if not slash:
        name = provider
        owners = (each for each in WITHOUT_PREFIX if any(known in models[each] for known in _names("", name)))
        provider = next(owners, "")
    rows = models.get(ALIASES.get(provider, provider), {})
    return _model(next((rows[each] for each in _names(provider, name) if each in rows), None))


def known_models(provider: str) -> Mapping[str, list[Any]]:
    """Return what the table has of a provider, by the name of the model."""
    return _models().get(ALIASES.get(provider, provider), {})


def providers() -> list[str]:
    """Return the providers of the table."""
    return [*_models(), *ALIASES]


def without_routes(llm: str) -> str:
    """Return the name without the parts that say how the model is reached."""
    return "/".join(part for part in llm.split("/") if part not in ROUTES)


def _names(provider: str, name: str) -> Iterator[str]:
    """Yield the names under which the table may have a model: its own, then that of what it was made from."""
    yield name
    if name.startswith("ft:"):
        yield ":".join(name.split(":")[:2])
    if provider == "bedrock":
        _, _, model = name.rpartition("/")  # without a region, then without a group of regions
        yield model
        yield model.partition(".")[2]


def _model(row: list[Any] | None) -> Model | None:
    if row is None:
        return None
    padding: list[Any] = [None] * (8 - len(row))
    window, *usual, traits, reasoning, tiers = row + padding
    rates = [Rates(0, *usual)]
    for above, *prices in tiers or ():
        rates.append(
            Rates(above, *(old if new is None else new for new, old in zip(prices, usual, strict=True)))
        )
    return Model(window, tuple(rates), traits or "", reasoning)


@cache
def _models() -> dict[str, dict[str, list[Any]]]:
    """Return the rows of the file, by provider and name."""
    text = files("mail.factories").joinpath("models.json").read_text(encoding="utf-8")
    models: dict[str, dict[str, list[Any]]] = json.loads(text)["models"]
    return models
