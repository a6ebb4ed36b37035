"""AWS inside this process: moto answers the requests of a botocore client before they reach a socket.

What moto doesn't do as the service does is listed in `tests/contract/test_contract_moto.py`, with a test for each.
"""

import threading
from functools import cache
from typing import Any

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


def answer(botocore_client: Any) -> None:
    """Answer all requests of a client in this process, after its other hooks have seen them."""
    stubber = _stubber()

    def respond(**event: Any) -> Any:
        with _LOCK:
            return stubber(**event)

    botocore_client.meta.events.register_last("before-send", respond)
