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


def load_routers(*names: str) -> "list[APIRouter]":
    """Import these modules with routes, or every one; return their routers in the order of `TAGS`.

    `POST /message` is found first.
    """
    from mail.http.openapi import TAGS

    order = {str(tag["name"]): position for position, tag in enumerate(TAGS)}
    modules = [f"{__name__}.{name}" for name in names] or module_names()
    routers: list[APIRouter] = [import_module(name).router for name in modules]
    return sorted(
        routers, key=lambda router: min((order[str(tag)] for tag in router.tags), default=len(order))
    )
