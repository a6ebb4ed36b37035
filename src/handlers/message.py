"""`POST /message`: a person talks to the swarm."""

from handlers.http_api import serve
from mail.http import message_routes

handler = serve(message_routes.router)
