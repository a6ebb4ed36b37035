"""The HTTP connection to one server: its URL, session, headers, time limits, retries, log and errors."""

import asyncio
import logging
import re
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sized
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, cast
from urllib.parse import parse_qs, urlsplit

import httpx2
from pydantic_core import from_json, to_json

from mail.client.errors import (
    BadAnswer,
    ConnectionLost,
    InvalidConnection,
    InvalidRequest,
    NotJSON,
    QuestionOpen,
    RequestTimedOut,
    ServerUnreachable,
    TooManyRequests,
)
from mail.client.operations import OPERATIONS, Request
from mail.client.sse import CONTENT_TYPE
from mail.config import ClientConfig
from mail.core.protocol.retry_after import read_retry_after

if TYPE_CHECKING:
    import aiohttp
    import httpx

logger = logging.getLogger("mail.client")

CONNECT_SECONDS = 30.0
"""How long establishing a connection may take."""

KEPT_SECONDS = 4.0
"""How long an idle connection is kept: less than the 5 s after which servers (uvicorn) close theirs, because a request
sent while the server closes it would be lost."""

RETRY_SECONDS = (1.0, 2.0, 4.0)
"""Pauses before the retries after 429, for answers without `Retry-After`; after the last retry it is an error.

A request answered with 429 has changed nothing, so any request can be retried.
"""

LONGEST_PAUSE = 30.0
"""Seconds; if a server asks for a longer pause, the caller gets the error instead."""

_HTTPX_DEFAULT = httpx2.Timeout(5.0).as_dict()
_NO_PROXY = dict.fromkeys(("all://localhost", "all://127.0.0.1", "all://[::1]"))
"""Requests to this machine are sent to no proxy, whatever `HTTP_PROXY` says: they carry keys, and could not come
back.
"""

_NOT_SENT = (
    "ConnectError",
    "ConnectTimeout",
    "InvalidURL",
    "LocalProtocolError",
    "PoolTimeout",
    "ProxyError",
    "UnsupportedProtocol",
)
_KEY = re.compile(r"[\x21-\x7e]+")
_HOST = re.compile(r"[^\s/?#@\\]+")


class ServerAddress(NamedTuple):
    """A server's URL without a trailing slash, and the key that came with it."""

    url: str
    token: str | None = None


def read_server(text: str) -> ServerAddress:
    """Read `http(s)://host…`, or `swarm://connect?server=<host>&token=<key>`, which means https.

    `swarm://invite` is the same as `connect`. Raises InvalidConnection for anything else, without repeating the text,
    as it may contain a key.
    """
    try:
        return _read_server(text)
    except ValueError:
        raise InvalidConnection(
            "the URL names no server; write host:port, http://host:port, https://host or swarm://connect?server=host"
        ) from None


def _read_server(text: str) -> ServerAddress:
    url = urlsplit(text)
    if url.scheme in ("http", "https") and url.hostname and not url.query and not url.fragment:
        _ = url.port  # raises ValueError if it is no port
        return ServerAddress(text.rstrip("/"))
    if url.scheme == "swarm" and url.netloc in ("connect", "invite"):
        query = parse_qs(url.query)
        hosts, tokens = query.get("server", []), query.get("token", [])
        if len(hosts) == 1 and len(tokens) <= 1 and _HOST.fullmatch(hosts[0]):
            return ServerAddress(f"https://{hosts[0]}", tokens[0] if tokens else None)
    raise ValueError


class Connection:
    """A connection to a server, which sends requests and reads answers. See `MAILClient` for the arguments."""

    silence_seconds: ClassVar[float] = 60.0
    """Seconds without a byte after which a stream counts as broken; MAIL servers send a ping every 15 s."""

    def __init__(
        self,
        base_url: str = "",
        api_key: str | None = None,
        session: "httpx2.AsyncClient | httpx.AsyncClient | aiohttp.ClientSession | None" = None,
        config: ClientConfig | None = None,
        *,
        url: str = "",
    ) -> None:
        server = read_server(base_url or url)
        self.base_url = server.url
        self.api_key = api_key or server.token
        self.config = config or ClientConfig()
        self._given = None if session is None else _as_client(session)
        self._own: httpx2.AsyncClient | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections, but not a session passed by the caller. A later request opens new ones."""
        if self._own is not None:
            await self._own.aclose()
            self._own = None

    def _build_headers(self) -> dict[str, str]:
        """Return the headers of every request. Override it to add some.

        Raises InvalidConnection for a key that is not valid in a header.
        """
        headers = {"Accept": f"application/json, {CONTENT_TYPE}"}
        if self.api_key:
            if _KEY.fullmatch(self.api_key) is None:
                raise InvalidConnection(
                    "the API key contains white space or other characters that HTTP headers can't carry; check the key"
                )
            headers["Authorization"] = f"Bearer {self.api_key}"
        return headers

    async def _ask(
        self, operation: str, headers: Mapping[str, str] | None = None, /, **parameters: Any
    ) -> dict[str, Any]:
        """Perform an operation, and return the JSON answer."""
        async with self._deadline(str(OPERATIONS[operation])):
            answer = read_json(await self._request(operation, parameters, headers))
            # MAIL's `/responses` answers with JSON text that holds the object
            return dict(from_json(answer) if isinstance(answer, str) else answer)

    async def _ask_pages[Sum: Sized](
        self,
        operation: str,
        start: Sum,
        add: Callable[[Sum, Any], Sum],
        enough: int | None = None,
        /,
        **parameters: Any,
    ) -> Sum:
        """Perform an operation page by page, and return the sum of the pages.

        Stops early when the sum has `enough` entries. The time limit is that of one answer for all pages.
        """
        total, cursor = start, None
        async with self._deadline(str(OPERATIONS[operation])):
            while True:
                response = await self._request(operation, {**parameters, OPERATIONS[operation].page: cursor})
                page = read_json(response)
                total = add(total, page)
                cursor = OPERATIONS[operation].next_cursor(response.headers, page)
                if cursor is None or (enough is not None and len(total) >= enough):
                    return total

    async def _request(
        self, operation: str, parameters: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> httpx2.Response:
        return await self._send(OPERATIONS[operation].request(parameters, headers or {}))

    async def _open(self, request: Request) -> httpx2.Response | None:
        """Return a response whose events are still to be read; None if there will be none (204)."""
        async with self._deadline(str(request)):
            response = await self._send(request, stream=True)
            if is_stream(response):
                return response
            try:
                with translated(str(request)):
                    await response.aread()
            finally:
                await response.aclose()
        if response.status_code == httpx2.codes.NO_CONTENT:
            return None
        read_json(response)
        raise BadAnswer(_request_of(response), response.status_code, "not a stream of events")

    async def _send(self, request: Request, *, stream: bool = False) -> httpx2.Response:
        """Send a request, retry it after 429, and return the response of any status.

        Raises InvalidRequest, InvalidConnection or, if there is no response, another subclass of MAILClientError.
        """
        for pause in RETRY_SECONDS:
            response = await self._send_once(request, stream)
            seconds = (
                _retry_after(response) if response.status_code == httpx2.codes.TOO_MANY_REQUESTS else None
            )
            if response.status_code != httpx2.codes.TOO_MANY_REQUESTS or (seconds or 0) > LONGEST_PAUSE:
                return response
            await response.aclose()
            await asyncio.sleep(pause if seconds is None else seconds)
        return await self._send_once(request, stream)

    async def _send_once(self, request: Request, stream: bool) -> httpx2.Response:
        headers = {**self._build_headers(), **request.headers}
        if request.body is not None:
            headers["Content-Type"] = "application/json"
        begun = time.perf_counter()
        with translated(str(request)):
            session = self._session()
            try:
                built = session.build_request(
                    request.method,
                    self.base_url + request.url if request.url.startswith("/") else request.url,
                    params=request.query or None,
                    content=request.content if request.body is None else to_json(request.body),
                    headers=headers,
                    timeout=self._timeout(session, is_stream=stream),
                )
            except ValueError as error:  # of JSON, or of an encoding
                raise InvalidRequest(f"{request} can't be encoded: {error}") from error
            response = await session.send(built, stream=stream, follow_redirects=False)
        self._trace("%s: %d in %.3f s", request, response.status_code, time.perf_counter() - begun)
        return response

    @asynccontextmanager
    async def _deadline(self, what: str) -> AsyncIterator[None]:
        """Raise RequestTimedOut if the block takes longer than the configured time."""
        try:
            async with asyncio.timeout(self.config.timeout) as limit:
                yield
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise RequestTimedOut(f"{what}: no answer in {self.config.timeout:g} s") from error

    def _session(self) -> httpx2.AsyncClient:
        if self._given is not None:
            return self._given
        if self._own is None:
            # Every stream occupies a connection while it lasts, so their number can't be limited.
            limits = httpx2.Limits(
                max_connections=None, max_keepalive_connections=20, keepalive_expiry=KEPT_SECONDS
            )
            self._own = httpx2.AsyncClient(limits=limits, mounts=_NO_PROXY)
        return self._own

    def _timeout(
        self, session: httpx2.AsyncClient, *, is_stream: bool
    ) -> tuple[float | None, float | None, float | None, float | None]:
        """Return the limits for connecting, reading, writing and a free connection: the session's, if they were set.

        The default of the HTTP libraries would end long answers.
        """
        limits = session.timeout
        if limits.as_dict() != _HTTPX_DEFAULT:
            return limits.connect, limits.read, limits.write, limits.pool
        answer = self.config.timeout
        read = self.silence_seconds if is_stream else answer
        return min(CONNECT_SECONDS, answer), read, read, answer

    def _trace(self, text: str, *values: object) -> None:
        logger.log(logging.INFO if self.config.verbose else logging.DEBUG, text, *values)


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Translate the HTTP library's errors into MAILClientError."""
    try:
        yield
    except _errors(*_NOT_SENT) as error:
        raise ServerUnreachable(f"{what}: {_describe(error)}") from error
    except _errors("TimeoutException") as error:
        raise RequestTimedOut(f"{what}: {_describe(error)}") from error
    except _errors("RequestError") as error:
        raise ConnectionLost(f"{what}: {_describe(error)}") from error


def _errors(*names: str) -> tuple[type[Exception], ...]:
    """Return the exceptions of these names, of httpx2 and, for a session of it, of httpx."""
    return tuple(getattr(library, name) for library in _libraries() for name in names)


def _libraries() -> list[Any]:
    """Return httpx2, and httpx if the program has imported it, as a program that passes a session of it has."""
    loaded = sys.modules.get("httpx")
    return [httpx2] if loaded is None else [httpx2, loaded]


def is_stream(response: httpx2.Response) -> bool:
    """Return whether the server answers with events."""
    return response.is_success and _media_type(response) == CONTENT_TYPE


def read_json(response: httpx2.Response) -> Any:
    """Return the JSON of a response. Raises BadAnswer for an error status, NotJSON for an answer that is not JSON."""
    request = _request_of(response)
    if response.is_redirect:
        where = response.headers["location"]
        raise BadAnswer(
            request, response.status_code, f"the server redirects to {where}; give the client that URL"
        )
    media_type = _media_type(response)
    if media_type != "application/json" and not media_type.endswith("+json"):
        raise _not_json(response)
    try:
        value = response.json()
    except ValueError as error:
        raise _not_json(response) from error
    if response.is_success:
        return value
    detail = _read_detail(value)
    if response.status_code == httpx2.codes.TOO_MANY_REQUESTS:
        raise TooManyRequests(request, response.status_code, detail, _retry_after(response))
    if response.status_code == httpx2.codes.CONFLICT and (calls := _pending_calls(value)):
        raise QuestionOpen(request, response.status_code, detail, calls)
    raise BadAnswer(request, response.status_code, detail)


def _pending_calls(value: Any) -> list[dict[str, Any]]:
    """Return the calls that a task waits for, of an error that lists them."""
    calls = value.get("pending_tool_calls") if isinstance(value, dict) else None
    return calls if isinstance(calls, list) else []


def _retry_after(response: httpx2.Response) -> float | None:
    return read_retry_after(response.headers.get("retry-after", ""), datetime.now(UTC))


def _read_detail(value: Any) -> str:
    """Return the text of an error: `detail` of MAIL servers, `message` of AWS's gateways."""
    detail = value
    if isinstance(value, dict):
        detail = value.get("detail", value.get("message", value))
    return detail if isinstance(detail, str) else to_json(detail).decode()


def _not_json(response: httpx2.Response) -> NotJSON:
    content_type = response.headers.get("content-type", "")
    return NotJSON(_request_of(response), response.status_code, content_type, response.text)


def _media_type(response: httpx2.Response) -> str:
    return str(response.headers.get("content-type", "")).partition(";")[0].strip().lower()


def _request_of(response: httpx2.Response) -> str:
    return f"{response.request.method} {response.request.url.path}"


def _describe(error: Exception) -> str:
    return f"{type(error).__name__} {error}".strip()


def _as_client(session: object) -> httpx2.AsyncClient:
    if any(isinstance(session, library.AsyncClient) for library in _libraries()):
        return cast(httpx2.AsyncClient, session)  # what is used of it is the same in httpx
    loaded = sys.modules.get("aiohttp")  # a caller that passes one of its sessions has loaded it
    if loaded is not None and isinstance(session, loaded.ClientSession):
        from mail.client.aiohttp_session import over

        return over(session)
    raise TypeError(
        f"session must be an AsyncClient of httpx2 or httpx, or an aiohttp.ClientSession, not {type(session).__name__}"
    )
