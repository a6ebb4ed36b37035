"""A program that the test of caching kills: an agent with a system prompt of 20,000 tokens, in a task of many turns."""

import asyncio
import sys
from pathlib import Path
from typing import Any

from mail import Agent, Swarm, action

SYSTEM = "You look up the weather of cities. " + "Say it briefly. " * 5000
"""80 kB."""


@action
async def look_up(city: str) -> str:
    """Look up the weather of a city."""
    return f"It is sunny in {city}. " * 4


def swarm_of(model: str, **options: Any) -> Swarm:
    """A swarm of one agent, which calls the model until its task is complete."""
    lead = Agent("lead", SYSTEM, model=model, actions=[look_up], **options)
    return Swarm(lead, task_message_limit=None)


async def main(folder: Path) -> None:
    """Run the task `t` to its end, from wherever an earlier process has left it."""
    template = swarm_of("anthropic/claude-sonnet-4-5", thinking_budget=2048).template
    swarm = template.instantiate({}, user_id="ann", database=str(folder / "mail.db"))
    runtime = swarm.runtime
    if await runtime.load_task("t") is None:
        await runtime.post(body="Work", task_id="t")
    async with runtime.at_work():
        # begun by another process
        while (task := await runtime.load_task("t")) is None or task.is_running:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    spent = task.usage["lead"]
    print(spent.calls, spent.input_tokens, spent.cached_tokens, spent.cache_write_tokens, spent.cost)
    await swarm.shutdown()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
