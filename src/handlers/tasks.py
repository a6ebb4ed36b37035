"""`GET /tasks` and `GET /usage`: the caller's tasks, and what they have cost; `/dead-letters`: what failed in them."""

from handlers.http_api import serve
from mail.http import dead_letters_routes, task_routes, usage_routes

handler = serve(task_routes.router, usage_routes.router, dead_letters_routes.router)
