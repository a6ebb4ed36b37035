"""`GET /task` and `GET /task/stream`: one of the caller's tasks. A stream comes in pieces as long as the function lives."""

from handlers.http_api import serve
from mail.http.routes import tasks

handler = serve(tasks.router)
