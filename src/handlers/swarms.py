"""`/swarms`: other swarms, whom all functions know, and the one that all run (`/swarm`, `/swarms/load`, `/swarms/dump`)."""

from handlers.http_api import serve
from mail.http import agents_routes, registry_routes, swarm_routes

handler = serve(swarm_routes.router, agents_routes.router, registry_routes.router)
