"""`GET /tasks`: the caller's tasks; `/dead-letters`: what could not be processed in them; `/webhooks`: who is told."""

from handlers.http_api import serve
from mail.http import dead_letters_routes, task_routes, webhooks_routes

handler = serve(task_routes.router, dead_letters_routes.router, webhooks_routes.router)
