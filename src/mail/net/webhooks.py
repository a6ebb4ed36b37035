"""Requests to webhooks over HTTP: signed, and only to addresses that callers may use."""

import asyncio
import hmac
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pydantic_core import from_json, to_json

from mail.core.engine.documents import ServerDocuments
from mail.core.protocol.clock import Clock
from mail.core.protocol.retry_after import read_retry_after
from mail.core.task.task import TaskStatus
from mail.core.task.webhooks import RETRY_SECONDS, Push, Reply, TaskWebhook, Webhook
from mail.errors import BadRequest, StoreUnavailable
from mail.net.registration import MAX_URL, host_of, is_private
from mail.net.secrets import Tokens, variable_in
from mail.webhooks import ID, SIGNATURE, TIMESTAMP, secret_key, sign

if TYPE_CHECKING:
    import httpx2

PREFIX = "WEBHOOK_SECRET_"
"""The prefix of variables that `secret_ref` may name; callers must not use other variables of the server."""

MAX_VARIABLE = 128

NOT_PUBLIC = "its address is not public; to allow it, set allow_private_addresses in [server.webhooks]"
NO_PUBLIC_ADDRESS = (
    "its host has no public address; for others, set allow_private_addresses in [server.webhooks]"
)
"""Also the error for a name without any address: callers must not learn which internal names exist."""
ONLY_PRIVATE = "http is only for private addresses; use https"
HTTP_IS_OFF = (
    "http is only for private addresses, where allow_private_addresses in [server.webhooks] allows them"
)

A2A_STATES = {
    TaskStatus.RUNNING: "TASK_STATE_WORKING",
    TaskStatus.PAUSED: "TASK_STATE_INPUT_REQUIRED",
    TaskStatus.COMPLETED: "TASK_STATE_COMPLETED",
    TaskStatus.FAILED: "TASK_STATE_FAILED",
    TaskStatus.CANCELLED: "TASK_STATE_CANCELED",
}
"""The status of a run as push notifications of A2A have it."""


OwnWebhook = Callable[[str, str, bytes], Awaitable[Reply]]
"""Sends an event to a webhook of the server itself: its URL, the id and the body of the event."""


class HTTPWebhooks:
    """`mail.core.task.ports.Webhooks` over HTTP.

    As callers choose the hosts, each request has its own connection, to a checked address. Redirects are not followed,
    proxies not used, and response bodies not read.

    Args:
        secrets: resolves `secret_ref`.

    Attributes:
        allow_private: whether private addresses may be called, then also with http.
        own: sends events to webhooks of the server itself, by the scheme of their URLs; callers can't add such.
    """

    def __init__(
        self,
        documents: ServerDocuments,
        secrets: Tokens,
        clock: Clock,
        *,
        allow_private: bool,
        retry_seconds: Sequence[float] = RETRY_SECONDS,
    ) -> None:
        self._documents = documents
        self._secrets = secrets
        self._clock = clock
        self.allow_private = allow_private
        self._retry_seconds = tuple(retry_seconds)
        self.own: dict[str, OwnWebhook] = {}

    @property
    def retry_seconds(self) -> Sequence[float]:
        """Seconds until the next attempt, after each consecutive failure."""
        return self._retry_seconds

    async def registered(self, caller: str) -> Sequence[Webhook]:
        """Return the webhooks of a caller's tasks."""
        return await self._documents.webhooks(caller)

    async def check(self, webhook: Webhook) -> None:
        """Raise BadRequest for a URL that may not be called, or a missing secret."""
        check_url(webhook.url, allow_private=self.allow_private)
        await self._key(webhook.secret_ref)

    async def link_token(self, secret_ref: str, approval_id: str) -> str:
        """Return the token in the link of an approval."""
        key = await self._key(secret_ref)
        assert key is not None
        own_key = hmac.digest(key, b"link of an approval", "sha256")  # not that of signatures
        return hmac.digest(own_key, approval_id.encode(), "sha256").hex()

    async def send(self, hook: TaskWebhook, event_id: str, body: bytes, *, seconds: float) -> Reply:
        """Send an event to a webhook, within so many seconds."""
        if (own := self.own.get(hook.url.partition(":")[0])) is not None:
            return await own(hook.url, event_id, body)
        try:
            async with asyncio.timeout(seconds):
                headers = await self._headers(hook.secret_ref, event_id, body)
        except BadRequest as error:
            return Reply(None, error.detail)
        except (StoreUnavailable, TimeoutError):
            return Reply(None, "its secret can't be read now")
        if hook.push is not None:
            body, headers = _as_push(body), headers | _push_headers(hook.push)
        return await self.post(hook.url, headers, body, seconds=seconds)

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, *, seconds: float) -> Reply:
        """Send a request to an address that callers may use, within so many seconds."""
        import httpx2

        from mail.public_urls import NoAddress, NotPublic

        try:
            async with asyncio.timeout(seconds):
                if self.allow_private and url.startswith("http:") and not await _is_private(url):
                    return Reply(None, ONLY_PRIVATE)
                async with (
                    self._client() as client,
                    client.stream("POST", url, headers=headers, content=body) as response,
                ):
                    return self._read(response)
        except (NotPublic, NoAddress):
            return Reply(None, NO_PUBLIC_ADDRESS)
        except TimeoutError:
            return Reply(None, f"no answer within {seconds:.3g} seconds")
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, UnicodeError) as error:
            return Reply(None, f"no answer: {str(error) or type(error).__name__}")

    def _client(self) -> "httpx2.AsyncClient":
        import httpx2

        from mail.public_urls import AsyncPublicTransport, tls

        transport = None if self.allow_private else AsyncPublicTransport(verify=tls())
        return httpx2.AsyncClient(
            verify=tls(),
            transport=transport,
            timeout=None,
            trust_env=False,
            follow_redirects=False,
        )

    async def _headers(self, secret_ref: str, event_id: str, body: bytes) -> dict[str, str]:
        timestamp = int(self._clock.now().timestamp())
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "mail-webhooks",
            ID: event_id,
            TIMESTAMP: str(timestamp),
        }
        key = await self._key(secret_ref)
        return headers if key is None else {**headers, SIGNATURE: sign(key, event_id, timestamp, body)}

    async def _key(self, secret_ref: str) -> bytes | None:
        """Return the signing key; None without `secret_ref`. Raises BadRequest, StoreUnavailable."""
        if not secret_ref:
            return None
        variable = variable_in(secret_ref)
        if variable is None or not variable.startswith(PREFIX) or len(variable) > MAX_VARIABLE:
            raise BadRequest(
                f"secret_ref must name a variable of the server, of the form ${{{PREFIX}…}}, and not be the secret"
            )
        secret = await self._secrets.find(variable)
        if not secret:
            raise BadRequest(f"secret_ref: this server has no secret {variable}")
        return secret_key(secret)

    def _read(self, response: "httpx2.Response") -> Reply:
        status = response.status_code
        if 200 <= status < 300:
            return Reply(status)
        redirects = "; redirects are not followed" if 300 <= status < 400 else ""
        after = read_retry_after(response.headers.get("retry-after", ""), self._clock.now())
        return Reply(status, f"it answered {status}{redirects}", after)


def _as_push(body: bytes) -> bytes:
    """Return what the engine says of a run (`push_body`) as a StreamResponse of A2A 1.0: its status, not its answer."""
    about = from_json(body)
    status = {"state": A2A_STATES[TaskStatus(about["status"])], "timestamp": about["timestamp"]}
    return to_json({"statusUpdate": {"taskId": about["id"], "contextId": about["task_id"], "status": status}})


def _push_headers(push: Push) -> dict[str, str]:
    """Return the headers by which the receiver knows a notification."""
    headers = {"Content-Type": "application/a2a+json"}
    if push.token:
        headers["X-A2A-Notification-Token"] = push.token
    if push.scheme:
        headers["Authorization"] = f"{push.scheme} {push.credentials}".strip()
    return headers


def check_url(url: str, *, allow_private: bool) -> None:
    """Raise BadRequest for an invalid or private URL of a webhook, without I/O."""
    try:
        split = urlsplit(url)
        host, port = split.hostname, split.port
    except ValueError as error:
        raise BadRequest(f"the URL of a webhook is not valid: {error}") from error
    if len(url) > MAX_URL:
        raise BadRequest(f"the URL of a webhook is too long: {len(url)} characters, of {MAX_URL} at most")
    if host and not allow_private and is_private(host):
        raise BadRequest(f"this webhook can't be called: {NOT_PUBLIC}")
    schemes = ("https", "http") if allow_private else ("https",)
    if split.scheme not in schemes or not host or port == 0:
        forms = " or ".join(f"{scheme}://host/path" for scheme in schemes)
        why = "" if allow_private or split.scheme != "http" else f"; {HTTP_IS_OFF}"
        raise BadRequest(f"the URL of a webhook must be of the form {forms}{why}")
    if "@" in split.netloc or "#" in url:
        raise BadRequest("the URL of a webhook must contain neither a user nor a fragment")
    if any(character.isspace() or not character.isprintable() for character in url):
        raise BadRequest("the URL of a webhook must not contain spaces or control characters")
    if split.scheme == "http" and is_private(host) is False:
        raise BadRequest(f"this webhook can't be called: {ONLY_PRIVATE}")


async def _is_private(url: str) -> bool:
    """Return whether all addresses of a URL's host are private. Raises OSError if it has none."""
    from mail.public_urls import is_public

    found = await asyncio.get_running_loop().getaddrinfo(host_of(url), None, type=socket.SOCK_STREAM)
    return not any(is_public(str(address[0])) for *_, address in found)
