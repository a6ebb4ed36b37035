"""`GET /whoami`: who the caller is."""

from handlers.http_api import serve
from mail.http.routes import server

handler = serve(server.router)
