"""The same image of five megabytes by every protocol, each with its official client or types: it is stored once."""

import re
from base64 import b64encode
from collections.abc import AsyncIterator

import httpx
import httpx2
import pytest
from a2a.client import ClientConfig, create_client
from a2a.helpers.proto_helpers import get_artifact_text, new_raw_part, new_text_part
from a2a.types import Message, Role, SendMessageRequest
from ag_ui.core import DataSource, ImagePart, RunAgentInput, TextPart, UserMessage
from desk_swarm import PNG, desk_swarm
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from openai import AsyncOpenAI
from support.processes.http_server import TIMEOUT, HTTPServer

IMAGE = PNG + bytes(5_000_000)
TEXT = b64encode(IMAGE).decode()
FILE = r"file:([0-9a-f]{32})"


@pytest.fixture
async def server() -> AsyncIterator[HTTPServer]:
    async with HTTPServer(desk_swarm()) as server:
        yield server


async def by_upload(server: HTTPServer) -> str:
    """`POST /files`, and the id in a message."""
    sent = await server.client.post("/files", content=IMAGE, headers={"Content-Type": "image/png"})
    return (await server.ask(body="look", files=[sent.json()["id"]]))["response"]


async def by_a2a(server: HTTPServer) -> str:
    """A message with the bytes in a part."""
    async with httpx.AsyncClient(headers=server.headers("user"), timeout=TIMEOUT) as connection:
        client = await create_client(
            server.uvicorn.url, ClientConfig(httpx_client=connection, streaming=False)
        )
        parts = [new_text_part("look"), new_raw_part(IMAGE, media_type="image/png", filename="a.png")]
        message = Message(message_id="m", role=Role.ROLE_USER, parts=parts)
        [answer] = [each async for each in client.send_message(SendMessageRequest(message=message))]
        return get_artifact_text(answer.task.artifacts[0])


async def by_mcp(server: HTTPServer) -> str:
    """A call of the tool of an entrypoint."""
    async with httpx2.AsyncClient(headers=server.headers("user"), timeout=TIMEOUT) as connection:
        transport = streamable_http_client(f"{server.uvicorn.url}/mcp", http_client=connection)
        async with Client(transport) as client:
            image = {"type": "image", "data": TEXT, "mimeType": "image/png"}
            result = await client.call_tool("desk", {"message": "look", "files": [image]})
            return str(result.structured_content)


async def by_openai(server: HTTPServer) -> str:
    """A response."""
    image = {"type": "input_image", "image_url": f"data:image/png;base64,{TEXT}", "detail": "auto"}
    said = {"role": "user", "content": [{"type": "input_text", "text": "look"}, image]}
    async with AsyncOpenAI(base_url=f"{server.uvicorn.url}/v1", api_key=server.keys["user"]) as client:
        return (await client.responses.create(model="desk", input=[said])).output_text


async def by_agui(server: HTTPServer) -> str:
    """An input of AG-UI."""
    image = ImagePart(source=DataSource(value=TEXT, mime_type="image/png"))
    said = UserMessage(id="m", content=[TextPart(text="look"), image])
    given = RunAgentInput(thread_id="t", run_id="r", messages=[said]).model_dump(by_alias=True, mode="json")
    answer = await server.client.post("/ag-ui", json=given)
    assert answer.status_code == 200, answer.text
    return answer.text


async def test_an_image_is_stored_once_whatever_brings_it(server: HTTPServer) -> None:
    [file] = re.findall(FILE, await by_upload(server))
    for send in (by_a2a, by_mcp, by_openai, by_agui):
        assert set(re.findall(FILE, await send(server))) == {file}, send
    assert server.rig.database.execute("SELECT count(*), sum(length(data)) FROM files") == [(1, len(IMAGE))]
    largest = server.rig.database.execute(
        "SELECT max(length(state) + length(events) + coalesce(length(history), 0)) FROM commits"
    )
    assert largest[0][0] < 10_000
