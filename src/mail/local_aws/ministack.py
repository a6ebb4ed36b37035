"""ministack, the engine for what AWS stores and queues: tables, queues, buckets, parameters, stacks.

It lives in a virtual environment of its own, as its pins collide with ours: `python3 scripts/dev.py tools ministack`
makes one in a checkout. Everything is kept in memory.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import IO, Any

from mail.adapters.aws.client import Aws
from mail.errors import ConfigurationError
from mail.local_aws.processes import LOOPBACK, KeptProcess, free_port, listens, system_environment

COMMAND_VARIABLE = "MAIL_MINISTACK"
"""Names the `ministack` command to use."""

IN_CHECKOUT = Path(__file__).resolve().parents[3] / ".tools" / "ministack" / "bin" / "ministack"
"""Where `scripts/dev.py` puts it, when this file is part of a checkout."""

START_SECONDS = 60.0

REGION = "us-east-1"

HOW_TO_INSTALL = f"""\
ministack was not found. In a checkout of MAIL:
  python3 scripts/dev.py tools ministack
anywhere else, in a virtual environment of its own:
  python3 -m venv ~/.ministack && ~/.ministack/bin/pip install ministack
  export {COMMAND_VARIABLE}=~/.ministack/bin/ministack"""


def find_ministack() -> str | None:
    """Return the command to start: the one that MAIL_MINISTACK names, that of the checkout, or the one on PATH."""
    named = os.environ.get(COMMAND_VARIABLE)
    if named:
        return shutil.which(Path(named).expanduser())
    return shutil.which(IN_CHECKOUT) or shutil.which("ministack")


def credentials(endpoint: str) -> dict[str, str]:
    """Return the environment in which boto3 talks to a local endpoint, and to nothing else."""
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

    Raises ConfigurationError when it isn't installed, MAILError when it doesn't start.

    Attributes:
        endpoint: what AWS_ENDPOINT_URL has to be.
    """

    def __init__(self, *, output: IO[bytes] | int = subprocess.DEVNULL) -> None:
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
        super().__init__([command], env=environment, output=output)
        self.wait_until(lambda: listens(port), seconds=START_SECONDS, name="ministack")

    def stop(self) -> None:
        """End it; what it held is gone."""
        super().stop()
        self._folder.cleanup()


READ_SECONDS = 30.0
"""How long the engine may be silent: it is one process, and may have to do everybody's work at once."""


class LocalAccount(Aws):
    """The account behind an endpoint, whatever this process's environment says about AWS."""

    def __init__(self, endpoint: str) -> None:
        super().__init__()
        self.endpoint = endpoint

    def make(self, service: str, connections: int) -> Any:
        """Return a client of botocore."""
        import botocore.session  # type: ignore[import-untyped]
        from botocore.config import Config  # type: ignore[import-untyped]

        settings = credentials(self.endpoint)
        return botocore.session.Session().create_client(
            service,
            endpoint_url=self.endpoint,
            region_name=settings["AWS_REGION"],
            aws_access_key_id=settings["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=settings["AWS_SECRET_ACCESS_KEY"],
            config=Config(
                read_timeout=READ_SECONDS, retries={"total_max_attempts": 1}, max_pool_connections=connections
            ),
        )
