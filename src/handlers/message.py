"""`POST /message`, `/task/cancel` and `/task/fork`: requests that begin, end or fork tasks."""

from handlers.http_api import serve
from mail.http.routes import message, tasks

handler = serve(message.router, tasks.router)
