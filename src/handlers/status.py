"""`GET /status`: how busy the swarm is, and the caller."""

from handlers.http_api import serve
from mail.http import server_routes

handler = serve(server_routes.router)
