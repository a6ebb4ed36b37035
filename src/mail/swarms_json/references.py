"""References in swarms.json: strings that stand for something else.

`python::package.module:attribute` stands for the object of that name, `url::https://…` for the JSON document
there, as text.
"""

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from mail.errors import ConfigurationError
from mail.utils.parsing import PYTHON_PREFIX, URL_PREFIX, read_python_string, read_url_string

LOOKS_LIKE_REFERENCE = re.compile(r"[a-zA-Z_]\w*(\.\w+)+:[a-zA-Z_]\w*")
"""`package.module:attribute`, without the prefix."""

Resolve = Callable[[str], Any]
"""From a reference to what it stands for; without a prefix it is a Python object's. Raises ConfigurationError."""


def resolver(allowed_prefixes: Collection[str] | None = None, *, trusts_urls: bool | None = None) -> Resolve:
    """How references are resolved.

    Args:
        allowed_prefixes: the modules whose objects may be named; None for all.
        trusts_urls: whether any URL may be read, and one that can't be read stands for itself. Otherwise only
            public ones may, and must be there. The default: where all modules may be named.
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
    """`value` with every reference in it resolved, in dictionaries and lists at any depth.

    Raises ConfigurationError for a reference that leads nowhere.
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
    """An agent's `agent_params` with every reference in them resolved.

    In `system` a reference to a Python object may lack its prefix (seed 000, docs/factories.md): no instructions look
    like one. Raises ConfigurationError for a reference that leads nowhere.
    """
    resolved: dict[str, Any] = resolve_references(dict(params), resolve)
    system = params.get("system")
    if isinstance(system, str) and LOOKS_LIKE_REFERENCE.fullmatch(system):
        resolved["system"] = resolve(system)
    return resolved
