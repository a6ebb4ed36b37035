"""`POST /message`, `/task/cancel` and `/task/fork`: a person talks to the swarm, has heard enough, or tries something else."""

from handlers.http_api import serve
from mail.http.routes import cancel, fork, message

handler = serve(message.router, cancel.router, fork.router)
