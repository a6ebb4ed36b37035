"""`GET /whoami`: who the caller is."""

from handlers.http_api import serve
from mail.http import server_routes

handler = serve(server_routes.router)
