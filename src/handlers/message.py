"""`POST /message`, `/task/cancel`, `/task/fork` and `/callbacks/{token}`, `DELETE /task`: what changes tasks."""

from handlers.http_api import serve
from mail.http.routes import callbacks, cancel, delete, fork, message

handler = serve(message.router, cancel.router, fork.router, delete.router, callbacks.router)
