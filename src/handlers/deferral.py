"""Defers what packages import with themselves, and functions use late or never."""

import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any


class _Package(ModuleType):
    """A package whose modules can be imported before it runs: it runs when one of its own names is first read."""

    names: Mapping[str, str] = {}
    """Names that it has from a module, which are read from there."""

    def __getattr__(self, name: str) -> Any:
        if name in self.names:
            return getattr(import_module(f"{self.__name__}.{self.names[name]}"), name)
        if name.startswith("__") or self.__spec__ is None or self.__spec__.loader is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        self.__class__ = ModuleType  # type: ignore[assignment]
        self.__spec__.loader.exec_module(self)
        return getattr(self, name)


def run_on_first_use(name: str, **names: str) -> None:
    """Let a package that imports all of its modules do so only if one of its names is used, except those given `names`."""
    spec = find_spec(name)
    if spec is None or name in sys.modules:
        return
    package = module_from_spec(spec)
    package.names = names  # type: ignore[attr-defined]
    package.__class__ = _Package
    sys.modules[name] = package
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, package)
