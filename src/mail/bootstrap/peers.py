"""What connects a swarm with others: its registry, and the router that delivers mail by it."""

from collections.abc import Mapping
from pathlib import Path

from mail.adapters.aws.client import Aws
from mail.adapters.aws.parameters import Parameters
from mail.config import ServerConfig
from mail.config.aws import AwsConfig
from mail.core.protocol.clock import Clock
from mail.core.task.ports import ServerRecords
from mail.core.task.swarm import SwarmCore
from mail.errors import BadRequest, ConfigurationError
from mail.net import InterswarmRouter, SwarmRegistry
from mail.net.directory import read_file
from mail.net.http import PeerHTTP
from mail.net.registration import check_url, host_of, is_loopback
from mail.net.secrets import EnvironmentTokens, ParameterTokens, Tokens


def local_router(
    swarm: SwarmCore, records: ServerRecords, config: ServerConfig, clock: Clock, environ: Mapping[str, str]
) -> InterswarmRouter:
    """That of an embedded server."""
    return _router(
        swarm,
        records,
        config,
        clock,
        file=config.swarm.registry,
        tokens=EnvironmentTokens(environ),
        is_local=is_loopback(config.host),
    )


def aws_router(
    swarm: SwarmCore,
    records: ServerRecords,
    config: AwsConfig,
    clock: Clock,
    account: Aws,
    environ: Mapping[str, str],
) -> InterswarmRouter:
    """That of a function's process. Where the services of AWS are played by an engine on this machine, so are peers."""
    tokens: Tokens = EnvironmentTokens(environ)
    if config.secrets_path:
        tokens = ParameterTokens(Parameters(account.client("ssm"), config.secrets_path), environ)
    endpoint = environ.get("AWS_ENDPOINT_URL", "")
    return _router(
        swarm,
        records,
        config.server,
        clock,
        file=None,
        tokens=tokens,
        is_local=is_loopback(host_of(endpoint)),
    )


def check(config: ServerConfig) -> None:
    """Raise ConfigurationError for what would keep an embedded server from knowing other swarms, before it is begun."""
    read_base_url(config)
    read_file(Path(config.swarm.registry))


def read_base_url(config: ServerConfig) -> str:
    """The configured base URL, if there is one. Raises ConfigurationError."""
    given = config.interswarm.base_url
    try:
        return check_url(given) if given else ""
    except BadRequest as error:
        raise ConfigurationError(f"[server.interswarm] {error.detail}") from error


def listens(router: InterswarmRouter, config: ServerConfig, host: str, url: str) -> None:
    """Tell the registry of a server where it listens, so far as its configuration leaves that open."""
    registry, settings = router.swarm_registry, config.interswarm
    registry.register_local_swarm(settings.base_url or url)
    if settings.allow_private_addresses == "auto":
        registry.http.allow_private = is_loopback(host)


def _router(
    swarm: SwarmCore,
    records: ServerRecords,
    config: ServerConfig,
    clock: Clock,
    *,
    file: str | None,
    tokens: Tokens,
    is_local: bool,
) -> InterswarmRouter:
    """`is_local` says whether the server is on this machine only. Raises ConfigurationError."""
    settings = config.interswarm
    allowed = settings.allow_private_addresses
    registry = SwarmRegistry(
        swarm.name,
        read_base_url(config),
        file,
        swarm.description,
        swarm.keywords,
        swarm.public,
        documents=records,
        tokens=tokens,
        http=PeerHTTP(
            allow_private=is_local if allowed == "auto" else allowed, seconds=settings.request_timeout
        ),
        health_check_seconds=settings.health_check_seconds,
        volatile_seconds=settings.volatile_seconds,
        clock=clock,
    )
    return InterswarmRouter(registry, swarm.name, clock=clock)
