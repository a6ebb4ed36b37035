"""What sends events to webhooks."""

from collections.abc import Mapping

from mail.aws import Aws
from mail.config import ServerConfig
from mail.config.aws import AwsConfig
from mail.core.ports import ServerRecords
from mail.core.stamp import Stamp
from mail.net.tokens import EnvironmentTokens, ParameterTokens, Tokens
from mail.net.urls import host_of, is_loopback
from mail.net.webhooks import HTTPWebhooks


def local_webhooks(
    records: ServerRecords, config: ServerConfig, stamp: Stamp, environ: Mapping[str, str]
) -> HTTPWebhooks:
    """That of an embedded server."""
    return _webhooks(records, config, stamp, EnvironmentTokens(environ), is_local=is_loopback(config.host))


def aws_webhooks(
    records: ServerRecords, config: AwsConfig, stamp: Stamp, account: Aws, environ: Mapping[str, str]
) -> HTTPWebhooks:
    """That of a function's process."""
    secrets: Tokens = EnvironmentTokens(environ)
    if config.secrets_path:
        secrets = ParameterTokens(account.client("ssm"), config.secrets_path, environ)
    endpoint = environ.get("AWS_ENDPOINT_URL", "")
    return _webhooks(records, config.server, stamp, secrets, is_local=is_loopback(host_of(endpoint)))


def listens(webhooks: HTTPWebhooks, config: ServerConfig, host: str) -> None:
    """Tell where a server listens, so far as its configuration leaves open what may be called from there."""
    if config.webhooks.allow_private_addresses == "auto":
        webhooks.allow_private = is_loopback(host)


def _webhooks(
    records: ServerRecords, config: ServerConfig, stamp: Stamp, secrets: Tokens, *, is_local: bool
) -> HTTPWebhooks:
    """`is_local` says whether the server is on this machine only."""
    allowed = config.webhooks.allow_private_addresses
    return HTTPWebhooks(
        records,
        secrets,
        stamp,
        allow_private=is_local if allowed == "auto" else allowed,
        retry_seconds=config.webhooks.retry_seconds,
    )
