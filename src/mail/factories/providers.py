"""Providers of models: the provider of a name, and the environment variables that it needs. Needs no litellm."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType

from mail.core.protocol.error_text import did_you_mean
from mail.factories.table import WITHOUT_PREFIX, known_models, providers, without_routes


@dataclass(frozen=True, slots=True)
class Server:
    """A provider whose API is OpenAI's, so that the `openai` SDK reaches it.

    Attributes:
        address: its address, below which the paths of the API begin; None if it has none that everybody shares.
        addresses: the variables in which the user's own address may be, which `path` is added to.
        key: the variable with the key.
        needs_key: whether it refuses calls without a key.
        has_responses: whether it has the Responses API; the others are called by Chat Completions.
    """

    address: str | None
    addresses: tuple[str, ...]
    key: str
    path: str = ""
    needs_key: bool = True
    has_responses: bool = False


_OLLAMA = Server("http://localhost:11434/v1", ("OLLAMA_API_BASE",), "OLLAMA_API_KEY", "/v1", needs_key=False)

SERVERS: Mapping[str, Server] = MappingProxyType(
    {
        "openai": Server(
            "https://api.openai.com/v1",
            ("OPENAI_BASE_URL", "OPENAI_API_BASE"),
            "OPENAI_API_KEY",
            has_responses=True,
        ),
        "azure": Server(None, ("AZURE_API_BASE",), "AZURE_API_KEY", "/openai/v1", has_responses=True),
        "ollama": _OLLAMA,
        "ollama_chat": _OLLAMA,
        "hosted_vllm": Server(None, ("HOSTED_VLLM_API_BASE",), "HOSTED_VLLM_API_KEY", needs_key=False),
        "openrouter": Server("https://openrouter.ai/api/v1", ("OPENROUTER_API_BASE",), "OPENROUTER_API_KEY"),
    }
)
"""These providers, by the beginnings of their models' names."""

KEYLESS = frozenset(
    {
        "ollama",
        "ollama_chat",
        "hosted_vllm",
        "vllm",
        "lm_studio",
        "llamafile",
        "xinference",
        "docker_model_runner",
        "litellm_proxy",
        "custom_openai",
        "openai_like",
    }
)
"""Providers that usually run on the user's own machines, and need no key."""

ALTERNATIVES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY")}
)
"""Providers for which one of several variables is enough."""

CREDENTIALS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        **ALTERNATIVES,
        "bedrock": ("AWS_ACCESS_KEY_ID",),
        "sagemaker": ("AWS_ACCESS_KEY_ID",),
        "vertex_ai": ("GOOGLE_APPLICATION_CREDENTIALS",),
        "together_ai": ("TOGETHERAI_API_KEY", "TOGETHER_AI_API_KEY"),
        "perplexity": ("PERPLEXITYAI_API_KEY", "PERPLEXITY_API_KEY"),
        "fireworks_ai": ("FIREWORKS_AI_API_KEY", "FIREWORKS_API_KEY"),
        "huggingface": ("HF_TOKEN", "HUGGINGFACE_API_KEY"),
    }
)
"""Variables of credentials that are not called `<PROVIDER>_API_KEY`."""


def provider_of(llm: str) -> str:
    """Return the provider that a model's name begins with, or the one whose model it is; "" if nothing tells."""
    provider, slash, _ = without_routes(llm).partition("/")
    if slash:
        return provider
    return next((each for each in WITHOUT_PREFIX if provider in known_models(each)), "")


def key_variable(llm: str) -> str | None:
    """Return the environment variable that holds the key for a model; None if none of those known is set."""
    provider = provider_of(llm)
    return next((name for name in credentials_of(provider) if provider and os.environ.get(name)), None)


def credentials_of(provider: str) -> tuple[str, ...]:
    """Return the variables in which the provider's key may be, by litellm's names."""
    return CREDENTIALS.get(provider, (f"{provider.upper()}_API_KEY",))


def name_hint(llm: str) -> str:
    """Return the end of an error message about a model of no known provider: the name that was probably meant."""
    provider, slash, name = llm.partition("/")
    if not slash:
        return did_you_mean(llm, [model for each in WITHOUT_PREFIX for model in known_models(each)])
    hint = did_you_mean(provider, {*providers(), *SERVERS})
    return hint.replace("'?", f"/{name}'?") if hint else ""


def similar_model(llm: str, *, is_sure: bool = False) -> str | None:
    """Return the model of the table with a similar name, for one that the table lacks; None if there is none.

    Only for providers whose models the table lists, and never for those that run what their owner has installed. One
    that is sure differs in letters alone: with other digits, the name may be of a model newer than the table.
    """
    provider = provider_of(llm)
    names = known_models(provider).keys() if provider not in KEYLESS else ()
    name = without_routes(llm).removeprefix(f"{provider}/")
    close = [] if not names or name in names else get_close_matches(name, names, n=1)
    if is_sure and close and _digits(close[0]) != _digits(name):
        return None
    return f"{llm.removesuffix(name)}{close[0]}" if close else None


def _digits(name: str) -> list[str]:
    return [character for character in name if character.isdigit()]
