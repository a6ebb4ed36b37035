"""Notifications between processes over LISTEN/NOTIFY, by topic.

A notification is a hint and may be lost, for example while the connection is down, so that every waiter also polls.
They are sent in batches after the transaction that they are about, and not in it: a commit that notifies holds a lock
of the whole database until it is on disk.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from typing import Protocol
from uuid import UUID, uuid4

import psycopg

from mail.adapters.postgres.pool import Connection, Postgres, one_line
from mail.errors import StoreUnavailable

CHANNEL = "mail"

POLL_SECONDS = 3.0
"""The longest time between two polls of a waiter."""

PAYLOAD_BYTES = 7_000
"""The size limit of a payload; that of PostgreSQL is 8,000."""

PAUSE_SECONDS = 0.05
"""Seconds between two notifications of changes, each of which names all tasks that have changed meanwhile."""

RECONNECT_SECONDS = 1.0

SERVER_KEEPALIVE = {"tcp_keepalives_idle": "10", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3"}
"""With these, PostgreSQL notices within half a minute that the machine of a session is gone."""

logger = logging.getLogger(__name__)

AtConnect = Callable[[Connection], Awaitable[None]]


class Listener(Protocol):
    """Hears the notifications of a topic."""

    def notify(self, news: object) -> None:
        """Take note of a notification; those of this process may contain the news itself."""


class Subscription:
    """A waiter's subscription to a topic.

    Attributes:
        news: what the last notification contained; None if it came from another process.
    """

    def __init__(self) -> None:
        self.news: object = None
        self._notified = asyncio.Event()

    async def wait(self, seconds: float) -> None:
        """Wait for a notification since the last call, for the next poll, or until the time is up."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._notified.wait(), min(seconds, POLL_SECONDS))
        self._notified.clear()

    def notify(self, news: object) -> None:
        """Wake the waiter."""
        self.news = news
        self._notified.set()


class Notifier:
    """The notifications of one database, between `start` and `stop`; otherwise only those of this process.

    Attributes:
        at_connect: run on the listening connection each time that it is made. It stays open while the process lives.
        other_channels: by the name of a channel that `at_connect` listens on, what gets its payloads.
    """

    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres
        self._name = uuid4().hex
        self._waiting: defaultdict[str, set[Listener]] = defaultdict(set)
        self._to_send: dict[str, None] = {}
        self._sending: asyncio.Task[None] | None = None
        self._listening: asyncio.Task[None] | None = None
        self._connected = asyncio.Event()
        self._urgent = asyncio.Event()
        self._next_notification = 0.0
        self.at_connect: list[AtConnect] = []
        self.other_channels: dict[str, Callable[[str], None]] = {}

    async def start(self) -> None:
        """Listen. Retry until there is a connection, then return."""
        self._listening = asyncio.create_task(self._listen())
        await self._connected.wait()

    async def stop(self) -> None:
        """Send what is left, and stop listening."""
        self._urgent.set()
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
        self.add(topic, subscription)
        try:
            yield subscription
        finally:
            self.remove(topic, subscription)

    def add(self, topic: str, listener: Listener) -> None:
        """Notify a listener of a topic until it is removed."""
        self._waiting[topic].add(listener)

    def remove(self, topic: str, listener: Listener) -> None:
        """Notify a listener no longer."""
        self._waiting[topic].discard(listener)
        if not self._waiting[topic]:
            del self._waiting[topic]

    def has_listener(self, topic: str) -> bool:
        """Return whether this process listens to a topic."""
        return topic in self._waiting

    def notify_here(self, topic: str) -> None:
        """Notify the listeners in this process, and no others."""
        self._wake((topic,))

    def notify(self, topic: str, news: object = None, *, is_urgent: bool = False) -> None:
        """Notify the listeners of a topic: those in this process immediately and with the news, the rest soon.

        Notifications that are not urgent are sent together, with a pause between any two.
        """
        self._wake((topic,), news)
        self._to_send[topic] = None
        if is_urgent:
            self._urgent.set()
        if self._sending is None and self._listening is not None:
            self._sending = asyncio.create_task(self._send())

    def _wake(self, topics: Iterable[str], news: object = None) -> None:
        for topic in topics:
            for listener in self._waiting.get(topic, ()):
                listener.notify(news)

    async def _send(self) -> None:
        try:
            while self._to_send:
                await self._pause()
                topics, self._to_send = self._to_send, {}
                for payload in _payloads(self._name, topics):
                    await self._postgres.fetch("SELECT pg_notify(%s, %s)", (CHANNEL, payload))
        except StoreUnavailable:
            logger.warning("notifications could not be sent; other servers will find the changes by polling")
        finally:
            self._sending = None

    async def _pause(self) -> None:
        """Wait for the end of the pause after the last notification, or for something urgent."""
        loop = asyncio.get_running_loop()
        if (seconds := self._next_notification - loop.time()) > 0:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._urgent.wait(), seconds)
        self._urgent.clear()
        self._next_notification = loop.time() + PAUSE_SECONDS

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
                        if (take := self.other_channels.get(notification.channel)) is not None:
                            take(notification.payload)
                            continue
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


def rows_topic(place: str) -> str:
    """Return the topic that new rows of a place notify."""
    return f"r{sha256(place.encode()).hexdigest()[:32]}"


def wake_topic(swarm: str, *, is_delivery: bool) -> str:
    """Return the topic of wake-ups for a swarm's agents, or for its outbound mail."""
    return f"{'d' if is_delivery else 'w'}{sha256(swarm.encode()).hexdigest()[:32]}"
