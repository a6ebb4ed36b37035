"""Every route there is: what a server that serves everything hands to `create_app`."""

from mail.http import (
    agents_routes,
    cancel_routes,
    dead_letters_routes,
    fork_routes,
    interswarm_routes,
    message_routes,
    metrics_routes,
    registry_routes,
    server_routes,
    swarm_routes,
    task_routes,
    threads_routes,
    ui_routes,
    usage_routes,
    webhooks_routes,
)

ROUTERS = (
    message_routes.router,
    task_routes.router,
    cancel_routes.router,
    usage_routes.router,
    dead_letters_routes.router,
    fork_routes.router,
    threads_routes.router,
    webhooks_routes.router,
    server_routes.router,
    metrics_routes.router,
    swarm_routes.router,
    agents_routes.router,
    registry_routes.router,
    interswarm_routes.router,
    ui_routes.router,
)
