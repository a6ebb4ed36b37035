"""`GET /status`: how busy the swarm is, and the caller."""

from handlers.http_api import serve
from mail.http.routes import server

handler = serve(server.router)
