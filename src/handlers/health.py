"""`GET` and `POST /health`: how the swarm is."""

from handlers.http_api import serve
from mail.http import server_routes

handler = serve(server_routes.router)
