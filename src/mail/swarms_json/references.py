"""References in swarms.json.

`python::package.module:attribute` refers to a Python object, `url::https://…` to a JSON document, read as text.
"""

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from mail.errors import ConfigurationError
from mail.utils.parsing import PYTHON_PREFIX, URL_PREFIX, read_python_string, read_url_string

LOOKS_LIKE_REFERENCE = re.compile(r"[a-zA-Z_]\w*(\.\w+)+:[a-zA-Z_]\w*")
"""`package.module:attribute`, without the prefix."""

Resolve = Callable[[str], Any]
"""Returns the object that a reference names; without a prefix, a Python object. Raises ConfigurationError."""


def resolver(allowed_prefixes: Collection[str] | None = None, *, trusts_urls: bool | None = None) -> Resolve:
    """Return a function that resolves references.

    Args:
        allowed_prefixes: the modules whose objects may be named; None for all.
        trusts_urls: whether any URL may be read, with the reference itself as the value if reading fails. Otherwise
            only public URLs may be read, and a failure is an error. The default is True if all modules are allowed.
    """
    trusts = allowed_prefixes is None if trusts_urls is None else trusts_urls

    def resolve(reference: str) -> Any:
        if not reference.startswith(URL_PREFIX):
            return read_python_string(reference, allowed_prefixes=allowed_prefixes)
        try:
            return read_url_string(reference, raise_on_error=not trusts, allow_private=trusts)
        except RuntimeError as error:
            raise ConfigurationError(str(error)) from error

    return resolve


def resolve_references(value: Any, resolve: Resolve) -> Any:
    """Resolve every reference in `value`, in dictionaries and lists at any depth.

    Raises ConfigurationError if one can't be resolved.
    """
    match value:
        case dict():
            return {key: resolve_references(item, resolve) for key, item in value.items()}
        case list():
            return [resolve_references(item, resolve) for item in value]
        case str() if value.startswith((PYTHON_PREFIX, URL_PREFIX)):
            return resolve(value)
        case _:
            return value


def resolve_params(params: Mapping[str, Any], resolve: Resolve) -> dict[str, Any]:
    """Resolve every reference in an agent's `agent_params`.

    In `system` a reference to a Python object may omit its prefix: no system prompt
    looks like one. Raises ConfigurationError if one can't be resolved.
    """
    resolved: dict[str, Any] = resolve_references(dict(params), resolve)
    system = params.get("system")
    if isinstance(system, str) and LOOKS_LIKE_REFERENCE.fullmatch(system):
        resolved["system"] = resolve(system)
    return resolved
