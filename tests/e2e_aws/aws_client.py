"""A client of the deployed shape that does many things at once."""

import asyncio
import json
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

import httpx2

from mail.local_aws.system import LocalAws

PARALLEL = 8

UNAVAILABLE = {"message": "Service Unavailable"}
"""What an HTTP API answers when a function hasn't, after half a minute: on a busy machine, its start takes as long."""


class Crowd:
    """Users of one server, as one account, with at most `parallel` requests at once."""

    def __init__(self, system: LocalAws, *, parallel: int = PARALLEL) -> None:
        headers = {"Authorization": f"Bearer {system.tokens['user']}"}
        self._client = httpx2.AsyncClient(
            base_url=system.url, headers=headers, timeout=httpx2.Timeout(60, pool=None)
        )
        self._turnstile = asyncio.Semaphore(parallel)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def post(self, task_id: str, body: str, *, key: str = "", **fields: Any) -> httpx2.Response:
        """Send a message, and don't wait for the answer of the swarm; returns that of the server.

        With an idempotency `key`, the message may be sent again.
        """
        own = {"Idempotency-Key": key} if key else {}
        async with self._turnstile:
            return await self._client.post(
                "/message",
                json={"task_id": task_id, "body": body, **fields},
                headers={"Prefer": "respond-async", **own},
            )

    async def submit(self, task_id: str, body: str, **fields: Any) -> None:
        """Do the same, and expect that the message is accepted."""
        response = await self.post(task_id, body, **fields)
        assert response.status_code == 202, response.text

    async def record(self, task_id: str) -> dict[str, Any]:
        """The record of a task; asks again where the HTTP API has waited for its function for too long."""
        while True:
            async with self._turnstile:
                response = await self._client.get("/task", params={"task_id": task_id})
            if response.json() != UNAVAILABLE:
                break
        assert response.status_code == 200, response.text
        return dict(response.json())

    async def finish(self, task_ids: Iterable[str], *, seconds: float) -> list[dict[str, Any]]:
        """The records of the tasks, once none of them runs any more."""
        done: dict[str, dict[str, Any]] = {}
        waiting = list(task_ids)
        order = tuple(waiting)
        async with asyncio.timeout(seconds):
            while waiting:
                await asyncio.sleep(1)
                for record in await asyncio.gather(*(self.record(task_id) for task_id in waiting[:PARALLEL])):
                    if not record["is_running"]:
                        done[record["task_id"]] = record
                left = [task_id for task_id in waiting if task_id not in done]
                waiting = left[PARALLEL:] + left[:PARALLEL] if len(left) == len(waiting) else left
        return [done[task_id] for task_id in order]


def answer(record: dict[str, Any]) -> str:
    """How a task ended."""
    last = record["events"][-1]
    return f"{last['event']}: {json.loads(last['data']).get('response')}"
