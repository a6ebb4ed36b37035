"""`/swarms`: the registry of other swarms; and this server's own: `/swarm`, its drafts, check, load and dump."""

from functools import partial

from handlers.http_api import serve
from mail.http.routes import load_routers, registry, swarm

handler = serve(swarm.router, registry.router, later=partial(load_routers, "drafts"))
