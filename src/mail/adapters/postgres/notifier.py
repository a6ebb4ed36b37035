"""Notifications between processes over LISTEN/NOTIFY, by topic.

A notification is a hint and may be lost, for example while the connection is down, so that every waiter also polls. They
are sent in batches after the transaction that they are about, and not in it: a commit that notifies holds a lock of the
whole database until it is on disk.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from uuid import UUID, uuid4

import psycopg

from mail.adapters.postgres.pool import Connection, Postgres, one_line
from mail.errors import StoreUnavailable

CHANNEL = "mail"

POLL_SECONDS = 3.0
"""The longest time between two polls of a waiter."""

PAYLOAD_BYTES = 7_000
"""The size limit of a payload; that of PostgreSQL is 8,000."""

RECONNECT_SECONDS = 1.0

SERVER_KEEPALIVE = {"tcp_keepalives_idle": "10", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3"}
"""With these, PostgreSQL notices within half a minute that the machine of a session is gone."""

logger = logging.getLogger(__name__)

AtConnect = Callable[[Connection], Awaitable[None]]


class Subscription:
    """A waiter's subscription to a topic."""

    def __init__(self) -> None:
        self._notified = asyncio.Event()

    async def wait(self, seconds: float) -> None:
        """Wait for a notification since the last call, for the next poll, or until the time is up."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._notified.wait(), min(seconds, POLL_SECONDS))
        self._notified.clear()

    def notify(self) -> None:
        """Wake the waiter."""
        self._notified.set()


class Notifier:
    """The notifications of one database, between `start` and `stop`; otherwise only those of this process.

    Attributes:
        at_connect: run on the listening connection each time that it is made. It stays open while the process lives.
    """

    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres
        self._name = uuid4().hex
        self._waiting: defaultdict[str, set[Subscription]] = defaultdict(set)
        self._to_send: dict[str, None] = {}
        self._sending: asyncio.Task[None] | None = None
        self._listening: asyncio.Task[None] | None = None
        self._connected = asyncio.Event()
        self.at_connect: list[AtConnect] = []

    async def start(self) -> None:
        """Listen. Retry until there is a connection, then return."""
        self._listening = asyncio.create_task(self._listen())
        await self._connected.wait()

    async def stop(self) -> None:
        """Send what is left, and stop listening."""
        if self._sending is not None:
            await self._sending
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
            self._listening = None

    @contextmanager
    def subscribe(self, topic: str) -> Iterator[Subscription]:
        """Subscribe to a topic. Check the condition to wait for after subscribing, not before."""
        subscription = Subscription()
        self._waiting[topic].add(subscription)
        try:
            yield subscription
        finally:
            self._waiting[topic].discard(subscription)
            if not self._waiting[topic]:
                del self._waiting[topic]

    def notify(self, *topics: str) -> None:
        """Wake all waiters of these topics: those in this process immediately, the rest soon."""
        self._wake(topics)
        self._to_send |= dict.fromkeys(topics)
        if self._sending is None and self._listening is not None:
            self._sending = asyncio.create_task(self._send())

    def _wake(self, topics: Iterable[str]) -> None:
        for topic in topics:
            for subscription in self._waiting.get(topic, ()):
                subscription.notify()

    async def _send(self) -> None:
        try:
            while self._to_send:
                topics, self._to_send = self._to_send, {}
                for payload in _payloads(self._name, topics):
                    await self._postgres.fetch("SELECT pg_notify(%s, %s)", (CHANNEL, payload))
        except StoreUnavailable:
            logger.warning("notifications could not be sent; other servers will find the changes by polling")
        finally:
            self._sending = None

    async def _listen(self) -> None:
        is_logged = False
        while True:
            try:
                connection = await self._postgres.connect()
                async with connection:
                    for name, value in SERVER_KEEPALIVE.items():
                        await connection.execute("SELECT set_config(%s, %s, false)", (name, value))
                    await connection.execute(f"LISTEN {CHANNEL}")
                    for act in self.at_connect:
                        await act(connection)
                    self._connected.set()
                    is_logged = False
                    self._wake([*self._waiting])  # notifications may have been missed
                    async for notification in connection.notifies():
                        sender, *topics = notification.payload.split(",")
                        if sender != self._name:
                            self._wake(topics)
            except psycopg.Error as error:
                if not is_logged:
                    logger.warning(
                        "%s: no connection for notifications: %s", self._postgres.name, one_line(error)
                    )
                is_logged = True
            await asyncio.sleep(RECONNECT_SECONDS)


def _payloads(sender: str, topics: Iterable[str]) -> Iterator[str]:
    """Return as few payloads as possible, each with the name of the sender and topics."""
    payload = sender
    for topic in topics:
        if len(payload) + len(topic) >= PAYLOAD_BYTES:
            yield payload
            payload = sender
        payload += f",{topic}"
    yield payload


def change_topic(number: UUID) -> str:
    """Return the topic that each commit of a task notifies."""
    return f"c{number.hex}"


def ending_topic(number: UUID) -> str:
    """Return the topic that each commit notifies that ends a generation of a task."""
    return f"e{number.hex}"


def wake_topic(swarm: str, *, is_delivery: bool) -> str:
    """Return the topic of wake-ups for a swarm's agents, or for its outbound mail."""
    return f"{'d' if is_delivery else 'w'}{sha256(swarm.encode()).hexdigest()[:32]}"
