"""`GET /whoami`: the caller's id and role; `/tokens`, signing in by links, and the audit."""

from handlers.http_api import serve
from mail.http.routes import audit, server, sign_in, tokens

handler = serve(server.router, tokens.router, sign_in.router, audit.router)
