"""All routes behind a function URL, which streams."""

from handlers.function_url import serve
from mail.http.routes import health, load_routers, message, streams

app = serve(health.router, message.router, streams.router, later=load_routers)
