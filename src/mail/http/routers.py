"""Every route there is: what a server that serves everything hands to `create_app`."""

from mail.http.routes import (
    agents,
    cancel,
    dead_letters,
    fork,
    interswarm,
    message,
    metrics,
    registry,
    server,
    swarm,
    tasks,
    threads,
    ui,
    usage,
    webhooks,
)

ROUTERS = (
    message.router,
    tasks.router,
    cancel.router,
    usage.router,
    dead_letters.router,
    fork.router,
    threads.router,
    webhooks.router,
    server.router,
    metrics.router,
    swarm.router,
    agents.router,
    registry.router,
    interswarm.router,
    ui.router,
)
