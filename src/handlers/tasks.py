"""`GET /tasks`: the caller's tasks, what they have cost, what failed in them, and who is told of them."""

from handlers.http_api import serve
from mail.http.routes import dead_letters, tasks, usage, webhooks

handler = serve(tasks.router, usage.router, dead_letters.router, webhooks.router)
