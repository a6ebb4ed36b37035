"""The HTTP server of a swarm: the application, run by uvicorn, with its workers in its lifespan.

    mail server [flags]                           the command
    python -m mail.server [flags]                 the same, without the rest of the command line
    uvicorn --factory mail.server:create_app      the application under another ASGI server

Names are imported on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mail.server.app import build_app, create_app, make_service
    from mail.server.uvicorn import base_url, listen, serve, serve_swarm, serving

__all__ = ["base_url", "build_app", "create_app", "listen", "make_service", "serve", "serve_swarm", "serving"]

_IN_APP = ("build_app", "create_app", "make_service")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'mail.server' has no attribute {name!r}")
    return getattr(import_module("mail.server.app" if name in _IN_APP else "mail.server.uvicorn"), name)
