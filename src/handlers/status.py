"""`GET /status`: the load of the swarm, and of the caller."""

from handlers.http_api import serve
from mail.http.routes import server

handler = serve(server.router)
