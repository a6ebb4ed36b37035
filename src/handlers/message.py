"""`POST /message`, `/task/cancel` and `/task/fork`: a person talks to the swarm, has heard enough, or tries something else."""

from handlers.http_api import serve
from mail.http import cancel_routes, fork_routes, message_routes

handler = serve(message_routes.router, cancel_routes.router, fork_routes.router)
