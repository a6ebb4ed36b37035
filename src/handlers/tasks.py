"""`GET /tasks`: the caller's tasks."""

from handlers.http_api import serve
from mail.http import task_routes

handler = serve(task_routes.router)
