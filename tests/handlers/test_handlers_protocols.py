"""The function of A2A, MCP and OpenAI's APIs, behind a URL of its own, with its own role and layer."""

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from function_stage import Stage
from support.services.webhook_receiver import WebhookReceiver
from url_stage import TIMEOUT, open_streams, passed_on, served


@pytest.fixture(scope="module")
def url(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(stage, "protocols", tmp_path_factory.mktemp("protocols") / "log") as address:
        yield address


def test_a_call_of_mcp_is_answered(stage: Stage, url: str) -> None:
    event = stage.event("protocols")
    headers = {
        "authorization": event["headers"]["authorization"],
        "accept": "application/json, text/event-stream",
    }

    def post(method: str, **params: Any) -> httpx2.Response:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return httpx2.post(f"{url}/mcp", json=message, headers=headers, timeout=TIMEOUT)

    asked = {"message": json.loads(event["body"])["input"]}
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
    event = stage.event("protocols")
    headers = {"authorization": event["headers"]["authorization"], "A2A-Version": "1.0"}
    card = httpx2.get(f"{url}/.well-known/agent-card.json", timeout=TIMEOUT).json()
    assert card["name"] == "example-no-proxy"
    asked = json.loads(event["body"])["input"]
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


@pytest.mark.soak
def test_the_end_of_a_task_of_a2a_is_pushed(stage: Stage, url: str) -> None:
    """This function takes the config, and that of deliveries calls the receiver."""
    event = stage.event("protocols")
    headers = {"authorization": event["headers"]["authorization"], "A2A-Version": "1.0"}
    parts = [{"text": json.loads(event["body"])["input"]}]
    with WebhookReceiver() as receiver:
        about = {"scheme": "Bearer", "credentials": "secret"}
        push = {"id": "mine", "url": receiver.url, "token": "token", "authentication": about}
        asked = {
            "message": {"messageId": "p", "contextId": "pushed", "role": "ROLE_USER", "parts": parts},
            "configuration": {"returnImmediately": True, "taskPushNotificationConfig": push},
        }
        sent = httpx2.post(f"{url}/a2a/message:send", json=asked, headers=headers, timeout=TIMEOUT)
        assert sent.status_code == 200, sent.text
        stage.work_off()
        assert receiver.got == []
        for record in stage.deliveries():
            assert stage.invoke("outbound", {"Records": [record]}) == {"batchItemFailures": []}
            stage.delete(record)
        (got,) = receiver.got
    assert got.json["statusUpdate"]["taskId"] == sent.json()["task"]["id"] == "pushed.1"
    assert got.json["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert (got.headers["authorization"], got.headers["x-a2a-notification-token"]) == (
        "Bearer secret",
        "token",
    )
    configs = f"{url}/a2a/tasks/pushed.1/pushNotificationConfigs"
    [kept] = httpx2.get(configs, headers=headers, timeout=TIMEOUT).json()["configs"]
    assert (kept["id"], kept["url"]) == ("mine", receiver.url)
    assert "credentials" not in kept["authentication"]


def test_a_chat_completion_is_streamed_to_its_answer(stage: Stage, url: str) -> None:
    event = stage.event("protocols")
    headers = {"authorization": event["headers"]["authorization"]}
    asked = json.loads(event["body"])["input"]
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


@pytest.mark.soak
def test_a_response_of_openai_is_answered_within_the_time_of_the_function(stage: Stage, url: str) -> None:
    answer = httpx2.request(**passed_on(stage.event("protocols"), url, life=5, stream=False))
    assert answer.json()["status"] == "in_progress"
    stage.work_off()
    headers = {"authorization": stage.event("protocols")["headers"]["authorization"]}
    found = httpx2.get(f"{url}/v1/responses/{answer.json()['id']}", headers=headers, timeout=TIMEOUT).json()
    assert found["status"] == "completed"
    assert "1024" in found["output"][-1]["content"][0]["text"]


def test_the_card_names_the_url_of_the_function(url: str) -> None:
    card = httpx2.get(f"{url}/.well-known/agent-card.json", timeout=TIMEOUT).json()
    assert {each["url"] for each in card["supportedInterfaces"]} == {f"{url}/a2a"}


@pytest.mark.parametrize("path", ["/message", "/tokens", "/tasks", "/swarms/load"])
def test_nothing_else_is_served_here(stage: Stage, url: str, path: str) -> None:
    headers = {"authorization": stage.event("protocols")["headers"]["authorization"]}
    assert httpx2.post(f"{url}{path}", json={}, headers=headers, timeout=TIMEOUT).status_code == 404


def test_a_run_of_ag_ui_is_streamed_to_its_end(stage: Stage, url: str) -> None:
    event = stage.event("protocols")
    message = {"id": "m", "role": "user", "content": json.loads(event["body"])["input"]}
    asked = {
        "threadId": "by-ag-ui",
        "runId": "r",
        "state": {},
        "tools": [],
        "context": [],
        "forwardedProps": {},
    }
    headers = {"authorization": event["headers"]["authorization"], "accept": "text/event-stream"}
    send = {"method": "POST", "url": f"{url}/ag-ui", "headers": headers, "timeout": TIMEOUT}
    with httpx2.stream(**send, json={**asked, "messages": [message]}) as response:
        assert response.status_code == 200
        events = (
            json.loads(line.removeprefix("data: "))
            for line in response.iter_lines()
            if line.startswith("data: ")
        )
        assert next(events)["type"] == "RUN_STARTED"
        stage.work_off()
        rest = list(events)
    assert rest[-1]["type"] == "RUN_FINISHED"
    assert "1024" in "".join(each.get("delta", "") for each in rest if each["type"] == "TEXT_MESSAGE_CONTENT")
