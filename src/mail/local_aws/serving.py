"""ASGI applications behind sockets, on the event loop of whoever asks."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from mail.local_aws.stack import Cors


def with_cors(application: ASGIApp, cors: Cors | None) -> ASGIApp:
    """The application behind what answers browsers on behalf of it."""
    if cors is None:
        return application
    return CORSMiddleware(
        application,
        allow_origins=cors.origins,
        allow_methods=cors.methods,
        allow_headers=cors.headers,
        expose_headers=cors.exposed,
        max_age=cors.max_age,
    )


@asynccontextmanager
async def serving(application: ASGIApp, listener: socket.socket) -> AsyncIterator[None]:
    """Serve an ASGI application on this event loop."""
    config = uvicorn.Config(
        application, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign,assignment]
    running = asyncio.create_task(server.serve([listener]))
    try:
        while not server.started:
            if running.done():
                running.result()
            await asyncio.sleep(0.01)
        yield
    finally:
        server.should_exit = True
        await running
