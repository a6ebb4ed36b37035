"""`GET /whoami`: the caller's id and role; `/tokens`, and signing in by links."""

from handlers.http_api import serve
from mail.http.routes import server, sign_in, tokens

handler = serve(server.router, tokens.router, sign_in.router)
