"""The function behind the function URL: a server that the Lambda Web Adapter passes requests on to, and
streams from.
"""

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from function_stage import Stage

from mail.adapters.aws.documents import DynamoDBDocuments
from mail.core.task.documents import Kind
from mail.core.task.stored import read_permits
from mail.local_aws.processes import LOOPBACK, KeptProcess, free_port, listens, system_environment

TIMEOUT = 60.0
LIFE = 900.0
"""Seconds that an invocation may take."""

STREAM_SECONDS = 2
"""Seconds after which a stream ends that can be resumed."""


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the server has written."""
    return tmp_path_factory.mktemp("stream") / "log"


@pytest.fixture(scope="module")
def url(stage: Stage, log: Path) -> Iterator[str]:
    """The server, as `layers/run.sh` starts it."""
    function = stage.function("stream")
    port = free_port()
    server = ("-m", "uvicorn", "handlers.stream:app", "--host", LOOPBACK, "--port", str(port))
    path = ":".join(map(str, (function.root, *function.interpreter.path)))
    with log.open("wb") as output:
        process = KeptProcess(
            [str(function.interpreter.python), *server],
            env={
                **system_environment(),
                **stage.variables("stream"),
                "MAIL_STREAM_SECONDS": str(STREAM_SECONDS),
                "PYTHONPATH": path,
            },
            cwd=function.root,
            output=output,
        )
    with process:
        process.wait_until(lambda: listens(port), seconds=TIMEOUT, name="uvicorn")
        yield f"http://{LOOPBACK}:{port}"


def passed_on(event: dict[str, Any], url: str, *, life: float = LIFE, **fields: Any) -> dict[str, Any]:
    """The request that the adapter makes of an event; some fields of its body may be others."""
    context = {"request_id": event["requestContext"]["requestId"], "deadline": (time.time() + life) * 1000}
    return {
        "method": event["requestContext"]["http"]["method"],
        "url": f"{url}{event['rawPath']}?{event['rawQueryString']}",
        "headers": {
            **{name: value for name, value in event["headers"].items() if name != "content-length"},
            "x-amzn-lambda-context": json.dumps(context),
            "x-amzn-request-context": json.dumps(event["requestContext"]),
        },
        "content": json.dumps({**json.loads(event["body"]), **fields}),
        "timeout": TIMEOUT,
    }


def open_streams(stage: Stage) -> int:
    """How many streams the caller of the sample event has open, by the table."""
    documents = DynamoDBDocuments(stage.table.client, stage.table.table)
    caller = "streams/user:alice"
    found = asyncio.run(documents.get(Kind.PERMITS, caller))
    return (
        0
        if found is None
        else sum(each.calls for each in read_permits(found.fields["record"]).running.values())
    )


def test_a_message_is_streamed_to_its_answer(stage: Stage, url: str) -> None:
    assert open_streams(stage) == 0
    with httpx2.stream(**passed_on(stage.event("stream"), url)) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = response.iter_lines()
        assert next(line for line in lines if line.startswith("event: "))
        assert open_streams(stage) == 1, "for all functions"
        stage.work_off()
        rest = list(lines)
    assert open_streams(stage) == 0
    assert "event: task_complete" in rest
    assert "1024" in rest[-2] + rest[-3]


def test_a_stream_ends_before_its_function_does(stage: Stage, url: str) -> None:
    """Its reader reconnects by itself, as browsers do."""
    with httpx2.stream(**passed_on(stage.event("stream"), url, life=5, task_id="continued")) as response:
        lines = list(response.iter_lines())
    assert "event: ping" not in lines, "it went on for longer than fifteen seconds of silence"
    assert "event: task_complete" not in lines
    last = max(int(line.removeprefix("id: ")) for line in lines if line.startswith("id: "))
    stage.work_off()
    query = {"task_id": "continued", "last_event_id": str(last)}
    headers = {"authorization": stage.event("stream")["headers"]["authorization"]}
    rest = httpx2.get(f"{url}/task/stream", params=query, headers=headers, timeout=TIMEOUT)
    assert "event: task_complete" in rest.text
    assert f"id: {last + 1}\n" in rest.text.replace("\r\n", "\n")


def test_a_stream_that_can_be_resumed_ends_long_before_its_function(stage: Stage, url: str) -> None:
    assert httpx2.request(
        **passed_on(stage.event("stream"), url, life=5, task_id="quiet", stream=False)
    ).is_success
    headers = {"authorization": stage.event("stream")["headers"]["authorization"]}
    read = httpx2.get(f"{url}/task/stream", params={"task_id": "quiet"}, headers=headers, timeout=TIMEOUT)
    assert "event: new_message" in read.text
    assert "event: task_complete" not in read.text
    stage.work_off()


def test_a_message_is_answered_where_nothing_is_streamed(stage: Stage, url: str) -> None:
    request = passed_on(stage.event("stream"), url, life=5, task_id="plain", stream=False)
    response = httpx2.request(**request)
    assert response.status_code == 202
    stage.work_off()
    assert stage.load("plain").is_running is False


def test_a_request_is_a_line_of_its_log(stage: Stage, url: str, log: Path) -> None:
    request = passed_on(stage.event("stream"), url, task_id="in the log", stream=False, life=5)
    assert httpx2.request(**request).status_code == 202
    stage.work_off()
    lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    said = [line for line in lines if line.get("task_id") == "in the log"]
    assert [line["message"] for line in said] == ["task begun", "request"]
    request_id = stage.event("stream")["requestContext"]["requestId"]
    assert {line["function_request_id"] for line in said} == {request_id}


def test_the_adapter_sees_that_it_is_ready(url: str) -> None:
    assert httpx2.get(f"{url}/", timeout=TIMEOUT).status_code == 200


def test_live_events_of_the_turn_function_are_streamed(stage: Stage, url: str) -> None:
    request = passed_on(stage.event("stream"), url, task_id="live", live=True)
    with httpx2.stream(**request) as response:
        lines = response.iter_lines()
        assert next(line for line in lines if line.startswith("event: "))
        stage.work_off()
        rest = list(lines)
    assert {"event: action_started", "event: action_ended", "event: task_complete"} <= set(rest)


def test_a_call_of_mcp_is_answered(stage: Stage, url: str) -> None:
    """Where the SDK is deployed, as from `requirements/swarm.txt`; the functions for HTTP are built without it."""
    event = stage.event("stream")
    headers = {
        "authorization": event["headers"]["authorization"],
        "accept": "application/json, text/event-stream",
    }

    def post(method: str, **params: Any) -> httpx2.Response:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return httpx2.post(f"{url}/mcp", json=message, headers=headers, timeout=TIMEOUT)

    if stage.code != "source":
        assert post("tools/list").status_code == 501
        return
    asked = {"message": json.loads(event["body"])["body"]}
    begun = _result(post("tools/call", name="ask", arguments=asked))
    assert begun["structuredContent"]["status"] == "running"
    task_id = begun["structuredContent"]["task_id"]
    ended = _result(post("tools/call", name="cancel", arguments={"task_id": task_id}))
    assert ended["structuredContent"] == {"task_id": task_id, "status": "cancelled"}


def _result(response: httpx2.Response) -> dict[str, Any]:
    """The result in an answer of MCP, which is a stream."""
    assert response.status_code == 200
    [line] = [line for line in response.text.splitlines() if line.startswith("data: {")]
    result: dict[str, Any] = json.loads(line.removeprefix("data: "))["result"]
    return result


def test_a_message_of_a2a_is_streamed_to_its_answer(stage: Stage, url: str) -> None:
    """Where the SDK is deployed, as from `requirements/swarm.txt`; it is not part of what is built by default."""
    event = stage.event("stream")
    headers = {"authorization": event["headers"]["authorization"], "A2A-Version": "1.0"}
    if stage.code != "source":
        assert httpx2.get(f"{url}/.well-known/agent-card.json", timeout=TIMEOUT).status_code == 501
        return
    card = httpx2.get(f"{url}/.well-known/agent-card.json", timeout=TIMEOUT).json()
    assert card["name"] == "example-no-proxy"
    asked = json.loads(event["body"])["body"]
    message = {"messageId": "m", "contextId": "by-a2a", "role": "ROLE_USER", "parts": [{"text": asked}]}
    send = {"method": "POST", "url": f"{url}/a2a/message:stream", "headers": headers, "timeout": TIMEOUT}
    with httpx2.stream(**send, json={"message": message}) as response:
        assert response.status_code == 200
        told = (
            json.loads(line.removeprefix("data: "))
            for line in response.iter_lines()
            if line.startswith("data: ")
        )
        first = next(told)
        assert (first["task"]["id"], first["task"]["status"]["state"]) == ("by-a2a.1", "TASK_STATE_WORKING")
        assert open_streams(stage) == 1
        stage.work_off()
        *_, artifact, status = told
    assert open_streams(stage) == 0
    assert "1024" in artifact["artifactUpdate"]["artifact"]["parts"][0]["text"]
    assert status["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    task = httpx2.get(f"{url}/a2a/tasks/by-a2a.1", headers=headers, timeout=TIMEOUT).json()
    assert task["artifacts"] == [artifact["artifactUpdate"]["artifact"]]


def test_a_chat_completion_is_streamed_to_its_answer(stage: Stage, url: str) -> None:
    """With OpenAI's routes, which the function loads with the first request of them."""
    event = stage.event("stream")
    headers = {"authorization": event["headers"]["authorization"]}
    asked = json.loads(event["body"])["body"]
    body = {"model": "example-no-proxy", "messages": [{"role": "user", "content": asked}], "stream": True}
    send = {"method": "POST", "url": f"{url}/v1/chat/completions", "headers": headers, "timeout": TIMEOUT}
    with httpx2.stream(**send, json=body) as response:
        assert response.status_code == 200
        lines = response.iter_lines()
        first = json.loads(next(line for line in lines if line.startswith("data: ")).removeprefix("data: "))
        assert first["choices"][0]["delta"]["role"] == "assistant"
        assert open_streams(stage) == 1
        stage.work_off()
        *chunks, end = (line.removeprefix("data: ") for line in lines if line.startswith("data: "))
    assert open_streams(stage) == 0
    assert end == "[DONE]"
    choices = [json.loads(chunk)["choices"][0] for chunk in chunks]
    assert "1024" in "".join(choice["delta"].get("content") or "" for choice in choices)
    assert choices[-1]["finish_reason"] == "stop"
