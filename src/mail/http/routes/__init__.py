"""The HTTP routes: one module per noun, with its bodies.

Each module has a `router`. Importing this package imports none of them, so that a Lambda function loads only the routes
that it serves.
"""

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastapi import APIRouter


def module_names() -> tuple[str, ...]:
    """Return the full names of the modules with routes."""
    return tuple(sorted(f"{__name__}.{module.name}" for module in iter_modules(__path__)))


def load_router(name: str) -> "APIRouter":
    """Import a module with routes, and return its router."""
    router: APIRouter = import_module(name).router
    return router


def load_routers() -> "tuple[APIRouter, ...]":
    """Import every module with routes, and return their routers."""
    return tuple(map(load_router, module_names()))
