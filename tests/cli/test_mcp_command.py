"""`mail mcp`, started by the client of the official SDK."""

from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from support.processes.server import MAIL, ServerProcess, environment, run_mail


def started(folder: Path, *arguments: str) -> Any:
    """The transport of a client that starts the command."""
    command, *words = MAIL
    return stdio_client(
        StdioServerParameters(
            command=command, args=[*words, "mcp", *arguments], cwd=folder, env=environment()
        )
    )


async def ask(client: Client, message: str) -> str:
    """The answer of the example swarm."""
    result = await client.call_tool("supervisor", {"message": message})
    assert not result.is_error
    answer: str = result.structured_content["answer"]
    return answer


@pytest.mark.soak
async def test_a_client_of_each_generation_talks_to_a_server_through_it(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        told: list[str | None] = []

        async def progress(_progress: float, _total: float | None, message: str | None) -> None:
            told.append(message)

        for mode in ("auto", "legacy"):
            async with Client(started(tmp_path, server.url), mode=mode, cache=None) as client:
                assert "84" in await ask(client, "12*(3+4)")
                await client.call_tool(
                    "supervisor", {"message": "weather in Tokyo"}, progress_callback=progress
                )
                assert told
                told.clear()
                with pytest.raises(MCPError, match="no tool"):
                    await client.call_tool("unknown", {})
                listed = (await client.list_resources()).resources
                assert (await client.read_resource(listed[0].uri)).contents


@pytest.mark.soak
async def test_a_server_may_be_restarted_meanwhile(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        server.flags = ("--port", server.url.rpartition(":")[2])
        async with Client(started(tmp_path, server.url), cache=None) as client:
            assert server.stop() == 0
            server.start()  # with other keys
            assert "84" in await ask(client, "12*(3+4)")
            assert server.stop() == 0
            with pytest.raises(MCPError, match="cannot connect"):
                await client.list_tools()
            server.start()
            assert "84" in await ask(client, "12*(3+4)")


def test_mistakes(tmp_path: Path) -> None:
    wrong = run_mail("mcp", "--server", "nonsense://x", cwd=tmp_path)
    assert (wrong.returncode, "the URL names no server" in wrong.stderr) == (2, True)
