"""`POST /message` and `POST /task/cancel`: a person talks to the swarm, or has heard enough."""

from handlers.http_api import serve
from mail.http import cancel_routes, message_routes

handler = serve(message_routes.router, cancel_routes.router)
