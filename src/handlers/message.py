"""Changes of tasks: `POST` or `DELETE` messages, tasks, forks, calls, timers, `/callbacks/{token}`, `/files`."""

from handlers.http_api import serve
from mail.http.routes import callbacks, cancel, delete, files, fork, message, shared_files, waits

handler = serve(
    *(message.router, cancel.router, fork.router, delete.router),
    *(waits.router, callbacks.router, files.router, shared_files.router),
)
