"""Servers for tests of the page, on an event loop in a thread of their own: playwright's synchronous API occupies the
test's.
"""

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, Self

import httpx2
from support.processes.http_server import TIMEOUT

from mail.public_urls import tls


class PageServer:
    """Serves while it is entered: what `serving` opens, which sets `url` and `tokens`, the API key of each role."""

    url: str
    tokens: dict[str, str]

    def serving(self) -> AbstractAsyncContextManager[object]:
        """Open the server, in its thread."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        assert self._ready.wait(TIMEOUT)
        return self

    def __exit__(self, *_error: object) -> None:
        self.loop.call_soon_threadsafe(self._over.set)
        self._thread.join(TIMEOUT)

    async def _serve(self) -> None:
        self.loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        try:
            async with self.serving():
                self._ready.set()
                await self._over.wait()
        finally:
            self._ready.set()

    def run[T](self, work: Coroutine[Any, Any, T]) -> T:
        """Run something on the server's event loop, and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(TIMEOUT)

    def client(self, role: str = "user") -> httpx2.Client:
        """A client with the role's token."""
        headers = {"Authorization": f"Bearer {self.tokens[role]}"}
        return httpx2.Client(base_url=self.url, headers=headers, timeout=TIMEOUT, verify=tls())

    def ask(self, body: str, *, role: str = "user", wait: bool = True, **fields: Any) -> str:
        """Send a message, wait for the answer unless `wait` is False, and return the id of the task."""
        headers = {} if wait else {"Prefer": "respond-async"}
        with self.client(role) as client:
            answer = client.post("/message", json={"body": body, **fields}, headers=headers)
        assert answer.status_code < 300, answer.text
        return str(answer.json()["task_id"])
