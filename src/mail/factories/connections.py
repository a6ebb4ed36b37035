"""The HTTP client of each event loop, for the ways to a model that bring none of their own, and what they import."""

import asyncio
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from mail.core.protocol.error_text import missing_package
from mail.errors import AgentUnavailable

if TYPE_CHECKING:
    import httpx2

KEPT = 100
"""Connections that stay open for the next calls; a call beyond any number opens one of its own."""

_clients: "WeakKeyDictionary[asyncio.AbstractEventLoop, httpx2.AsyncClient]" = WeakKeyDictionary()


async def http_client() -> "httpx2.AsyncClient":
    """Return the client of the running loop; makes it in a thread, as it reads certificates."""
    loop = asyncio.get_running_loop()
    client = _clients.get(loop)
    if client is None:
        made = await asyncio.to_thread(_make)
        client = _clients.setdefault(loop, made)
    return client


def _make() -> "httpx2.AsyncClient":
    import httpx2

    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=KEPT)
    return httpx2.AsyncClient(limits=limits, follow_redirects=True)


async def close_http_client() -> None:
    """Close the connections of the running loop, before it ends."""
    client = _clients.pop(asyncio.get_running_loop(), None)
    if client is not None:
        await client.aclose()


def import_modules(modules: Sequence[str], agents: str) -> None:
    """Import modules that the `agents` need. Raises AgentUnavailable."""
    try:
        for module in ("httpx2", *modules):
            import_module(module)
    except ModuleNotFoundError as error:
        raise AgentUnavailable(f"{agents} need {missing_package(error)}") from error


async def import_in_thread(modules: Sequence[str], agents: str) -> None:
    """Do the same in a thread, unless it is done. Raises AgentUnavailable."""
    if any(module not in sys.modules for module in modules):
        await asyncio.to_thread(import_modules, modules, agents)
