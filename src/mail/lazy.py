"""Packages whose public names are imported on first use."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def homes_of(names: Mapping[str, str]) -> dict[str, str]:
    """Return the module of each name, from the names of each module, separated by spaces."""
    return {name: module for module, listed in names.items() for name in listed.split()}


def lazy_exports(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package whose public names are imported on first use.

    `homes` has the module of each name, as `module:name` if it has another name there.
    """
    module = sys.modules[package]

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home, _, found = homes[name].partition(":")
        value = getattr(import_module(home), found or name)
        setattr(module, name, value)
        return value

    return load, lambda: sorted({*vars(module), *homes})
