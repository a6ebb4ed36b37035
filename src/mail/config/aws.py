"""The configuration of a function on AWS: its environment, which `template.yaml` sets."""

import os
from collections.abc import Mapping
from typing import Self

from mail.config.models import DEFAULT_MAIL_HOST, ServerConfig, load_config
from mail.core.protocol.message import Tier
from mail.core.protocol.values import value
from mail.errors import ConfigurationError


@value
class AwsConfig:
    """The environment of a function.

    Attributes:
        server: `mail.toml` of the bundle, with the swarm of the environment.
        table: the DynamoDB table.
        bucket: the S3 bucket for texts that are too large for the table; without one, they are refused.
        turn_queues: the URLs of the SQS queues for turns, one per tier; none if this function never publishes.
        outbound_queue: the URL of the queue for outbound mail; empty if this function never publishes.
        retention_days: days after which items are deleted; None for never.
        stream_seconds: seconds after which a stream of `GET /task/stream` ends, and its client resumes it; None for the
            time limit of the function.
        stream_url: the base URL of the function that streams, if this one doesn't.
        base_url: the base URL at which the stack is reached, for the callbacks of actions.
        secrets_path: the path in SSM of the secrets, if there is one.
        serves_mail2: whether this function serves MAIL 2.0.
        mail_host: the host in its addresses; empty for the domain of the HTTP API.
    """

    server: ServerConfig
    table: str
    bucket: str | None = None
    turn_queues: tuple[str, ...] = ()
    outbound_queue: str = ""
    retention_days: int | None = None
    stream_seconds: float | None = None
    stream_url: str = ""
    base_url: str = ""
    secrets_path: str = ""
    serves_mail2: bool = False
    mail_host: str = ""

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] = os.environ) -> Self:
        """Read MAIL_TABLE, MAIL_BUCKET, MAIL_TURN_QUEUES, … Raises ConfigurationError, with the variable."""
        server = load_config().server.with_overrides(
            swarm_name=environ.get("MAIL_SWARM_NAME") or None,
            swarm_source=environ.get("MAIL_SWARM_SOURCE") or None,
        )
        own_host = "" if server.mail_host == DEFAULT_MAIL_HOST else server.mail_host
        return cls(
            server=server,
            table=_required(environ, "MAIL_TABLE"),
            bucket=environ.get("MAIL_BUCKET") or None,
            turn_queues=_queues(environ.get("MAIL_TURN_QUEUES", "")),
            outbound_queue=environ.get("MAIL_DELIVERY_QUEUE", ""),
            retention_days=_number(environ, "MAIL_RETENTION_DAYS", "days; 0 means forever") or None,
            stream_seconds=_number(environ, "MAIL_STREAM_SECONDS", "seconds"),
            stream_url=environ.get("MAIL_STREAM_URL", "").rstrip("/"),
            base_url=environ.get("MAIL_BASE_URL", "").rstrip("/"),
            secrets_path=environ.get("MAIL_SECRETS_PATH", ""),
            serves_mail2=environ.get("MAIL_SERVES_MAIL2") == "true",
            mail_host=own_host or environ.get("MAIL_HOST", ""),
        )


def _required(environ: Mapping[str, str], name: str) -> str:
    value = environ.get(name)
    if not value:
        raise ConfigurationError(f"set the environment variable {name}; template.yaml does so")
    return value


def _queues(text: str) -> tuple[str, ...]:
    urls = tuple(url.strip() for url in text.split(",") if url.strip())
    if urls and len(urls) != len(Tier):
        raise ConfigurationError(f"MAIL_TURN_QUEUES: {len(urls)} URLs; give one per tier, {len(Tier)} in all")
    return urls


def _number(environ: Mapping[str, str], name: str, unit: str) -> int | None:
    text = environ.get(name)
    if text and not text.isdecimal():
        raise ConfigurationError(f"{name}: {text!r} is not a whole number of {unit}")
    return int(text) if text else None
