"""The ASGI application of a server: the HTTP routes on a system, which its lifespan starts and stops."""

import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from shlex import quote
from typing import TYPE_CHECKING, get_args

from fastapi import FastAPI, Request

from mail import bootstrap
from mail.auth.keys import Caller
from mail.auth.tokens import ADMIN, USER, issue_token
from mail.config import ServerConfig, load_config
from mail.config.database import USUAL_FILE
from mail.core.task.documents import IN_MEMORY, CallerRole
from mail.http.account import SHARED_STREAMS, STREAMS, Account
from mail.http.app import MAILApp
from mail.http.app import create_app as create_http_app
from mail.http.rates import RateLimiter
from mail.http.routes import load_routers
from mail.http.service import PAGE_BYTES, RequestObserver, Service, unlimited
from mail.server import PROGRAM_VARIABLE

if TYPE_CHECKING:
    from mail.bootstrap.system import AwsSystem, LocalSystem


def create_app(config: ServerConfig | None = None) -> FastAPI:
    """Build the application of a configuration (default: the one that `mail server` reads).

    An SQLite file is locked immediately. Raises ConfigurationError.
    """
    return build_app(bootstrap.local(config or load_config().server))


def build_app(system: "LocalSystem") -> MAILApp:
    """Build the application on a system; the lifespan starts and stops the system.

    If there are no API tokens yet, it prints one per role when it starts.
    """

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with system:
            if system.issues_tokens and not await system.documents.has_tokens():
                print(await _issue_first_tokens(system), flush=True)  # noqa: T201
            yield

    config = system.config
    return create_http_app(
        make_service(system, config),
        load_routers(),
        lifespan=lifespan,
        cors_origins=config.cors_origins,
    )


def make_service(
    system: "LocalSystem | AwsSystem",
    config: ServerConfig,
    *,
    time_left: Callable[[Request], float | None] = unlimited,
    stream_seconds: float | None = None,
    stream_url: str = "",
    max_answer_bytes: int | None = None,
    domain_of: Callable[[Request], str] = lambda _: "",
    observers: Sequence[RequestObserver] = (),
) -> Service:
    """Build the service behind the HTTP routes.

    Args:
        time_left: the seconds until the process of a request ends; None for a process that runs on.
        stream_seconds: seconds after which a stream that its client can resume ends.
        stream_url: where streams are served, if not by this process.
        max_answer_bytes: the largest answer that the process can send; None for any size.
        domain_of: returns the domain by which a request comes, where that may be the host in addresses of MAIL 2.0.
        observers: measure requests, besides those of the system's telemetry.
    """
    shares = stream_seconds is not None
    streams = config.limits.streams
    if streams is None:
        streams = SHARED_STREAMS if shares else STREAMS
    return Service(
        runtime=system.runtime,
        documents=system.documents,
        authenticator=system.authenticator,
        forget_keys=system.forget_keys,
        started=system.clock.now().timestamp(),
        max_body_bytes=config.settings.max_body_bytes,
        audit_seconds=config.storage.audit_days * 86_400.0 or None,
        break_glass=config.auth.break_glass,
        debug=config.debug,
        time_left=time_left,
        stream_seconds=stream_seconds,
        stream_url=stream_url,
        card_key=config.interswarm.card_key,
        issues_tokens=system.issues_tokens,
        identity=system.identity,
        served=system.served,
        registry=system.registry,
        page_bytes=PAGE_BYTES if max_answer_bytes is None else max_answer_bytes // 2,
        max_answer_bytes=max_answer_bytes,
        account=Account(config.limits.memory, streams, system.permits if shares and streams else None),
        rates=RateLimiter(config.limits.requests_per_second, config.limits.request_burst),
        mail_host=(lambda request: system.open_mail(domain_of(request))) if system.serves_mail2 else None,
        observers=(*observers, *system.telemetry.request_observers),
        tracer=system.telemetry.tracer,
        metrics=system.telemetry.metrics,
        metrics_are_public=config.telemetry.metrics == "public",
    )


async def _issue_first_tokens(system: "LocalSystem") -> str:
    """Create a token per role, and return the text that shows them to the operator.

    Off a terminal, in the log of a container for instance, the admin's is not shown.
    """
    database = system.config.storage.database
    option = (
        "" if database in (USUAL_FILE, IN_MEMORY) else f"--database {quote(system.config.storage.shown)} "
    )
    mail = os.environ.get(PROGRAM_VARIABLE, "mail")
    create = f"{mail} token create {option}--role"
    tokens = {role: await issue_token(system.documents, Caller(role, role)) for role in get_args(CallerRole)}
    user, _ = [account.key for account in await system.mail_host.accounts.ensure(USER, ADMIN)]
    if not sys.stdout.isatty():
        tokens["admin"] = f"(not shown in a log; {create} admin --id admin makes one)"
    lines = [
        "These are the first API tokens, for programs and for other machines. They are shown only this once:",
        "",
        *(f"  {role:<6} {token}" for role, token in tokens.items()),
        "",
        f"The agent token is for other swarms. {create} user --id alice makes more tokens.",
        "",
        "The same server has MAIL 2.0 (docs/mail2.md). A token is also the password of its owner's address there:",
        "",
        f"  MAIL_SERVER={system.registry.local_base_url}/v2 MAIL_ADDRESS={user}@{system.config.mail_host} \\",
        f"    MAIL_PASSWORD={tokens['user']} mail login   (the mail of pip install mail-swarms-client)",
        "",
    ]
    return "\n".join(lines)
