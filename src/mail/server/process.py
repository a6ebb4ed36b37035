"""The process of a server, under uvicorn: `mail server`, its reloader, and servers inside other programs.

On SIGTERM or SIGINT the server stops accepting connections, cuts waiting requests short, gives running turns a few
seconds and exits with 0. Accepted messages are stored; the next start resumes them.
"""

import asyncio
import gc
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import uvicorn
from fastapi import FastAPI

from mail import bootstrap, startup
from mail.auth.local_keys import LocalAuthenticator, find_keys, offer_keys
from mail.bootstrap.backends import open_backend, open_documents
from mail.bootstrap.system import LocalSystem
from mail.config import CONFIG_PATH_VARIABLE, ServerConfig, load_config
from mail.config.database import AUTO
from mail.config.models import DEFAULT_FILE, is_host_configured
from mail.core.protocol.clock import SYSTEM_CLOCK
from mail.core.task.documents import IN_MEMORY
from mail.core.task.swarm import SwarmCore
from mail.errors import ConfigurationError, MAILError
from mail.server import notices
from mail.server.app import build_app
from mail.server.connections import raise_descriptor_limit
from mail.server.logs import set_up_logging
from mail.server.malloc import return_freed_memory
from mail.server.uvicorn_parts import BACKLOG, CONNECTION_GRACE_SECONDS, GracefulServer, Reloader, running
from mail.utils.parsing import PYTHON_PREFIX

LOOPBACK = "127.0.0.1"
WILDCARDS = ("", "0.0.0.0", "::")  # noqa: S104 - addresses to listen on, which can't be called

FLAGS_VARIABLE = "MAIL_SERVER_FLAGS"
"""Passes the flags of `mail server --reload`, as JSON, to the processes that the reloader starts."""

RELOADED_APP = "mail.server.process:reloaded_app"


# ------------------------------------------------------------------------------------------------ in a program


@asynccontextmanager
async def serving(system: LocalSystem) -> AsyncIterator[str]:
    """Serve a system on a free loopback port of the current event loop; yield the base URL.

    For programs that bring their own server: the demo, tests, benchmarks.
    """
    with listen(LOOPBACK, 0) as listener:
        url = base_url(LOOPBACK, listener)
        system.listens(LOOPBACK, url)
        server = GracefulServer(build_app(system), limits=system.config.connections, catches_signals=False)
        async with running(server, listener):
            yield url


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket; port 0 picks a free one. Raises MAILError if the address can't be used."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only if the protocol is named; without it every stream begins 40 ms late
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
    """Return the URL at which programs on this machine reach a listening socket."""
    return _url(host, listener.getsockname()[1])


def _url(host: str, port: int) -> str:
    name = "localhost" if host in WILDCARDS else f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}"


# -------------------------------------------------------------------------------------------- as the command


def serve(config_path: Path | None, flags: Mapping[str, Any], *, checks: bool = True) -> None:
    """Run `mail server` until it is stopped. `flags` are those of `ServerConfig.with_overrides`.

    With `checks`, it reports what would keep agents from working, once it answers requests.

    Raises MAILError if it can't start.
    """
    _exit_on_signals()
    if config_path is not None:
        os.environ[CONFIG_PATH_VARIABLE] = str(config_path)
    config = load_config(config_path).server.with_overrides(**flags)
    _set_up(config)
    if config.reload:
        _serve_reloading(config, flags, checks=checks)
    else:
        system = bootstrap.local(config)

        def on_ready() -> None:
            startup.end()
            if checks:
                notices.check_in_background(system.swarm, system.entry)

        asyncio.run(_serve(system, host=_host(config, flags), on_ready=on_ready))


def serve_swarm(
    swarm: SwarmCore, config: ServerConfig, *, show_page: Callable[[str], object] | None = None
) -> None:
    """Serve a swarm built by a program until the process is stopped.

    `show_page` is called with the address of the server's page, once that answers: with a sign-in link, if the server
    issues its own tokens. Raises MAILError if the server can't start.
    """
    _exit_on_signals()
    _set_up(config)
    system = bootstrap.local(config, swarm=swarm)
    # frozen, as a look at everything that the start has made would stop all requests for a while
    asyncio.run(_serve(system, host=config.host, on_ready=gc.freeze, show_page=show_page))


def _host(config: ServerConfig, flags: Mapping[str, Any]) -> str:
    """Return the host to listen on: this machine only, if no other was chosen and the tokens are the server's own.

    A server with an external authentication service was set up for others, and has the documented default.
    """
    is_chosen = "host" in flags or is_host_configured()
    return config.host if is_chosen or not bootstrap.issues_tokens(os.environ) else LOOPBACK


def _exit_on_signals() -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _exit_cleanly)


def _exit_cleanly(_signal: int, _frame: FrameType | None) -> NoReturn:
    """Exit with 0: a stop is not a failure. uvicorn replaces this handler while it serves, then calls it."""
    sys.exit(0)


async def _serve(
    system: LocalSystem,
    *,
    host: str,
    on_ready: Callable[[], object],
    show_page: Callable[[str], object] | None = None,
) -> None:
    config, documents = system.config, system.documents
    try:
        with listen(host, config.port) as listener:
            url = os.environ["BASE_URL"] = base_url(host, listener)
            system.listens(host, url)
            offers, link = (
                await notices.look_at_tokens(documents, url) if system.issues_tokens else (False, "")
            )
            with offer_keys(host, listener.getsockname()[1], wanted=offers) as keys:
                if keys is not None:
                    system.authenticator = LocalAuthenticator(keys, system.authenticator)
                signs_in = show_page is not None and system.issues_tokens
                page = await notices.sign_in_link(documents, url) if signs_in else f"{url}/ui"

                def greet() -> None:
                    on_ready()
                    if show_page is not None:
                        show_page(page)

                system.on_unfinished = partial(notices.say_stopped, config)
                server = GracefulServer(
                    build_app(system),
                    limits=config.connections,
                    on_listening=partial(notices.say, notices.ready(config, url, host, link, keys)),
                    on_ready=greet,
                )
                await server.serve([listener])
            if server.force_exit:
                await system.stop(grace=0)
            if not server.started:
                raise MAILError("the server did not start; see the log")
    finally:
        await system.stop()


def _serve_reloading(config: ServerConfig, flags: Mapping[str, Any], *, checks: bool) -> None:
    """Let uvicorn watch the files, and run `reloaded_app` in a new process after each change."""
    startup.end()
    swarm, entry = bootstrap.read_swarm(config)  # report a mistake now, not from each process
    if checks:
        notices.check_in_background(swarm, entry)
    if config.storage.database == AUTO:  # each of the processes must have the same
        backend = open_backend(config.storage, config.swarm.name, SYSTEM_CLOCK)
        backend.abandon()
        flags = {**flags, "database": backend.place}
        config = config.with_overrides(database=backend.place)
    host = _host(config, flags)
    with listen(host, config.port) as listener:
        os.environ[FLAGS_VARIABLE] = json.dumps({**flags, "host": host})
        url = os.environ["BASE_URL"] = base_url(host, listener)
        offers, link = asyncio.run(_tokens_of_reloader(config, url))
        with offer_keys(host, listener.getsockname()[1], wanted=offers) as keys:
            notices.say(notices.ready(config, url, host, link, keys, restarts=True))
            uvicorn_config = uvicorn.Config(
                RELOADED_APP,
                factory=True,
                reload=True,
                log_config=None,
                access_log=False,
                timeout_graceful_shutdown=CONNECTION_GRACE_SECONDS,
            )
            target = uvicorn.Server(uvicorn_config).run
            Reloader(uvicorn_config, target, [listener], _watched_files(config)).run()


def _watched_files(config: ServerConfig) -> list[Path]:
    """Return the configuration file and the file of the swarms, whether they exist or not."""
    files = [Path(os.environ.get(CONFIG_PATH_VARIABLE) or DEFAULT_FILE)]
    if not config.swarm.source.startswith(PYTHON_PREFIX):
        files.append(Path(config.swarm.source))
    return files


def reloaded_app() -> FastAPI:
    """Build the application in a process that the reloader has started."""
    flags = json.loads(os.environ.get(FLAGS_VARIABLE, "{}"))
    try:
        config = load_config().server.with_overrides(**flags)
        _set_up(config)
        system = bootstrap.local(config)
        system.listens(config.host, os.environ["BASE_URL"])
        if (keys := find_keys(os.environ["BASE_URL"])) is not None:  # the reloader has written them
            system.authenticator = LocalAuthenticator(keys, system.authenticator)
        return build_app(system)
    except MAILError as error:
        notices.say(f"mail: {error.detail}")
        sys.exit(1)


async def _tokens_of_reloader(config: ServerConfig, url: str) -> tuple[bool, str]:
    """Do as `notices.look_at_tokens`, but make no link if each process has a database of its own in memory."""
    if not bootstrap.issues_tokens(os.environ):
        return False, ""
    if config.storage.database == IN_MEMORY:
        return True, ""
    async with open_documents(config.storage) as documents:
        return await notices.look_at_tokens(documents, url)


def _set_up(config: ServerConfig) -> None:
    """Set up a server process: log, limit of open files, memory, exported variables and import path."""
    set_up_logging(config)
    raise_descriptor_limit()
    return_freed_memory()
    os.environ["SWARM_NAME"] = config.swarm.name
    os.environ["SWARM_SOURCE"] = config.swarm.source
    os.environ["SWARM_REGISTRY_FILE"] = config.swarm.registry
    if config.port:  # otherwise it is known when the server listens
        os.environ["BASE_URL"] = _url(config.host, config.port)
    try:
        Path(config.swarm.registry).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"{config.swarm.registry}: its folder can't be created: {error}") from error
    here = os.getcwd()
    if here not in sys.path:  # swarms.json may name modules beside it
        sys.path.append(here)
