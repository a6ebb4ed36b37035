"""Every route behind a function URL that streams: an ASGI app, run by uvicorn under the Lambda Web Adapter."""

import json
import time

from fastapi import Request

from handlers.serving import make_service
from mail.http.app import create_app
from mail.http.routes import ROUTERS

CONTEXT_HEADER = "x-amzn-lambda-context"
"""In which the adapter hands on the context of the invocation, as JSON."""

DEADLINES = ("deadline", "deadline_ms")
"""The key of the invocation's end in it, in milliseconds since the epoch: as the adapter writes, and documents, it."""


def time_left(request: Request) -> float | None:
    """Seconds until Lambda ends this invocation; None where the adapter doesn't say."""
    context = json.loads(request.headers.get(CONTEXT_HEADER) or "{}")
    deadline = next((context[key] for key in DEADLINES if key in context), None)
    return None if deadline is None else deadline / 1000 - time.time()


app = create_app(make_service(time_left), ROUTERS)
