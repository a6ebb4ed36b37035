"""Connects a swarm with the outside: the registry of other swarms, the router that delivers by it, and webhooks."""

from collections.abc import Mapping
from pathlib import Path

from mail.adapters.aws.client import AwsClient, Parameters
from mail.config import ServerConfig
from mail.core.engine.documents import ServerDocuments
from mail.core.protocol.clock import Clock
from mail.core.task.swarm import SwarmCore
from mail.errors import BadRequest, ConfigurationError
from mail.net import InterswarmRouter, secrets, webhooks
from mail.net.directory import read_file
from mail.net.http import PeerHTTP
from mail.net.peers import Registry
from mail.net.registration import check_url, host_of, is_loopback
from mail.net.secrets import EnvironmentTokens, ParameterTokens, Tokens
from mail.net.webhooks import HTTPWebhooks

SECRETS = (secrets.PREFIX, webhooks.PREFIX)
"""The prefixes of the names of secrets for outbound mail."""


def read_secrets(environ: Mapping[str, str], ssm: AwsClient | None = None, path: str = "") -> Tokens:
    """Read secrets from the environment and, if there is a path, from those parameters of SSM that turns can't read."""
    if ssm is not None and path:
        return ParameterTokens(Parameters(ssm, path_of_outbound(path)), environ)
    return EnvironmentTokens(environ)


def path_of_outbound(path: str) -> str:
    """Return the path of the secrets for outbound mail, below that of the secrets of turns."""
    return f"{path.rstrip('/')}/outbound"


def make_router(
    swarm: SwarmCore,
    documents: ServerDocuments,
    config: ServerConfig,
    clock: Clock,
    *,
    secrets: Tokens,
    is_local: bool,
    file: str | None = None,
    reads_tokens: bool = True,
) -> InterswarmRouter:
    """Make the router of a swarm, with its registry. Raises ConfigurationError.

    Args:
        is_local: whether only this machine can reach the server; then peers may be on it, too.
        file: the file for a copy of the registry.
        reads_tokens: whether this process can read the tokens for other swarms.
    """
    settings = config.interswarm
    allowed = settings.allow_private_addresses
    registry = Registry(
        swarm.name,
        read_base_url(config),
        file,
        swarm.description,
        swarm.keywords,
        swarm.public,
        documents=documents,
        tokens=secrets,
        http=PeerHTTP(
            allow_private=is_local if allowed == "auto" else allowed, seconds=settings.request_timeout
        ),
        health_check_seconds=settings.health_check_seconds,
        volatile_seconds=settings.volatile_seconds,
        clock=clock,
    )
    return InterswarmRouter(registry, swarm.name, clock=clock, reads_tokens=reads_tokens)


def make_webhooks(
    documents: ServerDocuments, config: ServerConfig, clock: Clock, secrets: Tokens
) -> HTTPWebhooks:
    """Make the sender of webhooks."""
    return HTTPWebhooks(
        documents,
        secrets,
        clock,
        allow_private=config.webhooks.allow_private_addresses,
        retry_seconds=config.webhooks.retry_seconds,
    )


def plays_aws_here(environ: Mapping[str, str]) -> bool:
    """Return whether an engine on this machine plays the services of AWS."""
    return is_loopback(host_of(environ.get("AWS_ENDPOINT_URL", "")))


def check(config: ServerConfig) -> None:
    """Raise ConfigurationError if the base URL or the registry's file can't be used."""
    read_base_url(config)
    read_file(Path(config.swarm.registry))


def read_base_url(config: ServerConfig) -> str:
    """Return the configured base URL, empty if there is none. Raises ConfigurationError."""
    given = config.interswarm.base_url
    try:
        return check_url(given) if given else ""
    except BadRequest as error:
        raise ConfigurationError(f"[server.interswarm] {error.detail}") from error


def listens(registry: Registry, config: ServerConfig, host: str, url: str) -> None:
    """Set in the registry where its server listens, unless the configuration says so."""
    settings = config.interswarm
    registry.register_local_swarm(settings.base_url or url)
    registry.http.allow_private = may_call_private(config, host)


def may_call_private(config: ServerConfig, host: str) -> bool:
    """Return whether a server that listens on `host` may call swarms with private addresses."""
    allowed = config.interswarm.allow_private_addresses
    return is_loopback(host) if allowed == "auto" else allowed
