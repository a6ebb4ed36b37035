"""`GET /tasks`: the caller's tasks, their cost, dead letters, webhooks, schedules, approvals; versions; callers."""

from functools import partial

from handlers.http_api import serve
from mail.http.routes import load_routers, tasks

LATER = (
    "approvals",
    "callers",
    "comparison",
    "dead_letters",
    "schedules",
    "shares",
    "usage",
    "versions",
    "webhooks",
)

handler = serve(tasks.router, later=partial(load_routers, *LATER))
