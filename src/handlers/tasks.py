"""`GET /tasks` and `GET /usage`: the caller's tasks, and what they have cost."""

from handlers.http_api import serve
from mail.http import task_routes, usage_routes

handler = serve(task_routes.router, usage_routes.router)
