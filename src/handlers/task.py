"""`GET /task` and `GET /task/stream`: one of the caller's tasks, or its events as a stream until the function's timeout."""

from handlers.http_api import serve
from mail.http.routes import tasks

handler = serve(tasks.router)
