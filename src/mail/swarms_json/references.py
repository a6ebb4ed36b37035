"""References in swarms.json: `python::package.module:attribute` stands for the object of that name."""

from collections.abc import Callable, Collection
from typing import Any

from mail.errors import ConfigurationError
from mail.utils.parsing import PYTHON_PREFIX, read_python_string

URL_PREFIX = "url::"

Resolve = Callable[[str], Any]
"""From a reference, with its prefix or without, to the object. Raises ConfigurationError."""


def resolver(allowed_prefixes: Collection[str] | None = None) -> Resolve:
    """How references are resolved: to objects of these modules only, or to any where it is None."""
    return lambda reference: read_python_string(reference, allowed_prefixes=allowed_prefixes)


def resolve_references(value: Any, resolve: Resolve) -> Any:
    """`value` with every reference in it replaced by its object, in dictionaries and lists at any depth.

    Raises ConfigurationError for a reference that leads nowhere, and for `url::` references.
    """
    match value:
        case dict():
            return {key: resolve_references(item, resolve) for key, item in value.items()}
        case list():
            return [resolve_references(item, resolve) for item in value]
        case str() if value.startswith(PYTHON_PREFIX):
            return resolve(value)
        case str() if value.startswith(URL_PREFIX):
            raise ConfigurationError(
                f"url:: references are not supported yet: {value!r}; write the text itself"
            )
        case _:
            return value
