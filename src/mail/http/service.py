"""The service behind the routes: a swarm's runtime and its settings, as wired by `bootstrap`."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import field
from importlib import import_module
from importlib.util import find_spec
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from fastapi import Request

from mail.auth.keys import Authenticator
from mail.core.engine.documents import ServerDocuments
from mail.core.engine.runtime import Runtime
from mail.core.engine.telemetry import NO_TRACER, Tracer
from mail.core.protocol.values import value
from mail.core.task.audit import AuditEntry
from mail.errors import MAILError, NotInstalled, RateLimited, Unauthenticated
from mail.http.account import Account, Holding
from mail.http.conversations import Conversations
from mail.http.rates import RateLimiter

logger = logging.getLogger(__name__)

if TYPE_CHECKING:  # what `bootstrap` hands over
    from mail.adapters.telemetry.prometheus import PrometheusMetrics
    from mail.auth.oidc import JWTAuthenticator
    from mail.mail2.host import MailHost
    from mail.net.peers import Registry
    from mail.swarms_json.current import CurrentSwarm


class StopSignal:
    """Ends waits on behalf of clients, so that a server can stop without delay; tasks continue."""

    def __init__(self) -> None:
        self._waits: set[asyncio.Timeout] = set()
        self._is_set = False

    def set(self) -> None:
        """Signal that the server stops. Call it on the event loop that serves."""
        self._is_set = True
        for wait in self._waits:
            wait.reschedule(asyncio.get_running_loop().time())

    def cuts_short(self) -> AbstractAsyncContextManager[None]:
        """Raise TimeoutError inside the block when the signal is set."""
        return _Wait(self._waits, is_over=self._is_set)


class _Wait(AbstractAsyncContextManager[None]):
    """A block that is among the `waits` while it runs; it raises TimeoutError if it `is_over` before it begins."""

    __slots__ = ("_timeout", "_waits")

    def __init__(self, waits: set[asyncio.Timeout], *, is_over: bool) -> None:
        if is_over:
            raise TimeoutError
        self._waits = waits
        self._timeout = asyncio.Timeout(None)

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()
        self._waits.add(self._timeout)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._waits.discard(self._timeout)
        await self._timeout.__aexit__(kind, error, trace)


CHECK_SECONDS = 1.0
"""Seconds between two checks of the keys of open streams, which the authenticator caches."""


class OpenStreams:
    """Ends the streams whose keys are refused meanwhile: one task checks all keys while any stream is open."""

    def __init__(self) -> None:
        self._streams: defaultdict[str, set[StopSignal]] = defaultdict(set)
        self._checks: asyncio.Task[None] | None = None
        self._wake_up: asyncio.Event | None = None

    @asynccontextmanager
    async def watched(self, authenticator: Authenticator, bearer: str) -> AsyncGenerator[StopSignal]:
        """Yield the signal that the key of a stream is refused."""
        signal = StopSignal()
        self._streams[bearer].add(signal)
        if self._checks is None:
            self._wake_up = asyncio.Event()
            self._checks = asyncio.create_task(self._check(authenticator, self._wake_up))
        try:
            yield signal
        finally:
            self._streams[bearer].remove(signal)
            if not self._streams[bearer]:
                del self._streams[bearer]
            if not self._streams and self._checks is not None:
                self._checks.cancel()
                self._checks = None

    def check_now(self) -> None:
        """Check all keys, as one was revoked."""
        if self._wake_up is not None:
            self._wake_up.set()

    async def _check(self, authenticator: Authenticator, wake_up: asyncio.Event) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(CHECK_SECONDS):
                    await wake_up.wait()
            wake_up.clear()
            for bearer in list(self._streams):
                try:
                    await authenticator.authenticate(bearer)
                except Unauthenticated:
                    for signal in self._streams.get(bearer, ()):
                        signal.set()
                except Exception as error:  # the outermost loop
                    if not isinstance(error, MAILError):  # else it can't be checked now
                        logger.exception("the key of a stream can't be checked")


PAGE_BYTES = 16 * 1024 * 1024
"""The size of tasks after which a page of them ends, where answers are streamed."""

UNCOUNTED_SECONDS = 25.0
"""Seconds that a request may wait before it counts as a stream; as long as behind an HTTP API, so that few do."""

RESPONSE_MARGIN = 3.0
"""Seconds reserved at the end of a request for sending the response."""


def unlimited(_request: Request) -> float | None:
    """Return None: requests have no time limit."""
    return None


class RequestObserver(Protocol):
    """Measures requests."""

    def request_ended(self, method: str, route: str, status: int, seconds: float) -> None:
        """Report a request that has ended. `route` is its pattern; `seconds` include a whole stream."""


@value
class Service:
    """A swarm's runtime, and the settings for serving it.

    Attributes:
        documents: everything that is stored besides tasks.
        started: start of the server, in seconds since the epoch.
        max_body_bytes: size limit of request bodies.
        open_streams: ends streams whose keys are refused.
        heartbeat: seconds of silence after which a stream sends a ping.
        audit_seconds: seconds after which entries of the audit are deleted; None for never.
        audited_reads: the reads of this process that are in the audit, and until when they need no further entry.
        break_glass: whether admins may read the tasks of others.
        debug: whether to serve the endpoints for developers.
        stopping: set when the server begins to shut down, before it waits for open connections.
        time_left: returns the seconds until a request is cut off; None for no limit.
        stream_seconds: seconds after which a stream that its client can resume ends; None for no limit but that.
        stream_url: base URL of a server that streams better than this one, if there is one.
        card_key: the path of the private key that signs the agent card of A2A; empty for none.
        issues_tokens: whether the server issues its tokens itself, and not an external service.
        identity: authenticates the tokens of an identity provider, if there is one.
        served: the runtime's swarm, if it can be dumped and replaced.
        registry: the other swarms, if this server has a registry.
        page_bytes: the size of tasks after which a page of them ends.
        max_answer_bytes: the largest answer that can be sent, where answers are buffered; None for any size.
        account: what requests hold.
        conversations: the readers of conversations.
        rates: limits the rates of requests.
        mail_host: returns the host of MAIL 2.0 for a request; None for a process that doesn't serve it.
        observers: measure requests.
        tracer: traces requests.
        metrics: the server's metrics, if it collects them.
        metrics_are_public: whether `GET /metrics` needs no key.
    """

    runtime: Runtime
    documents: ServerDocuments
    authenticator: Authenticator
    started: float
    forget_keys: Callable[[], None] = lambda: None
    max_body_bytes: int = 4 * 1024 * 1024
    heartbeat: float = 15.0
    audit_seconds: float | None = None
    break_glass: bool = False
    audited_reads: dict[AuditEntry, float] = field(default_factory=dict)
    debug: bool = False
    stopping: StopSignal = field(default_factory=StopSignal)
    open_streams: OpenStreams = field(default_factory=OpenStreams)
    time_left: Callable[[Request], float | None] = unlimited
    stream_seconds: float | None = None
    stream_url: str = ""
    card_key: str = ""
    issues_tokens: bool = True
    identity: "JWTAuthenticator | None" = None
    served: "CurrentSwarm | None" = None
    registry: "Registry | None" = None
    page_bytes: int = PAGE_BYTES
    max_answer_bytes: int | None = None
    account: Account = field(default_factory=Account)
    conversations: Conversations = field(default_factory=Conversations)
    rates: RateLimiter = field(default_factory=RateLimiter)
    mail_host: "Callable[[Request], Awaitable[MailHost]] | None" = None
    observers: Sequence[RequestObserver] = ()
    tracer: Tracer = NO_TRACER
    metrics: "PrometheusMetrics | None" = None
    metrics_are_public: bool = False

    @property
    def is_observed(self) -> bool:
        """Return whether requests are measured or traced."""
        return bool(self.observers) or self.tracer is not NO_TRACER

    def holding(self, request: Request) -> Holding:
        """Return what a request holds."""
        return self.account.holding(request, self.runtime.pacer)

    def revoke(self) -> None:
        """Check every key again, at once those of open streams, as one was revoked."""
        self.forget_keys()
        self.open_streams.check_now()

    async def refresh(self) -> None:
        """Switch to the most recently loaded swarm, which an admin may have loaded through another process."""
        if self.served is not None:
            await self.served.refresh()

    def wait_limit(self, request: Request) -> float | None:
        """Return the seconds that a request may wait and still be answered in time; None for no limit."""
        left = self.time_left(request)
        return None if left is None else max(0.0, left - RESPONSE_MARGIN)

    async def wait[Answer](
        self,
        request: Request,
        wait: Callable[[float | None], Awaitable[Answer | None]],
        seconds: float | None,
    ) -> Answer | None:
        """Return what a request waits for; None after so many seconds, or when the server stops.

        A long wait counts as a stream of its caller, and ends early if the caller has too many.
        """
        with suppress(TimeoutError, RateLimited):
            async with self.stopping.cuts_short():
                holding, is_short = (
                    self.holding(request),
                    seconds is not None and seconds <= UNCOUNTED_SECONDS,
                )
                if is_short or self.account.permits is None:
                    return await wait(seconds)
                if (answer := await wait(UNCOUNTED_SECONDS)) is not None:
                    return answer
                await holding.share_stream()
                try:
                    return await wait(None if seconds is None else seconds - UNCOUNTED_SECONDS)
                finally:
                    await holding.close_stream()
        return None


async def load(module: str, package: str, protocol: str) -> None:
    """Import what the first request of a protocol needs, in a thread, as that may take seconds.

    Raises NotInstalled without the package of the protocol.
    """
    if find_spec(package) is None:
        extra = protocol.lower().replace("-", "")
        how = f"its operator may run pip install 'mail-serverless[{extra}]'"
        raise NotInstalled(f"this server has no {protocol}: {how}")
    await asyncio.to_thread(import_module, module)


def service_of(request: Request) -> Service:
    """Return the service of the app that handles a request."""
    service: Service = request.scope["app"].service
    return service


def base_url(request: Request) -> str:
    """Return the URL at which other programs reach this server, as far as it is known."""
    registry = service_of(request).registry
    return (registry.local_base_url if registry is not None else "") or str(request.base_url).rstrip("/")


def address_of(request: Request) -> str:
    """Return the address of the client; behind a proxy that uvicorn trusts, the one that the proxy names."""
    return request.client.host if request.client else ""


def header(request: Request, name: bytes) -> str | None:
    """Return a header of a request by its name in lower case, without an exception inside if there is none."""
    for key, text in request.scope["headers"]:
        if key == name:
            return str(text, "latin-1")
    return None
