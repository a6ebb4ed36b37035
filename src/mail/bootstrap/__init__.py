"""Wires a swarm with its database, queue, workers and authenticator. Nothing else does.

    local(config)   the system of `mail server`, on SQLite or PostgreSQL
    embedded(swarm) a swarm inside another program, by default in memory
    aws(config)     the system of a function's process, on DynamoDB and SQS
    worker(config)  that of a long-lived process which takes its turns from the same queues

Each fills in a `System`, and imports only what it uses. `mail.bootstrap.backends` opens databases for commands.
"""

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING

from pydantic import ValidationError

from mail.adapters.telemetry.emf import RequestMetrics as RequestMetrics
from mail.adapters.telemetry.emf import TaskMetrics as TaskMetrics
from mail.adapters.telemetry.emf import TurnMetrics as TurnMetrics
from mail.adapters.telemetry.emf import service_name as service_name
from mail.adapters.telemetry.emf import write_failure as write_failure
from mail.adapters.telemetry.emf import write_metrics as write_metrics
from mail.adapters.telemetry.json_log import JSONFormatter as JSONFormatter
from mail.bootstrap import peers
from mail.bootstrap.peers import may_call_private as may_call_private
from mail.bootstrap.system import (
    CLIENT_SECRET_VARIABLE,
    LocalSystem,
    has_issuer,
    read_auth_endpoints,
    read_seal,
    with_protocol,
)
from mail.bootstrap.system import System as System
from mail.bootstrap.system import read_swarm as read_swarm
from mail.bootstrap.telemetry import (
    Telemetry,
    telemetry_of_function,
    telemetry_of_server,
    telemetry_of_worker,
)
from mail.config import ServerConfig, StorageConfig, TelemetryConfig
from mail.config.database import AUTO
from mail.core.decisions.schedules import check_schedule
from mail.core.engine.action_threads import ACTION_THREADS
from mail.core.engine.documents import ServerDocuments
from mail.core.engine.permits import PAUSE_SECONDS
from mail.core.protocol.clock import SYSTEM_CLOCK, Clock
from mail.core.protocol.error_text import describe
from mail.core.task.documents import IN_MEMORY
from mail.core.task.ports import Store
from mail.core.task.swarm import SwarmCore
from mail.errors import BadRequest, ConfigurationError
from mail.net import InterswarmRouter, SwarmRegistry
from mail.net.registration import is_loopback

if TYPE_CHECKING:
    from mail.adapters.aws.client import Parameters
    from mail.adapters.aws.queue import SQSQueue
    from mail.adapters.aws.worker import SQSWorker
    from mail.bootstrap.system import AwsSystem
    from mail.config.aws import AwsConfig
    from mail.core.engine.telemetry import Observers

SECRETS_VARIABLE = "MAIL_SECRETS_PATH"
"""Names the path in SSM whose parameters become environment variables: `/mail/prod/OPENAI_API_KEY`, …"""

SECRETS_SECONDS = 30.0
"""Seconds for which the secrets of turns are tried to be read."""

logger = logging.getLogger(__name__)


def local(
    config: ServerConfig,
    *,
    swarm: SwarmCore | None = None,
    clock: Clock = SYSTEM_CLOCK,
    environ: Mapping[str, str] = os.environ,
) -> LocalSystem:
    """Make the system of `mail server` for a configuration; `swarm` replaces the configured swarm.

    The database is opened here; an SQLite file belongs to this process from now on. Raises ConfigurationError.
    """
    from mail.bootstrap.backends import open_backend

    entry = None
    if swarm is None:
        swarm, entry = read_swarm(config)
    else:
        swarm = with_protocol(swarm)
    for schedule in config.schedules:
        try:
            check_schedule(schedule, swarm)
        except BadRequest as error:
            raise ConfigurationError(f"server.schedules: {schedule.name}: {error.detail}") from error
    auth_endpoints = read_auth_endpoints(environ)
    peers.check(config)
    has_issuer(config.auth.jwt)
    backend = open_backend(config.storage, swarm.name, clock)
    if config.storage.database == AUTO:
        config = config.with_overrides(database=backend.place)
    documents, secrets = ServerDocuments(backend.documents), peers.read_secrets(environ)
    router = peers.make_router(
        swarm,
        documents,
        config,
        clock,
        secrets=secrets,
        is_local=is_loopback(config.host),
        file=config.swarm.registry,
    )
    return System(
        swarm,
        backend,
        config,
        entry=entry,
        clock=clock,
        router=router,
        webhooks=peers.make_webhooks(documents, config, clock, secrets),
        auth_endpoints=auth_endpoints,
        client_secret=environ.get(CLIENT_SECRET_VARIABLE, ""),
        seal=read_seal(environ),
        serves_mail2=True,
        mail_name=config.mail_host,
        telemetry=telemetry_of_server(config.telemetry, config.swarm.name, backend.depths),
        retention=config.storage.retention_days * 86_400.0 or None,
    )


def embedded(swarm: SwarmCore, *, database: Store | str = IN_MEMORY) -> LocalSystem:
    """Make the system of a swarm that a program has built, with nothing to serve it. Raises ConfigurationError.

    Args:
        database: a store, or a value of `[server.storage] database`. A database that is opened here is closed by
            `close`, or with the last reference to the system.
    """
    from mail.bootstrap.backends import open_backend

    place = database if isinstance(database, str) else IN_MEMORY
    try:
        storage = StorageConfig(database=place)
    except ValidationError as error:
        raise ConfigurationError(describe(error, StorageConfig)) from None
    backend = open_backend(storage, swarm.name, SYSTEM_CLOCK, use="program")
    if not isinstance(database, str):
        backend = replace(backend, store=database)
    unlimited = {
        "running_tasks": 0,
        "waiting_tasks": 0,
        "mailbox_depth": 0,
        "task_bytes": 0,
        "caller_bytes": 0,
    }
    config = ServerConfig.model_validate({"limits": unlimited})
    return System(with_protocol(swarm), backend, config, clock=SYSTEM_CLOCK, is_embedded=True)


def aws(
    config: "AwsConfig",
    *,
    clock: Clock = SYSTEM_CLOCK,
    environ: Mapping[str, str] = os.environ,
    observers: "Observers" = (),
    telemetry: Telemetry | None = None,
    pause: float = 0.0,
) -> "AwsSystem":
    """Make the system of a function's process; `observers` measure it. Raises ConfigurationError.

    Args:
        telemetry: the default is that of a function.
        pause: see `ModelPermits`.
    """
    from mail.adapters.aws.backend import open_functions
    from mail.adapters.aws.client import Aws

    account = Aws()
    swarm, entry = read_swarm(config.server)
    backend = open_functions(
        account,
        config.table,
        clock,
        bucket=config.bucket,
        retention_days=config.retention_days,
        keeps_latest=config.server.storage.keep == "latest",
        turn_queues=config.turn_queues,
        outbound_queue=config.outbound_queue,
    )
    documents = ServerDocuments(backend.documents)
    secrets = peers.read_secrets(environ, account.client("ssm"), config.secrets_path)
    is_local = peers.plays_aws_here(environ)
    router = peers.make_router(
        swarm,
        documents,
        config.server,
        clock,
        secrets=secrets,
        is_local=is_local,
        reads_tokens=bool(config.secrets_path),
    )
    return System(
        swarm,
        backend,
        config.server,
        entry=entry,
        clock=clock,
        router=router,
        webhooks=peers.make_webhooks(documents, config.server, clock, secrets),
        auth_endpoints=read_auth_endpoints(environ),
        client_secret=environ.get(CLIENT_SECRET_VARIABLE, ""),
        seal=read_seal(environ),
        shares_issuer_keys=True,
        telemetry=telemetry
        or telemetry_of_function(config.server.telemetry, config.server.swarm.name, observers),
        observers=observers,
        stream_seconds=config.stream_seconds,
        stream_url=config.stream_url,
        serves_mail2=config.serves_mail2,
        mail_name=config.mail_host,
        base_url=config.base_url,
        pause=pause,
        retention=None if config.retention_days is None else config.retention_days * 86_400.0,
    )


def worker(config: "AwsConfig", *, concurrency: int) -> "tuple[AwsSystem, SQSWorker]":
    """Make a worker that runs the turns of a deployment in this process, and its system. Raises ConfigurationError.

    If the log is JSON, it has the metrics of the functions, in the form that CloudWatch reads.
    """
    from mail.adapters.aws.client import READ_SECONDS, Aws
    from mail.adapters.aws.worker import WAIT_SECONDS, SQSWorker

    telemetry, settings = config.server.telemetry, config.server.settings
    is_measured = telemetry.log_format == "json"
    observers = (TurnMetrics(),) if is_measured else ()
    system = aws(
        config,
        observers=observers,
        telemetry=telemetry_of_worker(telemetry, config.server.swarm.name, observers),
        pause=PAUSE_SECONDS,
    )
    ACTION_THREADS.resize(settings.action_threads)
    system.preload()
    polls = Aws(read_seconds=WAIT_SECONDS + READ_SECONDS)
    return system, SQSWorker(
        polls.client("sqs", connections=len(config.turn_queues)),
        system.queue,
        system.run_turn,
        concurrency=concurrency,
        lease_seconds=settings.lease_seconds,
        on_failure=partial(write_failure, "FailedTurns") if is_measured else lambda: None,
    )


def read_stack(name: str) -> dict[str, str]:
    """Return the environment of the functions of a deployed stack that run turns. Raises ConfigurationError."""
    from mail.adapters.aws.client import Aws
    from mail.adapters.aws.stack import read_stack

    return read_stack(Aws(), name)


def interswarm_registry(
    name: str,
    base_url: str,
    file: str | None = None,
    *,
    description: str = "",
    keywords: Sequence[str] = (),
    public: bool = False,
) -> SwarmRegistry:
    """Make the registry of a swarm that a program has built; see `SwarmRegistry`. Raises ConfigurationError."""
    return SwarmRegistry(name, base_url, file, description, keywords, public)


def interswarm_router(registry: SwarmRegistry) -> InterswarmRouter:
    """Make a router that delivers mail to the swarms of a registry."""
    return InterswarmRouter(registry, registry.local_swarm_name)


def issues_tokens(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether servers issue their own tokens: no external service is set. Raises ConfigurationError."""
    return read_auth_endpoints(environ) is None


def log_formatter(config: TelemetryConfig) -> logging.Formatter | None:
    """Return the formatter of the configured log format; None for the default format."""
    return JSONFormatter() if config.log_format == "json" else None


class TurnSecrets:
    """Secrets of turns: makes the SSM parameters right below `MAIL_SECRETS_PATH` environment variables of this process.

    Variables that are set already stay as they are. Tokens of other swarms and secrets of webhooks are not among them.
    """

    def __init__(self) -> None:
        self._own: dict[str, str] = {}

    def read(self, seconds: float = SECRETS_SECONDS) -> bool:
        """Read them within so many seconds; return whether one is new or has changed. Raises StoreUnavailable."""
        path = os.environ.get(SECRETS_VARIABLE, "")
        known, found = dict(self._own), _parameters(path).read_all(seconds) if path else {}
        for variable, text in found.items():
            if variable.startswith(peers.SECRETS):
                place = peers.path_of_outbound(path)
                logger.warning("code of agents can read %s: move it to %s", variable, place)
            elif variable in known or not os.environ.get(variable):
                os.environ[variable] = self._own[variable] = text
        return known != self._own


def aws_queue(config: "AwsConfig") -> "SQSQueue":
    """Make the queue of a function that can't make its system yet."""
    from mail.adapters.aws.client import Aws
    from mail.adapters.aws.queue import SQSQueue

    return SQSQueue(Aws().client("sqs"), config.turn_queues, config.outbound_queue)


@cache
def _parameters(path: str) -> "Parameters":
    from mail.adapters.aws.client import Aws, Parameters

    return Parameters(Aws().client("ssm"), path)
