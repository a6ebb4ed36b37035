"""`POST /message`, `/task/cancel` and `/task/fork`: start, continue, cancel and fork tasks."""

from handlers.http_api import serve
from mail.http.routes import cancel, fork, message

handler = serve(message.router, cancel.router, fork.router)
