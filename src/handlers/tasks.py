"""`GET /tasks`: the caller's tasks, what they have cost, what failed in them, and who is told of them."""

from handlers.http_api import serve
from mail.http import dead_letters_routes, task_routes, usage_routes, webhooks_routes

handler = serve(task_routes.router, usage_routes.router, dead_letters_routes.router, webhooks_routes.router)
