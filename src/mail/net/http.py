"""The HTTP client for other swarms."""

import asyncio
import logging
import time
from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from pydantic_core import from_json, to_json

from mail.core.protocol.interswarm import BEARER_HEADER
from mail.core.protocol.values import value
from mail.errors import PeerRefused, PeerUnavailable, PeerUnreachable
from mail.net.aws_signature import AwsSigner, region_for

if TYPE_CHECKING:
    import httpx2

logger = logging.getLogger(__name__)

CONNECT_SECONDS = 5.0
REQUEST_SECONDS = 30.0
"""Default timeout of a request, without the connection."""

PROBE_SECONDS = 10.0
"""Timeout of a request for the description or the health of a peer."""

MAX_ANSWER_BYTES = 1024 * 1024
"""Bytes of a response that are read; no valid response is longer."""

CONNECTIONS = 100
IDLE_CONNECTIONS = 20
IDLE_SECONDS = 3.0
"""Seconds for which idle connections are kept: less than servers keep them, to avoid reusing a closed one."""

RETRIED = frozenset({408, 425, 429})
"""Statuses below 500 that are worth a retry."""

FINAL_PROBLEMS = ("unknown local agent",)
"""What MAIL 1.3.6 answers with 500, in lower case, although a retry can't help."""

NO_HEADERS: Mapping[str, str] = MappingProxyType({})

HINTS: Mapping[int, str] = MappingProxyType(
    {
        400: "it may have no such agent",
        401: "it does not accept the token",
        403: "it does not allow that with this token, or does not know this swarm",
    }
)
"""What a status usually means. The bodies of errors are not passed on, as any server may answer at a peer's URL."""

LOGGED_LENGTH = 300
"""Characters of what a server says about an error, which only the log repeats."""


@value
class Target:
    """The address of a server, and how requests to it are authenticated."""

    base_url: str
    auth: Literal["bearer", "aws_iam"] = "bearer"
    region: str | None = None

    @classmethod
    def of(cls, base_url: str, auth: Literal["bearer", "aws_iam"], metadata: Mapping[str, Any]) -> "Target":
        """Return the target of a peer. Raises PeerRefused if the region to sign for is unknown."""
        if auth == "bearer":
            return cls(base_url)
        region = region_for(base_url, metadata)
        if region is None:
            raise PeerRefused(
                "auth 'aws_iam' needs a region: that of a URL *.lambda-url.<region>.on.aws, or one in metadata.region"
            )
        return cls(base_url, auth, region)


@value
class Answer:
    """A response; `seconds` is the time that it took."""

    status: int
    body: bytes
    seconds: float

    @property
    def is_success(self) -> bool:
        """Whether the request was accepted."""
        return 200 <= self.status < 300

    def json(self) -> Any:
        """Return the body parsed as JSON; None if it isn't JSON."""
        try:
            return from_json(self.body, allow_inf_nan=False)
        except ValueError:
            return None

    def raise_for_status(self, server: str = "", bearer: str = "") -> None:
        """Raise PeerUnavailable for an error worth a retry, PeerRefused for any other error or redirect.

        What the server says about it is only logged, without the `bearer`, which it may repeat; if the `server` has no
        name yet, only as DEBUG.
        """
        if self.is_success:
            return
        level = logging.INFO if server else logging.DEBUG
        logger.log(level, "%s answered %s: %s", server or "a server", self.status, self._reason(bearer))
        try:
            problem = f"{self.status} {HTTPStatus(self.status).phrase}"
        except ValueError:
            problem = str(self.status)
        said = self.body.decode("utf-8", "replace").lower()
        if any(final in said for final in FINAL_PROBLEMS):
            raise PeerRefused(f"{problem}: it has no such agent")
        if self.status >= 500 or self.status in RETRIED:
            raise PeerUnavailable(problem)
        if 300 <= self.status < 400:
            raise PeerRefused(f"{problem}: it redirects, which is not followed; register the URL it leads to")
        raise PeerRefused(f"{problem}: {HINTS[self.status]}" if self.status in HINTS else problem)

    def _reason(self, bearer: str) -> str:
        answer = self.json()
        given = answer.get("detail") if isinstance(answer, dict) else None
        text = given if isinstance(given, str) else self.body.decode("utf-8", "replace")
        if bearer:
            text = text.replace(bearer, "…")
        return " ".join(text[: 2 * LOGGED_LENGTH].split())[:LOGGED_LENGTH]


class PeerHTTP:
    """One HTTP client for all peers, made on first use and for each event loop.

    Args:
        seconds: the default timeout of a request.

    Attributes:
        allow_private: whether new connections may go to private addresses.
    """

    def __init__(
        self, *, allow_private: bool, seconds: float = REQUEST_SECONDS, signer: AwsSigner | None = None
    ) -> None:
        self.allow_private = allow_private
        self._seconds = seconds
        self._signer = signer or AwsSigner()
        self._client: httpx2.AsyncClient | None = None
        self._made_for: tuple[asyncio.AbstractEventLoop, bool] | None = None

    async def get(
        self, target: Target, path: str, *, seconds: float | None = None, max_bytes: int = MAX_ANSWER_BYTES
    ) -> Answer:
        """Get a resource that needs no token, of which little more than `max_bytes` are read; see `request`."""
        return await self.request("GET", target, path, seconds=seconds, max_bytes=max_bytes)

    async def request(
        self,
        method: str,
        target: Target,
        path: str,
        *,
        bearer: str | None = None,
        body: object = None,
        headers: Mapping[str, str] = NO_HEADERS,
        seconds: float | None = None,
        max_bytes: int = MAX_ANSWER_BYTES,
    ) -> Answer:
        """Send a request with a JSON body, and read the whole response. Redirects are not followed.

        Raises PeerUnreachable without a connection, PeerUnavailable on a timeout or network error, PeerRefused for an
        address that may not be called, and for a compressed response, as a short one can unpack to any size.
        """
        url = target.base_url + path
        headers = {"Accept": "application/json", **headers}
        content = b""
        if body is not None:
            content = to_json(body)
            headers["Content-Type"] = "application/json"
        if bearer is not None:
            headers["Authorization" if target.auth == "bearer" else BEARER_HEADER] = f"Bearer {bearer}"
        if target.auth == "aws_iam":
            assert target.region is not None
            headers = await self._signer.sign(method, url, headers, content, target.region)
        return await self._send(method, url, headers, content, seconds or self._seconds, max_bytes)

    async def aclose(self) -> None:
        """Close the connections; a later request opens new ones."""
        client, self._client = self._client, None
        made_for, self._made_for = self._made_for, None
        if client is not None and made_for is not None and made_for[0] is asyncio.get_running_loop():
            await client.aclose()

    async def _send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        content: bytes,
        seconds: float,
        max_bytes: int,
    ) -> Answer:
        import httpx2

        from mail.public_urls import NotPublic

        headers = {**headers, "Accept-Encoding": "identity"}  # not signed, as proxies change it
        started = time.monotonic()
        try:
            async with (
                asyncio.timeout(CONNECT_SECONDS + seconds),
                (await self._open()).stream(
                    method,
                    url,
                    headers=headers,
                    content=content,
                    timeout=httpx2.Timeout(seconds, connect=CONNECT_SECONDS),
                ) as response,
            ):
                if response.headers.get("content-encoding", "identity") != "identity":
                    raise PeerRefused("its answer is compressed, although the request asks for none that is")
                body = bytearray()
                async for chunk in response.aiter_raw():
                    body += chunk
                    if len(body) > max_bytes:
                        break
        except NotPublic as error:
            raise PeerRefused(
                f"{error}; to allow it, set allow_private_addresses in [server.interswarm]"
            ) from error
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol, UnicodeError) as error:
            raise PeerRefused(f"its URL can't be called: {error}") from error
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            raise PeerUnreachable(f"no answer: {str(error) or 'it takes no connection'}") from error
        except (TimeoutError, httpx2.TimeoutException) as error:
            raise PeerUnavailable(f"no answer within {seconds:g} seconds") from error
        except httpx2.HTTPError as error:
            raise PeerUnavailable(f"no answer: {str(error) or type(error).__name__}") from error
        return Answer(response.status_code, bytes(body), time.monotonic() - started)

    async def _open(self) -> "httpx2.AsyncClient":
        """Return the client of this event loop. That of a loop that has ended can't be closed; its sockets are gone."""
        import httpx2

        from mail.public_urls import AsyncPublicTransport

        wanted = (asyncio.get_running_loop(), self.allow_private)
        if self._client is None or self._made_for != wanted:
            await self.aclose()
            limits = httpx2.Limits(
                max_connections=CONNECTIONS,
                max_keepalive_connections=IDLE_CONNECTIONS,
                keepalive_expiry=IDLE_SECONDS,
            )
            transport = None if self.allow_private else AsyncPublicTransport(limits)
            self._client = httpx2.AsyncClient(
                limits=limits, transport=transport, follow_redirects=False, trust_env=False
            )
            self._made_for = wanted
        return self._client
