"""ministack, an emulator of DynamoDB, SQS, S3, SSM and CloudFormation, and the account behind it.

It needs a virtual environment of its own, as its dependencies conflict with MAIL's: `python3 scripts/dev.py tools
ministack` creates one in a checkout. All data is in memory.
"""

import os
import shutil
import tempfile
from pathlib import Path

from mail.adapters.aws.client import Aws
from mail.errors import ConfigurationError
from mail.local_aws.processes import LOOPBACK, KeptProcess, free_port, listens, system_environment

COMMAND_VARIABLE = "MAIL_MINISTACK"
"""Names the `ministack` command to use."""

IN_CHECKOUT = Path(__file__).resolve().parents[3] / ".tools" / "ministack" / "bin" / "ministack"
"""The command installed by `scripts/dev.py`, if this file is part of a checkout."""

START_SECONDS = 60.0

REGION = "us-east-1"

HOW_TO_INSTALL = f"""\
ministack was not found. In a checkout of MAIL:
  python3 scripts/dev.py tools ministack
anywhere else, in a virtual environment of its own:
  python3 -m venv ~/.ministack && ~/.ministack/bin/pip install ministack aws-sam-translator
  export {COMMAND_VARIABLE}=~/.ministack/bin/ministack"""


def find_ministack() -> str | None:
    """Return the command to start: from MAIL_MINISTACK, the checkout, or PATH."""
    named = os.environ.get(COMMAND_VARIABLE)
    if named:
        return shutil.which(Path(named).expanduser())
    return shutil.which(IN_CHECKOUT) or shutil.which("ministack")


def credentials(endpoint: str) -> dict[str, str]:
    """Return environment variables that make boto3 use a local endpoint, and nothing else."""
    return {
        "AWS_ACCESS_KEY_ID": "000000000000",
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_DEFAULT_REGION": REGION,
        "AWS_REGION": REGION,
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }


class Ministack(KeptProcess):
    """A running ministack on a free port of the loopback interface.

    Raises ConfigurationError if it isn't installed, MAILError if it doesn't start.

    Attributes:
        endpoint: the value for AWS_ENDPOINT_URL.
    """

    def __init__(self) -> None:
        command = find_ministack()
        if command is None:
            raise ConfigurationError(HOW_TO_INSTALL)
        port = free_port()
        self.endpoint = f"http://{LOOPBACK}:{port}"
        self._folder = tempfile.TemporaryDirectory(prefix="mail-ministack-", ignore_cleanup_errors=True)
        environment = {
            **system_environment(),
            "BIND_HOST": LOOPBACK,
            "GATEWAY_PORT": str(port),
            "MINISTACK_HOST": LOOPBACK,
            "MINISTACK_REGION": REGION,
            "LOG_LEVEL": "ERROR",
            "TMPDIR": self._folder.name,
            "STATE_DIR": self._folder.name,
            "PERSIST_STATE": "0",
            "SFTP_ENABLED": "0",
            "IOT_MTLS_ENABLED": "0",
            "DOCKER_HOST": f"unix://{self._folder.name}/none",
        }
        super().__init__([command], env=environment)
        self.wait_until(lambda: listens(port), seconds=START_SECONDS, name="ministack")

    def stop(self) -> None:
        """End it, and discard its data."""
        super().stop()
        self._folder.cleanup()


READ_SECONDS = 30.0
"""Read timeout: the emulator is one process and may be busy with the requests of all functions."""


class LocalAccount(Aws):
    """The account behind an endpoint, independent of this process's AWS environment."""

    def __init__(self, endpoint: str) -> None:
        import botocore.session  # type: ignore[import-untyped]

        super().__init__(REGION, endpoint, read_seconds=READ_SECONDS)
        self.endpoint = endpoint
        settings = credentials(endpoint)
        self._session = botocore.session.Session()
        self._session.set_credentials(settings["AWS_ACCESS_KEY_ID"], settings["AWS_SECRET_ACCESS_KEY"])
