"""The HTTP routes: one module per noun, with its bodies.

Each module has a `router`. Importing this package imports none of them, so that a Lambda function loads only the routes
that it serves.
"""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastapi import APIRouter


LIKELY = ("message", "tasks", "turns", "threads")
"""The modules that serve most requests."""


def module_names() -> tuple[str, ...]:
    """Return the full names of the modules with routes."""
    return tuple(sorted(f"{__name__}.{module.name}" for module in iter_modules(__path__)))


def load_router(name: str) -> "APIRouter":
    """Import a module with routes, and return its router."""
    router: APIRouter = import_module(name).router
    return router


def later_routers(*loaded: ModuleType) -> "list[Callable[[], APIRouter]]":
    """Return functions that load the routers of all modules but those that are `loaded`, the likely ones first."""
    known = {module.__name__ for module in loaded}
    names = dict.fromkeys((*(f"{__name__}.{name}" for name in LIKELY), *module_names()))
    return [partial(load_router, name) for name in names if name not in known]


def load_routers() -> "tuple[APIRouter, ...]":
    """Import every module with routes, and return their routers."""
    return tuple(map(load_router, module_names()))
