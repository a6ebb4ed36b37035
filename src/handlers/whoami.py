"""`GET /whoami`: the caller's id and role."""

from handlers.http_api import serve
from mail.http.routes import server

handler = serve(server.router)
