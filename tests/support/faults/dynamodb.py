"""DynamoDB: a point before and after each call; and what no emulator does by itself, such as conflicts and lost
answers.

    with Faults(client) as faults:
        faults.plan("TransactWriteItems", conflict, lost_answer)

The next requests of that operation meet these faults, in order; those after them go through. To botocore they look like
faults of the network or the service, except that it does not wait a second before it retries after throttling.
"""

import io
import json
import time
from collections import defaultdict, deque
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace, TracebackType
from typing import Any, Self
from unittest.mock import patch
from uuid import uuid4

from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.exceptions import ConnectTimeoutError, ReadTimeoutError

from mail.adapters.aws.client import AwsClient
from mail.testing.faults import Points

Send = Callable[[AWSPreparedRequest], AWSResponse]
Fault = Callable[[AWSPreparedRequest, Send], AWSResponse | None]


class FaultyClient(AwsClient):
    """A client for one process, which passes a point before it sends something, and one when it has the answer."""

    def __init__(self, inner: AwsClient, points: Points) -> None:
        self._inner = inner
        self._points = points

    async def call(self, operation: str, /, **arguments: Any) -> dict[str, Any]:
        return await self._points.around(
            f"dynamodb.{operation}", partial(self._inner.call, operation, **arguments)
        )


class Faults:
    """The faults that a client will meet."""

    def __init__(self, client: AwsClient) -> None:
        self._client = client.botocore
        self._plans: defaultdict[str, deque[Fault]] = defaultdict(deque)
        self.always: dict[str, Fault] = {}
        self.met = 0
        self._hurry = patch("botocore.endpoint.time", SimpleNamespace(sleep=lambda _: time.sleep(0.001)))

    def plan(self, operation: str, *faults: Fault) -> None:
        """Let the next requests of this operation meet these faults."""
        self._plans[operation] += faults

    @property
    def are_over(self) -> bool:
        """Whether all that was planned has happened."""
        return not any(self._plans.values())

    def __enter__(self) -> Self:
        self._hurry.start()
        self._client.meta.events.register("before-send", self._meet)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.meta.events.unregister("before-send", self._meet)
        self._hurry.stop()

    def _meet(self, request: AWSPreparedRequest, event_name: str, **_: Any) -> AWSResponse | None:
        operation = event_name.rpartition(".")[2]
        plan = self._plans[operation]
        fault = plan.popleft() if plan else self.always.get(operation)
        if fault is None:
            return None
        self.met += 1
        return fault(request, self._client._endpoint.http_session.send)


def refusal(code: str, status: int = 400, **fields: Any) -> Fault:
    """DynamoDB answers with an error."""

    def answer(request: AWSPreparedRequest, _: Send) -> AWSResponse:
        error = {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": code, **fields}
        return _response(request, status, error)

    return answer


def cancelled(*codes: str) -> Fault:
    """DynamoDB cancels a transaction, for these reasons."""
    reasons = [{"Code": code} for code in codes]
    return refusal("TransactionCanceledException", CancellationReasons=reasons)


def conflict(request: AWSPreparedRequest, send: Send) -> AWSResponse | None:
    """Another transaction on one of the items is under way."""
    if b"TransactItems" not in request.body:
        return refusal("TransactionConflictException")(request, send)
    actions = json.loads(request.body)["TransactItems"]
    return cancelled("TransactionConflict", *("None" for _ in actions[1:]))(request, send)


throttled = refusal("ThrottlingException")
out_of_capacity = refusal("ProvisionedThroughputExceededException")
broken = refusal("InternalServerError", status=500)


def lost_request(request: AWSPreparedRequest, _: Send) -> None:
    """The request never arrives."""
    raise ConnectTimeoutError(endpoint_url=request.url)


def lost_answer(request: AWSPreparedRequest, send: Send) -> None:
    """DynamoDB does what it is asked for, but its answer gets lost."""
    send(request)
    raise ReadTimeoutError(endpoint_url=request.url)


def broken_after(request: AWSPreparedRequest, send: Send) -> AWSResponse | None:
    """DynamoDB does what it is asked for, but its answer says that it broke down."""
    send(request)
    return broken(request, send)


def new_token(request: AWSPreparedRequest, send: Send) -> AWSResponse:
    """DynamoDB has forgotten that it has seen the transaction before, as it does after ten minutes."""
    body = json.loads(request.body)
    body["ClientRequestToken"] = str(uuid4())
    request.body = json.dumps(body).encode()
    request.headers["Content-Length"] = str(len(request.body))
    return send(request)


def hiding(sort_key: str) -> Fault:
    """A query passes an item before it is there."""

    def answer(request: AWSPreparedRequest, send: Send) -> AWSResponse:
        found = json.loads(send(request).content)
        found["Items"] = [item for item in found["Items"] if not item["SK"]["S"].startswith(sort_key)]
        return _response(request, 200, found)

    return answer


class Late:
    """A request that seems lost, but arrives when `arrive` is called."""

    def __call__(self, request: AWSPreparedRequest, send: Send) -> None:
        self._request, self._send = request, send
        raise ReadTimeoutError(endpoint_url=request.url)

    def arrive(self) -> AWSResponse:
        """Let it arrive now; returns what it is answered."""
        return self._send(self._request)


def _response(request: AWSPreparedRequest, status: int, body: dict[str, Any]) -> AWSResponse:
    headers = {"content-type": "application/x-amz-json-1.0"}
    return AWSResponse(request.url, status, headers, _Raw(json.dumps(body).encode()))


class _Raw(io.BytesIO):
    def stream(self, **_: Any) -> Any:
        yield self.read()
