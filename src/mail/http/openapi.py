"""What OpenAPI says beyond the routes' own signatures."""

from typing import Any

from mail.http.schemas import Problem, StreamEvent

DESCRIPTION = """\
A swarm of agents that work on your tasks by sending each other mail.

Send a message with `POST /message` and wait for the answer, watch the events as they happen
(`"stream": true`), or come back for it later (`Prefer: respond-async`, then `GET /task`).
"""

TAGS = [
    {"name": "messages", "description": "Talk to the swarm."},
    {"name": "tasks", "description": "Look at what became of your messages."},
    {"name": "threads", "description": "Look at the mail of your tasks by what it is about."},
    {"name": "webhooks", "description": "Be sent what happens in your tasks."},
    {"name": "server", "description": "The server, and who you are to it."},
    {"name": "swarms", "description": "The swarm that the server runs, and those that it knows."},
    {"name": "interswarm", "description": "Mail from and to other swarms."},
]

_MEANINGS = {
    400: "The request is not valid; `detail` says what to change.",
    401: "There is no API key, or it is not valid.",
    403: "The key's role may not use this endpoint.",
    404: "There is no such task, dead letter, thread, webhook or swarm, or nothing of that kind on this server.",
    409: "What the task was like then is not kept any more.",
    412: "The task is at another generation than `If-Match` says.",
    413: "The request body is too large.",
    422: "This `Idempotency-Key` was used for another request.",
    429: "The caller asks too often, has as many tasks running as it may, or writes to an agent for whom too much mail "
    "waits already. Nothing is stored.",
    500: "Something went wrong inside the server.",
    503: "The store or the authentication service is not available; try again later.",
}

_HEADERS: dict[int, dict[str, Any]] = {
    429: {
        "headers": {
            "Retry-After": {
                "description": "After how many seconds to ask again.",
                "schema": {"type": "integer", "minimum": 1},
            }
        }
    }
}

PUBLIC = (500, 503)
PROTECTED = (401, 403, 429, *PUBLIC)

EVENT_STREAM = {"text/event-stream": {"schema": {"$ref": f"#/components/schemas/{StreamEvent.__name__}"}}}
"""What each event of a stream is; OpenAPI 3.1 has no word of its own for that."""

PAGE_HEADERS: dict[str, Any] = {
    "Link": {"description": 'The next page, if any: `<…>; rel="next"`.', "schema": {"type": "string"}},
    "X-Next-Cursor": {"description": "Its cursor.", "schema": {"type": "string"}},
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The error responses of a route, as its `responses`."""
    return {
        status: {"model": Problem, "description": _MEANINGS[status], **_HEADERS.get(status, {})}
        for status in sorted(statuses)
    }
