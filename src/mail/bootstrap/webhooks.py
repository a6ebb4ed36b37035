"""What sends events to webhooks."""

from collections.abc import Mapping

from mail.adapters.aws.client import Aws
from mail.config import ServerConfig
from mail.config.aws import AwsConfig
from mail.core.protocol.clock import Stamp
from mail.core.task.ports import ServerRecords
from mail.net.secrets import EnvironmentTokens, ParameterTokens, Tokens
from mail.net.webhooks import HTTPWebhooks


def local_webhooks(
    records: ServerRecords, config: ServerConfig, stamp: Stamp, environ: Mapping[str, str]
) -> HTTPWebhooks:
    """That of an embedded server."""
    return _webhooks(records, config, stamp, EnvironmentTokens(environ))


def aws_webhooks(
    records: ServerRecords, config: AwsConfig, stamp: Stamp, account: Aws, environ: Mapping[str, str]
) -> HTTPWebhooks:
    """That of a function's process."""
    secrets: Tokens = EnvironmentTokens(environ)
    if config.secrets_path:
        secrets = ParameterTokens(account.client("ssm"), config.secrets_path, environ)
    return _webhooks(records, config.server, stamp, secrets)


def _webhooks(records: ServerRecords, config: ServerConfig, stamp: Stamp, secrets: Tokens) -> HTTPWebhooks:
    return HTTPWebhooks(
        records,
        secrets,
        stamp,
        allow_private=config.webhooks.allow_private_addresses,
        retry_seconds=config.webhooks.retry_seconds,
    )
