"""A receiver of webhooks on loopback, which gives scripted answers and keeps what it was sent.

with WebhookReceiver(500, "drop", 200) as receiver:   # the last one is for all others
    …
    receiver.wait_for(3)
"""

import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Self

from support.services.loopback import Handler, serve

TIMEOUT = 60.0

DROP = "drop"
"""In the place of a status: the connection is closed without an answer."""


@dataclass(frozen=True)
class Got:
    """A request, `at` seconds of a clock that only goes forward."""

    path: str
    headers: Mapping[str, str]
    body: bytes
    at: float

    @property
    def json(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(self.body)
        return value

    @property
    def event(self) -> str:
        return str(self.json["event"])

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    def is_signed_with(self, key: bytes) -> bool:
        """Whether the signature is the one of Standard Webhooks, computed here from its text."""
        signed = b".".join([self.id.encode(), self.headers["webhook-timestamp"].encode(), self.body])
        digest = hmac.new(key, signed, hashlib.sha256).digest()
        return self.headers["webhook-signature"] == "v1," + base64.b64encode(digest).decode("ascii")


class WebhookReceiver:
    """Serves between `with` and its end; `answers` are statuses, statuses with headers, or DROP."""

    def __init__(self, *answers: int | str | tuple[int, dict[str, str]]) -> None:
        self.answers = list(answers) or [200]
        self.got: list[Got] = []
        self._more = threading.Condition()
        self._open = ExitStack()

    def __enter__(self) -> Self:
        receiver = self

        class Hook(Handler):
            def respond(self) -> None:
                body = self.body()
                headers = {name.lower(): value for name, value in self.headers.items()}
                receiver._answer(self, Got(self.path, headers, body, time.monotonic()))

        url = self._open.enter_context(serve(Hook))
        self.url, self.port = f"{url}/hook", int(url.rpartition(":")[2])
        return self

    def __exit__(self, *_error: object) -> None:
        self._open.close()

    @property
    def events(self) -> list[str]:
        """The kinds of the events that have come, in order."""
        return [got.event for got in self.got]

    def wait_for(self, count: int, seconds: float = TIMEOUT) -> list[Got]:
        """What has come, once that are so many."""
        with self._more:
            assert self._more.wait_for(lambda: len(self.got) >= count, seconds), (
                f"{len(self.got)} of {count} came"
            )
            return list(self.got)

    def _answer(self, handler: Handler, got: Got) -> None:
        with self._more:
            answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            self.got.append(got)
            self._more.notify_all()
        if isinstance(answer, str):
            handler.close_connection = True
            return
        status, headers = answer if isinstance(answer, tuple) else (answer, {})
        handler.answer(status, headers=headers)
