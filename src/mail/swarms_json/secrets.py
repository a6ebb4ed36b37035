"""Secrets in swarms: which values look like one, and are neither shown nor kept with versions."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from mail.errors import ConfigurationError

HIDDEN = "(hidden)"

_SECRET = re.compile(
    r"token|secret|pass(word|wd|phrase|code)|pwd|credential|auth(?!ors?$)|bearer|jwt|cookie|session|signature|dsn$"
    r"|connection.?string|(^|[^a-z])(otp|pass|pin|pw|salt)$|key(s|id)?$|webhook|headers?$|^env(iron(ment)?)?$",
    re.IGNORECASE,
)
"""Names of secret values of any type. All headers and environment variables count, as any of them may be secret."""

_COUNT = re.compile(r"(max|min)_(\w+_)?tokens", re.IGNORECASE)
"""Names of numbers of tokens, which are not secret."""

_IN_TEXT = re.compile(
    r"(?<=://)[^/\s@]+(?=@)"  # credentials in a URL
    r"|(?<=[?&;])[^=&\s]*(token|secret|passw|key|auth|sig)[^=&\s]*=[^&\s]+"  # or in its query
    r"|\bbearer\s+[\w.~+/=-]{8,}"
    r"|\b(sk|pk|rk|ghp|gho|xox[a-z])[-_][\w-]{8,}|\bAKIA[A-Z0-9]{12,}|\beyJ[\w-]{8,}\.[\w.-]+",
    re.IGNORECASE,
)
"""Secrets inside a text, whatever its name."""


def with_secrets(kept: Any, present: Any, *path: str) -> Any:
    """Return kept JSON with the present values in place of those that were hidden.

    Items of lists belong together by their names. Raises ConfigurationError if there is no present value.
    """
    match kept:
        case dict():
            known = present if isinstance(present, dict) else {}
            return {name: with_secrets(each, known.get(name), *path, name) for name, each in kept.items()}
        case list():
            others = present if isinstance(present, list) else []
            named = {each["name"]: each for each in others if isinstance(each, dict) and "name" in each}
            return [
                with_secrets(
                    each,
                    named.get(each.get("name"))
                    if isinstance(each, dict)
                    else others[n]
                    if n < len(others)
                    else None,
                    *path,
                    str(n),
                )
                for n, each in enumerate(kept)
            ]
        case str() if HIDDEN in kept:
            if present is None:
                raise ConfigurationError(f"{'.'.join(path)} looked like a secret, and was not kept")
            return present
        case _:
            return kept


def as_options(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a factory as JSON, without secrets, model and system prompt; objects by their types."""
    given = {str(name): each for name, each in params.items() if name not in ("llm", "system")}
    shown: dict[str, Any] = without_secrets(
        json.loads(json.dumps(given, default=lambda each: f"({type(each).__qualname__})", skipkeys=True))
    )
    return shown


def without_secrets(value: Any) -> Any:
    """Return JSON with `HIDDEN` in place of secrets, recognized by their names or their format.

    Hides too much rather than too little.
    """
    match value:
        case dict():
            return {
                key: _shown(str(value.get("name", "")) if key == "value" else key, item)
                for key, item in value.items()
            }
        case list():
            return [without_secrets(item) for item in value]
        case str():
            return _IN_TEXT.sub(HIDDEN, value)
        case _:
            return value


def hidden_in(value: Any, *path: str) -> Iterator[str]:
    """Yield the paths of values that `without_secrets` has hidden."""
    if value == HIDDEN:
        yield ".".join(path)
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from hidden_in(item, *path, str(key))


def _shown(name: str, value: Any) -> Any:
    """Return a named value or `HIDDEN`. Booleans, null and numbers of tokens are never secret."""
    if name == "mcp" and isinstance(value, dict):
        return {server: _shown_server(settings) for server, settings in value.items()}
    if value is None or isinstance(value, bool) or not _SECRET.search(name):
        return without_secrets(value)
    is_count = isinstance(value, int | float) and _COUNT.fullmatch(name)
    return value if is_count else HIDDEN


def _shown_server(settings: Any) -> Any:
    """Return the settings of an MCP server without its address, command and their like, which often hold a key."""
    if not isinstance(settings, dict):
        return HIDDEN
    shown = ("type", "disabled", "tools", "exclude", "prefix", "timeout")
    return {key: item if key in shown or not item else HIDDEN for key, item in settings.items()}
