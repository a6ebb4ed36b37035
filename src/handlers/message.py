"""`POST /message`, `/task/cancel` and `/task/fork`, `DELETE /task`: start, continue, cancel, fork and delete tasks."""

from handlers.http_api import serve
from mail.http.routes import cancel, delete, fork, message

handler = serve(message.router, cancel.router, fork.router, delete.router)
