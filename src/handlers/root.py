"""`GET /`, `/ui`, and every request without a function of its own: errors and the OpenAPI document need all routes."""

from handlers.http_api import serve
from mail.http.routes import health, load_routers, ui

handler = serve(health.router, ui.router, later=load_routers)
