"""What changes tasks: `POST` or `DELETE` messages, tasks, their timers and forks, `/callbacks/{token}`, `/files`."""

from handlers.http_api import serve
from mail.http.routes import callbacks, cancel, delete, files, fork, message, shared_files, timers

handler = serve(
    *(message.router, cancel.router, fork.router, delete.router),
    *(timers.router, callbacks.router, files.router, shared_files.router),
)
