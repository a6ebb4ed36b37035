"""The system that a function's process works with: made while the function is initialised, and kept."""

import asyncio
import os

from handlers import telemetry
from mail import bootstrap
from mail.adapters.aws.client import Aws
from mail.bootstrap.system import AwsSystem
from mail.config.aws import AwsConfig

SECRETS_VARIABLE = "MAIL_SECRETS_PATH"
"""Names the path in SSM whose parameters become environment variables: `/mail/prod/OPENAI_API_KEY`, …"""

_secrets: set[str] = set()
"""The variables that were read from there, and are read anew when a process is restored from a snapshot."""


def make_system() -> AwsSystem:
    """The system that the environment describes. Raises ConfigurationError."""
    telemetry.set_up()
    return bootstrap.aws(AwsConfig.from_environ(), observers=(telemetry.TaskMetrics(),))


def load_secrets() -> None:
    """Put the secrets into the environment; what `template.yaml` has set there wins.

    Only turns do that. The other functions that know the path read no more than the token that they need at the time.
    """
    path = os.environ.get(SECRETS_VARIABLE, "")
    if not path:
        return
    client = Aws().client("ssm")
    pages = client.botocore.get_paginator("get_parameters_by_path").paginate(Path=path, WithDecryption=True)
    for parameter in (parameter for page in pages for parameter in page["Parameters"]):
        variable = parameter["Name"].rsplit("/", 1)[-1]
        if variable in _secrets or not os.environ.get(variable):
            os.environ[variable] = parameter["Value"]
            _secrets.add(variable)
    client.close()


def make_loop() -> asyncio.AbstractEventLoop:
    """An event loop for all invocations of a process: what they share may belong to it."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    return loop
