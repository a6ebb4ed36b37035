"""`GET` and `POST /health`: the health of the swarm."""

from handlers.http_api import serve
from mail.http.routes import health

handler = serve(health.router)
