"""Options of model calls: what litellm takes, what this package sets itself, and hints for names that don't exist.

The names are litellm's own, of its Chat Completions and Responses calls, of their connections, and of its providers.
litellm takes seconds to import, so they are kept in `options.json`, which `scripts/litellm_options.py` writes.
"""

import json
import os
import re
from collections.abc import Collection, Iterable, Mapping
from enum import Enum, auto
from functools import lru_cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from mail.core.protocol.calls import ToolFormat
from mail.core.protocol.error_text import did_you_mean
from mail.errors import AgentUnavailable, ConfigurationError
from mail.factories.models import is_claude, load_litellm

_HISTORY = "the engine sends the agent's history"
_STORED = "histories are stored by MAIL, not by the provider"
_RETRIES = "retries follow the agent's retry_policy"
_STREAM = "use stream_tokens"
_TOOLS = "use actions=[…], and mcp for the tools of MCP servers"
_CHOICE = "use default_tool_choice"
_MAX_TOKENS = "use max_tokens"

RESERVED: Mapping[str, str] = MappingProxyType(
    {
        "model": "use llm",
        "messages": _HISTORY,
        "input": _HISTORY,
        "instructions": "use system",
        "prompt": "use system",
        "system_prompt": "use system",
        "tools": _TOOLS,
        "functions": _TOOLS,
        "tool_choice": _CHOICE,
        "function_call": _CHOICE,
        "stream": _STREAM,
        "stream_options": _STREAM,
        "max_completion_tokens": _MAX_TOKENS,
        "max_output_tokens": _MAX_TOKENS,
        "request_timeout": "use timeout",
        "store": _STORED,
        "previous_response_id": _STORED,
        "conversation": _STORED,
        "background": "an agent waits for the reply",
        "include": "reasoning is always included",
        "n": "an agent takes one reply",
        "num_retries": _RETRIES,
        "max_retries": _RETRIES,
    }
)
"""Arguments of litellm that are set here, with what to do instead."""

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")

_DESTINATION = (
    "api_base",
    "base_url",
    "api_key",
    "timeout",
    "extra_headers",
    "extra_body",
    "extra_query",
    "api_version",
)


@lru_cache(maxsize=1)
def known_names() -> Mapping[str, frozenset[str]]:
    """Return the names of the options that litellm knows, by what they belong to."""
    text = files("mail.factories").joinpath("options.json").read_text(encoding="utf-8")
    return {group: frozenset(names) for group, names in json.loads(text).items()}


# ------------------------------------------------------------------------------------------------ checking


def check_options(
    where: str,
    options: Mapping[str, Any],
    *,
    llm: str,
    tool_format: ToolFormat,
    parameters: Iterable[str] = (),
) -> None:
    """Check an agent's options.

    Args:
        where: the agent, for messages.
        parameters: names that the agent takes besides options, for hints.

    Raises ConfigurationError for an unknown name, one that is set here, and one of the other API.
    """
    api = api_of(llm, tool_format)
    for name, value in options.items():
        if name in RESERVED:
            raise ConfigurationError(f"{where}: {name!r} is not an option: {RESERVED[name]}")
        if name == "timeout" and (
            isinstance(value, bool) or not isinstance(value, int | float) or value <= 0
        ):
            raise ConfigurationError(f"{where}: timeout must be a number of seconds")
        fit = _fit(name, api, known_names())
        if fit is _Fit.YES or (fit is _Fit.UNKNOWN and name in _openai_parameters(llm)):
            continue
        if fit is _Fit.OTHER_API:
            other = "responses" if api == "completions" else "completions"
            raise ConfigurationError(
                f"{where}: {name!r} is an option of the other API; set tool_format to {other!r}"
                + (", which is not used for Claude" if is_claude(llm) else "")
            )
        names = known_names()
        hint = (
            did_you_mean(name, {*parameters, *names["chat"], *names["responses"], *_DESTINATION})
            or did_you_mean(name, [each for group in names.values() for each in group])
            or "; put provider-specific options in extra_body"
        )
        raise ConfigurationError(f"{where}: {name!r} is not an option of litellm{hint}")


class _Fit(Enum):
    """Whether calls of an API take an option."""

    YES = auto()
    OTHER_API = auto()
    UNKNOWN = auto()


def _fit(name: str, api: ToolFormat, names: Mapping[str, Collection[str]]) -> _Fit:
    chat = name in names["chat"] or name in names["provider"]
    responses = name in names["responses"] or name == "verbosity"
    if name in names["connection"] or (chat if api == "completions" else responses):
        return _Fit.YES
    return _Fit.OTHER_API if chat or responses else _Fit.UNKNOWN


def _openai_parameters(llm: str) -> Collection[str]:
    """Return OpenAI's parameters that the installed litellm takes for a model; it may be newer than the list."""
    try:
        return load_litellm().get_supported_openai_params(model=llm) or ()
    except AgentUnavailable:
        return ()


def api_of(llm: str, tool_format: ToolFormat) -> ToolFormat:
    """Return the API by which a model is called: Chat Completions for Claude, whatever the `tool_format`."""
    return "completions" if is_claude(llm) else tool_format


def needs_chat(options: Iterable[str]) -> bool:
    """Return whether only calls of Chat Completions take one of the options."""
    return any(_fit(name, "responses", known_names()) is _Fit.OTHER_API for name in options)


def common_options(extra: Mapping[str, Any], llm: str, tool_format: ToolFormat) -> dict[str, Any]:
    """Return the options among parameters that may also be a subclass's own: those that all providers know."""
    names, api = known_names(), api_of(llm, tool_format)
    return {
        name: value
        for name, value in extra.items()
        if name in _DESTINATION
        or (
            name not in names["connection"]
            and name not in names["provider"]
            and name not in RESERVED
            and _fit(name, api, names) is _Fit.YES
        )
    }


def choose_connection(options: Iterable[str]) -> list[str]:
    """Return the options that say where calls go, with which credentials, and how."""
    return sorted({"base_url", *known_names()["connection"]}.intersection(options))


def name_variables(options: Mapping[str, Any]) -> list[str]:
    """Return the options that refer to environment variables by `${NAME}`, also inside mappings and lists."""

    def refers(value: Any) -> bool:
        match value:
            case str():
                return _REFERENCE.fullmatch(value) is not None
            case Mapping():
                return any(map(refers, value.values()))
            case list() | tuple():
                return any(map(refers, value))
            case _:
                return False

    return sorted(name for name, value in options.items() if refers(value))


# ------------------------------------------------------------------------------------------------ applying


def resolve_options(where: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with the values of environment variables in place of references to them, `${NAME}`.

    Raises AgentUnavailable for a variable that is not set.
    """

    def resolve(name: str, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: resolve(f"{name}.{key}", item) for key, item in value.items()}
        found = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
        if found is None:
            return value
        if not os.environ.get(found[1]):
            raise AgentUnavailable(f"{where}: its {name} is {value}, but this variable is not set")
        return os.environ[found[1]]

    return {name: resolve(name, value) for name, value in options.items()}


def merge_options(arguments: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call with the agent's options, which take precedence; headers are combined.

    The timeout stays: it is what the turn has left of the agent's.
    """
    headers = {**arguments.get("extra_headers", {}), **(options.get("extra_headers") or {})}
    names = {"base_url": "api_base"}
    merged = {
        **arguments,
        **{names.get(name, name): value for name, value in options.items() if name != "timeout"},
    }
    return {**merged, "extra_headers": headers} if headers else merged
