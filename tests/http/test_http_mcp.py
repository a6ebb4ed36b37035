"""MCP 2026-07-28 and 2025-11-25, by the client of the official SDK, against a running server and in process."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from types import SimpleNamespace
from typing import Any, Literal

import fastapi
import httpx2
import pytest
from desk_swarm import PNG, desk_swarm, typed_swarm, work
from mcp import Client, MCPError
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.streamable_http import streamable_http_client
from mcp_types import (
    INVALID_PARAMS,
    BlobResourceContents,
    CallToolResult,
    ElicitRequest,
    ElicitRequestParams,
    ElicitResult,
    EmptyResult,
    ImageContent,
    InputResponses,
    Request,
    RequestParams,
    ResourceLink,
    Result,
    TextContent,
    TextResourceContents,
)
from mcp_types.jsonrpc import MISSING_REQUIRED_CLIENT_CAPABILITY
from support.faults.gates import Gate
from support.processes.http_server import TIMEOUT, HTTPServer

from mail.http import runs
from mail.http.mcp import calls, content, tools
from mail.http.routes import mcp as routes
from mail.http.service import RESPONSE_MARGIN
from mail.testing.agents import Call, View, build_agent, build_swarm, call

GENERATIONS = ("auto", "legacy")  # the client asks for the newest, or shakes hands as before 2026


@pytest.fixture
def server(desk: HTTPServer) -> HTTPServer:
    return desk


@asynccontextmanager
async def connected(
    server: HTTPServer, mode: str = GENERATIONS[0], role: str = "user", **options: Any
) -> AsyncIterator[Client]:
    """A client of the SDK."""
    async with AsyncExitStack() as stack:
        connection = await stack.enter_async_context(
            httpx2.AsyncClient(headers=server.headers(role), timeout=TIMEOUT)
        )
        transport = streamable_http_client(f"{server.uvicorn.url}/mcp", http_client=connection)
        yield await stack.enter_async_context(Client(transport, mode=mode, cache=None, **options))


@pytest.fixture(params=GENERATIONS)
async def client(server: HTTPServer, request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    """A client that can show no forms; one task opens and closes it, as the SDK demands."""
    opened: asyncio.Queue[Client] = asyncio.Queue()
    is_over = asyncio.Event()

    async def hold() -> None:
        async with connected(server, request.param) as client:
            opened.put_nowait(client)
            await is_over.wait()

    async with asyncio.TaskGroup() as group:
        group.create_task(hold())
        yield await opened.get()
        is_over.set()


def texts(result: CallToolResult) -> list[str]:
    return [block.text for block in result.content if isinstance(block, TextContent)]


async def use(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """What a tool that succeeds returns as a value."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, texts(result)
    found: dict[str, Any] = result.structured_content
    return found


async def fail(client: Client, tool: str, **arguments: Any) -> str:
    """What a tool that fails says."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error
    return "\n".join(texts(result))


async def test_each_entrypoint_is_a_tool(client: Client) -> None:
    listed = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert next(iter(listed)) == "desk"
    [annex] = [name for name, tool in listed.items() if tool.title == "task"]
    assert set(listed) == {"desk", annex, "ask", "reply", "task", "cancel"}
    assert (listed["desk"].description, listed[annex].description) == ("It works.", "The annex.")
    assert listed["desk"].input_schema["required"] == ["message"]
    assert "title" not in json.dumps([tool.input_schema for tool in listed.values()])
    hints = listed["task"].annotations
    assert hints is not None
    assert hints.read_only_hint
    assert (await use(client, annex, message="hello"))["answer"] == "you said: hello"


async def test_a_message_is_answered_and_its_task_continued(client: Client, server: HTTPServer) -> None:
    first = await use(client, "desk", message="hello")
    assert (first["status"], first["answer"]) == ("completed", "you said: hello")
    second = await use(client, "desk", message="again", task_id=first["task_id"])
    assert (second["task_id"], second["answer"]) == (first["task_id"], "you said: again")
    assert (await server.task(first["task_id"]))["generation"] == 2
    result = await client.call_tool("task", {"task_id": first["task_id"]})
    assert texts(result) == ["you said: again", f"(task_id: {first['task_id']}, completed)"]
    assert "no task" in await fail(client, "desk", message="again", task_id="unknown")


async def test_work_that_takes_longer_is_asked_for_later(
    client: Client, gate: Gate, server: HTTPServer
) -> None:
    begun = await use(client, "ask", message="dig")
    assert begun["status"] == "running"
    await gate.begun.wait()
    looked = await client.call_tool("task", {"task_id": begun["task_id"], "wait_seconds": 0})
    assert "Call `task`" in texts(looked)[0]
    gate.opened.set()
    assert (await use(client, "task", task_id=begun["task_id"]))["answer"].endswith("dug")
    named = await use(client, "ask", message="hello", entrypoint="task")
    assert (await server.task(named["task_id"]))["entrypoint"] == "task"


async def test_a_call_whose_time_is_up_gets_the_task_as_it_is(gate: Gate) -> None:
    async with (
        HTTPServer(desk_swarm(gate), time_left=lambda _request: RESPONSE_MARGIN) as server,
        connected(server) as client,
    ):
        assert (await use(client, "desk", message="dig"))["status"] == "running"
        gate.opened.set()


async def test_a_client_without_forms_reads_how_to_reply(client: Client) -> None:
    result = await client.call_tool("desk", {"message": "ask"})
    paused = result.structured_content
    assert (paused["status"], result.is_error) == ("paused", False)
    assert texts(result)[0].startswith("Which city?")
    assert "`reply`" in texts(result)[0]
    assert paused["task_id"] in texts(result)[0]
    assert "`reply`" in await fail(client, "desk", message="more", task_id=paused["task_id"])
    done = await use(client, "reply", task_id=paused["task_id"], text="Berne")
    assert (done["status"], done["answer"]) == ("completed", "Berne")
    assert await fail(client, "reply", task_id=paused["task_id"], text="Rome")


async def test_a_client_without_forms_approves_by_reply(client: Client) -> None:
    paused = await use(client, "desk", message="pay")
    [question] = paused["questions"]
    assert (question["name"], question["arguments"], question["needs_approval"]) == (
        "pay",
        {"amount": 5},
        True,
    )
    decision = {"call_id": question["call_id"], "decision": "approve"}
    assert (await use(client, "reply", task_id=paused["task_id"], approvals=[decision]))["answer"].endswith(
        "paid 5"
    )
    paused = await use(client, "desk", message="pay")
    decision = {"call_id": paused["questions"][0]["call_id"], "decision": "reject", "reason": "no"}
    done = await use(client, "reply", task_id=paused["task_id"], approvals=[decision])
    assert "paid" not in done["answer"]


class Person:
    """Fills in forms."""

    def __init__(self, *filled: ElicitResult) -> None:
        self.filled = list(filled)
        self.asked: list[ElicitRequestParams] = []

    async def __call__(self, _context: Any, params: ElicitRequestParams) -> ElicitResult:
        self.asked.append(params)
        return self.filled.pop(0)


def filled(**fields: Any) -> ElicitResult:
    return ElicitResult(action="accept", content=fields)


async def test_a_client_with_forms_shows_the_questions(server: HTTPServer) -> None:
    person = Person(
        filled(answer="Berne"), filled(decision="approve"), filled(decision="reject", reason="no")
    )
    async with connected(server, elicitation_callback=person) as client:
        assert (await use(client, "desk", message="ask"))["answer"] == "Berne"
        assert (await use(client, "desk", message="pay"))["answer"] == "SUCCESS: paid 5"
        assert "paid" not in (await use(client, "desk", message="pay"))["answer"]
        asked = await use(client, "ask", message="hello")
        assert (await use(client, "task", task_id=asked["task_id"]))["status"] == "completed"
    assert [each.message for each in person.asked][:1] == ["Which city?"]
    assert "pay" in person.asked[1].message


async def test_a_declined_question_stays_open(server: HTTPServer) -> None:
    person = Person(ElicitResult(action="decline"), filled(answer="Berne"))
    async with connected(server, elicitation_callback=person) as client:
        paused = await use(client, "desk", message="ask")
        assert paused["status"] == "paused"
        assert (await use(client, "task", task_id=paused["task_id"]))["answer"] == "Berne"


async def test_a_form_that_is_sent_twice_answers_once(server: HTTPServer) -> None:
    async with connected(server, elicitation_callback=Person()) as client:
        asked = await client.session.call_tool("desk", {"message": "ask"}, allow_input_required=True)
        assert asked.result_type == "input_required"
        [key] = asked.input_requests or {}
        again: dict[str, Any] = {
            "name": "desk",
            "arguments": {"message": "ask"},
            "input_responses": {key: filled(answer="Berne")},
            "request_state": asked.request_state,
        }
        first, second = [await client.session.call_tool(**again) for _ in range(2)]
        assert first.structured_content == second.structured_content
        assert first.structured_content["answer"] == "Berne"
        again["request_state"] = "someone's.1"
        assert (await client.session.call_tool(**again)).is_error
    async with connected(server, role="admin") as stranger:
        again["request_state"] = asked.request_state
        assert (await stranger.session.call_tool(**again)).is_error


async def test_progress_is_reported(gate: Gate, server: HTTPServer) -> None:
    told: list[str | None] = []

    async def progress(_progress: float, _total: float | None, message: str | None) -> None:
        told.append(message)
        gate.opened.set()

    async with connected(server) as client:
        result = await client.call_tool("desk", {"message": "dig"}, progress_callback=progress)
        assert result.structured_content["answer"].endswith("dug")
    assert "agents work" in told
    assert {"agents work", "desk: turn 1", "desk: turn 2"} >= {*told}


async def test_a_task_is_cancelled(client: Client, gate: Gate) -> None:
    begun = await use(client, "ask", message="dig")
    await gate.begun.wait()
    cancelled = await use(client, "cancel", task_id=begun["task_id"], reason="enough")
    assert cancelled["status"] == "cancelled"
    assert "cancelled" in await fail(client, "task", task_id=begun["task_id"])
    assert "nobody" in await fail(client, "cancel", task_id="nobody")


async def test_a_task_fails(client: Client) -> None:
    said = await fail(client, "desk", message="fail")
    assert said
    assert "out of order" not in said


async def test_a_typed_answer_is_a_value() -> None:
    async with HTTPServer(typed_swarm()) as server, connected(server) as client:
        assert (await use(client, "desk", message="hello"))["answer"] == {"n": 5}


async def test_files_go_both_ways(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    data = base64.b64encode(PNG).decode()
    note = {
        "type": "resource",
        "resource": {"uri": "file:///x/a.txt", "text": "hello", "mimeType": "text/plain"},
    }
    files = [{"type": "image", "data": data, "mimeType": "image/png"}, note]
    result = await client.call_tool("desk", {"message": "look", "files": files})
    image, link = [block for block in result.content if not isinstance(block, TextContent)]
    assert isinstance(image, ImageContent)
    assert base64.b64decode(image.data) == PNG
    assert isinstance(link, ResourceLink)
    assert (link.name, link.mime_type) == ("a.txt", "text/plain")
    [read] = (await client.read_resource(link.uri)).contents
    assert isinstance(read, TextResourceContents)
    assert read.text == "hello"
    monkeypatch.setattr(content, "INLINE_BYTES", 10)
    again = await client.call_tool(
        "desk", {"message": "look", "files": [link.model_dump(by_alias=True), files[0]]}
    )
    links = [block for block in again.content if isinstance(block, ResourceLink)]
    assert len(links) == 2
    [blob] = (
        await client.read_resource(next(each.uri for each in links if each.mime_type == "image/png"))
    ).contents
    assert isinstance(blob, BlobResourceContents)
    assert base64.b64decode(blob.blob) == PNG
    wrong = {"type": "image", "data": base64.b64encode(b"no image").decode(), "mimeType": "image/png"}
    for each in (
        wrong,
        {"type": "text", "text": "x"},
        {"type": "film"},
        {**link.model_dump(by_alias=True), "uri": f"{content.FILES}0"},
    ):
        assert await fail(client, "desk", message="look", files=[each])


async def test_tasks_are_resources(client: Client, server: HTTPServer) -> None:
    done = await use(client, "desk", message="hello")
    [listed] = (await client.list_resources()).resources
    assert listed.uri == f"mail://tasks/{done['task_id']}"
    [read] = (await client.read_resource(listed.uri)).contents
    assert isinstance(read, TextResourceContents)
    timeline = json.loads(read.text)
    assert (timeline["status"], timeline["is_partial"]) == ("completed", False)
    assert [item["kind"] for item in timeline["items"] if item["kind"] in ("message", "answer")] == [
        "message",
        "answer",
    ]
    templates = (await client.list_resource_templates()).resource_templates
    assert [each.uri_template for each in templates] == ["mail://tasks/{task_id}", "mail://files/{file_id}"]
    for unknown in ("mail://tasks/unknown", "mail://files/unknown", "file:///etc/passwd"):
        with pytest.raises(MCPError):
            await client.read_resource(unknown)
    async with connected(server, role="admin") as stranger:
        assert (await stranger.list_resources()).resources == []
        with pytest.raises(MCPError):
            await stranger.read_resource(listed.uri)
        assert await fail(stranger, "task", task_id=done["task_id"])


@pytest.mark.parametrize(("limit", "value"), [("MAX_BYTES", 300), ("ENDS", 2)])
async def test_of_a_long_task_the_end_is_shown(
    client: Client, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    done = await use(client, "desk", message="hello")
    monkeypatch.setattr(f"mail.http.mcp.resources.{limit}", value)
    [read] = (await client.read_resource(f"mail://tasks/{done['task_id']}")).contents
    assert isinstance(read, TextResourceContents)
    timeline = json.loads(read.text)
    assert timeline["is_partial"]
    assert timeline["items"][-1]["kind"] == "answer"
    assert timeline["items"][0]["kind"] != "message"


async def test_mistakes_are_told(client: Client) -> None:
    with pytest.raises(MCPError, match="no tool"):
        await client.call_tool("dig", {})
    assert "message" in await fail(client, "desk")
    assert "colour" in await fail(client, "desk", message="x", colour="red")
    assert "entrypoint" in await fail(client, "ask", message="x", entrypoint="nobody")
    with pytest.raises(MCPError):
        await client.list_resources(cursor="nonsense")


async def test_the_server_describes_itself(client: Client) -> None:
    assert client.server_info is not None
    assert (client.server_info.name, client.server_info.version) == ("example", "1.0.0")
    assert "`reply`" in (client.instructions or "")


async def test_who_may_call(server: HTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
    headers = {"Accept": "application/json, text/event-stream", "Authorization": ""}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}

    async def post(**changed: str) -> httpx2.Response:
        return await server.client.post("/mcp", json=body, headers={**headers, **changed})

    refused = await post()
    assert (refused.status_code, refused.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert (await post(**server.headers("agent"))).status_code == 403
    user = server.headers("user")
    assert (await post(**user)).status_code == 200
    assert (await post(**user, Origin="https://evil.example")).status_code == 403
    assert (await post(**user, Origin=server.uvicorn.url)).status_code == 200
    assert (await server.client.get("/mcp")).status_code == 405
    monkeypatch.setattr("mail.http.service.find_spec", lambda _name: None)
    assert (await post(**user)).status_code == 501


async def test_in_process(server: HTTPServer) -> None:
    transport = httpx2.ASGITransport(app=server.app)
    async with (
        httpx2.AsyncClient(
            transport=transport, base_url="http://inside", headers=server.headers("user")
        ) as inside,
        Client(streamable_http_client("http://inside/mcp", http_client=inside), cache=None) as client,
    ):
        assert (await use(client, "desk", message="hello"))["answer"] == "you said: hello"


@pytest.mark.parametrize("origin", ["https://app.example", "http://mail.example:80", None])
def test_a_page_of_an_allowed_origin_may_call(origin: str | None) -> None:
    headers = [(b"host", b"mail.example:80"), *([(b"origin", origin.encode())] if origin else [])]
    app = SimpleNamespace(cors_origins=["https://app.example"])
    routes._refuse_foreign_page(fastapi.Request({"type": "http", "app": app, "headers": headers}))


def test_names_of_tools_never_collide() -> None:
    agents = {name: build_agent(work, supervises=True, name=name) for name in ("a b", "a_b", "reply")}
    named = tools.entrypoint_tools(build_swarm(agents))
    assert list(named.values()) == list(agents)
    assert len({*named, *tools.COMMON}) == len(agents) + len(tools.COMMON)


class CreateTask(Result):
    """The handle of a task, as the extension defines it."""

    result_type: Literal["task"] = "task"
    task_id: str
    status: str
    status_message: str | None = None
    created_at: str
    last_updated_at: str
    ttl_ms: int | None
    poll_interval_ms: int


class SeenTask(CreateTask):
    """A task that was got."""

    result_type: Literal["complete"] = "complete"  # type: ignore[assignment]
    input_requests: dict[str, ElicitRequest] | None = None
    result: CallToolResult | None = None


class Tasks(ClientExtension):
    """A client with the extension, which leaves the tasks to the test."""

    identifier = calls.TASKS

    def claims(self) -> Sequence[ResultClaim[Any]]:
        async def resolve(_task: CreateTask, _context: ClaimContext) -> CallToolResult:
            raise NotImplementedError

        return (ResultClaim(result_type="task", model=CreateTask, resolve=resolve),)


async def begin(client: Client, message: str, **arguments: Any) -> CreateTask:
    """The task of a call."""
    made = await client.session.call_tool(
        "desk", {"message": message, **arguments}, allow_input_required=True, allow_claimed=True
    )
    assert isinstance(made, CreateTask)
    assert (made.status, made.ttl_ms) == ("working", None)
    return made


async def send(
    client: Client, method: str, task: str, kind: type[Result] = EmptyResult, **params: Any
) -> Any:
    """The result of a request about a task."""
    given = TaskRequestParams(task_id=task, **params)
    return await client.session.send_request(TaskRequest(method=method, params=given), kind)


class TaskRequestParams(RequestParams):
    task_id: str
    input_responses: InputResponses | None = None


class TaskRequest(Request[TaskRequestParams, str]):
    method: str
    params: TaskRequestParams


async def get(client: Client, task: str, *statuses: str) -> SeenTask:
    """The task, once it has one of these statuses."""
    async with asyncio.timeout(TIMEOUT):
        while True:
            seen: SeenTask = await send(client, "tasks/get", task, SeenTask)
            if not statuses or seen.status in statuses:
                return seen
            await asyncio.sleep(0.01)


async def test_the_progress_of_a_long_run_counts_all_its_turns(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    swarm = desk_swarm(gate)

    def labour(view: View) -> Sequence[Call]:
        done = sum(entry["role"] == "tool" for entry in view.history)
        return [call("step") if done < 5 else call("dig")]

    async def step(_arguments: dict[str, Any]) -> str:
        return "done"

    desk = build_agent(labour, supervises=True, actions=["step", "dig"])
    swarm = build_swarm({"desk": desk}, actions={"step": step, "dig": swarm.actions["dig"]})
    monkeypatch.setattr(runs, "ENDS", 4)
    async with HTTPServer(swarm) as server, connected(server, extensions=[Tasks()]) as client:
        begun = await begin(client, "work")
        await gate.begun.wait()
        assert (await get(client, begun.task_id)).status_message == "desk: turn 5"
        gate.opened.set()


async def test_a_client_with_the_extension_follows_a_task(gate: Gate, server: HTTPServer) -> None:
    async with connected(server, extensions=[Tasks()]) as client:
        assert calls.TASKS in (client.server_capabilities.extensions or {})
        begun = await begin(client, "dig")
        await gate.begun.wait()
        seen = await get(client, begun.task_id)
        assert (seen.status, seen.created_at, seen.result) == ("working", begun.created_at, None)
        gate.opened.set()
        done = await get(client, begun.task_id, "completed")
        assert done.result is not None
        assert done.result.structured_content["answer"].endswith("dug")
        assert done.last_updated_at > done.created_at
        again = await begin(client, "hello", task_id=begun.task_id.rpartition(".")[0])
        assert again.task_id == f"{begun.task_id[:-1]}2"
        later = await get(client, again.task_id, "completed")
        assert later.result is not None
        assert later.result.structured_content["answer"] == "you said: hello"
        assert await get(client, begun.task_id) == done
        failed = await get(client, (await begin(client, "fail")).task_id, "completed")
        assert failed.result is not None
        assert failed.result.is_error
        assert (await use(client, "ask", message="hello"))["task_id"]


async def test_a_task_asks_and_is_updated(server: HTTPServer) -> None:
    async with connected(server, extensions=[Tasks()], elicitation_callback=Person()) as client:
        task = (await begin(client, "ask")).task_id
        asks = await get(client, task, "input_required")
        [(key, form)] = (asks.input_requests or {}).items()
        assert form.params.message == "Which city?"
        for response in ({"unknown": filled(answer="x")}, {key: ElicitResult(action="decline")}):
            await send(client, "tasks/update", task, input_responses=response)
        assert (await get(client, task)).input_requests == asks.input_requests
        for _ in range(2):  # the second is ignored
            await send(client, "tasks/update", task, input_responses={key: filled(answer="Berne")})
        done = await get(client, task, "completed")
        assert done.result is not None
        assert done.result.structured_content["answer"] == "Berne"
        task = (await begin(client, "pay")).task_id
        [key] = (await get(client, task, "input_required")).input_requests or {}
        await send(client, "tasks/update", task, input_responses={key: filled(decision="approve")})
        paid = await get(client, task, "completed")
        assert paid.result is not None
        assert paid.result.structured_content["answer"] == "SUCCESS: paid 5"


async def test_a_task_of_a_client_without_forms_says_how_to_reply(server: HTTPServer) -> None:
    async with connected(server, extensions=[Tasks()]) as client:
        task = (await begin(client, "ask")).task_id
        paused = await get(client, task, "completed")
        assert paused.result is not None
        assert "`reply`" in texts(paused.result)[0]
        found = await use(client, "reply", task_id=task.rpartition(".")[0], text="Berne")
        assert found["answer"] == "Berne"


async def test_a_followed_task_is_cancelled(gate: Gate, server: HTTPServer) -> None:
    async with connected(server, extensions=[Tasks()]) as client:
        task = (await begin(client, "dig")).task_id
        await gate.begun.wait()
        for _ in range(2):  # the second changes nothing
            await send(client, "tasks/cancel", task)
        cancelled = await get(client, task, "cancelled")
        assert cancelled.status_message == "The task was cancelled by ann."


async def test_who_may_ask_for_a_task(server: HTTPServer) -> None:
    async with connected(server, extensions=[Tasks()]) as client:
        task = (await begin(client, "hello")).task_id
        for unknown in ("nothing", "nothing.1", f"{task[:-1]}9"):
            for method in ("tasks/get", "tasks/update", "tasks/cancel"):
                with pytest.raises(MCPError) as refused:
                    await send(client, method, unknown, input_responses={})
                assert refused.value.error.code == INVALID_PARAMS
    async with connected(server, role="admin", extensions=[Tasks()]) as stranger:
        with pytest.raises(MCPError, match="no task"):
            await get(stranger, task)
    for mode in GENERATIONS:
        async with connected(server, mode) as client:
            with pytest.raises(MCPError, match=calls.TASKS) as refused:
                await get(client, task)
            assert refused.value.error.code == MISSING_REQUIRED_CLIENT_CAPABILITY
