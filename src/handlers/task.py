"""`GET /task`, `/task/turn`, `/task/stream`: a task, one of its turns, its events until the function's timeout."""

from handlers.http_api import serve
from mail.http.routes import tasks, turns

handler = serve(tasks.router, turns.router)
