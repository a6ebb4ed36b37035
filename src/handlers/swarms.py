"""`/swarms`: the registry of other swarms; and this server's own: `/swarm`, `/swarms/check`, `/load` and `/dump`."""

from handlers.http_api import serve
from mail.http.routes import registry, swarm

handler = serve(swarm.router, registry.router)
