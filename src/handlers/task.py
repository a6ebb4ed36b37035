"""`GET /task`, `/task/turn`, `/task/export`, `/task/stream`: a task, a turn, its events until the timeout."""

from handlers.http_api import serve
from mail.http.routes import export, streams, tasks, turns

handler = serve(tasks.router, streams.router, turns.router, export.router)
