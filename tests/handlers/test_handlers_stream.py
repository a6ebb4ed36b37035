"""The function behind the function URL: a server that the Lambda Web Adapter passes requests on to, and
streams from.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from function_stage import Stage
from url_stage import TIMEOUT, open_streams, passed_on, served


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the server has written."""
    return tmp_path_factory.mktemp("stream") / "log"


@pytest.fixture(scope="module")
def url(stage: Stage, log: Path) -> Iterator[str]:
    with served(stage, "stream", log) as address:
        yield address


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


@pytest.mark.soak
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


@pytest.mark.soak
def test_a_stream_that_can_be_resumed_ends_long_before_its_function(stage: Stage, url: str) -> None:
    assert httpx2.request(
        **passed_on(stage.event("stream"), url, life=5, task_id="quiet", stream=False)
    ).is_success
    headers = {"authorization": stage.event("stream")["headers"]["authorization"]}
    read = httpx2.get(f"{url}/task/stream", params={"task_id": "quiet"}, headers=headers, timeout=TIMEOUT)
    assert "event: new_message" in read.text
    assert "event: task_complete" not in read.text
    stage.work_off()


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
