"""`/swarms`: the registry of other swarms; and this server's own: `/swarm`, its drafts, check, load and dump."""

from handlers.http_api import serve
from mail.http.routes import drafts, registry, swarm

handler = serve(swarm.router, drafts.router, registry.router)
