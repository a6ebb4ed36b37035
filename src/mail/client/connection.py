"""Asking one server over HTTP: session, headers, time limits, log, errors."""

import asyncio
import logging
import re
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self

import httpx
from pydantic_core import to_json

from mail.client.errors import (
    BadAnswer,
    ConnectionLost,
    InvalidConnection,
    InvalidRequest,
    NotJSON,
    RequestTimedOut,
    ServerUnreachable,
    TooManyRequests,
)
from mail.client.sse import CONTENT_TYPE
from mail.client.urls import read_server
from mail.config import ClientConfig

if TYPE_CHECKING:
    import aiohttp

logger = logging.getLogger("mail.client")

CONNECT_SECONDS = 30.0
"""How long a connection may take to be made."""

KEPT_SECONDS = 4.0
"""How long an unused connection is kept: less than the 5 s after which servers (uvicorn) close theirs, as a request
that meets the closing would be lost."""

PATIENCE_SECONDS = (1.0, 2.0, 4.0)
"""How long to wait after each answer of 429 that doesn't say it; after the last of so many, it is an error.

A request that was answered so has changed nothing, and can be sent again, whatever it is.
"""

LONGEST_PAUSE = 30.0
"""Seconds; a server that wants more of them is not waited for, but left to the caller."""

_HTTPX_DEFAULT = httpx.Timeout(5.0)
_NOT_SENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.InvalidURL,
    httpx.LocalProtocolError,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
)
_KEY = re.compile(r"[\x21-\x7e]+")


class Connection:
    """Sends requests to a server, and reads the answers. See `MAILClient` for the arguments."""

    silence_seconds: ClassVar[float] = 60.0
    """After how many seconds without a byte a stream counts as broken: MAIL servers send a ping every 15."""

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        session: "httpx.AsyncClient | aiohttp.ClientSession | None" = None,
        config: ClientConfig | None = None,
    ) -> None:
        server = read_server(base_url)
        self.base_url = server.url
        self.api_key = api_key or server.token
        self.config = config or ClientConfig()
        self._given = None if session is None else _as_httpx(session)
        self._own: httpx.AsyncClient | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections, but not a session that was given. A later request opens new ones."""
        if self._own is not None:
            await self._own.aclose()
            self._own = None

    def _build_headers(self) -> dict[str, str]:
        """The headers of every request. Override it to add some.

        Raises InvalidConnection for a key that no header can carry.
        """
        headers = {"Accept": f"application/json, {CONTENT_TYPE}"}
        if self.api_key:
            if _KEY.fullmatch(self.api_key) is None:
                raise InvalidConnection(
                    "the API key holds white space, or what else no HTTP header can carry"
                )
            headers["Authorization"] = f"Bearer {self.api_key}"
        return headers

    async def _ask(
        self, method: str, path: str, *, body: object = None, query: Mapping[str, str] | None = None
    ) -> Any:
        """The JSON that the server answers."""
        async with self._deadline(f"{method} {path}"):
            return read_json(await self._send(method, path, body=body, query=query))

    async def _open(
        self,
        method: str,
        url: str,
        *,
        body: object = None,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response | None:
        """An answer whose events are still to be read; None where there are none to come (204)."""
        async with self._deadline(f"{method} {url}"):
            response = await self._send(method, url, body=body, query=query, headers=headers, stream=True)
            if is_stream(response):
                return response
            try:
                with translated(f"{method} {url}"):
                    await response.aread()
            finally:
                await response.aclose()
        if response.status_code == httpx.codes.NO_CONTENT:
            return None
        read_json(response)
        raise BadAnswer(_request_of(response), response.status_code, "not a stream of events")

    async def _send(
        self,
        method: str,
        url: str,
        *,
        body: object = None,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        stream: bool = False,
    ) -> httpx.Response:
        """The answer, whatever it is. `url` is a path on the server, or a URL that it has given.

        Where the server has enough to do for now (429), it is asked again after the time that it says.
        Raises InvalidRequest, InvalidConnection or, where there is no answer, another child of MAILClientError.
        """
        for pause in PATIENCE_SECONDS:
            response = await self._send_once(method, url, body, query, headers, stream)
            seconds = (
                _retry_after(response) if response.status_code == httpx.codes.TOO_MANY_REQUESTS else None
            )
            if response.status_code != httpx.codes.TOO_MANY_REQUESTS or (seconds or 0) > LONGEST_PAUSE:
                return response
            await response.aclose()
            await asyncio.sleep(pause if seconds is None else seconds)
        return await self._send_once(method, url, body, query, headers, stream)

    async def _send_once(
        self,
        method: str,
        url: str,
        body: object,
        query: Mapping[str, str] | None,
        headers: Mapping[str, str] | None,
        stream: bool,
    ) -> httpx.Response:
        all_headers = {**self._build_headers(), **(headers or {})}
        if body is not None:
            all_headers["Content-Type"] = "application/json"
        begun = time.perf_counter()
        with translated(f"{method} {url}"):
            session = self._session()
            try:
                request = session.build_request(
                    method,
                    self.base_url + url if url.startswith("/") else url,
                    params=query,
                    content=None if body is None else to_json(body),
                    headers=all_headers,
                    timeout=self._timeout(session, is_stream=stream),
                )
            except ValueError as error:  # of JSON, or of an encoding
                raise InvalidRequest(f"{method} {url} can't be written: {error}") from error
            response = await session.send(request, stream=stream, follow_redirects=False)
        self._trace("%s %s: %d in %.3f s", method, url, response.status_code, time.perf_counter() - begun)
        return response

    @asynccontextmanager
    async def _deadline(self, what: str) -> AsyncIterator[None]:
        """Raises RequestTimedOut where the block takes longer than the configured time."""
        try:
            async with asyncio.timeout(self.config.timeout) as limit:
                yield
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise RequestTimedOut(f"{what}: no answer in {self.config.timeout:g} s") from error

    def _session(self) -> httpx.AsyncClient:
        if self._given is not None:
            return self._given
        if self._own is None:
            # Every stream holds a connection for as long as it lasts: their number can't be limited.
            limits = httpx.Limits(
                max_connections=None, max_keepalive_connections=20, keepalive_expiry=KEPT_SECONDS
            )
            self._own = httpx.AsyncClient(limits=limits)
        return self._own

    def _timeout(self, session: httpx.AsyncClient, *, is_stream: bool) -> httpx.Timeout:
        """The session's own, where somebody has set it; httpx's default would end long answers."""
        if session.timeout != _HTTPX_DEFAULT:
            return session.timeout
        answer = self.config.timeout
        read = self.silence_seconds if is_stream else answer
        return httpx.Timeout(read, connect=min(CONNECT_SECONDS, answer), pool=answer)

    def _trace(self, text: str, *values: object) -> None:
        logger.log(logging.INFO if self.config.verbose else logging.DEBUG, text, *values)


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Errors of the HTTP library as ours."""
    try:
        yield
    except _NOT_SENT as error:
        raise ServerUnreachable(f"{what}: {_describe(error)}") from error
    except httpx.TimeoutException as error:
        raise RequestTimedOut(f"{what}: {_describe(error)}") from error
    except httpx.RequestError as error:
        raise ConnectionLost(f"{what}: {_describe(error)}") from error


def is_stream(response: httpx.Response) -> bool:
    """Whether the server answers with events."""
    return response.is_success and _media_type(response) == CONTENT_TYPE


def read_json(response: httpx.Response) -> Any:
    """What the server answers. Raises BadAnswer for a refusal, NotJSON for what no MAIL server says."""
    request = _request_of(response)
    if response.is_redirect:
        where = response.headers["location"]
        raise BadAnswer(request, response.status_code, f"it is at {where}; give the client that server's URL")
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
    if response.status_code == httpx.codes.TOO_MANY_REQUESTS:
        raise TooManyRequests(request, response.status_code, detail, _retry_after(response))
    raise BadAnswer(request, response.status_code, detail)


def _retry_after(response: httpx.Response) -> float | None:
    """The seconds that the server wants to be left alone; None where it doesn't say, or names a date."""
    given = response.headers.get("retry-after", "").strip()
    return float(given) if given.isascii() and given.isdecimal() else None


def _read_detail(value: Any) -> str:
    """What is wrong: MAIL says it in `detail`, the front doors of AWS in `message`."""
    detail = value
    if isinstance(value, dict):
        detail = value.get("detail", value.get("message", value))
    return detail if isinstance(detail, str) else to_json(detail).decode()


def _not_json(response: httpx.Response) -> NotJSON:
    content_type = response.headers.get("content-type", "")
    return NotJSON(_request_of(response), response.status_code, content_type, response.text)


def _media_type(response: httpx.Response) -> str:
    return str(response.headers.get("content-type", "")).partition(";")[0].strip().lower()


def _request_of(response: httpx.Response) -> str:
    return f"{response.request.method} {response.request.url.path}"


def _describe(error: Exception) -> str:
    return f"{type(error).__name__} {error}".strip()


def _as_httpx(session: "httpx.AsyncClient | aiohttp.ClientSession") -> httpx.AsyncClient:
    if isinstance(session, httpx.AsyncClient):
        return session
    loaded = sys.modules.get("aiohttp")  # whoever holds one of its sessions has loaded it
    if loaded is not None and isinstance(session, loaded.ClientSession):
        from mail.client.aiohttp_session import over

        return over(session)
    raise TypeError(
        f"session must be an httpx.AsyncClient or an aiohttp.ClientSession, not {type(session).__name__}"
    )
