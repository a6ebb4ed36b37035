"""`GET /live`, and `GET` and `POST /health`: whether the function answers, and the health of the swarm."""

from handlers.http_api import serve
from mail.http.routes import health

handler = serve(health.router)
