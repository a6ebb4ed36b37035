"""The AWS account that a local engine pretends to be."""

from typing import Any

from mail.adapters.aws.client import Aws
from mail.local_aws.ministack import credentials

READ_SECONDS = 30.0
"""How long the engine may be silent: it is one process, and may have to do everybody's work at once."""


class LocalAccount(Aws):
    """The account behind an endpoint, whatever this process's environment says about AWS."""

    def __init__(self, endpoint: str) -> None:
        super().__init__()
        self.endpoint = endpoint

    def make(self, service: str, connections: int) -> Any:
        """A client of botocore."""
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
