"""Reading references to Python objects, and addresses."""

import importlib
import inspect
from collections.abc import Collection
from types import ModuleType
from typing import Any

from mail.core.address import parse_agent_address
from mail.core.hints import did_you_mean
from mail.errors import ConfigurationError

PYTHON_PREFIX = "python::"
"""What marks a string in swarms.json as a reference to a Python object."""


def read_python_string(string: str, *, allowed_prefixes: Collection[str] | None = None) -> Any:
    """The object that `package.module:attribute` names; the prefix `python::` may stand before it.

    With `allowed_prefixes`, only objects of these modules, and of modules inside them, may be named: not what
    a module has merely imported from elsewhere, or an allowed module would lend out `os.system`. Nothing
    outside of them is imported by this call.

    Raises ConfigurationError where the reference is malformed, forbidden, or leads nowhere.
    """
    module_name, colon, path = string.removeprefix(PYTHON_PREFIX).partition(":")
    if not (colon and _is_dotted_name(module_name) and _is_dotted_name(path)):
        raise ConfigurationError(f"{string!r} is not of the form 'package.module:attribute'")
    if not _is_allowed(module_name, allowed_prefixes):
        raise _forbidden(string, allowed_prefixes)
    try:
        found: Any = importlib.import_module(module_name)
    except ImportError as error:
        raise ConfigurationError(f"{string!r} can't be imported: {error}") from error
    for name in path.split("."):
        if not hasattr(found, name):
            hint = did_you_mean(name, dir(found))
            raise ConfigurationError(f"{string!r}: {module_name} has no attribute {path!r}{hint}")
        found = getattr(found, name)
        if not _is_allowed(_home(found), allowed_prefixes):
            raise _forbidden(string, allowed_prefixes)
    return found


def target_address_is_interswarm(address: str) -> bool:
    """Whether the address, `agent` or `agent@swarm`, names another swarm."""
    return parse_agent_address(address)[1] is not None


def _is_dotted_name(text: str) -> bool:
    return all(part.isidentifier() for part in text.split("."))


def _is_allowed(module_name: str | None, prefixes: Collection[str] | None) -> bool:
    if prefixes is None or module_name is None:
        return True
    return any(module_name == prefix or module_name.startswith(f"{prefix}.") for prefix in prefixes)


def _home(found: Any) -> str | None:
    """The module that an object was defined in; None for plain values, which have no code of their own."""
    if isinstance(found, ModuleType):
        return found.__name__
    if inspect.isclass(found) or inspect.isroutine(found):
        return found.__module__ or ""
    return None


def _forbidden(string: str, prefixes: Collection[str] | None) -> ConfigurationError:
    allowed = ", ".join(sorted(prefixes or ())) or "nothing"
    return ConfigurationError(f"{string!r} may not be imported; allowed are objects of: {allowed}")
