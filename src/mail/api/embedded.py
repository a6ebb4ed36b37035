"""A swarm that a program runs in its own process: opens its store, and starts and stops its workers."""

import asyncio
import weakref
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from inspect import CORO_CLOSED, getcoroutinestate
from typing import TYPE_CHECKING, Any, Literal

from mail import bootstrap
from mail.api.overrides import ActionOverrideFunction, silent_swarm, with_actions
from mail.core.engine.runtime import Runtime
from mail.core.task.ports import Peers, Store
from mail.core.task.swarm import SwarmCore
from mail.errors import BadRequest, MAILError

if TYPE_CHECKING:
    from mail.bootstrap.system import LocalSystem

Mode = Literal["continuous", "manual"]


class EmbeddedSwarm:
    """A swarm on the engine, in this process. Its database is opened on first use.

    Attributes:
        print_llm_streams: whether agents print their models' output.
    """

    def __init__(self, swarm: SwarmCore, database: Store | str, *, print_llm_streams: bool) -> None:
        self.print_llm_streams = print_llm_streams
        self.mode: Mode = "continuous"
        self._swarm = swarm
        self._database = database
        self._override: ActionOverrideFunction | None = None
        self._overrides: list[ActionOverrideFunction] = []
        self._run: weakref.ref[Coroutine[Any, Any, None]] | None = None
        self._system: LocalSystem | None = None
        self._peers: Peers | None = None
        self._stopping: asyncio.Future[None] | None = None
        self._is_shut_down = False
        self._blocks = 0
        self._stops_with_blocks = False

    @property
    def swarm(self) -> SwarmCore:
        """The swarm, without overrides; if it is replaced, running tasks continue with the new one."""
        return self._swarm

    @swarm.setter
    def swarm(self, swarm: SwarmCore) -> None:
        self._swarm = swarm
        if self._system is not None:
            runtime = self._system.runtime
            runtime.swarm = replace(self._effective_swarm(), protocol=runtime.swarm.protocol)

    @property
    def peers(self) -> Peers | None:
        """The connection to other swarms; without one, mail to them is returned to its sender."""
        return self._peers

    @peers.setter
    def peers(self, peers: Peers | None) -> None:
        self._peers = peers
        if self._system is not None:
            self._system.runtime.peers = peers

    @property
    def engine(self) -> Runtime:
        """The engine. Raises MAILError after `shutdown`."""
        return self._open().runtime

    @contextmanager
    def overriding(self, override: ActionOverrideFunction | None) -> Iterator[None]:
        """Replace the functions of all actions by a function of the caller inside the block.

        Of several overrides the latest applies; if it returns None, the one before it is called.
        """
        if override is None:
            yield
            return
        self._overrides.append(override)
        self.swarm = self._swarm
        try:
            yield
        finally:
            self._overrides.remove(override)
            self.swarm = self._swarm

    def run_continuous(
        self,
        action_override: ActionOverrideFunction | None = None,
        mode: Mode = "continuous",
        *,
        max_steps: int | None = None,
    ) -> Coroutine[Any, Any, None]:
        """Run until `shutdown`; see `MAILSwarm.run_continuous`."""
        if mode not in ("continuous", "manual"):
            raise BadRequest(f"mode must be 'continuous' or 'manual', not {mode!r}")
        before = None if self._run is None else self._run()
        if before is not None and getcoroutinestate(before) != CORO_CLOSED:
            raise MAILError("run_continuous is running already")
        swarm = self._swarm
        if max_steps is not None:
            swarm = replace(swarm, task_message_limit=max_steps)
        self._open()
        self.mode, self._override = mode, action_override
        self.swarm = swarm
        running = self._run_until_stopped()
        self._run = weakref.ref(running)
        return running

    async def _run_until_stopped(self) -> None:
        if self._is_shut_down:
            return
        system = self._open()
        self._stopping = asyncio.get_running_loop().create_future()
        try:
            if self.mode == "manual":
                await system.stop()
            else:
                await system.start()
            await self._stopping
        finally:
            self._stopping = None
            await system.stop()

    def require_manual(self) -> None:
        """Switch to manual mode. Raises BadRequest if agents already take turns by themselves."""
        if self._open().is_working:
            raise BadRequest(
                "agents of this swarm take turns by themselves; shut it down and use "
                "run_continuous(mode='manual') for steps"
            )
        self.mode = "manual"

    def require_continuous(self) -> None:
        """Raise BadRequest in manual mode, in which agents take turns only on `manual_step`."""
        if self.mode == "manual":
            raise BadRequest(
                "this swarm is in manual mode, in which agents don't answer by themselves: use submit_message_nowait, "
                "and let agents respond with manual_step"
            )

    async def start(self) -> None:
        """Let agents take turns until `shutdown`, except in manual mode."""
        if self.mode == "continuous":
            await self._open().start()

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Let agents take turns during the block, and afterwards only if they did before or other blocks need it."""
        system = self._open()
        if self._blocks == 0:
            self._stops_with_blocks = not system.is_working
        self._blocks += 1
        try:
            await self.start()
            yield
        finally:
            self._blocks -= 1
            if self._blocks == 0 and self._stops_with_blocks:
                await system.stop()

    async def await_queue_empty(self) -> None:
        """Wait until all mail is processed; in manual mode return immediately, as mail waits for steps."""
        await self.start()
        await self._open().idle()

    async def shutdown(self) -> None:
        """Start no new turn, let running ones finish for some seconds, and close all connections."""
        await self._graceful_shutdown()

    async def _graceful_shutdown(self) -> None:
        if self._stopping is not None and not self._stopping.done():
            self._stopping.set_result(None)
        self._is_shut_down = True
        if self._system is not None:
            await self._system.stop()
            self._system.close()

    def _open(self) -> "LocalSystem":
        if self._is_shut_down:
            raise MAILError("this swarm was shut down; instantiate it again")
        if self._system is None:
            self._system = bootstrap.embedded(self._effective_swarm(), database=self._database)
            self._system.runtime.peers = self._peers
        return self._system

    def _effective_swarm(self) -> SwarmCore:
        """Return the swarm with its overrides applied."""
        swarm = self._swarm if self.print_llm_streams else silent_swarm(self._swarm)
        for override in filter(None, (self._override, *self._overrides)):
            swarm = with_actions(swarm, override)
        return swarm
