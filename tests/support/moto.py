"""AWS inside this process: moto answers the requests of a botocore client, and no socket is opened.

`tests/aws/test_moto.py` lists where moto differs from the service, with a test for each difference.
"""

import threading
from functools import cache
from typing import Any

from botocore.awsrequest import AWSPreparedRequest

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_REGION": "us-east-1",
}

_LOCK = threading.Lock()
"""Moto checks and writes in separate steps; the service does both at once."""


@cache
def _stubber() -> Any:
    from moto.core.botocore_stubber import BotocoreStubber

    stubber = BotocoreStubber()
    stubber.enabled = True
    return stubber


class _Session:
    """What botocore sends requests through, with moto at its other end."""

    def send(self, request: AWSPreparedRequest) -> Any:
        with _LOCK:
            return _stubber()("before-send", request)

    def close(self) -> None:
        """Close nothing: there is no connection."""


def answer(botocore_client: Any) -> None:
    """Answer all requests of a client in this process."""
    botocore_client._endpoint.http_session = _Session()
