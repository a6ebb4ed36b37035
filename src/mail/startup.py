"""Ways to start a process of MAIL sooner, and the time that each saves.

Milliseconds are CPU time on a machine that imports FastAPI, Mangum and botocore in 500.
"""

import gc
import os
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def begin() -> None:
    """Collect no garbage until `end`, as what a start makes stays: 70 of a function's 640 ms, 90 of a server's 620."""
    gc.disable()


def end() -> None:
    """Collect garbage from now on, but never look at what was imported and built so far."""
    gc.freeze()
    gc.enable()


def skip_plugins() -> None:
    """Keep pydantic from searching the metadata of all packages for plugins: 30 of 600 ms of a function."""
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")


def homes_of(names: Mapping[str, str]) -> dict[str, str]:
    """Return the module of each name, from the names of each module, separated by spaces."""
    return {name: module for module, listed in names.items() for name in listed.split()}


def lazy_exports(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package whose public names are imported on first use.

    `import mail` takes 10 ms, and with all that its names need 270.
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
