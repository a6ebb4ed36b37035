"""`GET /tasks`: the caller's tasks; `/dead-letters`: what could not be processed in them."""

from handlers.http_api import serve
from mail.http import dead_letters_routes, task_routes

handler = serve(task_routes.router, dead_letters_routes.router)
