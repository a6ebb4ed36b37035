"""`GET` and `POST /health`: how the swarm is."""

from handlers.http_api import serve
from mail.http.routes import server

handler = serve(server.router)
