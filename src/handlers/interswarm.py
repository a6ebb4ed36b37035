"""`POST /interswarm/*`: mail from other swarms, and messages from users to agents of other swarms.

The function's own URL, for swarms that sign their requests, also serves `/` and `/health`.
"""

from fastapi import APIRouter
from fastapi.routing import APIRoute

from handlers.http_api import serve
from mail.http.routes import interswarm, server

PROBED = ("/", "/health")
"""What other swarms request when they register this swarm, and for health checks."""

_about = APIRouter(
    routes=[route for route in server.router.routes if isinstance(route, APIRoute) and route.path in PROBED]
)

handler = serve(interswarm.router, _about)
