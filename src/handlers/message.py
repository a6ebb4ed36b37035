"""What changes tasks: `POST /message`, `/task/cancel`, `/task/fork`, `/callbacks/{token}`, `DELETE /task`, `/files`."""

from handlers.http_api import serve
from mail.http.routes import callbacks, cancel, delete, files, fork, message

handler = serve(message.router, cancel.router, fork.router, delete.router, callbacks.router, files.router)
