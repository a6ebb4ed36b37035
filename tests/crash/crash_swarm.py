"""Processes of one swarm that meet each other: the leases of dead ones still hold, or two work at the same time."""

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from crash_checks import asked_again, in_the_end, what_was_left
from crash_clients import ANN, Clients
from crash_points import append_line, read_lines
from crash_process import Life
from crash_scenario import TASK_ID
from crash_worlds import AheadClock

from chaos.invariants import Found
from mail.adapters.local.queue import LocalQueue
from mail.core.protocol.message import Tier
from mail.core.task.change import Turn
from mail.core.task.leases import Lease
from mail.core.task.ports import Busy, Idle, WakeUp
from mail.core.task.task import TaskKey

GLANCE_SECONDS = 0.02
"""Seconds between two looks at what other processes have done."""

RESTRAINT_SECONDS = 0.3
"""Seconds for which an heir must not touch the leased mailbox."""

QUIET_SECONDS = 60.0
"""Seconds after which idle tasks are swept."""


@dataclass
class Heir(Life):
    """A process that starts while the lease of a dead one holds: it must wait until that expires, then take over."""

    refused: asyncio.Event = field(default_factory=asyncio.Event)

    async def _serve_clients(self) -> None:
        await asyncio.gather(super()._serve_clients(), self._wait_for_lease())

    async def _wait_for_lease(self) -> None:
        await self.refused.wait()
        await asyncio.sleep(RESTRAINT_SECONDS)
        task = await self.inner.load(TaskKey(str(ANN), TASK_ID))
        if task is None or self._leased not in task.pending:
            self.violations.append(f"the mail of {self._leased} is gone: {task}")
        self.clock.advance(self.world.lease_seconds)
        await self.runtime.recover(quiet_for=QUIET_SECONDS)

    async def _open_turn(
        self, key: TaskKey, mailbox: str, lease: Lease, *, now: float, history_after: int
    ) -> Turn | Busy | Idle:
        is_early = not self.clock.ahead
        opened = await super()._open_turn(key, mailbox, lease, now=now, history_after=history_after)
        if is_early and (key.instance, mailbox) == (str(ANN), self._leased):
            self.refused.set()
            if not isinstance(opened, Busy):
                self.violations.append(f"{mailbox} is leased by the dead, but what was opened is {opened}")
        return opened

    @property
    def _leased(self) -> str:
        """Whose turn it was when the last one died: it stands in the name of the point, `label [ann scout ...]`."""
        return read_lines(self.logs.deaths)[-1].partition(" [")[2].split()[1]


class SharedClock(AheadClock):
    """One clock for all processes of a run."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "clock"
        if not self._path.exists():
            self._path.write_text("0.0")

    @property
    def ahead(self) -> float:
        return float(self._path.read_text())

    def advance(self, seconds: float) -> None:
        new = self._path.with_suffix(".new")
        new.write_text(str(self.ahead + seconds))
        new.rename(self._path)


class SharedQueue(LocalQueue):
    """A queue that hands every wake-up to both twins, so that they compete for the same mail."""

    def __init__(self, folder: Path, name: str, clock: Callable[[], float]) -> None:
        super().__init__(clock)
        path = folder / f"queue-{name}"
        path.unlink(missing_ok=True)
        self._others = [folder / f"queue-{other}" for other in TWINS if other != name]
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind(str(path))
        asyncio.get_running_loop().add_reader(self._socket, self._receive)

    async def publish(self, wake_ups: Sequence[WakeUp]) -> None:
        await super().publish(wake_ups)
        for wake_up in wake_ups:
            text = json.dumps([*wake_up.key, wake_up.mailbox, wake_up.tier]).encode()
            for other in self._others:
                with suppress(OSError):  # nobody is there
                    self._socket.sendto(text, str(other))

    def _receive(self) -> None:
        instance, task_id, mailbox, tier = json.loads(self._socket.recv(65536))
        self.put(WakeUp(TaskKey(instance, task_id), mailbox, Tier(tier)))


@dataclass
class Twin(Life):
    """One of two processes on one table; each serves one of the people, and both work for both."""

    name: str = ""

    async def _live(self) -> None:
        async with self.world.open(self.points, self.clock) as self.inner:
            queue = self.world.queue()
            await self._serve(SharedQueue(self.folder, self.name, self.late) if queue is None else queue)

    async def _serve_clients(self) -> None:
        sweeper = asyncio.create_task(self._sweep())
        await TWINS[self.name](self.clients)
        append_line(self.logs.served, self.name)
        while not TWINS.keys() <= {*read_lines(self.logs.served)}:  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(GLANCE_SECONDS)
        sweeper.cancel()

    async def _sweep(self) -> None:
        """Recover what dead processes have left, when their leases expire."""
        seen = self.clock.ahead
        while True:
            await asyncio.sleep(GLANCE_SECONDS)
            if self.clock.ahead > seen:
                seen = self.clock.ahead
                await self.runtime.recover(quiet_for=QUIET_SECONDS)

    async def _check_order(self, turn: Turn) -> None:
        """What was in the mailbox can't be told any more: the lease may have gone to the other one meanwhile."""


TWINS: dict[str, Callable[[Clients], Awaitable[None]]] = {"ann": Clients.be_ann, "bob": Clients.be_bob}


@dataclass
class Inspector(Life):
    """Looks at what the twins have left. Agents may have been asked twice: by a process whose lease had expired."""

    async def _live(self) -> None:
        await self._check_the_end()

    def _find_faults_in_the_end(self, found: Found, owner: str) -> Iterator[str]:
        yield from what_was_left(found, self.logs, owner)
        if not self.deaths:
            yield from asked_again(self.logs)
        yield from in_the_end(found, self.logs, owner, self.deaths)
