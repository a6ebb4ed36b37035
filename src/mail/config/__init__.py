"""Configuration: `mail.toml`, the environment and command-line flags, as frozen values."""

from mail.config.models import CONFIG_PATH_VARIABLE as CONFIG_PATH_VARIABLE
from mail.config.models import DEFAULT_FILE as DEFAULT_FILE
from mail.config.models import ClientConfig as ClientConfig
from mail.config.models import MailConfig as MailConfig
from mail.config.models import ServerConfig as ServerConfig
from mail.config.models import load_config as load_config
from mail.config.tables import ConnectionsConfig as ConnectionsConfig
from mail.config.tables import InterswarmConfig as InterswarmConfig
from mail.config.tables import LimitsConfig as LimitsConfig
from mail.config.tables import SettingsConfig as SettingsConfig
from mail.config.tables import StorageConfig as StorageConfig
from mail.config.tables import SwarmConfig as SwarmConfig
from mail.config.tables import TelemetryConfig as TelemetryConfig
from mail.config.tables import WebhooksConfig as WebhooksConfig
