"""What sends events to webhooks."""

from collections.abc import Mapping

from mail.adapters.aws.client import Aws
from mail.adapters.aws.parameters import Parameters
from mail.config import ServerConfig
from mail.config.aws import AwsConfig
from mail.core.protocol.clock import Clock
from mail.core.task.ports import ServerRecords
from mail.net.secrets import EnvironmentTokens, ParameterTokens, Tokens
from mail.net.webhooks import HTTPWebhooks


def local_webhooks(
    records: ServerRecords, config: ServerConfig, clock: Clock, environ: Mapping[str, str]
) -> HTTPWebhooks:
    """That of an embedded server."""
    return _webhooks(records, config, clock, EnvironmentTokens(environ))


def aws_webhooks(
    records: ServerRecords, config: AwsConfig, clock: Clock, account: Aws, environ: Mapping[str, str]
) -> HTTPWebhooks:
    """That of a function's process."""
    secrets: Tokens = EnvironmentTokens(environ)
    if config.secrets_path:
        secrets = ParameterTokens(Parameters(account.client("ssm"), config.secrets_path), environ)
    return _webhooks(records, config.server, clock, secrets)


def _webhooks(records: ServerRecords, config: ServerConfig, clock: Clock, secrets: Tokens) -> HTTPWebhooks:
    return HTTPWebhooks(
        records,
        secrets,
        clock,
        allow_private=config.webhooks.allow_private_addresses,
        retry_seconds=config.webhooks.retry_seconds,
    )
