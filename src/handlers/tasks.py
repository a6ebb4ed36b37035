"""`GET /tasks`: the caller's tasks, their cost, dead letters, webhooks, schedules, approvals; versions of the swarm."""

from handlers.http_api import serve
from mail.http.routes import approvals, dead_letters, schedules, tasks, usage, versions, webhooks

handler = serve(
    *(tasks.router, usage.router, dead_letters.router, webhooks.router, schedules.router),
    versions.router,
    approvals.router,
)
