"""The servers of a round: they are born, die, and are born again; and the wire between those of different swarms."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from itertools import count
from random import Random
from typing import Any

from chaos.faults import DOWN_SECONDS, Faults, Journal, LossyQueue, RoundClock, open_last_attempts_calmly
from chaos.process import ConnectionLost, Process
from chaos.receivers import Receivers, Sender
from chaos.swarm import Swarms
from chaos.worlds import Place, World
from mail.adapters.local.workers import LocalWorkers
from mail.core.engine.runtime import Runtime
from mail.core.protocol.interswarm import MAILInterswarmMessage
from mail.errors import MAILError, PeerRefused, PeerUnavailable, StoreUnavailable
from mail.testing.faults import FaultyPort

TURN_SECONDS = 30.0
SWEEP_SECONDS = 30.0
QUIET_SECONDS = 60.0
"""Tasks in which nothing has happened for so long are swept: as often as the sweeper of a deployment does."""

CONCURRENCY = 8

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Life:
    """One life of a server."""

    process: Process
    runtime: Runtime
    workers: LocalWorkers
    place: Place


class Servers:
    """All servers. What they are asked, one of those that live answers, if there is one."""

    def __init__(self, world: World, swarms: Swarms, faults: Faults, seed: str, journal: Journal) -> None:
        self.faults = faults
        self.receivers = Receivers()
        self._world = world
        self._swarms = swarms.swarms()
        self._seed = seed
        self._journal = journal
        self._living: dict[str, dict[str, Life]] = {name: {} for name in self._swarms}
        self._places: dict[Process, Place] = {}
        self._starting: set[asyncio.Task[None]] = set()
        self._numbers = count()
        self._is_closing = False
        self.deaths: list[str] = []

    @property
    def swarms(self) -> list[str]:
        """The names of the swarms."""
        return list(self._swarms)

    async def open(self) -> None:
        """Start all servers."""
        for swarm in self._swarms:
            for n in range(self._world.servers if swarm == next(iter(self._swarms)) else 1):
                await self._start(swarm, f"{swarm}-{n}")

    def calm(self) -> None:
        """Let nothing go wrong any more."""
        self.faults.is_calm = True

    async def close(self) -> None:
        """Stop all servers, as politely as one does when all work is done."""
        self._is_closing = True
        while self._starting:
            await asyncio.wait(self._starting)
        for lives in self._living.values():
            for life in lives.values():
                await life.process.call(life.workers.stop(grace=TURN_SECONDS))
                life.place.leave()

    async def ask[T](
        self, swarm: str, chance: Random, question: Callable[[Runtime], Coroutine[Any, Any, T]]
    ) -> T:
        """Ask a server of a swarm. Raises ConnectionLost where none is there, or it dies over the question."""
        lives = list(self._living[swarm].values())
        if not lives:
            raise ConnectionLost(swarm)
        life = chance.choice(lives)
        return await life.process.call(question(life.runtime))

    async def _start(self, swarm: str, name: str) -> None:
        """Start a server, as often as it takes."""
        while not self._is_closing:
            number = f"{name}.{next(self._numbers)}"
            chance = Random(f"{self._seed} {number}")
            process = Process(
                number, self.faults.plan(chance), lambda process: self._on_death(process, swarm, name)
            )
            clock = RoundClock(Random(f"{self._seed} {number} ids"), self.faults.skew(chance))
            place = await self._world.enter(process, swarm, clock)
            self._places[process] = place
            port = partial(FaultyPort, points=process.points)
            store: Any = port(
                place.store,
                "store",
                commit=self._journal.commit_to(place.store),
                open_turn=open_last_attempts_calmly(place.store, process.points),
            )
            queue: Any = port(LossyQueue(place.queue, process.points, self.faults, chance), "queue")
            peers: Any = port(Wire(self, swarm, chance), "wire")
            webhooks: Any = port(Sender(self.receivers, self.faults, chance), "webhooks")
            runtime = Runtime(
                self._swarms[swarm],
                store,
                queue,
                clock,
                turn_seconds=TURN_SECONDS,
                peers=peers,
                webhooks=webhooks,
            )
            workers = LocalWorkers(runtime, queue, concurrency=CONCURRENCY)
            try:
                await process.call(workers.start())
            except ConnectionLost:
                return  # `_on_death` starts the next one
            except StoreUnavailable:
                place.leave()
                await asyncio.sleep(1)
                continue
            if process.is_dead:  # it was ready, and died before anybody noticed
                return
            _ = process.spawn(_sweep(runtime))
            self._living[swarm][number] = Life(process, runtime, workers, place)
            return

    def _on_death(self, process: Process, swarm: str, name: str) -> None:
        faults = self.faults
        faults.met["kill"] += 1
        faults.deaths -= 1
        self.deaths.append(f"{process.name} {process.where}")
        self._living[swarm].pop(process.name, None)
        self._places[process].leave()
        start = asyncio.get_running_loop().create_task(self._restart(process, swarm, name), context=Context())
        self._starting.add(start)
        start.add_done_callback(self._starting.discard)

    async def _restart(self, process: Process, swarm: str, name: str) -> None:
        await asyncio.sleep(Random(f"{self._seed} {process.name} down").uniform(0, DOWN_SECONDS))
        await self._start(swarm, name)


async def _sweep(runtime: Runtime) -> None:
    """What is lost otherwise is found by this."""
    while True:
        await asyncio.sleep(SWEEP_SECONDS)
        try:
            await runtime.recover(quiet_for=QUIET_SECONDS)
        except MAILError:
            logger.exception("mailboxes could not be looked at")


class Wire:
    """`mail.core.task.ports.Peers` of a process: other swarms are asked as by HTTP."""

    def __init__(self, servers: Servers, home: str, chance: Random) -> None:
        self._servers = servers
        self._home = home
        self._chance = chance

    async def deliver(self, message: MAILInterswarmMessage, *, back: bool, **_: object) -> str | None:
        """Hand a message over, sometimes twice."""
        runner = await self._hand_over(message, back=back)
        if self._servers.faults.strikes("duplicate", self._chance, 0.1):
            runner = await self._hand_over(message, back=back)
        return runner

    async def _hand_over(self, message: MAILInterswarmMessage, *, back: bool) -> str:
        copy = MAILInterswarmMessage.model_validate_json(message.model_dump_json())
        home = self._home
        try:
            received = await self._servers.ask(
                message.target_swarm, self._chance, lambda runtime: runtime.receive(home, copy, back=back)
            )
        except (ConnectionLost, StoreUnavailable) as error:
            raise PeerUnavailable(str(error)) from error
        except MAILError as error:
            raise PeerRefused(f"{error.http_status}: {error.detail}") from error
        return received.runner

    async def known(self) -> Sequence[str]:
        """All others."""
        return [name for name in self._servers.swarms if name != self._home]

    async def caller_ids(self, swarm: str) -> Sequence[str]:
        """Every swarm's is its name."""
        return (swarm,) if swarm in self._servers.swarms else ()

    async def obstacle(self, swarm: str) -> str:
        """There is none on the way to a swarm that exists."""
        return "" if swarm in self._servers.swarms else "it does not exist"

    async def discover(self, urls: Sequence[str]) -> str:
        """There are no others."""
        return "nothing"
