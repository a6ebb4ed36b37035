"""Make the table of language models, `src/mail/factories/models.json`, from that of the installed litellm.

    .venv/bin/python scripts/models_table.py

It has the chat models alone, each on a line: the columns of `COLUMNS`, without the empty ones at the end of the line.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

TABLE = Path(__file__).parents[1] / "src" / "mail" / "factories" / "models.json"

PRICES = {
    "input": "input_cost_per_token",
    "output": "output_cost_per_token",
    "read": "cache_read_input_token_cost",
    "write": "cache_creation_input_token_cost",
}
COLUMNS = ("window", *PRICES, "traits", "reasoning", "tiers")
"""Window in tokens; prices in US dollars for a million tokens; traits as letters; prices of long prompts, as lists that
begin with the number of tokens above which they apply."""

TRAITS = {
    "r": "supports_reasoning",
    "a": "supports_adaptive_thinking",
    "v": "supports_vision",
    "p": "supports_pdf_input",
}
PROVIDERS = {"bedrock_converse": "bedrock", "cohere_chat": "cohere"}

_ABOVE = re.compile(r"_above_(\d+)k_tokens$")


def make_table() -> str:
    """Return the text of the file."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm

    models: dict[str, dict[str, list[Any]]] = {}
    entries = litellm.model_cost.items()
    for name, entry in sorted(
        entries, key=lambda item: ("/" in item[0], item[0])
    ):  # of two, the full name wins
        if entry.get("mode") in ("chat", "responses"):
            provider = _provider(entry["litellm_provider"])
            models.setdefault(provider, {})[name.removeprefix(f"{provider}/")] = _row(entry)
    return "".join(_lines(models))


def _provider(name: str) -> str:
    return "vertex_ai" if name.startswith("vertex_ai-") else PROVIDERS.get(name, name)


def _row(entry: Mapping[str, Any]) -> list[Any]:
    window = entry.get("max_input_tokens")
    reasoning = entry.get("output_cost_per_reasoning_token")
    row = [
        int(window) if isinstance(window, int | float) else None,
        *(_price(entry.get(field)) for field in PRICES.values()),
        "".join(letter for letter, field in TRAITS.items() if entry.get(field)) or None,
        None if reasoning == entry.get("output_cost_per_token") else _price(reasoning),
        _tiers(entry) or None,
    ]
    while row and row[-1] is None:
        row.pop()
    return row


def _tiers(entry: Mapping[str, Any]) -> list[list[Any]]:
    """Return the prices of long prompts: a table of tiers, or prices of which the name says when they apply."""
    if told := entry.get("tiered_pricing"):
        tiers = [(int(tier["range"][0]), tier) for tier in told if "range" in tier]
    else:
        limits = {
            int(found[1]) * 1000
            for name in entry
            if (found := _ABOVE.search(name)) and name[: found.start()] in PRICES.values()
        }
        tiers = [
            (limit, {field: entry.get(f"{field}_above_{limit // 1000}k_tokens") for field in PRICES.values()})
            for limit in sorted(limits)
        ]
    return [[limit, *(_price(tier.get(field)) for field in PRICES.values())] for limit, tier in tiers]


def _price(dollars: Any) -> float | int | None:
    """Return the price of a million tokens."""
    if not isinstance(dollars, int | float):
        return None
    price = round(dollars * 1e6, 8)
    return int(price) if price == int(price) else price


def _lines(models: Mapping[str, Mapping[str, list[Any]]]) -> Iterator[str]:
    yield f'{{"litellm": "{version("litellm")}", "columns": {json.dumps(COLUMNS)}, "models": {{'
    for n, (provider, rows) in enumerate(sorted(models.items())):
        yield f"{',' if n else ''}\n{json.dumps(provider)}: {{"
        for m, (name, row) in enumerate(sorted(rows.items())):
            yield f"{',' if m else ''}\n{json.dumps(name)}: {json.dumps(row, separators=(',', ':'))}"
        yield "\n}"
    yield "\n}}\n"


if __name__ == "__main__":
    TABLE.write_text(make_table(), encoding="utf-8")
