"""A store for agents that use LangMem: in PostgreSQL if one is configured, otherwise in this process."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import import_module
from typing import Any

DATABASE_VARIABLE = "DATABASE_URL"
POSTGRES = ("postgres", "postgresql")

Namespace = tuple[str, ...]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Item:
    """A stored value."""

    namespace: Namespace
    key: str
    value: dict[str, Any]
    created_at: datetime
    updated_at: datetime
    score: float | None = None


@dataclass
class InMemoryStore:
    """The core of LangGraph's store interface, without LangGraph.

    It is meant for experiments: it ends with the process, and `query` matches words, not meanings.
    """

    _items: dict[tuple[Namespace, str], Item] = field(default_factory=dict)

    async def aput(self, namespace: Namespace, key: str, value: dict[str, Any]) -> None:
        """Store a value under a key, replacing the present one."""
        now = datetime.now(UTC)
        known = self._items.get((tuple(namespace), key))
        created = known.created_at if known else now
        self._items[tuple(namespace), key] = Item(tuple(namespace), key, dict(value), created, now)

    async def aget(self, namespace: Namespace, key: str) -> Item | None:
        """Return the item under a key; None if there is none."""
        return self._items.get((tuple(namespace), key))

    async def adelete(self, namespace: Namespace, key: str) -> None:
        """Delete a key."""
        self._items.pop((tuple(namespace), key), None)

    async def asearch(
        self, namespace_prefix: Namespace, /, *, query: str | None = None, limit: int = 10, offset: int = 0
    ) -> list[Item]:
        """Return the items in and below a namespace, newest first; with a query, those with most of its words first."""
        prefix = tuple(namespace_prefix)
        found = [item for item in self._items.values() if item.namespace[: len(prefix)] == prefix]
        found.sort(key=lambda item: item.updated_at, reverse=True)
        if query:
            words = query.casefold().split()
            found = sorted(
                (item for item in found if _hits(item, words)),
                key=lambda item: _hits(item, words),
                reverse=True,
            )
        return found[offset : offset + limit]


def _hits(item: Item, words: Iterable[str]) -> int:
    text = str(item.value).casefold()
    return sum(word in text for word in words)


@asynccontextmanager
async def get_langmem_store() -> AsyncIterator[Any]:
    """Open a store for LangMem.

    If DATABASE_URL names a PostgreSQL database it is LangGraph's `AsyncPostgresStore`, with its tables created; that
    needs `langgraph-checkpoint-postgres`. Otherwise, or with a warning without that package, it is LangGraph's
    `InMemoryStore`, or this module's if LangGraph is not installed.
    """
    scheme, separator, rest = os.environ.get(DATABASE_VARIABLE, "").partition("://")
    scheme = scheme.partition("+")[0]  # postgresql+asyncpg:// names a driver, too
    if scheme in POSTGRES and (postgres := await _postgres_store()):
        opening: AbstractAsyncContextManager[Any] = postgres.from_conn_string(scheme + separator + rest)
        async with opening as store:
            await store.setup()
            yield store
        return
    try:
        memory = import_module("langgraph.store.memory")
    except ImportError:
        logger.info(
            "langgraph is not installed; memories stay in this process and are searched by words only"
        )
        yield InMemoryStore()
        return
    yield memory.InMemoryStore()


async def _postgres_store() -> Any:
    """Return LangGraph's store in PostgreSQL; None, with a warning, if it is not installed."""
    try:
        return (await asyncio.to_thread(import_module, "langgraph.store.postgres.aio")).AsyncPostgresStore
    except ImportError:
        logger.warning(
            "%s names a PostgreSQL database, but memories stay in this process: to keep them there, "
            "pip install langgraph-checkpoint-postgres",
            DATABASE_VARIABLE,
        )
        return None
