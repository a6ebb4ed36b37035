"""A2A 1.0 and 0.3, by the clients of the official SDK: both bindings, against a running server."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from a2a.client import A2ACardResolver, Client, ClientConfig, create_client
from a2a.helpers.proto_helpers import (
    get_artifact_text,
    get_data_parts,
    get_text_parts,
    new_data_part,
    new_raw_part,
    new_text_part,
)
from a2a.types import (
    AuthenticationInfo,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
    TaskState,
)
from a2a.utils.errors import (
    A2AError,
    InternalError,
    InvalidParamsError,
    PushNotificationNotSupportedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from a2a.utils.signing import InvalidSignaturesError, create_signature_verifier
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from desk_swarm import PNG, desk_swarm, typed_swarm
from support.faults.gates import Gate
from support.processes.http_server import TIMEOUT, HTTPServer
from support.services.webhook_receiver import Got, WebhookReceiver

from mail.core.task.approvals import Approval
from mail.core.task.events import Event, EventKind
from mail.core.task.swarm import ActionCore
from mail.core.task.task import TaskKey
from mail.http import runs
from mail.http.a2a import handler
from mail.http.service import RESPONSE_MARGIN
from mail.testing.agents import build_swarm, call

BINDINGS = ("JSONRPC", "HTTP+JSON")

WORKING = TaskState.TASK_STATE_WORKING
ASKS = TaskState.TASK_STATE_INPUT_REQUIRED
DONE = TaskState.TASK_STATE_COMPLETED
FAILED = TaskState.TASK_STATE_FAILED
CANCELED = TaskState.TASK_STATE_CANCELED


@pytest.fixture
def server(desk: HTTPServer) -> HTTPServer:
    return desk


@asynccontextmanager
async def connected(
    server: HTTPServer, binding: str, role: str = "user", **config: Any
) -> AsyncIterator[Client]:
    """A client of the SDK, which has read the card."""
    async with httpx.AsyncClient(headers=server.headers(role), timeout=TIMEOUT) as connection:
        settings = ClientConfig(
            httpx_client=connection,
            supported_protocol_bindings=[binding],
            use_client_preference=True,
            **config,
        )
        yield await create_client(server.uvicorn.url, settings)


@pytest.fixture(params=BINDINGS)
async def client(server: HTTPServer, request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    """A client that waits for answers."""
    async with connected(server, request.param, streaming=False) as client:
        yield client


@pytest.fixture(params=BINDINGS)
async def streaming(server: HTTPServer, request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    """A client that streams."""
    async with connected(server, request.param) as client:
        yield client


_ids = iter(range(10**9))


def message(*parts: Part | str, **fields: Any) -> SendMessageRequest:
    """A message of a user with a fresh id."""
    given = [new_text_part(part) if isinstance(part, str) else part for part in parts]
    return SendMessageRequest(
        message=Message(**{"message_id": f"m{next(_ids)}", "role": Role.ROLE_USER, "parts": given, **fields})
    )


def at_once(*parts: Part | str, **fields: Any) -> SendMessageRequest:
    """The same, to be answered before the task ends."""
    request = message(*parts, **fields)
    request.configuration.return_immediately = True
    return request


async def send(client: Client, *parts: Part | str, **fields: Any) -> Task:
    """The task that a message gets as its answer."""
    return await sent(client, message(*parts, **fields))


async def sent(client: Client, request: SendMessageRequest) -> Task:
    [answer] = [each async for each in client.send_message(request)]
    assert answer.WhichOneof("payload") == "task"
    return answer.task


def answers(task: Task) -> list[str]:
    return [get_artifact_text(artifact) for artifact in task.artifacts]


def says(task: Task) -> list[str]:
    """What its status says in words."""
    return get_text_parts(task.status.message.parts)


async def test_a_message_is_answered(client: Client) -> None:
    task = await send(client, "hello")
    assert (task.status.state, answers(task)) == (DONE, ["you said: hello"])
    assert task.id == f"{task.context_id}.1"
    assert [(each.role, get_text_parts(each.parts)) for each in task.history] == [(Role.ROLE_USER, ["hello"])]
    assert await client.get_task(GetTaskRequest(id=task.id)) == task


async def test_a_context_has_a_task_for_each_run(client: Client) -> None:
    first = await send(client, "one", context_id="mine")
    second = await send(client, "two", context_id="mine")
    assert [(each.id, each.context_id, answers(each)) for each in (first, second)] == [
        ("mine.1", "mine", ["you said: one"]),
        ("mine.2", "mine", ["you said: two"]),
    ]
    assert await client.get_task(GetTaskRequest(id="mine.1")) == first


async def test_a_poll_reads_the_last_run_and_not_those_before(
    client: Client, server: HTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *_, last = [await send(client, text, context_id="mine") for text in ("one", "two", "three")]
    reads: list[int] = []
    read_events = server.rig.store.read_events

    async def count(key: TaskKey, *, after: int = 0, **limits: Any) -> list[Event]:
        reads.append(after)
        return await read_events(key, after=after, **limits)

    monkeypatch.setattr(server.rig.store, "read_events", count)
    assert await client.get_task(GetTaskRequest(id="mine.3")) == last
    assert len(reads) == 1
    assert reads[0] > 8, "the events of two runs"
    assert await client.get_task(GetTaskRequest(id="mine.1")) == first


@pytest.mark.parametrize("ends", [1, 2, 3])
async def test_a_long_run_is_read_and_followed_from_its_ends(
    client: Client, server: HTTPServer, gate: Gate, monkeypatch: pytest.MonkeyPatch, ends: int
) -> None:
    digging = at_once("dig", context_id="dig")
    tasks = [await send(client, text, context_id=text) for text in ("hello", "ask", "fail")]
    begun = await sent(client, digging)
    await gate.begun.wait()
    monkeypatch.setattr(runs, "ENDS", ends)
    for task in tasks:
        shown = await client.get_task(GetTaskRequest(id=task.id))
        assert (shown.status.state, says(shown), answers(shown), shown.history[0]) == (
            task.status.state,
            says(task),
            answers(task),
            task.history[0],
        )
    assert (await client.get_task(GetTaskRequest(id=begun.id))).status.state == WORKING
    assert answers(await send(client, "Rome", task_id=tasks[1].id)) == ["Rome"]
    gate.opened.set()
    assert answers(await sent(client, digging)) == ["SUCCESS: dug"]
    with pytest.raises(TaskNotFoundError):
        await client.get_task(GetTaskRequest(id="dig.2"))


async def test_a_poll_of_a_long_run_reads_little_of_it(
    client: Client, server: HTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = await send(client, "x" * 1000, context_id="long")
    key, store, read_events = (
        TaskKey("user:ann@example", "long"),
        server.rig.store,
        server.rig.store.read_events,
    )
    upto, read = (await server.rig.task(key)).seq, set[int]()

    async def read_one_by_one(key: TaskKey, *, after: int = 0, **_limits: Any) -> list[Event]:
        read.add(after + 1)
        return await read_events(key, after=after, limit=1)

    monkeypatch.setattr(store, "read_events", read_one_by_one)
    monkeypatch.setattr(runs, "ENDS", 1)
    shown = await client.get_task(GetTaskRequest(id=task.id))
    assert (shown.status, answers(shown)) == (task.status, answers(task))
    assert read == {1, upto}
    assert upto > 2


async def test_a_message_to_a_task_that_has_ended_is_refused(client: Client) -> None:
    task = await send(client, "hello")
    with pytest.raises(UnsupportedOperationError):
        await send(client, "again", task_id=task.id)
    with pytest.raises(InvalidParamsError):
        await send(client, "again", task_id=task.id, context_id="another")
    for unknown in (f"{task.context_id}.2", "nothing.1", "nothing"):
        with pytest.raises(TaskNotFoundError):
            await send(client, "again", task_id=unknown)
        with pytest.raises(TaskNotFoundError):
            await client.get_task(GetTaskRequest(id=unknown))


async def test_a_message_to_an_open_task_joins_it(client: Client, gate: Gate) -> None:
    begun = await sent(client, at_once("dig", context_id="c"))
    assert (begun.id, begun.status.state, answers(begun)) == ("c.1", WORKING, [])
    await gate.begun.wait()
    assert (await sent(client, at_once("and more", context_id="c"))).id == "c.1"
    last = at_once("and this", task_id="c.1")
    assert (await sent(client, last)).id == "c.1"
    gate.opened.set()
    last.configuration.return_immediately = False
    done = await sent(client, last)  # the same message again, which waits now
    assert (done.id, done.status.state, len(done.history)) == ("c.1", DONE, 3)
    assert "you said: and this" in answers(done)


async def test_a_request_whose_time_is_up_gets_the_task_as_it_is(gate: Gate) -> None:
    async with (
        HTTPServer(desk_swarm(gate), time_left=lambda _request: RESPONSE_MARGIN) as server,
        connected(server, "JSONRPC", streaming=False) as client,
    ):
        task = await send(client, "dig", context_id="c")
        assert (task.id, task.status.state) == ("c.1", WORKING)
        gate.opened.set()


async def test_a_task_asks_and_a_text_answers(client: Client) -> None:
    task = await send(client, "ask")
    assert task.status.state == ASKS
    [question] = get_data_parts(task.status.message.parts)
    assert (question["name"], question["arguments"]) == ("ask_user", {"question": "Which city?"})
    assert says(task) == ["Which city?"]
    done = await send(client, "Berne", task_id=task.id)
    assert (done.id, done.status.state) == (task.id, DONE)
    assert answers(done) == ["Berne"]
    assert [each.role for each in done.history] == [Role.ROLE_USER, Role.ROLE_AGENT]


async def test_a_call_waits_for_approval(client: Client) -> None:
    task = await send(client, "pay")
    [waiting] = get_data_parts(task.status.message.parts)
    assert (task.status.state, waiting["needs_approval"]) == (ASKS, True)
    with pytest.raises(InvalidParamsError, match=waiting["call_id"]):
        await send(client, "yes", task_id=task.id)
    decision = {"call_id": waiting["call_id"], "decision": "approve"}
    done = await send(client, new_data_part({"approvals": [decision]}), context_id=task.context_id)
    assert (done.id, done.status.state, answers(done)) == (task.id, DONE, ["SUCCESS: paid 5"])


async def test_what_reviewers_answer_is_not_asked_of_the_owner() -> None:
    async def ask(arguments: dict[str, Any]) -> str:
        raise NotImplementedError

    asked = ActionCore("ask", ask, reviewers=Approval(by=("admin",)))
    swarm = build_swarm(
        {"clerk": lambda _: [call("ask", question="Why?")]},
        actions={"ask": asked},
        breakpoint_tools=frozenset({"ask"}),
    )
    async with HTTPServer(swarm) as server, connected(server, "JSONRPC", streaming=False) as client:
        task = await send(client, "hello")
        assert task.status.state == TaskState.TASK_STATE_AUTH_REQUIRED
        with pytest.raises(InvalidParamsError, match="admin must decide on call_id"):
            await send(client, "because", task_id=task.id)


async def test_a_message_is_accepted_once(client: Client) -> None:
    request = message("hello")
    first = await sent(client, request)
    assert await sent(client, request) == first
    request.message.parts[0].text = "something else"
    with pytest.raises(InvalidParamsError):
        await sent(client, request)
    refused = message("hello", task_id="nothing.1")
    with pytest.raises(TaskNotFoundError):
        await sent(client, refused)
    refused.message.task_id = ""
    assert answers(await sent(client, refused)) == ["you said: hello"]


async def test_a_task_is_cancelled(client: Client, gate: Gate) -> None:
    task = await sent(client, at_once("dig"))
    await gate.begun.wait()
    cancelled = await client.cancel_task(CancelTaskRequest(id=task.id))
    assert (cancelled.id, cancelled.status.state) == (task.id, CANCELED)
    assert says(cancelled) == ["The task was cancelled by ann."]
    with pytest.raises(TaskNotCancelableError):
        await client.cancel_task(CancelTaskRequest(id=task.id))
    paused = await send(client, "ask", context_id=task.context_id)
    assert paused.status.state == ASKS
    cancelled = await client.cancel_task(CancelTaskRequest(id=paused.id))
    assert (cancelled.id, cancelled.status.state) == (paused.id, CANCELED)


async def test_a_task_fails(client: Client) -> None:
    task = await send(client, "fail")
    assert (task.status.state, answers(task)) == (FAILED, [])
    assert "out of order" not in str(task)
    assert says(task)


async def test_a_typed_answer_is_data() -> None:
    async with HTTPServer(typed_swarm()) as server, connected(server, "JSONRPC", streaming=False) as client:
        task = await send(client, "hello")
        assert get_data_parts(task.artifacts[0].parts) == [{"n": 5}]


async def test_files_go_both_ways(server: HTTPServer, client: Client) -> None:
    task = await send(client, "look", new_raw_part(PNG, media_type="image/png", filename="cat.png"))
    text, file = task.artifacts[0].parts
    assert text.text.startswith("you said: look file:")
    assert (file.filename, file.media_type) == ("cat.png", "image/png")
    async with httpx.AsyncClient() as stranger:
        assert (await stranger.get(file.url)).content == PNG
    [asked] = task.history
    assert [part.filename for part in asked.parts] == ["", "cat.png"]
    with pytest.raises(InvalidParamsError):
        await send(client, new_raw_part(b"no image", media_type="image/png"))


async def test_a_link_is_told_and_not_followed(client: Client) -> None:
    task = await send(client, "look", Part(url="http://127.0.0.1:1/x", filename="x", media_type="text/plain"))
    assert answers(task) == ["you said: look\n\n[file x, text/plain: http://127.0.0.1:1/x]"]


async def test_a_message_may_name_an_entrypoint(client: Client, server: HTTPServer) -> None:
    await send(client, "hello", context_id="c", metadata={"entrypoint": "task"})
    assert (await server.task("c"))["entrypoint"] == "task"
    for wrong in ("nobody", 5):
        with pytest.raises(InvalidParamsError):
            await send(client, "hello", metadata={"entrypoint": wrong})


async def test_what_is_no_message_is_refused(client: Client) -> None:
    for wrong in (
        message(),
        message("hello", role=Role.ROLE_AGENT),
        message("hello", message_id=""),
        message("hello", context_id="a#b"),
    ):
        with pytest.raises(InvalidParamsError):
            await sent(client, wrong)


async def test_tasks_are_listed_in_pages(client: Client, server: HTTPServer) -> None:
    for context in "abc":
        for text in "12":
            await send(client, text, context_id=context)
    await send(client, "ask", context_id="c")
    seen, token, pages = list[str](), "", 0
    while token or not pages:
        page = await client.list_tasks(ListTasksRequest(page_size=2, page_token=token))
        seen += [task.id for task in page.tasks]
        assert (page.total_size, page.page_size) == (len(seen), 2)
        assert not any(task.artifacts or task.history for task in page.tasks)
        token, pages = page.next_page_token, pages + 1
    assert (sorted(seen), len(seen), pages) == (["a.1", "a.2", "b.1", "b.2", "c.1", "c.2", "c.3"], 7, 4)
    asking = await client.list_tasks(ListTasksRequest(status=ASKS))
    assert [task.id for task in asking.tasks] == ["c.3"]
    assert asking.tasks[0].status == (await client.get_task(GetTaskRequest(id="c.3"))).status
    [of_c, *_] = (await client.list_tasks(ListTasksRequest(context_id="c", history_length=1))).tasks
    assert [len(of_c.history), of_c.history[0].task_id] == [1, "c.3"]
    of_a = await client.list_tasks(ListTasksRequest(context_id="a", include_artifacts=True, history_length=0))
    assert [(task.id, answers(task), len(task.history)) for task in of_a.tasks] == [
        ("a.2", ["you said: 2"], 0),
        ("a.1", ["you said: 1"], 0),
    ]
    newest = await client.get_task(GetTaskRequest(id="c.3"))
    since = await client.list_tasks(ListTasksRequest(status_timestamp_after=newest.status.timestamp))
    assert [task.id for task in since.tasks] == ["c.3"]
    for wrong in (ListTasksRequest(page_token="x"), ListTasksRequest(page_size=101)):
        with pytest.raises(InvalidParamsError):
            await client.list_tasks(wrong)


@pytest.mark.parametrize("tail", [1, 200])
async def test_a_list_reads_little_of_a_long_task(
    client: Client, server: HTTPServer, gate: Gate, monkeypatch: pytest.MonkeyPatch, tail: int
) -> None:
    """With a tail of one event, the end of the cancelled run is before it, as its turn has been discarded since."""
    monkeypatch.setattr(runs, "TAIL", tail)
    for text in "1", "2":
        await send(client, text, context_id="long")
    digging = await sent(client, at_once("dig", context_id="long"))
    await gate.begun.wait()
    cancelled = await client.cancel_task(CancelTaskRequest(id=digging.id))
    key, store = TaskKey("user:ann@example", "long"), server.rig.store
    while (events := await store.read_events(key, after=0))[-1].kind is not EventKind.TURN_DISCARDED:
        await store.wait_for_change(key, after=events[-1].seq, seconds=1)
    stored = await store.load(key)
    assert stored is not None
    afters: list[int] = []
    read_events = store.read_events

    async def read_and_see(key: TaskKey, *, after: int = 0, **options: Any) -> Sequence[Event]:
        afters.append(after)
        return await read_events(key, after=after, **options)

    monkeypatch.setattr(store, "read_events", read_and_see)
    [last] = (await client.list_tasks(ListTasksRequest(page_size=1))).tasks
    assert (last.id, last.status) == ("long.3", cancelled.status)
    began = stored.generation.began
    assert afters == ([stored.seq - 1, began] if tail == 1 else [began])
    listed = await client.list_tasks(ListTasksRequest())
    assert [task.status for task in listed.tasks] == [
        (await client.get_task(GetTaskRequest(id=f"long.{n}"))).status for n in (3, 2, 1)
    ]


async def test_owners_see_only_their_own(server: HTTPServer, client: Client) -> None:
    task = await send(client, "hello", context_id="mine")
    async with connected(server, "JSONRPC", "admin", streaming=False) as other:
        with pytest.raises(TaskNotFoundError):
            await other.get_task(GetTaskRequest(id=task.id))
        with pytest.raises(TaskNotFoundError):
            await other.cancel_task(CancelTaskRequest(id=task.id))
        assert not (await other.list_tasks(ListTasksRequest())).tasks
        theirs = await send(other, "theirs", context_id="mine")
        assert (theirs.id, answers(theirs)) == ("mine.1", ["you said: theirs"])
    assert await client.get_task(GetTaskRequest(id=task.id)) == task


async def read(stream: AsyncIterator[StreamResponse]) -> list[tuple[str, Any]]:
    """The events of a stream: their kind, and the state or the artifact's text."""
    seen: list[tuple[str, Any]] = []
    async for event in stream:
        match event.WhichOneof("payload"):
            case "task":
                seen.append(("task", event.task.status.state))
            case "status_update":
                seen.append(("status", event.status_update.status.state))
            case "artifact_update":
                seen.append(("artifact", get_artifact_text(event.artifact_update.artifact)))
    return seen


async def test_a_stream_begins_with_the_task_and_ends_with_it(streaming: Client, gate: Gate) -> None:
    stream = streaming.send_message(message("dig", context_id="c"))
    first = await anext(stream)
    assert (first.task.id, first.task.status.state) == ("c.1", WORKING)
    gate.opened.set()
    seen = await read(stream)
    assert seen[-2:] == [("artifact", "SUCCESS: dug"), ("status", DONE)]
    assert set(seen[:-2]) == {("status", WORKING)}
    again = streaming.send_message(message("ask", context_id="c"))
    seen = await read(again)
    assert seen[0][0] == "task"
    assert seen[-1][1] == ASKS


def closable(stream: AsyncIterator[StreamResponse]) -> AsyncGenerator[StreamResponse]:
    return cast("AsyncGenerator[StreamResponse]", stream)


async def test_a_stream_is_resumed_without_loss(streaming: Client, gate: Gate) -> None:
    stream = closable(streaming.send_message(message("dig", context_id="c")))
    await anext(stream)
    await gate.begun.wait()
    await stream.aclose()
    async with AsyncExitStack() as open_streams:
        resumed = [closable(streaming.subscribe(SubscribeToTaskRequest(id="c.1"))) for _ in range(2)]
        for each in resumed:
            open_streams.push_async_callback(each.aclose)
            assert (await anext(each)).task.status.state == WORKING
        gate.opened.set()
        for each in resumed:
            assert (await read(each))[-2:] == [("artifact", "SUCCESS: dug"), ("status", DONE)]
    with pytest.raises(UnsupportedOperationError):
        await read(streaming.subscribe(SubscribeToTaskRequest(id="c.1")))
    with pytest.raises(TaskNotFoundError):
        await read(streaming.subscribe(SubscribeToTaskRequest(id="nothing.1")))


async def test_a_subscription_to_a_task_that_was_paused_before(streaming: Client, gate: Gate) -> None:
    await read(streaming.send_message(message("ask", context_id="c")))
    stream = streaming.subscribe(SubscribeToTaskRequest(id="c.1"))
    assert await read(stream) == [("task", ASKS)]
    stream = streaming.send_message(message("Berne", task_id="c.1"))
    assert (await read(stream))[-1][1] in (DONE, "Berne")
    task = await streaming.get_task(GetTaskRequest(id="c.1"))
    assert (task.status.state, answers(task)) == (DONE, ["Berne"])


async def test_the_cards(server: HTTPServer, client: Client) -> None:
    card = (await server.client.get("/.well-known/agent-card.json", headers={"Authorization": ""})).json()
    assert (card["name"], card["description"], card["version"]) == (
        "example",
        "It works.",
        server.rig.swarm.version,
    )
    assert [skill["id"] for skill in card["skills"]] == ["desk"]
    assert card["skills"][0]["tags"] == ["digging", "paying"]
    assert {each["url"] for each in card["supportedInterfaces"]} == {f"{server.uvicorn.url}/a2a"}
    extended = await client.get_extended_agent_card(GetExtendedAgentCardRequest())
    assert [(skill.id, skill.description) for skill in extended.skills] == [
        ("desk", "It works."),
        ("task", "The annex."),
    ]


async def test_who_may_call(server: HTTPServer) -> None:
    post = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}}
    for role, status in (("user", 200), ("admin", 200), ("agent", 403)):
        headers = {**server.headers(role), "A2A-Version": "1.0"}
        assert (await server.client.post("/a2a", json=post, headers=headers)).status_code == status
    assert (await server.client.post("/a2a", json=post, headers={"Authorization": ""})).status_code == 401
    assert (await server.client.get("/a2a/tasks", headers={"Authorization": ""})).status_code == 401


async def test_versions_are_negotiated(server: HTTPServer) -> None:
    async def code(**headers: str) -> int | None:
        post = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}}
        answer = (await server.client.post("/a2a", json=post, headers=headers)).json()
        return answer.get("error", {}).get("code")

    assert await code(**{"A2A-Version": "1.0"}) is None
    assert await code(**{"A2A-Version": "1.0.1"}) is None
    assert await code(**{"A2A-Version": "2.0"}) == -32009
    assert await code() == -32009  # it is 0.3, which has no such method
    answer = await server.client.get("/a2a/tasks?A2A-Version=1.0")
    assert (answer.status_code, answer.json()["tasks"]) == (200, [])
    assert (await server.client.get("/a2a/nothing")).status_code == 404


@pytest.mark.parametrize("path", ["/a2a", "/a2a/v1/message:send"])
async def test_a_client_of_0_3_is_answered(server: HTTPServer, path: str) -> None:
    said = {"messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "hello"}], "kind": "message"}
    if path == "/a2a":
        post = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": said}}
        task = (await server.client.post(path, json=post)).json()["result"]
        assert (task["status"]["state"], task["artifacts"][0]["parts"][0]["text"]) == (
            "completed",
            "you said: hello",
        )
        return
    said = {"messageId": "m", "role": "ROLE_USER", "content": [{"text": "hello"}]}
    task = (await server.client.post(path, json={"request": said})).json()["task"]
    assert (task["status"]["state"], task["artifacts"][0]["parts"][0]["text"]) == (
        "TASK_STATE_COMPLETED",
        "you said: hello",
    )


async def test_limits_are_http_statuses(gate: Gate) -> None:
    async with HTTPServer(desk_swarm(gate), max_body_bytes=600) as server:
        server.rig.runtime.caller_files.max_bytes = 300
        post = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {"x": "y" * 1000}}
        assert (await server.client.post("/a2a", json=post)).status_code == 413


async def test_a_server_without_the_sdk_says_so(server: HTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mail.http.service.find_spec", lambda _name: None)
    for answer in (
        await server.client.get("/.well-known/agent-card.json"),
        await server.client.post("/a2a", json={}),
    ):
        assert answer.status_code == 501
        assert "pip install 'mail-serverless[a2a]'" in answer.json()["detail"]


async def test_an_unexpected_error_is_logged_and_not_shown(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: object) -> None:
        raise RuntimeError("a secret")

    monkeypatch.setattr(handler, "list_tasks", fail)
    with pytest.raises(InternalError) as error:
        await client.list_tasks(ListTasksRequest())
    assert "secret" not in str(error.value)
    assert "a secret" in caplog.text


async def test_a_server_without_webhooks_refuses_push_notifications(client: Client) -> None:
    request = message("hello")
    request.configuration.task_push_notification_config.url = "https://example.com"
    with pytest.raises(PushNotificationNotSupportedError):
        await sent(client, request)
    with pytest.raises(PushNotificationNotSupportedError):
        await client.list_task_push_notification_configs(
            ListTaskPushNotificationConfigsRequest(task_id="c.1")
        )


@pytest.fixture
def receiver(server: HTTPServer, receiver: WebhookReceiver) -> WebhookReceiver:
    """A receiver of push notifications, which the server may call."""
    server.send_webhooks(retry_seconds=(0.05,))
    return receiver


def pushed(got: Sequence[Got]) -> list[tuple[str, str, TaskState]]:
    """What was pushed of which task."""
    updates = [each.json["statusUpdate"] for each in got]
    return [(each["taskId"], each["contextId"], TaskState.Value(each["status"]["state"])) for each in updates]


async def test_the_end_of_a_task_is_pushed(
    server: HTTPServer, client: Client, receiver: WebhookReceiver
) -> None:
    card = (await server.client.get("/.well-known/agent-card.json")).json()
    assert card["capabilities"]["pushNotifications"] is True
    request = message("ask", context_id="c")
    config = request.configuration.task_push_notification_config
    config.url, config.token = receiver.url, "mine"
    config.authentication.CopyFrom(AuthenticationInfo(scheme="Bearer", credentials="secret"))
    assert (await sent(client, request)).status.state == ASKS
    [shown] = (
        await client.list_task_push_notification_configs(
            ListTaskPushNotificationConfigsRequest(task_id="c.1")
        )
    ).configs
    assert (shown.url, shown.task_id, shown.authentication.scheme) == (receiver.url, "c.1", "Bearer")
    assert (shown.token, shown.authentication.credentials) == ("", "")
    assert (await send(client, "Berne", task_id="c.1")).status.state == DONE
    assert (await send(client, "another", context_id="c")).id == "c.2"
    await server.rig.workers.idle()
    got = receiver.got
    assert pushed(got) in ([("c.1", "c", ASKS), ("c.1", "c", DONE)], [("c.1", "c", DONE)])
    assert {each.headers["authorization"] for each in got} == {"Bearer secret"}
    assert {each.headers["x-a2a-notification-token"] for each in got} == {"mine"}
    assert {each.headers["content-type"] for each in got} == {"application/a2a+json"}


async def test_a_cancelled_task_is_pushed_once(
    server: HTTPServer, client: Client, gate: Gate, receiver: WebhookReceiver
) -> None:
    assert (await sent(client, at_once("dig", context_id="c"))).status.state == WORKING
    await gate.begun.wait()
    for config_id in ("a", "b"):
        config = TaskPushNotificationConfig(id=config_id, task_id="c.1", url=f"{receiver.url}?{config_id}")
        made = await client.create_task_push_notification_config(config)
        found = GetTaskPushNotificationConfigRequest(id=config_id, task_id="c.1")
        assert made == config == await client.get_task_push_notification_config(found)
    gone = DeleteTaskPushNotificationConfigRequest(id="b", task_id="c.1")
    await client.delete_task_push_notification_config(gone)
    with pytest.raises(TaskNotFoundError):
        await client.get_task_push_notification_config(
            GetTaskPushNotificationConfigRequest(id="b", task_id="c.1")
        )
    await client.cancel_task(CancelTaskRequest(id="c.1"))
    await asyncio.to_thread(receiver.wait_for, 1)
    gate.opened.set()
    await server.rig.workers.idle()
    assert pushed(receiver.got) == [("c.1", "c", CANCELED)]
    assert receiver.got[0].path == "/hook?a"


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": "ftp://example.com"},
        {"url": "https://127.0.0.1/hook"},
        {"token": "a\nb"},
        {"id": "ü"},
        {"task_id": "c.2"},
    ],
    ids=str,
)
async def test_a_config_that_can_not_be_served_is_refused(
    server: HTTPServer, client: Client, receiver: WebhookReceiver, wrong: dict[str, str]
) -> None:
    server.rig.runtime.webhooks.allow_private = False  # type: ignore[union-attr]
    await send(client, "hello", context_id="c")
    given = {"id": "a", "task_id": "c.1", "url": "https://example.com/hook", **wrong}
    with pytest.raises(A2AError):
        await client.create_task_push_notification_config(TaskPushNotificationConfig(**given))
    others = ListTaskPushNotificationConfigsRequest(task_id="c.1")
    assert not (await client.list_task_push_notification_configs(others)).configs


async def test_configs_of_another_caller_are_not_found(
    server: HTTPServer, client: Client, receiver: WebhookReceiver
) -> None:
    await send(client, "hello", context_id="c")
    async with connected(server, "JSONRPC", "admin", streaming=False) as other:
        with pytest.raises(TaskNotFoundError):
            await other.create_task_push_notification_config(
                TaskPushNotificationConfig(task_id="c.1", url=receiver.url)
            )


async def test_a_card_is_signed(tmp_path: Path) -> None:
    key = generate_private_key(SECP256R1())
    file = tmp_path / "key.pem"
    file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    kids: list[str | None] = []

    def find_key(kid: str | None, _url: str | None) -> bytes:
        kids.append(kid)
        return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    verify = create_signature_verifier(find_key, ["ES256"])
    async with HTTPServer(desk_swarm(), card_key=str(file)) as server:
        async with httpx.AsyncClient() as connection:
            card = await A2ACardResolver(connection, server.uvicorn.url).get_agent_card(
                signature_verifier=verify
            )
        card.signatures[0].signature = card.signatures[0].signature[::-1]
        with pytest.raises(InvalidSignaturesError):
            verify(card)
        async with connected(server, "JSONRPC") as client:
            verify(await client.get_extended_agent_card(GetExtendedAgentCardRequest()))
    assert len(set(kids)) == 1
    assert kids[0]


@pytest.mark.parametrize("content", ["", "no key"])
async def test_a_key_that_is_none_is_an_error(tmp_path: Path, content: str) -> None:
    file = tmp_path / "key.pem"
    file.write_text(content)
    async with HTTPServer(desk_swarm(), card_key=str(file)) as server:
        answer = await server.client.get("/.well-known/agent-card.json")
    assert (answer.status_code, answer.json()) == (500, {"detail": "internal error"})
