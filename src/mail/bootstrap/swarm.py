"""The configured swarm, and the swarm that an admin may load in its place."""

from dataclasses import replace
from importlib.resources import files

from mail.config import ServerConfig
from mail.core.engine.documents import ServerDocuments
from mail.core.engine.runtime import Runtime
from mail.core.task.swarm import SwarmCore
from mail.swarms_json import SwarmEntry, build_swarm, load_swarm
from mail.swarms_json.live import LiveSwarm


def read_swarm(config: ServerConfig) -> SwarmCore:
    """Build the configured swarm, with the text of the protocol for agents' `help`. Raises ConfigurationError."""
    return build_configured(read_entry(config), config)


def build_configured(entry: SwarmEntry, config: ServerConfig) -> SwarmCore:
    """Build the configured swarm from its entry, which may import any module. Raises ConfigurationError."""
    return with_protocol(
        build_swarm(
            entry,
            task_message_limit=config.settings.task_message_limit,
            print_llm_streams=config.settings.print_llm_streams,
        )
    )


def read_entry(config: ServerConfig) -> SwarmEntry:
    """Read the entry of the configured swarm. Raises ConfigurationError."""
    return load_swarm(config.swarm.name, config.swarm.source)


def live_swarm(
    runtime: Runtime, documents: ServerDocuments, config: ServerConfig, entry: SwarmEntry
) -> LiveSwarm:
    """Make the runtime's swarm replaceable; `entry` is the entry that it was built from."""

    def build(loaded: SwarmEntry) -> SwarmCore:
        swarm = build_swarm(
            loaded,
            task_message_limit=config.settings.task_message_limit,
            allowed_prefixes=config.settings.allowed_imports,
            print_llm_streams=config.settings.print_llm_streams,
        )
        return with_protocol(swarm)

    return LiveSwarm(runtime, documents, entry, build)


def with_protocol(swarm: SwarmCore) -> SwarmCore:
    """Add the text of the protocol, for agents' `help`."""
    return replace(
        swarm, protocol=files("mail.core.protocol").joinpath("protocol.md").read_text(encoding="utf-8")
    )
