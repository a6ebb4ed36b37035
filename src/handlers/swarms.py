"""`/swarms`: the registry of other swarms, and the swarm of this server (`/swarm`, `/swarms/check`, `/swarms/load`, `/swarms/dump`)."""

from handlers.http_api import serve
from mail.http.routes import registry, swarm

handler = serve(swarm.router, registry.router)
