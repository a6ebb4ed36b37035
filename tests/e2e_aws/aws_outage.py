"""A proxy between the functions of a deployment and its account: for a while, it answers requests in their place."""

import http.client
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import md5
from urllib.parse import urlsplit
from uuid import uuid4

from support.services.loopback import Handler, serve

WRITES = {"PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem", "TransactWriteItems"}
HOP_BY_HOP = {"connection", "content-length", "date", "server", "transfer-encoding"}


@dataclass(frozen=True, slots=True)
class Request:
    """A call of an AWS service: `dynamodb`, `sqs`, `ssm` or `s3`; an operation of S3 is its method."""

    service: str
    operation: str
    body: bytes


Reply = tuple[int, bytes]
Fault = Callable[[Request], Reply | None]
"""What the proxy answers; None for what the account does."""


def throttled(_: Request) -> Reply:
    """DynamoDB's answer to a request that it refuses."""
    kind = "com.amazonaws.dynamodb.v20120810#ThrottlingException"
    return 400, json.dumps({"__type": kind, "message": "slow down"}).encode()


def unavailable(_: Request) -> Reply:
    """S3's answer to a request that it refuses."""
    return 503, b"<Error><Code>SlowDown</Code><Message>slow down</Message></Error>"


def swallowed(request: Request) -> Reply:
    """SQS's answer to messages that nobody will ever receive."""

    def sent(text: str, **fields: str) -> dict[str, str]:
        digest = md5(text.encode(), usedforsecurity=False).hexdigest()
        return {**fields, "MessageId": str(uuid4()), "MD5OfMessageBody": digest}

    asked = json.loads(request.body)
    if (entries := asked.get("Entries")) is None:
        return 200, json.dumps(sent(asked["MessageBody"])).encode()
    successful = [sent(each["MessageBody"], Id=each["Id"]) for each in entries]
    return 200, json.dumps({"Successful": successful, "Failed": []}).encode()


@dataclass
class Outage:
    """A fault, which is in effect from `begin` on for so many seconds.

    Attributes:
        target: the address of the account.
        hit: the calls that it has hit, by operation.
    """

    fault: Fault
    target: str = ""
    hit: Counter[str] = field(default_factory=Counter)
    _end: float = 0.0

    def begin(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def seconds_left(self) -> float:
        return max(0.0, self._end - time.monotonic())

    def answer(self, request: Request) -> Reply | None:
        """What is answered in place of the account."""
        reply = self.fault(request) if self.seconds_left else None
        if reply is not None:
            self.hit[request.operation] += 1
        return reply

    @contextmanager
    def serve(self) -> Iterator[str]:
        """Pass requests on meanwhile; yields the value of AWS_ENDPOINT_URL."""
        outage = self

        class Proxy(Handler):
            def respond(self) -> None:
                outage._respond(self)

            do_PUT = do_DELETE = do_HEAD = respond  # noqa: N815 - the names of the base class

        with serve(Proxy) as url:
            yield url

    def _respond(self, handler: Handler) -> None:
        service, _, operation = handler.headers.get("X-Amz-Target", "").rpartition(".")
        service = "sqs" if service == "AmazonSQS" else service.partition("_")[0].lower() or "s3"
        body = handler.body() if "Content-Length" in handler.headers else b""
        request = Request(service, operation or handler.command, body)
        if (reply := self.answer(request)) is not None:
            handler.answer(*reply, {"Content-Type": "application/x-amz-json-1.0"})
            return
        connection = http.client.HTTPConnection(urlsplit(self.target).netloc)
        connection.request(handler.command, handler.path, body, dict(handler.headers.items()))
        response = connection.getresponse()
        content = response.read()
        kept = {name: value for name, value in response.getheaders() if name.lower() not in HOP_BY_HOP}
        connection.close()
        with suppress(ConnectionError):  # the function has been ended
            handler.answer(response.status, content, kept)
