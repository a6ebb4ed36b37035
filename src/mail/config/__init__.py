"""Configuration: `mail.toml`, the environment and command-line flags, as frozen values."""

from mail.config.models import (
    CONFIG_PATH_VARIABLE,
    DEFAULT_FILE,
    ClientConfig,
    MailConfig,
    ServerConfig,
    load_config,
)
from mail.config.tables import (
    ConnectionsConfig,
    InterswarmConfig,
    LimitsConfig,
    SettingsConfig,
    StorageConfig,
    SwarmConfig,
    TelemetryConfig,
    WebhooksConfig,
)

__all__ = [
    "CONFIG_PATH_VARIABLE",
    "DEFAULT_FILE",
    "ClientConfig",
    "ConnectionsConfig",
    "InterswarmConfig",
    "LimitsConfig",
    "MailConfig",
    "ServerConfig",
    "SettingsConfig",
    "StorageConfig",
    "SwarmConfig",
    "TelemetryConfig",
    "WebhooksConfig",
    "load_config",
]
