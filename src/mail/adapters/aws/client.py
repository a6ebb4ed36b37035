"""Calls of AWS services from async code, for the adapters of DynamoDB, S3 and SQS.

The clients are those of botocore, as importing boto3 would double the time of a cold start. They block, so that calls
run in threads, one per connection.
"""

import asyncio
import logging
import os
import random
import threading
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from time import monotonic, sleep, time
from typing import Any

from mail.errors import StoreUnavailable

CONNECT_SECONDS = 2.0
READ_SECONDS = 5.0
"""The time limit of a response. Services answer in milliseconds; a longer wait is better retried."""

ATTEMPTS = 4
"""The number of botocore's attempts, with backoff, if a service is busy, broken or unreachable."""

CONNECTIONS = 16

FAR_SECONDS = 5.0
"""The difference between the clock of this process and that of a service from which leases suffer."""

LOOK_SECONDS = 60.0
"""Seconds between two looks at it."""

LONGEST_PAUSE = 5.0
"""Seconds between two attempts to read all parameters, at most."""

_CHANCE = random.SystemRandom()  # copies of one snapshot of a function must not draw the same numbers

logger = logging.getLogger(__name__)


class Refused(Exception):
    """An error of a service that the caller handles.

    Attributes:
        code: the service's name of the error, such as `ConditionalCheckFailedException`.
        response: the whole response.
        repeated: whether the request was retried, so that an earlier attempt may have gone through.
    """

    def __init__(self, code: str, response: dict[str, Any]) -> None:
        super().__init__(code)
        self.code = code
        self.response = response
        self.repeated = response.get("ResponseMetadata", {}).get("RetryAttempts", 0) > 0


class Aws:
    """The account of the environment, as botocore reads it.

    Args:
        region: the default is that of the environment.
        endpoint_url: the URL of the services; the default is AWS_ENDPOINT_URL, or AWS itself.
        read_seconds: the time limit of a response.
    """

    def __init__(
        self, region: str = "", endpoint_url: str = "", *, read_seconds: float = READ_SECONDS
    ) -> None:
        self._region = region
        self._read_seconds = read_seconds
        self._endpoint_url = endpoint_url
        self._session: Any = None
        self._lock = threading.Lock()
        self._clients: list[AwsClient] = []
        self._next_look: float | None = 0.0

    def client(self, service: str, *, connections: int = CONNECTIONS) -> "AwsClient":
        """Return a client of a service, such as `dynamodb`. It costs nothing until it is used."""
        client = AwsClient(self, service, connections)
        self._clients.append(client)
        return client

    def close_connections(self) -> None:
        """Close the connections of all clients, which make new ones for their next calls."""
        for client in self._clients:
            client.close_connections()

    def compare_clocks(self, answer: Mapping[str, Any]) -> None:
        """Warn, once, if the clock of this process is far from the date of an answer; look only now and then."""
        now = monotonic()
        if self._next_look is None or now < self._next_look:
            return
        self._next_look = now + LOOK_SECONDS
        date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date", "")
        try:
            ahead = time() - parsedate_to_datetime(date).timestamp()
        except ValueError:  # an emulator may send none
            return
        if abs(ahead) > FAR_SECONDS:
            self._next_look = None
            logger.warning(
                "the clock of this process is %.0f s %s that of AWS: turns may be taken over too early or too late; "
                "set it",
                abs(ahead),
                "ahead of" if ahead > 0 else "behind",
            )

    def make(self, service: str, connections: int) -> Any:
        """Make a client of botocore, which takes some 50 ms."""
        import botocore.session  # type: ignore[import-untyped]
        from botocore.config import Config  # type: ignore[import-untyped]

        config = Config(
            connect_timeout=CONNECT_SECONDS,
            read_timeout=self._read_seconds,
            retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
            max_pool_connections=connections,
            tcp_keepalive=True,
        )
        with self._lock:
            if self._session is None:
                self._session = botocore.session.Session()
            return self._session.create_client(
                service,
                # AWS_REGION: commonly set, but not read by botocore
                region_name=self._region or os.environ.get("AWS_REGION"),
                endpoint_url=self._endpoint_url or None,
                config=config,
            )


class AwsClient:
    """A client of one service. `connections` limits the concurrent calls; more of them wait."""

    def __init__(self, aws: Aws, service: str, connections: int) -> None:
        self._aws = aws
        self._service = service
        self._connections = connections
        self._threads = ThreadPoolExecutor(connections, thread_name_prefix=f"aws-{service}")
        self._lock = threading.Lock()
        self._made: Any = None

    @property
    def botocore(self) -> Any:
        """The client of botocore, made on first use."""
        with self._lock:
            if self._made is None:
                self._made = self._aws.make(self._service, self._connections)
            return self._made

    def warm_up(self) -> None:
        """Make the client of botocore now, so that the first call is fast."""
        assert self.botocore is not None

    def rehearse(self, calls: Mapping[str, Mapping[str, Any]]) -> None:
        """Make the requests of some calls, by operation, and read empty responses; nothing is sent.

        The first real call of each operation is then as fast as any other. Raises the errors of botocore.
        """
        from botocore.awsrequest import AWSResponse  # type: ignore[import-untyped]

        def respond(request: Any, **_: object) -> Any:
            return AWSResponse(request.url, 200, {}, _Empty())

        events = self.botocore.meta.events
        events.register("before-send", respond)
        try:
            for operation, arguments in calls.items():
                getattr(self.botocore, operation)(**arguments)
        finally:
            events.unregister("before-send", respond)

    async def call(
        self, operation: str, /, *, expect: Collection[str] = (), **arguments: Any
    ) -> dict[str, Any]:
        """Call an operation by botocore's name (`put_item`); return the response, with the content of a streaming body.

        Raises Refused for an error whose code is in `expect`, and StoreUnavailable for any other error after the
        retries; then a write may have gone through.
        """
        from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]  # imported late, for fast cold starts

        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, self._call, operation, arguments)
        except ClientError as error:
            self._aws.compare_clocks(error.response)
            code = error.response.get("Error", {}).get("Code", "")
            if code in expect:
                raise Refused(code, error.response) from error
            logger.error("%s refused %s: %s", self._service, operation, error)
            raise StoreUnavailable from error
        except BotoCoreError as error:
            logger.error("%s did not respond to %s: %s", self._service, operation, error)
            raise StoreUnavailable from error

    def close(self) -> None:
        """Reject further calls, and close the connections."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self.close_connections()

    def close_connections(self) -> None:
        """Close the connections; the next call makes a new one."""
        with self._lock:
            if self._made is not None:
                self._made.close()

    def _call(self, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = getattr(self.botocore, operation)(**arguments)
        self._aws.compare_clocks(answer)
        if "Body" in answer:
            answer["Body"] = answer["Body"].read()
        return answer


class _Empty:
    """The body of a response, as botocore reads it."""

    def stream(self) -> Iterator[bytes]:
        yield b"{}"


async def back_off(attempt: int, *, base: float = 0.02, cap: float = 1.0) -> None:
    """Wait after the failed attempt number `attempt`, from 0: exponential backoff with full jitter."""
    await asyncio.sleep(_CHANCE.uniform(0.0, min(cap, base * 2**attempt)))


class Parameters:
    """The parameters under a path, decrypted."""

    def __init__(self, ssm: AwsClient, path: str) -> None:
        self._ssm = ssm
        self._path = path.rstrip("/")

    async def get(self, name: str) -> str | None:
        """Return a value; None if it is missing or empty. Raises StoreUnavailable."""
        try:
            answer = await self._ssm.call(
                "get_parameter",
                expect=("ParameterNotFound", "ParameterVersionNotFound"),
                Name=f"{self._path}/{name}",
                WithDecryption=True,
            )
        except Refused:
            return None
        return str(answer["Parameter"]["Value"]) or None

    def read_all(self, seconds: float = 0.0) -> dict[str, str]:
        """Return all values right below the path, by name, and keep no connection. Blocks.

        A service that is asked by many processes at once refuses most of them, so this tries again for so many seconds,
        after random pauses. Raises StoreUnavailable.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        pages, end = self._ssm.botocore.get_paginator("get_parameters_by_path"), monotonic() + seconds
        longest = 1.0
        while True:
            try:
                return {
                    parameter["Name"].rsplit("/", 1)[-1]: parameter["Value"]
                    for page in pages.paginate(Path=self._path, WithDecryption=True)
                    for parameter in page["Parameters"]
                }
            except (BotoCoreError, ClientError) as error:
                logger.warning("the parameters below %s can't be read now: %s", self._path, error)
                pause, longest = _CHANCE.uniform(0.0, longest), min(LONGEST_PAUSE, 2 * longest)
                if monotonic() + pause >= end:
                    raise StoreUnavailable from error
                sleep(pause)
            finally:
                self._ssm.close_connections()
