"""`GET /threads` and `GET /threads/{thread_id}`: the mail of the caller's tasks, grouped by thread."""

from handlers.http_api import serve
from mail.http.routes import threads

handler = serve(threads.router)
