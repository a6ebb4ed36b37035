"""What `mail server` runs: a swarm, the workers of its tasks, and all that a front door needs to serve it."""

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self

from mail.adapters.local.queue import LocalWorkers, TokenSource
from mail.bootstrap import peers, webhooks
from mail.bootstrap.shared import auth_endpoints, close_models, make_authenticator, read_quotas, serve_swarm
from mail.bootstrap.watched import watch_local
from mail.config import ServerConfig
from mail.core.engine.runtime import Runtime
from mail.core.protocol.clock import SYSTEM_CLOCK, Clock
from mail.core.task.ports import ServerRecords, Store, TurnQueue
from mail.core.task.swarm import SwarmCore
from mail.net import SwarmRegistry
from mail.swarms_json import SwarmEntry
from mail.swarms_json.build import describe_swarm

TURN_GRACE_SECONDS = 10.0
"""How long running turns may go on when the server is told to stop; longer ones are run again after a start."""


class WorkQueue(TurnQueue, TokenSource, Protocol):
    """Both ends of a queue."""


@dataclass(frozen=True, slots=True)
class Backend:
    """Where tasks, records and tokens are.

    Attributes:
        depths: how much waits in this process, to be measured, by what it waits for.
    """

    store: Store
    records: ServerRecords
    queue: WorkQueue
    depths: Mapping[str, Callable[[], float]] = field(default_factory=dict)


class ServerSystem(ABC):
    """A swarm on a database. Subclasses say on which.

    The database is opened, or looked at, when it is made. Between `start` and `stop`, or as an async context
    manager, tasks are worked on. `entry` is what the swarm was built of, where that is known.

    Raises ConfigurationError where the database or the registry's file can't be used.
    """

    def __init__(
        self,
        swarm: SwarmCore,
        config: ServerConfig,
        *,
        entry: SwarmEntry | None = None,
        clock: Clock = SYSTEM_CLOCK,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self.config = config
        self.clock = clock
        self._auth_endpoints = auth_endpoints(environ)
        peers.check(config)
        engine = self._open(swarm)
        self.watched = watch_local(config.telemetry, config.swarm.name, engine.depths)
        self.store = engine.store
        self.records = engine.records
        settings = config.settings
        self.router = peers.local_router(swarm, self.records, config, clock, environ)
        self.webhooks = webhooks.local_webhooks(self.records, config, clock, environ)
        self.runtime = Runtime(
            swarm,
            self.store,
            engine.queue,
            clock,
            turn_seconds=settings.turn_seconds,
            peers=self.router,
            hop_limit=config.interswarm.hop_limit,
            quotas=read_quotas(config),
            observers=self.watched.observers,
            tracer=self.watched.tracer,
            webhooks=self.webhooks,
        )
        self.served = serve_swarm(self.runtime, self.records, config, entry or describe_swarm(swarm))
        self._workers = LocalWorkers(self.runtime, engine.queue, concurrency=settings.turn_concurrency)
        self._resources = AsyncExitStack()
        self.authenticator = make_authenticator(self._auth_endpoints, self.records, self._resources)

    @abstractmethod
    def _open(self, swarm: SwarmCore) -> Backend:
        """Open the configured database. Raises ConfigurationError."""

    @abstractmethod
    async def _close(self) -> None:
        """Close it."""

    @property
    def swarm(self) -> SwarmCore:
        """The swarm that runs."""
        return self.runtime.swarm

    @property
    def issues_tokens(self) -> bool:
        """Whether callers show tokens that this server has issued, and not keys of an external service."""
        return self._auth_endpoints is None

    @property
    def registry(self) -> SwarmRegistry:
        """The other swarms that the server knows."""
        return self.router.swarm_registry

    def listens(self, host: str, url: str) -> None:
        """Say where the server listens, and by which URL it is reached; to be called before `start`."""
        peers.listens(self.router, self.config, host, url)

    async def start(self) -> None:
        """Take up the tasks that an earlier process left, and work on whatever comes."""
        await self.served.refresh()
        await self.router.start()
        await self._workers.start()

    async def stop(self, grace: float = TURN_GRACE_SECONDS) -> None:
        """Begin no new turn, give the running ones `grace` seconds, and close everything."""
        try:
            await self._workers.stop(grace)
            await self.router.stop()
            await close_models()
        finally:
            await self._resources.aclose()
            await self._close()
            await asyncio.to_thread(self.watched.close)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
