"""What stands between functions and an engine of AWS: it asks IAM about each request, as no engine here does.

with Gateway(endpoint("ministack"), roles, queues) as gateway:
    environment |= gateway.environment("TurnRole")
    gateway.throttle("GetParametersByPath", times=6)
assert gateway.refused == []
"""

import json
import threading
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from http.client import HTTPConnection
from typing import Any, Self
from urllib.parse import urlsplit

from support.engines.aws import aws_environment
from support.engines.iam import Ask, Roles, asks, asks_s3
from support.services.loopback import Handler, serve

_SERVICES = {"DynamoDB_20120810": "dynamodb", "AmazonSQS": "sqs", "AmazonSSM": "ssm"}
_JSON = {"Content-Type": "application/x-amz-json-1.0"}
_OF_THE_CONNECTION = {"host", "connection", "expect", "transfer-encoding", "content-length", "keep-alive"}


class Gateway:
    """A context manager.

    Args:
        queues: the logical names of queues by URL.

    Attributes:
        refused: what roles don't allow, and yet was asked for, each with its role.
    """

    def __init__(self, engine: str, roles: Roles, queues: Mapping[str, str]) -> None:
        self.refused: list[tuple[str, Ask]] = []
        self._engine = urlsplit(engine).netloc
        self._roles = roles
        self._queues = queues
        self._throttled: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._resources = ExitStack()

    def __enter__(self) -> Self:
        gateway = self

        class Connection(Handler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                self.upstream = HTTPConnection(gateway._engine)

            def finish(self) -> None:
                self.upstream.close()
                super().finish()

            def respond(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if (problem := gateway._problem(self.command, self.path, self.headers, body)) is not None:
                    self.answer(400, json.dumps({"__type": problem, "message": problem}).encode(), _JSON)
                    return
                headers = {
                    name: text
                    for name, text in self.headers.items()
                    if name.lower() not in _OF_THE_CONNECTION
                }
                self.upstream.request(self.command, self.path, body, headers)
                response = self.upstream.getresponse()
                given = {
                    name: text
                    for name, text in response.getheaders()
                    if name.lower() not in {*_OF_THE_CONNECTION, "server", "date"}
                }
                self.answer(response.status, response.read(), given)

            do_PUT = do_DELETE = respond  # noqa: N815

        self._url = self._resources.enter_context(serve(Connection))
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def environment(self, role: str) -> dict[str, str]:
        """Return the variables with which a process has a role."""
        return {**aws_environment(self._url), "AWS_SESSION_TOKEN": role}

    def throttle(self, operation: str, *, times: int) -> None:
        """Refuse the next requests of an operation, as a service that is asked too often."""
        self._throttled[operation] = times

    def throttles(self, operation: str) -> int:
        """Return how many requests of an operation are still to be refused."""
        return self._throttled[operation]

    def _problem(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> str | None:
        """Return the type of the error with which a request is refused; None to pass it on."""
        role, target = headers.get("X-Amz-Security-Token", ""), headers.get("X-Amz-Target", "")
        if not target:
            source = headers.get("x-amz-copy-source", "").removeprefix("/").partition("/")[2]
            asked = asks_s3(method, path.split("/", 2)[2], source)
        else:
            service, _, operation = target.partition(".")
            with self._lock:
                if self._throttled[operation] > 0:
                    self._throttled[operation] -= 1
                    return "ThrottlingException"
            fields: dict[str, Any] = json.loads(body)
            asked = asks(_SERVICES[service], operation, fields, self._queues)
        refused = [(role, ask) for ask in asked if not self._roles.allow(role, ask)]
        self.refused += refused
        return "AccessDeniedException" if refused else None
