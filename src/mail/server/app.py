"""The server: the HTTP application, its workers in its lifespan, under uvicorn.

    mail server [flags]                           what people run
    python -m mail.server.app [flags]                 the same
    uvicorn --factory mail.server.app:create_app      under a server of one's own

When it is told to stop (SIGTERM, SIGINT) it accepts nothing new, ends what waits on behalf of clients, gives
running turns some time, and exits with 0. What it accepted is stored; the next start goes on with it.
"""

import asyncio
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext, suppress
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, get_args

import uvicorn
from fastapi import FastAPI

from mail import bootstrap
from mail.adapters.telemetry.json_log import JSONFormatter
from mail.auth.keys import Caller
from mail.auth.tokens import issue_token
from mail.bootstrap.backends import open_documents
from mail.bootstrap.system import LocalSystem
from mail.config import CONFIG_PATH_VARIABLE, ServerConfig, load_config
from mail.config.database import IN_MEMORY
from mail.core.engine.documents import ServerDocuments
from mail.core.task.documents import CallerRole
from mail.core.task.swarm import SwarmCore
from mail.errors import ConfigurationError, MAILError
from mail.http.app import create_app as create_http_app
from mail.http.rates import rates_of
from mail.http.routers import ROUTERS
from mail.http.service import Service, StopSignal

LOOPBACK = "127.0.0.1"
WILDCARDS = ("", "0.0.0.0", "::")  # noqa: S104 - they can be listened on, not called

FLAGS_VARIABLE = "MAIL_SERVER_FLAGS"
"""How `mail server --reload` hands its flags, as JSON, to the processes that it starts."""

CONNECTION_GRACE_SECONDS = 5
"""How long requests that are being answered may go on when the server is told to stop."""

BACKLOG = 2048
"""Connections that may wait to be accepted."""

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


# ------------------------------------------------------------------------------------------ the application


def create_app(config: ServerConfig | None = None) -> FastAPI:
    """The application of a configuration (default: the configured one), with its workers in its lifespan.

    An SQLite file is claimed at once. Raises ConfigurationError.
    """
    return build_app(bootstrap.local(config or load_config().server))


def build_app(system: LocalSystem) -> FastAPI:
    """The application on a system that was wired already; its lifespan starts and stops the system.

    Where nobody could call it, as there is no token yet, it prints one per role when it starts.
    """
    service = Service(
        runtime=system.runtime,
        records=system.documents,
        authenticator=system.authenticator,
        started=system.clock.now().timestamp(),
        max_body_bytes=system.config.settings.max_body_bytes,
        debug=system.config.debug,
        served=system.served,
        registry=system.registry,
        budgets=system.config.budgets,
        rates=rates_of(system.config.limits),
        observers=system.telemetry.observers,
        tracer=system.telemetry.tracer,
        metrics=system.telemetry.metrics,
        metrics_are_public=system.config.telemetry.metrics == "public",
    )

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with system:
            if system.issues_tokens and not await system.documents.has_tokens():
                _say(await _issue_first_tokens(system.documents))
            yield

    return create_http_app(service, ROUTERS, lifespan=lifespan)


async def _issue_first_tokens(records: ServerDocuments) -> str:
    """Create a token per role; returns what is told of them."""
    tokens = {role: await issue_token(records, Caller(role, role)) for role in get_args(CallerRole)}
    lines = [
        "There were no API tokens yet. These are the first ones; they are shown only this once:",
        "",
        *(f"  {role:<6} {token}" for role, token in tokens.items()),
        "",
        "Send one as 'Authorization: Bearer <token>'. More: mail token create --role user --id alice",
        "",
    ]
    return "\n".join(lines)


# ------------------------------------------------------------------------------------------------- uvicorn


class GracefulServer(uvicorn.Server):
    """uvicorn on a socket that listens already; does not wait for clients that wait for an agent.

    Args:
        catches_signals: whether SIGTERM and SIGINT stop it; otherwise only `should_exit` does.
        on_ready: called once it answers requests.
    """

    def __init__(
        self,
        app: FastAPI,
        *,
        access_log: bool = False,
        catches_signals: bool = True,
        on_ready: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                lifespan="on",
                log_config=None,
                access_log=access_log,
                timeout_graceful_shutdown=CONNECTION_GRACE_SECONDS,
            )
        )
        self._stopping: StopSignal = app.state.service.stopping
        self._catches_signals = catches_signals
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application and answer requests."""
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End what waits on behalf of clients, then the connections, then the application."""
        self._stopping.set()
        await super().shutdown(sockets)

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        """uvicorn's own handlers, where they are wanted."""
        return super().capture_signals() if self._catches_signals else nullcontext()


@asynccontextmanager
async def serving(system: LocalSystem) -> AsyncIterator[str]:
    """Serve a system on a free loopback port, on this very event loop; gives the base URL.

    For programs that bring their own server: the demo, tests, benchmarks.
    """
    ready = asyncio.Event()
    with listen(LOOPBACK, 0) as listener:
        system.listens(LOOPBACK, base_url(LOOPBACK, listener))
        server = GracefulServer(build_app(system), catches_signals=False, on_ready=ready.set)
        running = asyncio.create_task(server.serve([listener]))
        starting = asyncio.create_task(ready.wait())
        try:
            await asyncio.wait({running, starting}, return_when=asyncio.FIRST_COMPLETED)
            if not ready.is_set():
                raise MAILError("the server did not start; see the log")
            yield base_url(LOOPBACK, listener)
        finally:
            starting.cancel()
            server.should_exit = True
            await running


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 picks a free one. Raises MAILError where that can't be done."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol spelled out asyncio sets TCP_NODELAY; without that every stream would begin 40 ms late.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise MAILError(
            f"can't listen on {host}:{port}: {error.strerror or error}; choose another --host or --port"
        ) from error
    return listener


def base_url(host: str, listener: socket.socket) -> str:
    """The URL by which programs on this machine reach what listens on the socket."""
    name = "localhost" if host in WILDCARDS else f"[{host}]" if ":" in host else host
    return f"http://{name}:{listener.getsockname()[1]}"


# -------------------------------------------------------------------------------------------- the command


def serve(config_path: Path | None, flags: Mapping[str, Any]) -> None:
    """Run `mail server` until it is told to stop. `flags` are those of `ServerConfig.with_overrides`.

    Raises MAILError where it can't start.
    """
    _stop_when_told()
    if config_path is not None:
        os.environ[CONFIG_PATH_VARIABLE] = str(config_path)
    config = load_config(config_path).server.with_overrides(**flags)
    _set_up(config)
    if config.reload:
        _serve_reloading(config, flags)
    else:
        asyncio.run(_serve(bootstrap.local(config), is_host_given="host" in flags))


def serve_swarm(swarm: SwarmCore, config: ServerConfig, *, on_ready: Callable[[], object]) -> None:
    """Serve a swarm that a program has built itself, until the process is told to stop.

    `on_ready` is called once requests are answered. Raises MAILError where it can't start.
    """
    _stop_when_told()
    _set_up(config)
    asyncio.run(_serve(bootstrap.local(config, swarm=swarm), is_host_given=True, on_ready=on_ready))


def _stop_when_told() -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _exit_cleanly)


async def _serve(
    system: LocalSystem, *, is_host_given: bool, on_ready: Callable[[], object] = lambda: None
) -> None:
    config = system.config
    try:
        is_first_run = system.issues_tokens and not await system.documents.has_tokens()
        host = LOOPBACK if is_first_run and not is_host_given else config.host
        with listen(host, config.port) as listener:
            url = os.environ["BASE_URL"] = base_url(host, listener)
            system.listens(host, url)
            ready = f"Swarm {config.swarm.name} listens on {url} (process {os.getpid()}, Ctrl+C stops it)"
            if host != config.host:
                ready += (
                    f"\nThis first run listens on this machine only, not on {config.host}; --host decides"
                )

            def tell() -> None:
                _say(ready)
                on_ready()

            server = GracefulServer(build_app(system), access_log=config.debug, on_ready=tell)
            await server.serve([listener])
            if server.force_exit:
                await system.stop(grace=0)
            if not server.started:
                raise MAILError("the server did not start; see the log")
    finally:
        await system.stop()


def _serve_reloading(config: ServerConfig, flags: Mapping[str, Any]) -> None:
    """Let uvicorn watch the source code, and start `reloaded_app` in a process of its own at each change."""
    from uvicorn.supervisors import ChangeReload

    bootstrap.read_swarm(config)  # a mistake is told at once, not by each process
    host = config.host if "host" in flags or not asyncio.run(_is_first_run(config)) else LOOPBACK
    with listen(host, config.port) as listener:
        os.environ[FLAGS_VARIABLE] = json.dumps({**flags, "host": host})
        os.environ["BASE_URL"] = base_url(host, listener)
        _say(f"Swarm {config.swarm.name} listens on {os.environ['BASE_URL']} and starts anew at each change")
        uvicorn_config = uvicorn.Config(
            "mail.server.app:reloaded_app",
            factory=True,
            reload=True,
            log_config=None,
            timeout_graceful_shutdown=CONNECTION_GRACE_SECONDS,
        )
        ChangeReload(uvicorn_config, target=uvicorn.Server(uvicorn_config).run, sockets=[listener]).run()


def reloaded_app() -> FastAPI:
    """The application in a process that `mail server --reload` has started."""
    flags = json.loads(os.environ.get(FLAGS_VARIABLE, "{}"))
    try:
        config = load_config().server.with_overrides(**flags)
        _set_up(config)
        system = bootstrap.local(config)
        system.listens(config.host, os.environ["BASE_URL"])
        return build_app(system)
    except MAILError as error:
        _say(f"mail: {error.detail}")
        sys.exit(1)


async def _is_first_run(config: ServerConfig) -> bool:
    if not bootstrap.issues_tokens(os.environ):
        return False
    if config.storage.database == IN_MEMORY:
        return True
    async with open_documents(config.storage) as records:
        return not await records.has_tokens()


def _set_up(config: ServerConfig) -> None:
    """What a server process needs besides its configuration: logs, exported variables, importable code."""
    _set_up_logging(config)
    os.environ["SWARM_NAME"] = config.swarm.name
    os.environ["SWARM_SOURCE"] = config.swarm.source
    os.environ["SWARM_REGISTRY_FILE"] = config.swarm.registry
    try:
        Path(config.swarm.registry).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"{config.swarm.registry}: its folder can't be created: {error}") from error
    here = os.getcwd()
    if here not in sys.path:  # swarms.json may name modules that lie beside it
        sys.path.append(here)


def _set_up_logging(config: ServerConfig) -> None:
    level = os.environ.get("MAIL_LOG_LEVEL") or ("DEBUG" if config.debug else "INFO")
    if level.upper() not in logging.getLevelNamesMapping():
        raise ConfigurationError(f"MAIL_LOG_LEVEL: {level!r} is no level; use DEBUG, INFO, WARNING or ERROR")
    logging.basicConfig(format=LOG_FORMAT, level=logging.WARNING)
    if config.telemetry.log_format == "json":
        for handler in logging.root.handlers:
            handler.setFormatter(JSONFormatter())
    logging.getLogger("mail").setLevel(level.upper())
    if config.debug:
        logging.getLogger("uvicorn").setLevel(logging.INFO)


def _exit_cleanly(_signal: int, _frame: FrameType | None) -> NoReturn:
    """Being told to stop is no failure. uvicorn, while it serves, has handlers of its own and then calls this."""
    sys.exit(0)


def _say(text: str) -> None:
    """Tell whoever started the server; the log goes elsewhere."""
    with suppress(BrokenPipeError):
        print(text, flush=True)  # noqa: T201
