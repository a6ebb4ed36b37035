"""What both systems need: the swarm, and whoever knows whose key a key is."""

import os
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from importlib.resources import files

from mail.auth.keys import Authenticator, CachedAuthenticator
from mail.auth.tokens import TokenAuthenticator
from mail.config import ServerConfig
from mail.core.engine.quotas import Quotas
from mail.core.engine.runtime import Runtime
from mail.core.task.ports import ServerRecords
from mail.core.task.swarm import SwarmCore
from mail.errors import ConfigurationError
from mail.swarms_json import SwarmEntry, build_swarm, load_swarm
from mail.swarms_json.live import LiveSwarm

AUTH_VARIABLES = ("AUTH_ENDPOINT", "TOKEN_INFO_ENDPOINT")


def read_swarm(config: ServerConfig) -> SwarmCore:
    """The configured swarm, built, with the protocol's text for agents' `help`. Raises ConfigurationError."""
    return build_configured(read_entry(config), config)


def build_configured(entry: SwarmEntry, config: ServerConfig) -> SwarmCore:
    """The configured swarm of its entry, which may import whatever it likes. Raises ConfigurationError."""
    return with_protocol(
        build_swarm(
            entry,
            task_message_limit=config.settings.task_message_limit,
            print_llm_streams=config.settings.print_llm_streams,
        )
    )


def read_entry(config: ServerConfig) -> SwarmEntry:
    """What the configuration says of the swarm. Raises ConfigurationError."""
    return load_swarm(config.swarm.name, config.swarm.source)


def serve_swarm(
    runtime: Runtime, records: ServerRecords, config: ServerConfig, entry: SwarmEntry
) -> LiveSwarm:
    """The runtime's swarm as one that can be replaced; `entry` is what it was built of."""

    def build(loaded: SwarmEntry) -> SwarmCore:
        swarm = build_swarm(
            loaded,
            task_message_limit=config.settings.task_message_limit,
            allowed_prefixes=config.settings.allowed_imports,
            print_llm_streams=config.settings.print_llm_streams,
        )
        return with_protocol(swarm)

    return LiveSwarm(runtime, records, entry, build)


def read_quotas(config: ServerConfig) -> Quotas:
    """What callers may keep busy at once."""
    limits = config.limits
    return Quotas(limits.running_tasks or None, limits.mailbox_depth or None)


async def close_models() -> None:
    """Close the connections to language models, if this process has made any: its event loop is about to end."""
    if "litellm" in sys.modules:
        from mail.factories.models import close_clients

        await close_clients()


def with_protocol(swarm: SwarmCore) -> SwarmCore:
    """The swarm with the protocol's text for its agents' `help`."""
    return replace(
        swarm, protocol=files("mail.core.protocol").joinpath("protocol.md").read_text(encoding="utf-8")
    )


def make_authenticator(
    endpoints: tuple[str, str] | None, records: ServerRecords, resources: AsyncExitStack
) -> Authenticator:
    """Who checks keys: the external service at `endpoints`, or without one the tokens among the `records`.

    What must be closed in the end is left with `resources`.
    """
    if endpoints is None:
        return CachedAuthenticator(TokenAuthenticator(records))
    import httpx

    from mail.auth.service import AuthService

    client = httpx.AsyncClient()
    resources.push_async_callback(client.aclose)
    return CachedAuthenticator(AuthService(client, *endpoints))


def auth_endpoints(environ: Mapping[str, str] = os.environ) -> tuple[str, str] | None:
    """The URLs of the external authentication service; None where there is none. Raises ConfigurationError."""
    login, token_info = (environ.get(name, "") for name in AUTH_VARIABLES)
    if login and token_info:
        return login, token_info
    if login or token_info:
        given, missing = AUTH_VARIABLES if login else reversed(AUTH_VARIABLES)
        raise ConfigurationError(
            f"{given} is set but {missing} is not; set both, or neither for built-in tokens"
        )
    return None
