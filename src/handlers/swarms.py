"""`/swarms`: other swarms, whom all functions know, and the one that all run (`/swarm`, `/swarms/load`, `/swarms/dump`)."""

from handlers.http_api import serve
from mail.http.routes import registry, swarm

handler = serve(swarm.router, registry.router)
