"""`POST /interswarm/*`: other swarms bring mail, and people write to agents of other swarms.

Behind the function's own URL, for swarms that sign their requests, it also says who this is and how it is.
"""

from fastapi import APIRouter
from fastapi.routing import APIRoute

from handlers.http_api import serve
from mail.http.routes import interswarm, server

LOOKED_AT = ("/", "/health")
"""What others look at, when this swarm is registered there and later."""

_about = APIRouter(
    routes=[
        route for route in server.router.routes if isinstance(route, APIRoute) and route.path in LOOKED_AT
    ]
)

handler = serve(interswarm.router, _about)
