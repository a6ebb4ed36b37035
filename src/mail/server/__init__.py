"""The server: the HTTP application, its workers in its lifespan, under uvicorn.

    mail server [flags]                           what people run
    python -m mail.server [flags]                 the same
    uvicorn --factory mail.server:create_app      under a server of one's own

The names are loaded when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mail.server.app import base_url, build_app, create_app, listen, serve, serve_swarm, serving

__all__ = ["base_url", "build_app", "create_app", "listen", "serve", "serve_swarm", "serving"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'mail.server' has no attribute {name!r}")
    return getattr(import_module("mail.server.app"), name)
