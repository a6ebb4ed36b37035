"""What the routes serve: handed in once by whoever wired it, and read by every request."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from fastapi import Request

from mail.auth.keys import Authenticator
from mail.core.engine.documents import ServerDocuments
from mail.core.engine.runtime import Runtime
from mail.core.engine.telemetry import NO_TRACER, Tracer
from mail.core.protocol.address import Principal
from mail.core.protocol.values import Value
from mail.core.task.limits import NO_BUDGET, Budget
from mail.http.rates import RateLimiter

if TYPE_CHECKING:
    from mail.swarms_json.live import LiveSwarm


class StopSignal:
    """Cuts short what waits on behalf of clients, so that a stopping server needn't wait for it.

    Only the waiting ends; tasks go on.
    """

    def __init__(self) -> None:
        self._waits: set[asyncio.Timeout] = set()
        self._is_set = False

    def set(self) -> None:
        """The server stops. Call it on the event loop that serves."""
        self._is_set = True
        for wait in self._waits:
            wait.reschedule(asyncio.get_running_loop().time())

    @asynccontextmanager
    async def cuts_short(self) -> AsyncIterator[None]:
        """Raises TimeoutError inside the block once the signal is set."""
        if self._is_set:
            raise TimeoutError
        async with asyncio.timeout(None) as wait:
            self._waits.add(wait)
            try:
                yield
            finally:
                self._waits.discard(wait)


RESPONSE_MARGIN = 3.0
"""What is kept of the time that a request may take, so that its answer still arrives."""


def unlimited(_request: Request) -> float | None:
    """A server that nobody ends."""
    return None


class Registry(Protocol):
    """The other swarms that a server knows."""

    @property
    def local_base_url(self) -> str:
        """By which other swarms reach this server; empty where that is not known."""
        ...

    async def public_endpoints(self) -> Sequence[Value]:
        """The public ones, as everybody may see them: the fields of `mail.http.registry_schemas.SwarmEndpoint`."""
        ...

    async def register_swarm(
        self,
        swarm_name: str,
        base_url: str,
        auth_token: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        volatile: bool | None = None,
        *,
        auth: Literal["bearer", "aws_iam"] = "bearer",
        caller_id: str = "",
    ) -> Value:
        """Register one; the answer's `notes` say what its operator should do. Raises BadRequest."""
        ...

    async def unregister_swarm(self, swarm_name: str) -> bool:
        """Forget one; returns whether it was known."""
        ...


class RequestObserver(Protocol):
    """Is told of the requests that were answered."""

    def request_ended(self, method: str, route: str, status: int, seconds: float) -> None:
        """`route` is the pattern of the route that has answered; `seconds` include the whole of a stream."""
        ...


class MetricsPage(Protocol):
    """What was counted, as a page."""

    @property
    def content_type(self) -> str:
        """Its media type."""
        ...

    def render(self) -> bytes:
        """All of it."""
        ...


@dataclass(frozen=True, slots=True)
class Service:
    """A swarm's runtime, and how to serve it.

    Attributes:
        started: when the server started, in seconds since the epoch.
        max_body_bytes: the largest request body that is read.
        heartbeat: seconds of silence after which a stream sends a ping.
        debug: whether to serve what only developers need.
        stopping: to be set when the server begins to shut down, before it waits for open connections.
        time_left: how many seconds a request may still take before something cuts it off; None for no limit.
        stream_url: the base URL of a server that streams better than this one, if there is one.
        served: the runtime's swarm, where it may be dumped and replaced.
        registry: the other swarms, where this server knows any.
        budgets: what tasks may use up at most, by the role of their owner or by `role:id`.
        rates: how often a caller may ask, where that is limited.
        observers: who measures requests.
        tracer: who follows them.
        metrics: what was counted, where that is kept; `metrics_are_public` where it needs no key.
    """

    runtime: Runtime
    records: ServerDocuments
    authenticator: Authenticator
    started: float
    max_body_bytes: int = 4 * 1024 * 1024
    heartbeat: float = 15.0
    debug: bool = False
    stopping: StopSignal = field(default_factory=StopSignal)
    time_left: Callable[[Request], float | None] = unlimited
    stream_url: str = ""
    served: "LiveSwarm | None" = None
    registry: Registry | None = None
    budgets: Mapping[str, Budget] = field(default_factory=dict)
    rates: RateLimiter | None = None
    observers: Sequence[RequestObserver] = ()
    tracer: Tracer = NO_TRACER
    metrics: MetricsPage | None = None
    metrics_are_public: bool = False

    @property
    def is_observed(self) -> bool:
        """Whether requests are measured or traced."""
        return bool(self.observers) or self.tracer is not NO_TRACER

    def ceiling(self, caller: Principal) -> Budget:
        """What a task of this caller may use up at most."""
        own = self.budgets.get(f"{caller.role}:{caller.id}", NO_BUDGET)
        return own.tightened(self.budgets.get(caller.role, NO_BUDGET))

    async def refresh(self) -> None:
        """Come to the swarm that an admin has loaded through another process, where there may be one."""
        if self.served is not None:
            await self.served.refresh()

    def patience(self, request: Request) -> float | None:
        """How many seconds a request may wait, so that it is answered and not cut off; None for no limit."""
        left = self.time_left(request)
        return None if left is None else max(0.0, left - RESPONSE_MARGIN)


def service_of(request: Request) -> Service:
    """The service that a request is for."""
    service: Service = request.app.state.service
    return service
