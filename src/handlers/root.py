"""`GET /`, and every request that no other function takes: errors and the OpenAPI document need to know all routes."""

from handlers.http_api import serve
from mail.http.routes import load_routers

handler = serve(*load_routers())
