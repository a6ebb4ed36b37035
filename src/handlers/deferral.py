"""Defers what libraries build or load when they are imported, and functions use late or never: a third of a cold start."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any

MODELS = "fastapi.openapi.models"


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


class _StandIn(type):
    """Stands for a model of OpenAPI in FastAPI's annotations; making or reading one imports the models."""

    def __call__(cls, *arguments: Any, **fields: Any) -> Any:
        if not arguments and not fields:  # FastAPI makes a default argument of one
            return super().__call__()
        return getattr(_models(), cls.__name__)(*arguments, **fields)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(getattr(_models(), cls.__name__), name)


def _stand_in(name: str) -> _StandIn:
    if name.startswith("_"):
        raise AttributeError(name)
    return _StandIn(name, (), {})


def _models() -> ModuleType:
    if not hasattr(sys.modules[MODELS], "__file__"):
        del sys.modules[MODELS]
    return import_module(MODELS)


@contextmanager
def lean_fastapi() -> Iterator[None]:
    """Import FastAPI inside this without the models of OpenAPI, which only `GET /openapi.json` needs.

    FastAPI has no setting for that. Nor does it need to import pydantic 1 for a look at each parameter of a route: no
    parameter of these is a model of pydantic 1. Pydantic builds FastAPI's other models when they are first used.
    """
    from mail.http.deferral import models_built_on_first_use

    models = ModuleType(MODELS)
    models.__getattr__ = _stand_in  # type: ignore[method-assign]
    sys.modules[MODELS] = models
    with models_built_on_first_use():
        yield
    compat: Any = import_module("fastapi._compat.shared")
    compat.is_pydantic_v1_model_class = lambda _: False
