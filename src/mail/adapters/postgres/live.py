"""Live events between servers, over a channel of LISTEN/NOTIFY of their own.

A server that watches a task announces it, and the servers remember that for a while. So a turn knows from memory
whether to send its events, and none are sent while nobody watches. A server that has just connected asks the others
what they watch.
"""

import asyncio
import logging
from collections.abc import Iterator
from itertools import groupby
from uuid import uuid4

from pydantic_core import from_json, to_json

from mail.adapters.postgres.notifier import PAYLOAD_BYTES, Notifier
from mail.adapters.postgres.pool import Connection, Postgres
from mail.adapters.shared.live import join_deltas
from mail.core.task.live import LiveEvent
from mail.core.task.ports import LiveReceiver
from mail.core.task.task import TaskKey
from mail.errors import StoreUnavailable

CHANNEL = "mail_live"

SEND = "SELECT pg_notify(%s, %s)"

PAUSE_SECONDS = 0.05
"""Seconds between two notifications; each has all events that came meanwhile and fit."""

MANY_EVENTS = 1_000
"""Events that may wait to be sent; further ones are dropped."""

ASK, WATCH, EVENTS = "ask", "watch", "events"

logger = logging.getLogger(__name__)


class PostgresLive:
    """`mail.core.task.ports.LiveLink` between the servers of a database."""

    def __init__(self, postgres: Postgres, notifier: Notifier) -> None:
        self._postgres = postgres
        self._name = uuid4().hex
        self._receiver: LiveReceiver | None = None
        self._watched: dict[tuple[TaskKey, bool], float] = {}
        self._waiting: list[tuple[TaskKey, LiveEvent]] = []
        self._sending: asyncio.Task[None] | None = None
        self._answering: set[asyncio.Task[None]] = set()
        notifier.at_connect.append(self._connected)
        notifier.other_channels[CHANNEL] = self._take

    def attach(self, receiver: LiveReceiver) -> None:
        self._receiver = receiver

    async def announce(self, key: TaskKey, *, seconds: float, deltas: bool) -> None:
        now = asyncio.get_running_loop().time()
        self._watched = {each: until for each, until in self._watched.items() if until > now}
        self._watched[key, deltas] = now + seconds
        try:
            await self._postgres.fetch(SEND, (CHANNEL, self._watch(key, seconds, deltas=deltas)))
        except StoreUnavailable:
            logger.warning("other servers could not be asked for the live events of a task")

    def publish(self, key: TaskKey, event: LiveEvent) -> None:
        if len(self._waiting) >= MANY_EVENTS:
            return
        self._waiting.append((key, event))
        if self._sending is None:
            self._sending = asyncio.create_task(self._send())

    async def flush(self, key: TaskKey) -> None:
        """Do nothing: a server lives on after a turn."""

    async def close(self) -> None:
        """Send no more."""
        for task in (self._sending, *self._answering):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def _send(self) -> None:
        try:
            while self._waiting:
                events, self._waiting = self._waiting, []
                for key, group in groupby(events, key=lambda each: each[0]):
                    for payload in self._payloads(key, [event for _, event in group]):
                        await self._postgres.fetch(SEND, (CHANNEL, payload))
                await asyncio.sleep(PAUSE_SECONDS)
        except StoreUnavailable:
            logger.warning("live events could not be sent; they are lost")
        finally:
            self._sending = None

    def _payloads(self, key: TaskKey, events: list[LiveEvent]) -> Iterator[str]:
        """Yield as few payloads as possible with these events; leave out events that don't fit into one."""
        head = self._payload(EVENTS, *key)[:-1]
        limit = PAYLOAD_BYTES - len(head.encode())
        size, portion = 0, list[bytes]()
        for event in join_deltas(events):
            encoded = event.encoded
            if len(encoded) > limit:
                continue
            if size + len(encoded) + 1 > limit:
                yield f"{head},[{b','.join(portion).decode()}]]"
                size, portion = 0, []
            portion.append(encoded)
            size += len(encoded) + 1
        if portion:
            yield f"{head},[{b','.join(portion).decode()}]]"

    def _payload(self, kind: str, *fields: object) -> str:
        return to_json([self._name, kind, *fields]).decode()

    def _watch(self, key: TaskKey, seconds: float, *, deltas: bool) -> str:
        return self._payload(WATCH, *key, seconds, deltas)

    async def _connected(self, connection: Connection) -> None:
        """Listen; ask what others watch, and repeat what this server watches: others may have missed it."""
        await connection.execute(f"LISTEN {CHANNEL}")
        await connection.execute(SEND, (CHANNEL, self._payload(ASK)))
        for payload in self._watches():
            await connection.execute(SEND, (CHANNEL, payload))

    def _watches(self) -> list[str]:
        now = asyncio.get_running_loop().time()
        return [
            self._watch(key, until - now, deltas=deltas)
            for (key, deltas), until in self._watched.items()
            if until > now
        ]

    def _take(self, payload: str) -> None:
        try:
            sender, kind, *fields = from_json(payload)
            if sender == self._name or self._receiver is None:
                return
            if kind == WATCH:
                instance, task_id, seconds, deltas = fields
                self._receiver.mark(TaskKey(instance, task_id), seconds=seconds, deltas=deltas)
            elif kind == EVENTS:
                instance, task_id, events = fields
                self._receiver.deliver(
                    TaskKey(instance, task_id), [LiveEvent.decode(each) for each in events]
                )
            elif kind == ASK and (watches := self._watches()):
                task = asyncio.create_task(self._answer(watches))
                self._answering.add(task)
                task.add_done_callback(self._answering.discard)
        except (TypeError, ValueError):  # another version may send more
            logger.debug("a notification can't be read", exc_info=True)

    async def _answer(self, watches: list[str]) -> None:
        try:
            for payload in watches:
                await self._postgres.fetch(SEND, (CHANNEL, payload))
        except StoreUnavailable:
            logger.warning("other servers could not be asked for live events")
