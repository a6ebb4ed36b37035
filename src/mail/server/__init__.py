"""The HTTP server of a swarm: the application, run by uvicorn, with its workers in its lifespan.

    mail server [flags]                           the command
    python -m mail.server [flags]                 the same, without the rest of the command line
    uvicorn --factory mail.server:create_app      the application under another ASGI server

Names are imported on first use.
"""

from typing import TYPE_CHECKING

from mail.startup import lazy_exports

if TYPE_CHECKING:
    from mail.server.app import build_app, create_app, make_service
    from mail.server.process import base_url, listen, serve, serve_swarm, serving

PROGRAM_VARIABLE = "MAIL_PROGRAM"
"""How to call `mail` where it is not on PATH; `scripts/dev.py` sets it, and hints use it."""

__all__ = ["base_url", "build_app", "create_app", "listen", "make_service", "serve", "serve_swarm", "serving"]

_IN_APP = ("build_app", "create_app", "make_service")

__getattr__, __dir__ = lazy_exports(
    __name__, {name: "mail.server.app" if name in _IN_APP else "mail.server.process" for name in __all__}
)
