"""Providers of models, as litellm knows them: the provider of a name, and the environment variables that it needs."""

import os
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

from mail.core.protocol.error_text import did_you_mean
from mail.errors import AgentUnavailable
from mail.factories.models import load_litellm
from mail.factories.retry import Cause, Failure, error_for

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


KEY_ONLY = frozenset({"anthropic", "deepseek", "gemini", "groq", "mistral", "openai", "xai"})
"""Providers whose settings are environment variables that begin like those of `credentials_of`."""


def find_missing_key(llm: str) -> Failure | None:
    """Return the failure of a first call of the model for which the environment has no key; None if it may have one.

    Does not import litellm, which takes seconds. litellm reads a file `.env`, if there is one.
    """
    provider, _, _ = llm.partition("/")
    if provider not in KEY_ONLY or "litellm" in sys.modules:
        return None
    variables = credentials_of(provider)
    prefixes = tuple(f"{name.partition('_')[0]}_" for name in variables)
    package = find_spec("litellm")
    if package is None or package.origin is None or any(name.startswith(prefixes) for name in os.environ):
        return None
    folders = {*Path(package.origin).parents, Path.cwd(), *Path.cwd().parents}
    if any((folder / ".env").exists() for folder in folders):
        return None
    return Failure(Cause.NO_KEY, variables=variables[:1])


def find_problems(llm: str, proxy_variable: str | None = None, *, has_key: bool = False) -> list[str]:
    """Return why a call of the model would fail, one line each with the remedy. Imports litellm; uses no network.

    Args:
        proxy_variable: the variable with the proxy's address, for an agent that uses the proxy.
        has_key: whether the agent has a key of its own.
    """
    try:
        litellm = load_litellm()
    except AgentUnavailable as error:
        return [error.detail]
    if proxy_variable is not None:
        missing = not os.environ.get(proxy_variable)
        return [f"it uses a proxy: set {proxy_variable} to its address"] if missing else []
    if provider_of(litellm, llm) is None:
        return [error_for(Failure(Cause.NO_PROVIDER, hint=name_hint(litellm, llm)), llm, 1).detail]
    problems = []
    if not has_key and (variables := missing_variables(litellm, llm)):
        problems.append(error_for(Failure(Cause.NO_KEY, variables=variables), llm, 1).detail)
    similar = similar_model(litellm, llm)
    if similar is not None and _digits(similar) == _digits(
        llm
    ):  # otherwise it may be a model newer than the table
        named = similar if "/" in similar else f"{provider_of(litellm, similar)}/{similar}"
        problems.append(f"litellm knows no model {llm!r}. Did you mean {named!r}?")
    return problems


def _digits(name: str) -> list[str]:
    return [character for character in name if character.isdigit()]


def provider_of(litellm: Any, llm: str) -> str | None:
    """Return the provider that litellm calls for a model; None if the name doesn't tell."""
    try:
        return str(litellm.get_llm_provider(model=llm)[1])
    except litellm.BadRequestError:
        return None


def missing_variables(litellm: Any, llm: str) -> tuple[str, ...]:
    """Return the environment variables that the provider of a model needs and that are not set; no network is used."""
    provider = provider_of(litellm, llm)
    if provider is None or provider in KEYLESS:
        return ()
    if provider in ALTERNATIVES:
        names = ALTERNATIVES[provider]
        return () if any(map(os.environ.get, names)) else names[:1]
    if provider in ("bedrock", "sagemaker", "vertex_ai"):  # they have many ways to log in besides variables
        return ()
    empty = [name for name in credentials_of(provider) if os.environ.get(name) == ""]
    return (*litellm.validate_environment(model=llm)["missing_keys"], *empty)


def key_variable(litellm: Any, llm: str) -> str | None:
    """Return the environment variable that holds the key for a model; None if none of those known is set."""
    provider = provider_of(litellm, llm)
    if provider is None:
        return None
    return next((name for name in credentials_of(provider) if os.environ.get(name)), None)


def credentials_of(provider: str) -> tuple[str, ...]:
    """Return the variables in which the provider's key may be, by litellm's names."""
    return CREDENTIALS.get(provider, (f"{provider.upper()}_API_KEY",))


def name_hint(litellm: Any, llm: str) -> str:
    """Return the end of an error message about a model of no known provider: the name that was probably meant."""
    provider, slash, name = llm.partition("/")
    if not slash:
        known = [model for models in litellm.models_by_provider.values() for model in models]
        return did_you_mean(llm, known)
    providers = [str(getattr(each, "value", each)) for each in litellm.provider_list]
    hint = did_you_mean(provider, providers)
    return hint.replace("'?", f"/{name}'?") if hint else ""


def similar_model(litellm: Any, llm: str) -> str | None:
    """Return the model of litellm's table with a similar name, for one that the table lacks; None if there is none.

    Only for providers whose models the table lists, and never for those that run what their owner has installed.
    """
    provider = provider_of(litellm, llm)
    known = litellm.models_by_provider.get(provider, ()) if provider and provider not in KEYLESS else ()
    name = llm.removeprefix(f"{provider}/")
    names = {str(each).removeprefix(f"{provider}/") for each in known}
    close = [] if not names or name in names else get_close_matches(name, names, n=1)
    return f"{llm.removesuffix(name)}{close[0]}" if close else None
