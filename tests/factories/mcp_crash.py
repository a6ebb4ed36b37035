"""A program that the crash test kills: its agent calls one tool of an MCP server, `python mcp_crash.py FOLDER TOOL`."""

import asyncio
import sys
from pathlib import Path
from typing import Any

from support import mcp_desk
from support.api import agent, template

from mail.testing.agents import View, call, complete


async def main(folder: Path, tool: str) -> None:
    """Run the task `t` to its end, from wherever an earlier process has left it; print the answer."""

    def hang_then_tell(view: View) -> list[Any]:
        if not view.results:
            return [call(tool, text="x")]
        return [complete(view.results[0])]

    desk = {"command": sys.executable, "args": [mcp_desk.__file__, str(folder / "journal")]}
    lead = agent("lead", hang_then_tell, supervises=True, mcp={"desk": desk})
    swarm = template(lead).instantiate({}, user_id="ann", database=str(folder / "mail.db"))
    runtime = swarm.runtime
    async with runtime.at_work():
        if await runtime.load_task("t") is None:
            answer, _ = await swarm.post_message("Work", task_id="t")
            print(answer["message"]["body"])
        while (task := await runtime.load_task("t")) is None or task.is_running:
            await asyncio.sleep(0.01)
    events = await swarm.get_task_events("t") if hasattr(swarm, "get_task_events") else []
    print(task.status, events)
    await swarm.shutdown()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
