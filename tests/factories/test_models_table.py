"""The table of models: it is what the script makes of litellm's, and it says what litellm says."""

import json
from importlib.metadata import version
from typing import Any

import pytest

from mail.factories.litellm_parts import load_litellm
from mail.factories.models import context_window, price, traits_of
from mail.factories.table import Tokens, find_model, known_models
from scripts.models_table import TABLE, make_table

PROVIDERS = ("openai", "anthropic", "azure", "bedrock", "gemini", "vertex_ai", "mistral", "groq")


def test_the_file_is_what_the_script_makes() -> None:
    made_from = json.loads(TABLE.read_text(encoding="utf-8"))["litellm"]
    if made_from != version("litellm"):
        pytest.skip(f"the table of models was made from litellm {made_from}")
    assert TABLE.read_text(encoding="utf-8") == make_table(), "run scripts/models_table.py"


CALLS = {
    "plain": Tokens(1000, 100),
    "cache read": Tokens(1000, 100, cached=400),
    "cache written": Tokens(1000, 100, cached=400, written=300, reasoning=50),
    "long": Tokens(300_000, 1000, cached=100_000, written=50_000),
}


@pytest.mark.parametrize("tokens", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_prices_are_those_of_litellm(provider: str, tokens: Tokens) -> None:
    litellm = load_litellm()
    usage = litellm.Usage(
        prompt_tokens=tokens.input,
        completion_tokens=tokens.output,
        prompt_tokens_details={"cached_tokens": tokens.cached, "cache_creation_tokens": tokens.written},
        completion_tokens_details={"reasoning_tokens": tokens.reasoning},
    )
    differing = []
    for name in list(known_models(provider))[::4]:
        llm = f"{provider}/{name}"
        ours = price(llm, tokens)
        if ours is not None and ours != pytest.approx(_price(litellm, llm, usage), rel=1e-6):
            differing.append(llm)
    assert differing == []


def _price(litellm: Any, llm: str, usage: Any) -> float:
    return float(sum(litellm.cost_per_token(model=llm, usage_object=usage)))


@pytest.mark.parametrize(
    ("llm", "window"),
    [
        ("gpt-5-mini", 272_000),
        ("openai/gpt-5-mini", 272_000),
        ("sdk/openai/gpt-5-mini", 272_000),
        ("ft:gpt-4o-mini-2024-07-18:my-org::id", 128_000),
        ("anthropic/claude-sonnet-4-5", 200_000),
        ("bedrock/anthropic.claude-sonnet-4-5-20250929-v1:0", 200_000),
        ("bedrock/converse/eu-central-1/eu.anthropic.claude-sonnet-4-5-20250929-v1:0", 200_000),
        ("bedrock/arn:aws:bedrock:eu-central-1:1:inference-profile/eu.amazon.nova-pro-v1:0", 300_000),
        ("hosted_vllm/my/model", None),
        ("unknown", None),
    ],
)
def test_windows_by_name(llm: str, window: int | None) -> None:
    assert context_window(llm) == window


def test_traits_and_prices_of_what_the_table_lacks() -> None:
    assert traits_of("anthropic/claude-of-tomorrow").claude
    assert not traits_of("hosted_vllm/my/model").reasons
    assert price("hosted_vllm/my/model", Tokens(1, 1)) is None
    assert price("openrouter/x/y", Tokens(1, 1, cost=0.25)) == 0.25, "a provider's own price counts"
    assert find_model("") is None
