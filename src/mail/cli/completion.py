"""What the shell completes beside commands and flags: tasks and agents, which a server knows."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import typer

from mail.cli.session import SERVER_VARIABLE

if TYPE_CHECKING:
    from mail.client import MAILClient

TIMEOUT = 1.0
"""Seconds to wait for the server, as somebody waits at the keyboard."""

NEWEST = 50
"""The newest tasks are completed."""


def complete_tasks(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return the newest tasks that begin with a text, with their titles; none without a server."""
    return _ask(context, incomplete, _tasks)


def complete_agents(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return the agents that begin with a text; none without a server."""
    return _ask(context, incomplete, _agents)


async def _tasks(client: "MAILClient") -> list[tuple[str, str]]:
    tasks = await client.get_tasks(limit=NEWEST, summary=True)
    return [(task_id, str(task.get("title") or task.get("status") or "")) for task_id, task in tasks.items()]


async def _agents(client: "MAILClient") -> list[tuple[str, str]]:
    swarm = await client.get_swarm()
    return [(agent["name"], "") for agent in swarm["agents"] if agent["enable_entrypoint"]]


def _ask(
    context: typer.Context, incomplete: str, ask: Callable[["MAILClient"], Any]
) -> list[tuple[str, str]]:
    import asyncio
    import os

    from mail.cli.connection import connect

    given = context.params
    server = given.get("url") or given.get("server") or os.environ.get(SERVER_VARIABLE)

    async def found() -> list[tuple[str, str]]:
        async with asyncio.timeout(TIMEOUT), connect(server, given.get("api_key"), timeout=TIMEOUT) as client:
            answer: list[tuple[str, str]] = await ask(client)
            return answer

    try:
        return [each for each in asyncio.run(found()) if each[0].startswith(incomplete)]
    except Exception:  # noqa: BLE001 - a shell that completes a word has no room for errors
        return []
