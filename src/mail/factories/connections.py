"""The HTTP client of each event loop, for the ways to a model that bring none of their own, and what they import."""

import asyncio
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar
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


class ModulePort:
    """What is alike in the ports that import some modules and use this HTTP client.

    Attributes:
        modules: what a call imports, besides the HTTP client.
        agents: the agents that need them, for the error where they are missing.
    """

    modules: ClassVar[Sequence[str]]
    agents: ClassVar[str]

    async def open(self) -> None:
        """Import the modules, in a thread. Raises AgentUnavailable."""
        if any(module not in sys.modules for module in self.modules):
            await asyncio.to_thread(self.preload)

    def preload(self) -> None:
        """Import the modules. Raises AgentUnavailable."""
        try:
            for module in ("httpx2", *self.modules):
                import_module(module)
        except ModuleNotFoundError as error:
            raise AgentUnavailable(f"{self.agents} need {missing_package(error)}") from error

    async def close(self) -> None:
        """Close nothing: the HTTP client belongs to the event loop."""
