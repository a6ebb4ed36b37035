"""`GET /tasks`, `/webhooks`: the caller's tasks, and where what happens in them is sent to."""

from handlers.http_api import serve
from mail.http import task_routes, webhooks_routes

handler = serve(task_routes.router, webhooks_routes.router)
