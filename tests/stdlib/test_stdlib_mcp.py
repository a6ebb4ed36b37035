"""The actions of mail.stdlib.mcp, asked of a real server over both transports."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from support.processes.http_server import QuickUvicorn, eventually
from support.services import mcp_desk
from support.services.mcp_program import COMMAND

from mail.core.turns.context import TURN, TurnContext
from mail.errors import ConfigurationError, ToolCallFault
from mail.mcp import connection, results
from mail.stdlib.mcp.actions import (
    mcp_call_tool,
    mcp_get_prompt,
    mcp_list_prompts,
    mcp_list_resources,
    mcp_list_servers,
    mcp_list_tools,
    mcp_ping,
    mcp_read_resource,
)
from mail.utils.outcomes import ActionFailed

pytestmark = pytest.mark.full

PROGRAM = {"command": sys.executable, "args": [mcp_desk.__file__]}


@pytest.fixture
def set_up(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets up named servers."""

    def set_up(**servers: Any) -> None:
        monkeypatch.setenv("MAIL_MCP_SERVERS", json.dumps({"mcpServers": servers}))

    return set_up


@pytest.fixture
async def endpoint() -> AsyncIterator[str]:
    """The URL of the server over streamable HTTP."""
    async with mcp_desk.serving(mcp_desk.desk()) as url:
        yield url


@pytest.fixture(params=["stdio", "http", "url"])
async def toolbox(
    request: pytest.FixtureRequest, set_up: Any, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[str]:
    """The server as agents may name it: a program of the operator's, a URL of the operator's, a URL of their own."""
    if request.param == "stdio":
        set_up(toolbox=PROGRAM)
        yield "toolbox"
        return
    async with mcp_desk.serving(mcp_desk.desk()) as url:
        if request.param == "http":
            set_up(toolbox={"type": "http", "url": url})
            yield "toolbox"
        else:
            monkeypatch.setenv("MAIL_STDLIB_HTTP_ALLOW_PRIVATE", "1")
            yield url


def children() -> set[str]:
    """The ids of the processes that this one has started, and that have not been waited for."""
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


@pytest.mark.soak(on="stdio")
async def test_everything(toolbox: str, run: Any, told: Any) -> None:
    """All that there is to ask, of each kind of server."""
    pinged = await run(mcp_ping, server=toolbox)
    assert (pinged["name"], pinged["version"], pinged["instructions"]) == ("desk", "7.1", "Use the tools.")
    assert {"tools", "resources", "prompts"} <= set(pinged["capabilities"])
    tools = {tool["name"]: tool for tool in (await run(mcp_list_tools, server=toolbox))["tools"]}
    assert tools["add"]["description"] == "Add whole numbers."
    assert tools["add"]["input_schema"]["required"] == ["a", "b"]
    added = await run(mcp_call_tool, server=toolbox, tool="add", arguments={"a": 2, "b": 3})
    assert added["structured_content"] == {"total": 5, "parts": [2, 3]}
    assert json.loads(added["content"][0]["text"]) == {"total": 5, "parts": [2, 3]}
    failed = await told(
        ActionFailed, mcp_call_tool, server=toolbox, tool="fail", arguments={"reason": "rain"}
    )
    assert "no luck: rain" in failed
    resources = await run(mcp_list_resources, server=toolbox)
    assert [each["uri"] for each in resources["resources"]] == ["notes://today", "notes://icon"]
    assert [each["uri_template"] for each in resources["templates"]] == ["notes://{day}/list"]
    today = await run(mcp_read_resource, server=toolbox, uri="notes://today")
    assert today == {"contents": [{"uri": "notes://today", "mime_type": "text/plain", "text": "Buy tea."}]}
    prompts = (await run(mcp_list_prompts, server=toolbox))["prompts"]
    assert [(each["name"], [argument["name"] for argument in each["arguments"]]) for each in prompts] == [
        ("poem", ["subject", "tone"])
    ]
    poem = await run(mcp_get_prompt, server=toolbox, prompt="poem", arguments={"subject": "tea"})
    assert poem["description"] == "Ask for a poem."
    assert poem["messages"] == [
        {"role": "user", "content": {"type": "text", "text": "Write a merry poem on tea."}}
    ]


class TestResults:
    @pytest.fixture(autouse=True)
    def named(self, endpoint: str, set_up: Any) -> None:
        set_up(toolbox={"url": endpoint})

    async def test_text(self, run: Any) -> None:
        said = await run(mcp_call_tool, server="toolbox", tool="echo", arguments={"text": "Grüße"})
        assert said == {"content": [{"type": "text", "text": "Grüße"}]}

    async def test_images_are_described(self, run: Any) -> None:
        size = f"{len(mcp_desk.PIXEL)} bytes"
        shown = await run(mcp_call_tool, server="toolbox", tool="files.read/one")
        assert shown == {"content": [{"type": "image", "mime_type": "image/png", "not_shown": size}]}
        icon = await run(mcp_read_resource, server="toolbox", uri="notes://icon")
        assert icon == {"contents": [{"uri": "notes://icon", "mime_type": "image/png", "not_shown": size}]}

    async def test_names_of_arguments_of_mail_1_3_6(self, run: Any) -> None:
        added = await run(
            mcp_call_tool, server_url="toolbox", tool_name="add", tool_input={"a": 2, "b": 3}, timeout=10
        )
        assert added == await run(mcp_call_tool, server="toolbox", tool="add", arguments={"a": 2, "b": 3})

    async def test_templates_are_filled_in(self, run: Any) -> None:
        read = await run(mcp_read_resource, server="toolbox", uri="notes://monday/list")
        assert read["contents"][0]["text"] == "The list of monday."

    async def test_long_texts_are_cut(self, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(results, "MAX_SHOWN", 20)
        said = await run(mcp_call_tool, server="toolbox", tool="echo", arguments={"text": "a" * 30})
        assert said["content"][0]["text"] == f"{'a' * 20}… (10 more characters)"
        added = await run(mcp_call_tool, server="toolbox", tool="add", arguments={"a": 2, "b": 3})
        assert "structured_content" not in added
        assert added["structured_content_not_shown"] == "29 characters of JSON"
        assert await run(mcp_list_tools, server="toolbox") == {"tools": [], "is_partial": True}

    async def test_what_is_not_there(self, told: Any) -> None:
        assert "Unknown tool: x" in await told(ActionFailed, mcp_call_tool, server="toolbox", tool="x")
        assert "notes://x" in await told(ActionFailed, mcp_read_resource, server="toolbox", uri="notes://x")
        await told(ActionFailed, mcp_get_prompt, server="toolbox", prompt="x")

    async def test_arguments_that_do_not_fit(self, told: Any) -> None:
        refused = await told(
            ActionFailed, mcp_call_tool, server="toolbox", tool="add", arguments={"a": "x", "b": 1}
        )
        assert "valid integer" in refused

    async def test_text_that_has_no_bytes(self, told: Any) -> None:
        arguments = {"text": "\ud800"}
        await told(
            ActionFailed, mcp_call_tool, server="toolbox", tool="echo", arguments=arguments, timeout=10
        )


class TestNamedServers:
    async def test_listed(self, run: Any, set_up: Any) -> None:
        assert await run(mcp_list_servers) == {"servers": []}
        set_up(b={"command": "b"}, a={"url": "https://a.test/mcp"}, c={"command": "c", "disabled": True})
        assert await run(mcp_list_servers) == {"servers": ["a", "b"]}

    async def test_of_a_file(self, run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"toolbox": PROGRAM}, "inputs": []}))
        monkeypatch.setenv("MAIL_MCP_SERVERS", str(tmp_path / "mcp.json"))
        assert (await run(mcp_ping, server="toolbox"))["name"] == "desk"

    async def test_unknown(self, told: Any, set_up: Any) -> None:
        assert "known are: none" in await told(ToolCallFault, mcp_ping, server="toolbox")
        set_up(toolbox=COMMAND)
        assert "'toolbox'" in await told(ToolCallFault, mcp_ping, server="tolbox")

    @pytest.mark.parametrize(
        "server", ["python -c 1", "/bin/sh", "file:///bin/sh", "stdio://sh", '{"command": "sh"}']
    )
    async def test_an_agent_can_start_nothing_of_its_own(self, told: Any, set_up: Any, server: str) -> None:
        set_up(toolbox=COMMAND)
        await told(ToolCallFault, mcp_ping, server=server)

    async def test_references(
        self, run: Any, set_up: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("TOKEN_OF_TOOLBOX", "t0ken")
        monkeypatch.setenv("PYTHON_HERE", sys.executable)
        set_up(
            toolbox={
                "command": "${PYTHON_HERE}",
                "args": COMMAND["args"],
                "env": {"TOKEN": "Bearer ${TOKEN_OF_TOOLBOX}"},
                "cwd": str(tmp_path),
                "autoApprove": ["${NOT_SET_ANYWHERE}"],
            }
        )
        said = await run(mcp_call_tool, server="toolbox", tool="variable", arguments={"name": "TOKEN"})
        assert said["content"][0]["text"] == f"Bearer t0ken in {tmp_path}"

    async def test_a_program_gets_no_secrets_but_its_own(
        self, run: Any, set_up: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("OPENAI_API_KEY", "secret")
        set_up(toolbox=COMMAND)
        said = await run(
            mcp_call_tool, server="toolbox", tool="variable", arguments={"name": "OPENAI_API_KEY"}
        )
        assert said["content"][0]["text"].startswith("None in ")

    async def test_headers_are_sent(self, run: Any, set_up: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        app, seen = mcp_desk.desk().streamable_http_app(), set()

        async def listening(scope: Any, receive: Any, send: Any) -> None:
            seen.add(dict(scope["headers"]).get(b"authorization"))
            await app(scope, receive, send)

        monkeypatch.setenv("TOKEN_OF_TOOLBOX", "t0ken")
        async with app.router.lifespan_context(app), QuickUvicorn(listening) as server:
            set_up(
                toolbox={
                    "url": f"{server.url}/mcp",
                    "headers": {"Authorization": "Bearer ${TOKEN_OF_TOOLBOX}"},
                }
            )
            await run(mcp_ping, server="toolbox")
        assert seen == {b"Bearer t0ken"}

    @pytest.mark.parametrize(
        ("setting", "complaint"),
        [
            ("{", "MAIL_MCP_SERVERS: "),
            ("{}", "mcpServers: "),
            ('{"mcpServers": []}', "mcpServers: "),
            ("/gone/mcp.json", "neither a JSON object nor the path"),
            ('{"mcpServers": {"s": {}}}', "either a command or a url"),
            ('{"mcpServers": {"s": {"command": "a", "url": "http://a.test"}}}', "either a command or a url"),
            ('{"mcpServers": {"s": {"command": ["hush"]}}}', "command: "),
            ('{"mcpServers": {"s": {"url": "ftp://hush.test"}}}', "url: "),
            ('{"mcpServers": {"s": {"type": "sse", "url": "http://a.test"}}}', "'stdio' or 'http'"),
            (
                '{"mcpServers": {"s": {"command": "a", "env": {"K": "${NOT_SET_ANYWHERE}"}}}}',
                "NOT_SET_ANYWHERE is not set",
            ),
            ('{"mcpServers": {"s": {"command": "a", "args": "hush"}}}', "args: "),
        ],
    )
    async def test_set_up_badly(
        self, told: Any, monkeypatch: pytest.MonkeyPatch, setting: str, complaint: str
    ) -> None:
        monkeypatch.setenv("MAIL_MCP_SERVERS", setting)
        complaints = await told(ConfigurationError, mcp_ping, server="s")
        assert complaint in complaints
        assert "hush" not in complaints

    async def test_out_of_order(self, told: Any, set_up: Any, unused_tcp_port: int) -> None:
        set_up(
            gone={"command": "/gone/hush"},
            mute={"command": "true"},
            away={"url": f"http://127.0.0.1:{unused_tcp_port}/hush"},
        )
        for server in ("gone", "mute", "away"):
            failed = await told(ActionFailed, mcp_ping, server=server)
            assert failed.startswith(f"MCP server {server}: ")
            assert "hush" not in failed

    async def test_no_mcp_at_all(self, told: Any, set_up: Any, private_allowed: None) -> None:
        async def hello(_request: Request) -> Response:
            return PlainTextResponse("hello")

        async with QuickUvicorn(Starlette(routes=[Route("/", hello, methods=["GET", "POST"])])) as server:
            for path in ("", "gone"):
                assert "MCP server" in await told(
                    ActionFailed, mcp_ping, server=f"{server.url}/{path}", timeout=5
                )


class TestForeignServers:
    @pytest.mark.parametrize("host", ["127.0.0.1:1", "localhost:1", "[::1]:1", "169.254.169.254", "10.0.0.1"])
    async def test_private_addresses_are_refused(self, told: Any, host: str) -> None:
        assert "not a public address" in await told(ActionFailed, mcp_ping, server=f"http://{host}/mcp")

    async def test_refused_though_there_is_one(self, endpoint: str, told: Any) -> None:
        assert "not a public address" in await told(ActionFailed, mcp_ping, server=endpoint)

    @pytest.mark.parametrize("url", ["http://", "https:///mcp", "http://[::1"])
    async def test_no_url(self, told: Any, url: str) -> None:
        assert "not the URL of a server" in await told(ToolCallFault, mcp_ping, server=url)

    async def test_redirects_to_elsewhere_are_not_followed(
        self, endpoint: str, told: Any, private_allowed: None
    ) -> None:
        async def away(_request: Request) -> Response:
            return RedirectResponse(endpoint, 307)

        async with QuickUvicorn(Starlette(routes=[Route("/mcp", away, methods=["GET", "POST"])])) as server:
            assert "not followed" in await told(ActionFailed, mcp_ping, server=f"{server.url}/mcp")

    async def test_an_endless_answer(
        self, told: Any, private_allowed: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(connection, "MAX_REPLY_BYTES", 100_000)
        sent = 0

        async def flood(_request: Request) -> Response:
            async def endless() -> AsyncIterator[bytes]:
                nonlocal sent
                while True:
                    yield b" " * 10_000
                    sent += 10_000
                    await asyncio.sleep(0)

            return StreamingResponse(endless(), media_type="application/json")

        async with QuickUvicorn(Starlette(routes=[Route("/", flood, methods=["GET", "POST"])])) as server:
            await told(ActionFailed, mcp_ping, server=f"{server.url}/", timeout=20)
        assert 0 < sent < 50_000_000

    async def test_compressed(self, told: Any, private_allowed: None) -> None:
        async def packed(_request: Request) -> Response:
            return Response(b"", headers={"Content-Encoding": "gzip", "Content-Type": "application/json"})

        async with QuickUvicorn(Starlette(routes=[Route("/", packed, methods=["GET", "POST"])])) as server:
            assert "compressed response" in await told(ActionFailed, mcp_ping, server=f"{server.url}/")


class TestTime:
    @pytest.mark.soak(on="stdio")
    async def test_the_given_time(self, toolbox: str, told: Any) -> None:
        arguments = {"seconds": 60}
        late = await told(
            ActionFailed, mcp_call_tool, server=toolbox, tool="slow", arguments=arguments, timeout=1.5
        )
        assert "no answer within 1.5 seconds" in late

    async def test_no_longer_than_the_turn(self, endpoint: str, set_up: Any, told: Any) -> None:
        set_up(toolbox={"url": endpoint})
        token = TURN.set(TurnContext(deadline=asyncio.get_running_loop().time() + 2))
        slow = {"server": "toolbox", "tool": "slow", "arguments": {"seconds": 60}}
        try:
            late = await told(ActionFailed, mcp_call_tool, **slow)
        finally:
            TURN.reset(token)
        (seconds,) = re.findall(r"no answer within ([0-9.e-]+) seconds", late)
        assert float(seconds) < 2

    async def test_a_call_that_is_cut_off_leaves_no_program(self, set_up: Any) -> None:
        set_up(toolbox=COMMAND)
        before = children()

        async def started() -> bool:
            return bool(children() - before)

        arguments = {"server": "toolbox", "tool": "slow", "arguments": {"seconds": 60}}
        call = asyncio.create_task(mcp_call_tool(arguments))
        await eventually(started)
        await asyncio.sleep(0.5)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert not await started()

    @pytest.mark.soak
    @pytest.mark.parametrize("more", [[], ["--stubborn"]])
    async def test_programs_end_with_the_call(self, run: Any, set_up: Any, more: list[str]) -> None:
        set_up(toolbox={**COMMAND, "args": [*COMMAND["args"], *more]})
        said = await run(mcp_call_tool, server="toolbox", tool="process")
        with pytest.raises(ProcessLookupError):
            os.kill(int(said["content"][0]["text"]), 0)


class TestWithoutTheSDK:
    def test_nothing_is_imported_before_it_is_needed(self) -> None:
        code = (
            "import sys, mail.stdlib.mcp.actions\n"
            "print(sorted({'mcp', 'mcp_types', 'httpx2', 'litellm'} & set(sys.modules)))\n"
            "import mail.stdlib.mcp.connection\n"
            "print('litellm' in sys.modules)"
        )
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert ran.stdout.split() == ["[]", "False"]

    def test_what_to_install(self) -> None:
        code = (
            "import sys, asyncio\n"
            "sys.modules['mcp'] = None\n"  # what Python takes for 'can't be imported'
            "from mail.stdlib.mcp.actions import mcp_ping\n"
            "try: asyncio.run(mcp_ping({'server': 'http://a.test'}))\n"
            "except Exception as error: print(type(error).__name__, error)"
        )
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert ran.stdout.startswith("ConfigurationError")
        assert "need mcp: pip install mcp" in ran.stdout
