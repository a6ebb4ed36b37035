"""`POST /message`, `/task/cancel` and `/task/fork`: start, continue, cancel and fork tasks."""

from handlers.http_api import serve
from mail.http.routes import message, tasks

handler = serve(message.router, tasks.router)
