"""`GET /tasks`: the caller's tasks, their cost, dead letters, webhooks, schedules, approvals; versions; callers."""

from handlers.http_api import serve
from mail.http.routes import (
    approvals,
    callers,
    dead_letters,
    schedules,
    shares,
    tasks,
    usage,
    versions,
    webhooks,
)

handler = serve(
    *(tasks.router, usage.router, dead_letters.router, webhooks.router, schedules.router),
    *(versions.router, callers.router, approvals.router, shares.router),
)
