"""`POST /swarms/load` and `GET /swarms/dump`: the swarm that all functions run."""

from handlers.http_api import serve
from mail.http import swarm_routes

handler = serve(swarm_routes.router)
