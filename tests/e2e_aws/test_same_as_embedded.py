"""The example swarm answers and works the same on the embedded server and on the deployed shape, side by side."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest
from support.processes.local_aws import LocalAwsProcess, needs_ministack
from support.processes.server import TIMEOUT, ServerProcess
from support.processes.timelines import Event, in_any_order, in_order, read_record

pytestmark = [needs_ministack, pytest.mark.timeout(240)]

Message = dict[str, Any]

RESUME = {"resume_from": "user_response"}
CONVERSATIONS: dict[str, list[Message]] = {
    "one worker": [{"body": "weather in Tokyo"}],
    "another worker": [{"body": "What is 12*(3+4)?"}],
    "nobody": [{"body": "hello"}],
    "an action that fails": [{"body": "10/0"}],
    "an action that refuses": [{"body": "weather in Tokyo in 99 days"}],
    "an interrupt": [{"body": "urgent: weather in Rome"}],
    "a broadcast": [{"body": "announce: lunch is ready"}],
    "a breakpoint": [
        {"body": "ask a human: may I?"},
        {
            "resume_from": "breakpoint_tool_call",
            "kwargs": {"breakpoint_tool_call_result": {"content": "yes, you may"}},
        },
    ],
    "a task that is resumed": [{"body": "weather in Tokyo"}, {"body": "and 2+2", **RESUME}],
    "an entrypoint of one's own": [{"body": "hello", "entrypoint": "nobody"}],
    "too few steps": [{"body": "weather in Tokyo", "kwargs": {"max_steps": 1}}],
    "letters of every kind": [{"body": "ask a human: ‘naïve’ 中文 🦊 </body> ]]> \\u0000?"}],
    "two workers at once": [{"body": "weather in Tokyo and 12*(3+4)"}],
}
AT_ONCE = {"two workers at once", "a broadcast"}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, LocalAwsProcess]]:
    """Both, with the same swarm."""
    with (
        ServerProcess(tmp_path_factory.mktemp("embedded")) as embedded,
        LocalAwsProcess(tmp_path_factory.mktemp("deployed")) as deployed,
    ):
        yield embedded, deployed


def converse(server: ServerProcess, task_id: str, messages: list[Message]) -> tuple[list[Any], list[Event]]:
    """Send the messages, one after the other's answer; returns the answers, and the task's events."""
    with server.client() as client:
        answers = []
        for message in messages:
            response = client.post("/message", json={"task_id": task_id, "show_events": True, **message})
            body = response.json()
            answers.append((response.status_code, body.get("response", body), len(body.get("events") or ())))
        record = client.get("/task", params={"task_id": task_id})
    return answers, read_record(record.json()) if record.status_code == 200 else []


@pytest.mark.soak(on="two workers at once")
@pytest.mark.parametrize("name", CONVERSATIONS)
def test_events_and_answers_are_the_same(servers: tuple[ServerProcess, LocalAwsProcess], name: str) -> None:
    embedded, deployed = (converse(server, f"same {name}", CONVERSATIONS[name]) for server in servers)
    view: Callable[[list[Event]], list[Any]] = in_any_order if name in AT_ONCE else in_order
    assert deployed[0] == embedded[0]
    assert view(deployed[1]) == view(embedded[1])


def test_streams_are_the_same(servers: tuple[ServerProcess, LocalAwsProcess]) -> None:
    """The function URL streams what the embedded server does, event by event, and a stream can be joined again."""
    embedded, deployed = servers
    message = {"body": "weather in Paris tomorrow", "stream": True, "task_id": "streamed"}
    streams = []
    for server, url in ((embedded, embedded.url), (deployed, deployed.stream_url)):
        with server.client() as client:
            first = read_stream(client, "POST", f"{url}/message", json=message)
            path = f"{url}/task/stream?task_id=streamed"
            again = read_stream(client, "GET", path, headers={"Last-Event-ID": "3"})
        assert again == first[3:]
        streams.append(in_order([(kind, data) for _, kind, data in first]))
    assert streams[0] == streams[1]


def test_what_is_asked_wrongly_is_answered_the_same(servers: tuple[ServerProcess, LocalAwsProcess]) -> None:
    requests: list[tuple[str, str, dict[str, Any]]] = [
        ("GET", "/whoami", {}),
        ("GET", "/whoami", {"headers": {"Authorization": "Bearer wrong"}}),
        ("GET", "/whoami", {"headers": {"Authorization": ""}}),
        ("POST", "/message", {"json": {}}),
        ("POST", "/message", {"json": {"body": 7}}),
        ("POST", "/message", {"content": b"{", "headers": {"Content-Type": "application/json"}}),
        ("POST", "/message", {"content": b"\xff\xfe", "headers": {"Content-Type": "application/json"}}),
        ("GET", "/task", {"params": {"task_id": "never seen"}}),
        ("GET", "/task", {"params": {"task_id": "a/b c?d=é"}}),
        ("GET", "/tasks", {"params": {"limit": "0"}}),
        ("POST", "/health", {"json": {"status": "fine"}}),
    ]
    for method, path, arguments in requests:
        answers = []
        for server in servers:
            with server.client() as client:
                response = client.request(method, path, **arguments)
            answers.append((response.status_code, response.headers["content-type"], response.json()))
        assert answers[0] == answers[1], (method, path, arguments)


def test_a_message_can_be_answered_later(servers: tuple[ServerProcess, LocalAwsProcess]) -> None:
    """`Prefer: respond-async`; where to look is a URL of the function that streams."""
    _, deployed = servers
    response = deployed.post("12*(3+4)", headers={"Prefer": "respond-async"})
    assert response.status_code == 202
    with httpx2.stream(
        "GET",
        httpx2.URL(deployed.stream_url).join(response.json()["links"]["stream"]),
        headers={"Authorization": f"Bearer {deployed.tokens['user']}"},
        timeout=TIMEOUT,
    ) as stream:
        assert "12*(3+4) = 84." in stream.read().decode()


def read_stream(client: httpx2.Client, method: str, url: str, **request: Any) -> list[tuple[str, str, Any]]:
    """The (id, kind, data) of each event of a stream, but for pings."""
    with client.stream(method, url, **request) as response:
        assert response.status_code == 200, response.read()
        text = response.read().decode().replace("\r\n", "\n")
    blocks = [
        dict(line.split(": ", 1) for line in block.splitlines()) for block in text.strip().split("\n\n")
    ]
    return [
        (block["id"], block["event"], json.loads(block["data"]))
        for block in blocks
        if block["event"] != "ping"
    ]
