"""A program that the crash test kills: its agent calls one tool of an MCP server, `python mcp_crash.py FOLDER TOOL`."""

import asyncio
import sys
from pathlib import Path
from typing import Any

from support.services.mcp_program import COMMAND
from support.services.templates import agent, template

from mail.testing.agents import View, call, complete


async def main(folder: Path, tool: str) -> None:
    """Run the task `t` to its end, from wherever an earlier process has left it; print the answer."""

    def hang_then_tell(view: View) -> list[Any]:
        if not view.results:
            return [call(tool, text="x")]
        return [complete(view.results[0])]

    desk = {**COMMAND, "args": [*COMMAND["args"], str(folder / "journal")]}
    lead = agent("lead", hang_then_tell, supervises=True, mcp={"desk": desk})
    swarm = template(lead).instantiate({}, user_id="ann", database=str(folder / "mail.db"))
    runtime = swarm.runtime
    if await runtime.load_task("t") is None:
        await runtime.post(body="Work", task_id="t")
    async with runtime.at_work():
        # begun by another process
        while (await runtime.load_task("t")).is_running:  # type: ignore[union-attr]  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    print((await runtime.read_messages("t"))[-1].message.body)
    await swarm.shutdown()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
