"""The system that a function's process works with: made while the function is initialised, and kept."""

import asyncio
import os

from handlers import telemetry
from mail import bootstrap
from mail.bootstrap.aws_system import AwsSystem
from mail.config.aws import AwsConfig

SECRETS_VARIABLE = "MAIL_SECRETS_PATH"
"""Names the path in SSM whose parameters become environment variables: `/mail/prod/OPENAI_API_KEY`, …"""


def make_system() -> AwsSystem:
    """The system that the environment describes. Raises ConfigurationError."""
    telemetry.set_up()
    load_secrets(os.environ.get(SECRETS_VARIABLE, ""))
    return bootstrap.aws(AwsConfig.from_environ())


def load_secrets(path: str) -> None:
    """Put the parameters below a path of SSM into the environment; what is set there already wins."""
    if not path:
        return
    from aws_lambda_powertools.utilities import parameters

    for name, value in parameters.get_parameters(path, decrypt=True, recursive=True).items():
        variable = name.rsplit("/", 1)[-1]
        if not os.environ.get(variable):
            os.environ[variable] = value


def make_loop() -> asyncio.AbstractEventLoop:
    """An event loop for all invocations of a process: what they share may belong to it."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    return loop
