"""A swarm on the real engine: store, queue, runtime and workers, in this process and without HTTP."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from mail.adapters.local.queue import LocalQueue
from mail.adapters.local.workers import LocalWorkers
from mail.adapters.sqlite.backend import SQLiteDocuments
from mail.adapters.sqlite.database import SQLiteDatabase
from mail.adapters.sqlite.files import SQLiteFiles
from mail.adapters.sqlite.store import SQLiteStore
from mail.core.decisions.submit import Submission
from mail.core.engine.documents import ServerDocuments
from mail.core.engine.permits import ModelPermits
from mail.core.engine.runtime import Runtime
from mail.core.engine.watch import Submitted
from mail.core.protocol.address import Principal
from mail.core.protocol.clock import Clock
from mail.core.protocol.message import MAILMessage
from mail.core.task.change import InboxEntry
from mail.core.task.documents import IN_MEMORY
from mail.core.task.events import Event, EventKind
from mail.core.task.leases import Lease
from mail.core.task.ports import Store, read_history
from mail.core.task.swarm import History, SwarmCore
from mail.core.task.task import Task, TaskKey
from mail.testing.clock import FakeClock

TIMEOUT = 60.0
"""Seconds after which a task counts as hung."""


@dataclass(frozen=True)
class Outcome:
    """The end of one generation of a task."""

    submitted: Submitted
    response: MAILMessage
    task: Task
    events: list[Event]

    @property
    def key(self) -> TaskKey:
        return self.submitted.key

    @property
    def answer(self) -> str:
        """The text of the answer."""
        return self.response.message.body

    @property
    def subject(self) -> str:
        return self.response.message.subject

    @property
    def kinds(self) -> list[EventKind]:
        """The kinds of this generation's events, in order."""
        return [event.kind for event in self.events]

    def of(self, kind: EventKind) -> list[Event]:
        """Return the events of one kind."""
        return [event for event in self.events if event.kind is kind]

    @property
    def messages(self) -> list[MAILMessage]:
        """The messages of this generation in order, the finishing message included."""
        return [event.message for event in self.events if event.message is not None]

    def sent_to(self, agent: str) -> list[MAILMessage]:
        """Return the messages to one agent, without broadcasts to all."""
        return [
            message
            for message in self.messages
            if [address.address for address in message.message.recipients] == [agent]
        ]


class Rig:
    """A swarm that runs, with an empty store.

    async with Rig(build_swarm({"supervisor": turns([complete("hi")])})) as rig:
        outcome = await rig.ask("hello")

    Args:
        path: the database file; in memory by default.
        store: an open store of another kind, in place of SQLite; it stays open.
        clock: the source of times and ids; one that is the same in every run by default.
        concurrency: how many turns run at the same time. With 0 none runs until `step` is called.
        turn_seconds: the time limit of a turn.
    """

    def __init__(
        self,
        swarm: SwarmCore,
        *,
        path: str | Path = IN_MEMORY,
        store: Store | None = None,
        clock: Clock | None = None,
        concurrency: int = 64,
        turn_seconds: float = 840.0,
    ) -> None:
        self.swarm = swarm
        self.path = path
        self.clock = clock or FakeClock()
        self.user = Principal(role="user", id="ann", swarm=swarm.name)
        self._given = store
        self._concurrency = concurrency
        self._turn_seconds = turn_seconds

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Open the database, and start the workers."""
        self.database = SQLiteDatabase(self.path)
        self.store: Store = self._given or SQLiteStore(self.database)
        self.queue = LocalQueue(lambda: self.clock.now().timestamp())
        self.runtime = Runtime(
            self.swarm,
            self.store,
            self.queue,
            self.clock,
            turn_seconds=self._turn_seconds,
            files=SQLiteFiles(self.database, self.clock),
            permits=ModelPermits(SQLiteDocuments(self.database), self.clock, self.swarm.model_limits),
            documents=ServerDocuments(SQLiteDocuments(self.database)),
        )
        self.workers = LocalWorkers(self.runtime, self.queue, concurrency=max(1, self._concurrency))
        if self._concurrency:
            await self.workers.start()

    async def stop(self) -> None:
        """Stop the workers, and close the database."""
        if self._concurrency:
            await self.workers.stop(grace=0)
        if isinstance(self.store, SQLiteStore):
            self.store.close()
        self.database.close()

    async def step(self) -> str | None:
        """Run the next turn, of the most urgent message. Return the agent's name, or None if nobody has mail."""
        if not len(self.queue):
            return None
        key, mailbox = await self.queue.take()
        await self.runtime.run_turn(key, mailbox)
        return mailbox

    async def parked(self, key: TaskKey, agent: str) -> Lease:
        """Wait until a turn of an agent is parked; return its park. Fail if it takes too long."""
        async with asyncio.timeout(TIMEOUT):
            while True:
                lease = (await self.store.read_leases(key, now=self.runtime.now())).get(agent)
                if lease is not None and lease.park is not None:
                    return lease
                await asyncio.sleep(0.001)

    async def pass_time(self, seconds: float) -> None:
        """Let time pass by a `FakeClock`, and do what is due then."""
        assert isinstance(self.clock, FakeClock)
        self.clock.advance(seconds)
        await self.runtime.sweep()

    async def restart(self) -> None:
        """Stop, and start again on the same file; what was only in memory is lost."""
        await self.stop()
        await self.start()

    async def submit(
        self, body: str = "hello", *, caller: Principal | None = None, **fields: Any
    ) -> Submitted:
        """Send a user's message; `fields` are those of `Submission`."""
        return await self.runtime.submit(caller or self.user, Submission(body=body, **fields))

    async def outcome(self, submitted: Submitted, seconds: float = TIMEOUT) -> Outcome:
        """Wait for the answer. Fail if the task hangs."""
        try:
            async with asyncio.timeout(seconds):
                response = await self.runtime.wait(submitted)
        except TimeoutError:
            task = await self.store.load(submitted.key)
            events = await self.store.read_events(submitted.key)
            log = "\n".join(f"{event.seq} {event.kind} {event.text}" for event in events)
            raise AssertionError(f"the task hangs: {task!r}\n{log}") from None
        assert response is not None
        task = await self.task(submitted.key)
        events = await self.store.read_events(submitted.key, after=submitted.after)
        return Outcome(submitted, response, task, events)

    async def ask(self, body: str = "hello", **fields: Any) -> Outcome:
        """Send a message and wait for its answer."""
        return await self.outcome(await self.submit(body, **fields))

    async def task(self, key: TaskKey) -> Task:
        """Return a task as it is stored. Fail if there is none."""
        task = await self.store.load(key)
        assert task is not None, f"there is no task {key}"
        return task

    async def history(self, agent: str, key: TaskKey) -> History:
        """Return what an agent remembers of a task."""
        return await read_history(self.store, key, agent)

    async def inbox(self, key: TaskKey) -> list[InboxEntry]:
        """Return the messages that wait in the mailboxes of a task."""
        return await self.store.read_inbox(key)


async def ask_once(swarm: SwarmCore, body: str = "hello", **fields: Any) -> Outcome:
    """Run a swarm in memory until it has answered a message; `fields` are those of `Submission`."""
    async with Rig(swarm) as rig:
        return await rig.ask(body, **fields)
